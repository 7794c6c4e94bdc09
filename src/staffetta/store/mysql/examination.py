"""Whether the server is set up to keep what we promise: asked, never changed."""

from __future__ import annotations

from staffetta.store.contract import Advice
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

LOOPBACK = ("127.", "::1", "localhost")
CONNECTIONS_SPARE = 10
_VARIABLES = """
    SHOW GLOBAL VARIABLES WHERE Variable_name IN
        ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', 'max_connections', 'read_only',
         'innodb_doublewrite', 'max_allowed_packet')
"""
_REPLICAS = "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%_status'"
_SECURE = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
PACKET_BYTES = 4 << 20


class Examination:
    _pool: Pool
    _address: Address
    server: str

    async def examine(self) -> list[Advice]:
        async def look(session: Session) -> tuple[dict[str, str], dict[str, str], str]:
            variables = {str(name).lower(): str(value) for name, value in await session.rows(_VARIABLES)}
            replicas = {str(name): str(value) for name, value in await session.rows(_REPLICAS)}
            cipher = await session.rows(_SECURE)
            return variables, replicas, str(cipher[0][1]) if cipher else ""

        variables, replicas, cipher = await self._pool.read(look)
        return [
            Advice(ok=True, words=self.server),
            _durable(variables),
            *_binary_log(variables),
            *_replicas(variables, replicas),
            *_limits(variables, self._address.connections),
            self._line(cipher),
        ]

    def _line(self, cipher: str) -> Advice:
        if cipher:
            return Advice(ok=True, words=f"the connection is encrypted ({cipher}), its certificate checked")
        local = self._address.socket or self._address.host.startswith(LOOPBACK)
        remedy = (
            "" if local else "add ?tls=required to store.url: e-mails and password cross the network in clear"
        )
        return Advice(ok=True, words="the connection is not encrypted", remedy=remedy)


def _durable(variables: dict[str, str]) -> Advice:
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush == "1":
        return Advice(ok=True, words="every commit is synced (innodb_flush_log_at_trx_commit=1)")
    told = f"innodb_flush_log_at_trx_commit is {flush}: a crash loses up to a second of what was accepted and marked"
    return Advice(
        ok=False, words=told, remedy="SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's file"
    )


def _binary_log(variables: dict[str, str]) -> list[Advice]:
    if variables.get("log_bin", "OFF") not in ("ON", "1"):
        return []
    found = []
    if variables.get("sync_binlog") != "1":
        told = f"sync_binlog is {variables.get('sync_binlog')}: after a crash replicas may know less than this server"
        found.append(
            Advice(ok=False, words=told, remedy="SET GLOBAL sync_binlog = 1, and in the server's file")
        )
    if variables.get("binlog_format") == "STATEMENT":
        told = "binlog_format is STATEMENT: READ COMMITTED cannot be written as statements"
        found.append(Advice(ok=False, words=told, remedy="set binlog_format = ROW on the server"))
    return found


def _replicas(variables: dict[str, str], replicas: dict[str, str]) -> list[Advice]:
    if variables.get("read_only") in ("ON", "1"):
        remedy = "name the server that takes writes in store.url"
        return [Advice(ok=False, words="this server is read-only", remedy=remedy)]
    if variables.get("log_bin") in ("ON", "1") and "ON" not in replicas.values():
        remedy = "where you fail over to a replica, make it semi-synchronous: see docs/guides/mysql.md"
        return [Advice(ok=True, words="no replica confirms what is committed", remedy=remedy)]
    return []


def _limits(variables: dict[str, str], connections: int) -> list[Advice]:
    found = []
    most = int(variables.get("max_connections", "151"))
    if most < connections + CONNECTIONS_SPARE:
        told = f"max_connections is {most}, and one process may open {connections}"
        found.append(
            Advice(ok=False, words=told, remedy="raise max_connections, or lower connections in store.url")
        )
    if int(variables.get("max_allowed_packet", PACKET_BYTES)) < PACKET_BYTES:
        told = f"max_allowed_packet is {variables['max_allowed_packet']}: a payload and its message may not fit"
        found.append(Advice(ok=False, words=told, remedy=f"SET GLOBAL max_allowed_packet = {PACKET_BYTES}"))
    return found
