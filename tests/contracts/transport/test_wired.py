"""One setting, and e-mails go that way: the engine whole, on SQLite, from the payload to the journal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from contracts.transports import Dumped, at_smtp_sink
from doubles.postfix import PASSWORD, USER, Postfix
from doubles.ses import KEY, REGION, SECRET, SesServer
from staffetta import config
from staffetta.app.engine import engine
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Attempt, Email
from staffetta.sink import SinkServer

PAYLOAD = {
    "from": "Shop <sender@shop.example>", "to": ["a@x.example", "b@x.example"], "bcc": ["hidden@x.example"],
    "subject": "Grüße", "body_text": "Hello\n.\nthere", "tags": ["welcome", "campaign:spring"],
}  # fmt: skip


async def sent_by(folder: Path, transport: str, **settings: str) -> tuple[Email, Attempt]:
    """The record of one e-mail and its last attempt, once it is SENT."""
    given = {"STAFFETTA_STORE": f"sqlite:///{folder}/s.db", "STAFFETTA_TRANSPORT": transport, **settings}
    found = config.load(None, {**given, "STAFFETTA_SPOOL__PATH": str(folder / "spool")})
    async with engine(found) as running:
        answer = await running.desk.accept(json.dumps(PAYLOAD).encode(), company_id="acme")
        async with asyncio.timeout(30):
            while True:
                email = await running.store.get(answer.id)
                assert email is not None
                if email.status is Status.SENT:
                    break
                assert email.status is not Status.FAILED, email.reason
                await asyncio.sleep(0.02)
        return email, (await running.store.attempts(answer.id))[-1]


async def test_by_ses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials from the environment, the endpoint from the address, tags from settings and payload."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    async with SesServer() as ses:
        email, attempt = await sent_by(tmp_path, f"ses://{REGION}?endpoint={ses.url}&tags=env:prod#mouth")

    assert (attempt.transport, attempt.committed_at > 0) == ("mouth", True)
    assert email.reason.startswith("200 MessageId ")
    ((recipients, content),) = ses.messages
    assert set(recipients) == {"a@x.example", "b@x.example", "hidden@x.example"}
    assert b"hidden" not in content
    assert ses.requests[0].json["EmailTags"] == [
        {"Name": "env", "Value": "prod"}, {"Name": "welcome", "Value": "true"}, {"Name": "campaign", "Value": "spring"},
    ]  # fmt: skip


async def test_by_a_relay_with_its_own_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with SinkServer(keep=True) as relay:
        url = f"smtp://127.0.0.1:{relay.port}?tls=none&connections=2&messages_per_connection=9&ehlo=me.example"
        _, attempt = await sent_by(tmp_path, url)
    assert attempt.transport == f"127.0.0.1:{relay.port}"
    ((kept, content),) = relay.messages
    assert set(kept.recipients) == {"a@x.example", "b@x.example", "hidden@x.example"}
    assert b"hidden" not in content


@pytest.mark.service
@pytest.mark.xdist_group("relays")
async def test_by_a_postfix_with_tls_and_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relay: Postfix, smtp_sink: tuple[int, Path]
) -> None:
    """The authority is named in the address; nothing else is set."""
    monkeypatch.chdir(tmp_path)
    folder = smtp_sink[1]
    seen = frozenset(path.name for path in folder.iterdir())
    user, password = quote(USER, safe=""), quote(PASSWORD, safe="")
    email, attempt = await sent_by(
        tmp_path, f"smtp://{user}:{password}@127.0.0.1:{relay.port}?ca={relay.authority}#relay"
    )
    assert attempt.transport == "relay"
    assert "queued as" in email.reason
    (arrived,) = await Dumped(at_smtp_sink(0), folder, seen).arrived(1)
    assert set(arrived.recipients) == {"a@x.example", "b@x.example", "hidden@x.example"}
    log = relay.log.read_text(encoding="utf-8")
    assert PASSWORD not in log
