"""Who stands between us and the relay learns nothing: no password, no envelope, no content in clear, ever."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import trustme

from doubles.eavesdropper import Change, Eavesdropper, eavesdropping
from doubles.mouth import PATIENT, Mark, hand_over, heard, message, only, opened
from staffetta.mail.attempt import spends_no_attempt
from staffetta.mail.verdict import judge
from staffetta.sink import Rule, Script, SinkServer
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials

SHOP = Credentials(user="shop", password="a-password-nobody-may-hear")
_TOKEN = base64.b64encode(b"\0shop\0a-password-nobody-may-hear")
SECRETS = (
    b"a-password", _TOKEN, base64.b64encode(SHOP.password.encode()), b"AUTH ", b"MAIL FROM", b"RCPT TO", b"DATA",
    b"shop.example", b"Good news",
)  # fmt: skip
"""What must never be heard on the way."""
AUTHORITY = trustme.CA()
NOBODYS = trustme.CA()
"""Trusted by no client of ours."""
DAY = dt.timedelta(days=1)


def trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def showing(
    name: str = "127.0.0.1", *, authority: trustme.CA = AUTHORITY, before: int = -1, after: int = 1
) -> ssl.SSLContext:
    """A server's context with a certificate for that name, valid from and until so many days from now."""
    now = dt.datetime.now(dt.UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, not_before=now + before * DAY, not_after=now + after * DAY).configure_cert(
        context
    )
    return context


def outdated() -> ssl.SSLContext:
    """Speaks nothing newer than TLS 1.1, as one would who forces a downgrade."""
    context = showing()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def cut_after_yes(data: bytes) -> bytes | None:
    return None if data[:2] == b"\x16\x03" else data


@dataclass(frozen=True)
class Attack:
    """What the one in the middle, or a false server, does."""

    event: str
    """What is told of it (one of these); a code where it is the server's own."""
    context: Callable[[], ssl.SSLContext] | None = showing
    rules: tuple[Rule, ...] = ()
    change: Change = field(default=lambda data: data)
    implicit: bool = False
    """The client is set to TLS from the first byte."""
    implicit_server: bool | None = None
    held: bool | None = True
    """Somebody must look at it; else it may pass by itself, and is tried again at no cost. None: either."""
    seconds: float = 20.0


ATTACKS = {
    "starttls-stripped": Attack("tls-absent", change=lambda data: data.replace(b"250-STARTTLS\r\n", b"")),
    "starttls-garbled": Attack("tls-absent", change=lambda data: data.replace(b"STARTTLS", b"XXXXXXXX")),
    "only-helo-known": Attack("tls-absent", rules=(Rule(at="ehlo", every=2, reply="502 5.5.1 what?"),)),
    "454-to-starttls": Attack("454", rules=(Rule(at="starttls", reply="454 4.7.0 not now"),), held=False),
    "502-to-starttls": Attack("502", rules=(Rule(at="starttls", reply="502 5.5.1 not here"),)),
    "bytes-after-220": Attack(
        "tls-handshake",
        change=lambda data: data + b"250-ok\r\n250 AUTH PLAIN\r\n" if data.startswith(b"220 2.0.0") else data,
    ),
    "yes-and-stays-in-clear": Attack(
        "tls-handshake",
        rules=(Rule(at="starttls", raw="220 2.0.0 go\r\n250-ok\r\n250 AUTH PLAIN\r\n", clear=True),),
    ),
    "wrong-name": Attack("tls-certificate", context=lambda: showing("relay.example")),
    "expired": Attack("tls-certificate", context=lambda: showing(before=-9, after=-1)),
    "not-yet-valid": Attack("tls-certificate", context=lambda: showing(before=1, after=9)),
    "self-signed": Attack("tls-certificate", context=lambda: showing(authority=NOBODYS)),
    "downgrade": Attack("tls-handshake|tls-reset", context=outdated, held=None),
    "cut-in-the-handshake": Attack("tls-reset", change=cut_after_yes, held=False),
    "silent-in-the-handshake": Attack(
        "tls-reset", change=lambda data: b"" if data[:2] == b"\x16\x03" else data, held=False, seconds=0.5
    ),
    "garbage-in-the-handshake": Attack(
        "tls-handshake", change=lambda data: b"250 ok\r\n" if data[:2] == b"\x16\x03" else data
    ),
    "smtps-answered-in-clear": Attack("tls-handshake", implicit=True, implicit_server=False),
    "smtps-wrong-name": Attack("tls-certificate", context=lambda: showing("relay.example"), implicit=True),
    "smtps-expired": Attack("tls-certificate", context=lambda: showing(before=-9, after=-1), implicit=True),
}


