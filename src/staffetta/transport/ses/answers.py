"""What SES answered, as replies: an error by its name, whatever wraps it; a lost answer by how far it had come."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from staffetta.errors import NoAnswer
from staffetta.http import Answer
from staffetta.mail.message import Reply

_EVENTS = {
    # kinds of `NoAnswer` before the request left -> the event
    "refused": "refused",
    "unreachable": "unreachable",
    "dns": "dns-temporary",
    "tls": "tls-handshake",
    "timeout": "connect-timeout",
    "protocol": "protocol",
    "address": "dns-notfound",
}
_LOST = {"timeout": "timeout", "protocol": "protocol"}
"""And after it: all of them leave open whether SES has the message."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{2,79}")
_XML = re.compile(r"<Code>([A-Za-z0-9_.]{3,80})</Code>(?:\s{0,20}<Message>([^<]{0,2000})</Message>)?")
_SEEN_BYTES = 4_096


def none_came(error: NoAnswer, *, committed: bool) -> Reply:
    name = _LOST.get(error.kind, "reset") if committed else _EVENTS.get(error.kind, "reset")
    return Reply(stage="request", name=name, text=str(error), committed=committed)


def to_sending(answer: Answer) -> Reply:
    """The reply to `SendEmail`."""
    if not 200 <= answer.status < 300:
        return _refusal(answer, committed=True)
    said = _object(answer.body)
    number = said.get("MessageId")
    if not isinstance(number, str):
        # A yes that is not SES's own (a proxy's page, say): nobody can tell whether SES has the message.
        text = f"{answer.status} without a MessageId is no answer of SES: {_shown(answer.body)[:200]}"
        return Reply(stage="request", name="protocol", text=text, committed=True)
    return Reply(stage="request", code=answer.status, text=f"MessageId {number[:200]}", committed=True)


def too_fast(reply: Reply) -> bool:
    """The account's rate was met. Whether it is that or the day's quota, nobody else need wait for."""
    name = reply.name.lower()
    return reply.code == 429 or "throttl" in name or "toomanyrequests" in name or "maxsendrate" in name


def to_probe(answer: Answer) -> Reply:
    """The reply to `GetAccount`: 250 where e-mails may go.

    Who may send need not be allowed to ask for the account, and who stands in for SES need not know the call:
    such a "no" still shows that the way is open and the signature good.
    """
    if not 200 <= answer.status < 300:
        refusal = _refusal(answer, committed=False)
        if answer.status in (404, 405, 501) or _bare(refusal.name).startswith("AccessDenied"):
            return Reply(stage="auth", code=250, text="SES is there; it does not tell of the account")
        return refusal
    said = _object(answer.body)
    if said.get("SendingEnabled") is False or said.get("EnforcementStatus") == "SHUTDOWN":
        return Reply(stage="request", name="SendingPausedException", text="sending is paused for this account")
    quota = said.get("SendQuota")
    if isinstance(quota, dict):
        most, sent = quota.get("Max24HourSend"), quota.get("SentLast24Hours")
        if isinstance(most, int | float) and isinstance(sent, int | float) and 0 <= most <= sent:
            text = f"Daily message quota exceeded: {sent:g} of {most:g} in 24 hours"
            return Reply(stage="request", name="TooManyRequestsException", text=text)
    return Reply(stage="auth", code=250, text="the account may send")


def _refusal(answer: Answer, *, committed: bool) -> Reply:
    name, words = _error(answer)
    # Read as "try again in so many seconds" by whoever looks for hints.
    asked = answer.headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit() and len(asked) < 8:
        words = f"{words} (Retry-After: {asked} seconds)".strip()
    return Reply(stage="request", code=answer.status, name=name, text=words, committed=committed)


def _error(answer: Answer) -> tuple[str, str]:
    """The error's name and words. SES names it in a header; its gateways and older ones in the body."""
    said = _object(answer.body)
    if not said and (xml := _XML.search(_shown(answer.body))) is not None:
        return xml[1], (xml[2] or "").strip()
    told = answer.headers.get("x-amzn-ErrorType") or said.get("__type") or said.get("code") or said.get("Code")
    name = _bare(told) if isinstance(told, str) else ""
    words = next((said[key] for key in ("message", "Message") if isinstance(said.get(key), str)), "")
    if not said:
        words = _shown(answer.body)[:500]
    return name, words


def _bare(told: str) -> str:
    """`com.amazonaws.sesv2#MessageRejected:http://…` by its own name; nothing where it is no name."""
    last = told.partition(":")[0].rpartition("#")[2].rpartition("/")[2].strip()
    return last if _NAME.fullmatch(last) else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _shown(body: bytes) -> str:
    text = body[:_SEEN_BYTES].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
