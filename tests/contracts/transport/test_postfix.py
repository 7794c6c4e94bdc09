"""A real Postfix that says no: what it says is understood, and nothing is counted that is not the e-mail's fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doubles.mouth import PATIENT, Mark, hand_over, opened
from doubles.postfix import PASSWORD, USER, Postfix
from staffetta.mail.attempt import spends_no_attempt
from staffetta.mail.message import Reply
from staffetta.mail.verdict import judge
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("relays")]
RIGHT = Credentials(user=USER, password=PASSWORD)


async def answer(relay: Postfix, *, implicit: bool = False, **settings: Any) -> tuple[Reply, int]:
    """What one message brought, and how many marks were made."""
    told = {"timeouts": PATIENT, "ssl_context": relay.trust, **settings}
    transport = SmtpTransport(
        "127.0.0.1", relay.tls_port if implicit else relay.port, implicit_tls=implicit, **told
    )
    mark = Mark()
    async with opened(transport):
        delivery = await hand_over(transport, mark=mark)
    return delivery.replies[0].reply, mark.made


@pytest.mark.parametrize("implicit", [True, False], ids=["smtps", "starttls"])
async def test_a_wrong_password_holds(relay: Postfix, *, implicit: bool) -> None:
    settings: dict[str, Any] = {} if implicit else {"tls": "required"}
    wrong = Credentials(user=USER, password="not-the-password")
    reply, marks = await answer(relay, implicit=implicit, credentials=wrong, **settings)

    assert (reply.stage, reply.code, reply.enhanced) == ("auth", 535, "5.7.8")
    assert (judge(reply).action, judge(reply).label, marks) == ("HOLD", "credentials", 0)
    assert spends_no_attempt(reply, judge(reply))


async def test_without_signing_in_it_relays_nothing(relay: Postfix) -> None:
    reply, marks = await answer(relay, tls="required")

    assert (reply.stage, reply.code) == ("rcpt", 554)
    assert (judge(reply).category, judge(reply).action, marks) == ("CONFIGURATION", "FAIL", 0)


async def test_credentials_on_a_line_in_clear_are_not_said(relay: Postfix) -> None:
    """`tls=none` may be set for this machine; this Postfix offers AUTH only under TLS: it hears no password."""
    reply, marks = await answer(relay, tls="none", credentials=RIGHT)

    assert (reply.stage, reply.name, marks) == ("auth", "auth-absent", 0)
    assert judge(reply).action == "HOLD"


@pytest.mark.parametrize("implicit", [True, False], ids=["smtps", "starttls"])
async def test_a_certificate_of_an_unknown_authority_holds(relay: Postfix, *, implicit: bool) -> None:
    settings: dict[str, Any] = {} if implicit else {"tls": "required"}
    reply, marks = await answer(relay, implicit=implicit, credentials=RIGHT, ssl_context=None, **settings)

    assert (reply.name, marks) == ("tls-certificate", 0)
    assert judge(reply).action == "HOLD"


async def test_its_log_has_no_password(relay: Postfix) -> None:
    await answer(relay, tls="required", credentials=RIGHT)

    assert PASSWORD not in Path(relay.log).read_text(encoding="utf-8")