@contextlib.asynccontextmanager
async def between(attack: Attack) -> AsyncIterator[tuple[SinkServer, Eavesdropper]]:
    script = Script(credentials={SHOP.user: SHOP.password}, rule=attack.rules)
    implicit = attack.implicit if attack.implicit_server is None else attack.implicit_server
    context = attack.context() if attack.context is not None else None
    async with (
        SinkServer(script, ssl_context=context, implicit_tls=implicit, keep=True) as sink,
        eavesdropping(sink.port, attack.change) as spy,
    ):
        yield sink, spy


def client(port: int, **settings: Any) -> SmtpTransport:
    told = {"timeouts": PATIENT, "ehlo_name": "client.example", "ssl_context": trust(), **settings}
    return SmtpTransport("127.0.0.1", port, **told)


def test_there_are_at_least_twelve_attacks() -> None:
    assert len(ATTACKS) >= 12


@pytest.mark.parametrize("credentials", [SHOP, None], ids=["password", "no-password"])
@pytest.mark.parametrize("name", ATTACKS)
async def test_nothing_is_said_in_clear(name: str, credentials: Credentials | None) -> None:
    """And the e-mail is held, or tried again at no cost: never failed for what somebody does to the line."""
    attack = ATTACKS[name]
    timeouts = msgspec.structs.replace(PATIENT, tls=attack.seconds)
    settings: dict[str, Any] = {"implicit_tls": True} if attack.implicit else {"tls": "required"}
    async with between(attack) as (sink, spy):
        async with opened(
            client(spy.port, credentials=credentials, timeouts=timeouts, **settings)
        ) as transport:
            mark = Mark()
            delivery = await hand_over(transport, mark=mark)
            probed = await transport.probe()
        spied = spy.heard

    for secret in SECRETS:
        assert secret not in spied
    for reply in (only(delivery), probed):
        assert (reply.name or str(reply.code)) in attack.event.split("|")
        verdict = judge(reply)
        assert spends_no_attempt(reply, verdict)
        assert attack.held is None or (verdict.action == "HOLD") == attack.held
    assert (mark.made, delivery.committed, sink.messages) == (0, False, [])


@pytest.mark.parametrize("implicit", [True, False], ids=["smtps", "starttls"])
async def test_without_an_attack_all_goes_through_and_nothing_is_heard(*, implicit: bool) -> None:
    settings: dict[str, Any] = {"implicit_tls": True} if implicit else {"tls": "starttls"}
    async with between(Attack("", implicit=implicit)) as (sink, spy):
        async with opened(client(spy.port, credentials=SHOP, **settings)) as transport:
            assert heard(await hand_over(transport)) == [("dot", 250)]
        spied = spy.heard

    assert [content for _, content in sink.messages] == [message()]
    assert not any(secret in spied for secret in SECRETS)
    assert sink.violations == []


async def test_what_was_offered_in_clear_is_forgotten_under_tls() -> None:
    """Who adds AUTH or takes away SIZE before the handshake has gained nothing (RFC 3207 4.2)."""
    seen: list[bytes] = []

    def change(data: bytes) -> bytes:
        seen.append(data)
        return data.replace(b"250-PIPELINING\r\n", b"250-AUTH LOGIN\r\n250-SIZE 1\r\n250-PIPELINING\r\n")

    async with (
        between(Attack("", change=change)) as (sink, spy),
        opened(client(spy.port, credentials=SHOP, tls="required")) as transport,
    ):
        assert heard(await hand_over(transport)) == [("dot", 250)]
    assert any(b"250-PIPELINING" in data for data in seen), "the attack took place"
    assert len(sink.messages) == 1


async def test_a_server_without_auth_inside_holds_and_hears_no_password() -> None:
    async with (
        SinkServer(Script(), ssl_context=showing(), keep=True) as sink,
        opened(client(sink.port, credentials=SHOP, tls="required")) as transport,
    ):
        reply = only(await hand_over(transport))
    assert (reply.stage, reply.name, judge(reply).action) == ("auth", "auth-absent", "HOLD")


async def test_opportunistic_takes_what_it_gets_and_never_with_a_password() -> None:
    """Better than clear text, no shield (RFC 7435): that is what the word says, and no password goes by it."""
    false = showing("elsewhere.example", authority=NOBODYS)
    for attack, encrypted in ((Attack("", context=lambda: false), True), (Attack("", context=None), False)):
        async with between(attack) as (sink, spy):
            async with opened(client(spy.port, tls="opportunistic")) as transport:
                assert heard(await hand_over(transport)) == [("dot", 250)]
            assert (b"MAIL FROM" not in spy.heard) == encrypted
            assert len(sink.messages) == 1
    with pytest.raises(ValueError, match="password"):
        SmtpTransport("relay.example", 25, tls="opportunistic", credentials=SHOP)
