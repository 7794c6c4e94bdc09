"""Tells one e-mail's story in words: what it went through, what was answered, by which rule, what is next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staffetta.cli.terminal import when
from staffetta.mail import explain, verdict
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Attempt, DeadLetter, Decision, Email, HistoryEntry


def masked(address: str) -> str:
    """`user@example.com` as `u***@e***.com`: enough to recognise, too little to leak."""
    local, _, domain = address.rpartition("@")
    name, _, top = domain.rpartition(".")
    return f"{local[:1]}***@{name[:1]}***.{top}" if name else f"{local[:1]}***@{domain[:1]}***"


def tell(
    email: Email,
    history: Sequence[HistoryEntry],
    attempts: Sequence[Attempt],
    letter: DeadLetter | None,
    *,
    rules: verdict.Table,
) -> Iterator[str]:
    """Line by line. Each kept decision is taken again by the rules in force: a difference is said."""
    yield f"e-mail {email.id} of {email.company_id}: {email.status}{_also(email, letter)}"
    if email.reason:
        yield f"  reason: {_plain(email.reason)}"
    yield f"  handed in {when(email.created_at)}, priority {email.priority}, expires {when(email.expires_at)}"
    if email.status is Status.READY:
        yield f"  next attempt at {when(email.due_at)}"
    yield ""
    yield "recipients"
    for recipient in email.recipients:
        reply = f": {_plain(recipient.reply)}" if recipient.reply else ""
        yield f"  {masked(recipient.address)} {recipient.state}{reply}"
    yield ""
    yield "history"
    for entry in history:
        yield f"  {when(entry.at)}  {entry.status:<24} {entry.cause}" + (
            f": {_plain(entry.reason)}" if entry.reason else ""
        )
    if attempts:
        yield ""
        yield "attempts"
    for attempt in attempts:
        yield from _attempt(attempt, rules)


def _also(email: Email, letter: DeadLetter | None) -> str:
    """The seeds' word for it, beside ours."""
    if letter is not None:
        return " (permanently_failed, dead letter" + (" being retried)" if letter.retrying_since else ")")
    return " (delayed)" if email.status is Status.READY and email.attempts else ""


def _attempt(one: Attempt, rules: verdict.Table) -> Iterator[str]:
    part = f", part {one.part}" if one.part > 1 else ""
    committed = f"committed {when(one.committed_at)}" if one.committed_at else "the final dot never left"
    counted = "counts" if one.counted else "does not count"
    via = f" by {one.transport}" if one.transport else ""
    yield f"  {one.attempt}{part}{via}: opened {when(one.opened_at)}, {committed}; {counted}"
    for answer in one.replies:
        code = (
            f"{answer.reply.code} "
            if answer.reply.code
            else (f"{answer.reply.name}: " if answer.reply.name else "")
        )
        said = f"{code}{_plain(answer.reply.text)}"
        yield f"    {masked(answer.address)} answered at {answer.reply.stage}: {said}"
    if one.closed_at and not one.replies:
        yield "    no reply was read" + (": in doubt" if one.committed_at else "")
    if one.decision is not None:
        yield from _decision(one.decision, rules)


def _decision(kept: Decision, rules: verdict.Table) -> Iterator[str]:
    """What followed from the reply, and whether the rules of today would say the same."""
    yield f"    → {_plain(explain.tell(kept))}"
    if kept.next_at:
        yield f"      next at {when(kept.next_at)}"
    if not explain.same_decision(kept, table=rules):
        today = explain.decide_again(kept, table=rules)
        yield f"      by the rules in force today: {_plain(explain.tell(today))}"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
