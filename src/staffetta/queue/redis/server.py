"""One connection to the server that holds the queue, found anew each time: a Cluster's or Sentinels' master may move.

Nothing beneath repeats a command by itself: whether it is safe to, only the moves know. RESP2, no notifications.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from staffetta.queue.redis.address import Address

PREFIX = "{email:send}"
Command: TypeAlias = tuple[Any, ...]
AWAY = (OSError, TimeoutError, asyncio.IncompleteReadError, BusyLoadingError, ReadOnlyError, ClusterDownError,
        MasterDownError, MovedError)  # fmt: skip
"""Another connection, perhaps to another server, may do better."""
REFUSED = (AuthenticationError, AuthenticationWrongNumberOfArgsError)

__all__ = ["AWAY", "PREFIX", "Command", "OutOfMemoryError", "RedisError", "ResponseError", "Server", "find"]


class Server:
    """One connection. Who uses it asks one thing at a time."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def ask(self, *command: Any) -> Any:
        """The answer; an error as exception."""
        (answer,) = await self.ask_all([command])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """All in one round trip: an answer or an error for each. A connection that fails raises."""
        connection = self._connection
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(await connection.read_response())
            except ResponseError as error:
                answers.append(error)
        return answers

    async def wait_for(self, key: str, seconds: float) -> Any:
        """Block until something is pushed to `key`."""
        connection = self._connection
        await connection.send_packed_command(connection.pack_command("BLPOP", key, seconds), check_health=False)
        return await connection.read_response(timeout=seconds + 5.0)

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await self._connection.disconnect(nowait=True)


async def find(address: Address, *, client_name: str) -> Server:
    """Connect to the server that holds the queue's slot, as the one that may write."""
    if address.kind == "server":
        return await _connected(address, *address.hosts[0], client_name=client_name)
    failed: Exception | None = None
    for host, port in address.hosts:
        try:
            if address.kind == "cluster":
                named = await _ask_cluster(address, host, port)
            else:
                named = await _ask_sentinel(address, host, port)
            return await _connected(address, *named, client_name=client_name)
        except (*AWAY, RedisError) as error:
            failed = error
    assert failed is not None, "an address names at least one host"
    raise failed


async def _connected(address: Address, host: str, port: int, *, client_name: str) -> Server:
    server = await _open(
        address,
        host,
        port,
        db=address.db,
        username=address.username,
        password=address.password,
        name=client_name,
    )
    try:
        role = await server.ask("ROLE")
    except ResponseError:
        return server  # Not allowed to ask: a replica will say so at the first move.
    if _text(role[0]) != "master":
        await server.close()
        raise ReadOnlyError(f"{host}:{port} is a replica")
    return server


async def _open(
    address: Address,
    host: str,
    port: int,
    *,
    db: int = 0,
    username: str | None = None,
    password: str | None = None,
    name: str | None = None,
) -> Server:
    settings: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": db,
        "username": username,
        "password": password,
        "client_name": name,
        "protocol": 2,
        "socket_timeout": address.timeout_seconds,
        "socket_connect_timeout": address.timeout_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "maint_notifications_config": None,
        "driver_info": None,
    }
    if address.tls:
        settings |= {"ssl_ca_certs": address.ca, "ssl_certfile": address.cert, "ssl_keyfile": address.key}
        connection: Connection = SSLConnection(**settings)
    else:
        connection = Connection(**settings)
    await connection.connect()  # type: ignore[no-untyped-call]  # the driver leaves it untyped
    return Server(connection, f"{host}:{port}")


async def _ask_cluster(address: Address, host: str, port: int) -> tuple[str, int]:
    """Who serves the one slot in which all our keys are."""
    seed = await _open(address, host, port, username=address.username, password=address.password)
    try:
        slot = key_slot(PREFIX.encode())
        for row in await seed.ask("CLUSTER", "SLOTS"):
            if row[0] <= slot <= row[1]:
                return _text(row[2][0]) or host, int(row[2][1])
    finally:
        await seed.close()
    raise ClusterDownError(f"no master serves slot {slot}")


async def _ask_sentinel(address: Address, host: str, port: int) -> tuple[str, int]:
    sentinel = await _open(
        address, host, port, username=address.sentinel_username, password=address.sentinel_password
    )
    try:
        named = await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
    finally:
        await sentinel.close()
    if not named:
        raise MasterDownError(f"the Sentinel at {host}:{port} knows no master named {address.service}")
    return _text(named[0]), int(named[1])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
