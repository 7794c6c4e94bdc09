"""What the doctor says of a server, and reaching it over TLS and by MySQL's own way of signing in."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from doubles.databases import MariaDb, Server, mariadb
from staffetta.errors import StoreUnavailable, StoreUnusable
from staffetta.store.mysql import MysqlStore, address

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[MariaDb]:
    """A server with a certificate for its address, and the settings of somebody in a hurry."""
    folder = tmp_path_factory.mktemp("secured")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    files = (f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem", f"--ssl-ca={folder}/ca.pem")
    hurry = ("--innodb-flush-log-at-trx-commit=2", "--log-bin=log", "--sync-binlog=0", "--max-connections=12")
    with mariadb(folder / "server", *files, *hurry) as server:
        yield server


def authority_of(server: MariaDb) -> Path:
    return server._folder.parent / "ca.pem"


async def test_the_certificate_is_checked_and_the_line_encrypted(secured: MariaDb) -> None:
    ca = authority_of(secured)
    store = MysqlStore(secured.url(secured.emptied(), more=f"?tls=required&ca={ca}"))
    await store.open()
    try:
        told = [advice.words for advice in await store.examine()]
        assert any("is encrypted" in words for words in told)
    finally:
        await store.close()


async def test_a_certificate_that_nobody_trusts_is_refused(secured: MariaDb) -> None:
    """The driver's own `ssl=True` would have taken it."""
    with pytest.raises((StoreUnusable, StoreUnavailable), match="certificate|not trusted|SSL"):
        await MysqlStore(secured.url(secured.emptied(), more="?tls=required")).open()


async def test_another_hosts_certificate_is_refused(secured: MariaDb) -> None:
    """The right authority, the wrong name."""
    context = address.read(secured.url("x", more=f"?tls=required&ca={authority_of(secured)}")).context()
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_the_doctor_names_every_setting_that_may_lose_mail(secured: MariaDb) -> None:
    store = MysqlStore(secured.url(secured.emptied()))
    await store.open()
    try:
        wrong = {
            advice.words.split(" is ")[0]: advice.remedy for advice in await store.examine() if not advice.ok
        }
    finally:
        await store.close()
    assert {"innodb_flush_log_at_trx_commit", "sync_binlog", "max_connections"} == set(wrong)
    assert all(wrong.values())


async def test_mysqls_own_way_of_signing_in(mysql_server: Server) -> None:
    """caching_sha2_password, at first and from the server's cache, without TLS and without a password in clear."""
    database = mysql_server.emptied()
    mysql_server.ask(
        "CREATE USER IF NOT EXISTS 'sha'@'%' IDENTIFIED WITH caching_sha2_password BY 'p@ss:word/'"
    )
    mysql_server.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO 'sha'@'%'")
    for _ in range(2):
        store = MysqlStore(mysql_server.url(database, user="sha", password="p%40ss%3Aword%2F"))
        await store.open()
        assert store.server.startswith("MySQL")
        await store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://root@host", "name the database"),
        ("mysql://root@host:99999/x", "port"),
        ("mysql://root@host/x?color=red", "color is unknown"),
        ("mysql://root@host/x?tls=maybe", "none or required"),
        ("mysql://root@host/x?ca=/x", "without tls=required"),
        ("mysql://root@host/x?connections=1", "from 3 to 200"),
    ],
)
def test_a_wrong_url_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        address.read(url)


def test_a_password_is_never_shown() -> None:
    told = address.read("mysql://app:hidden-word@host:3306/mail")
    assert "hidden-word" not in f"{told} {told!r}"
