"""E-mails: finding them, one e-mail's story, and what may be done to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Any

from staffetta.errors import NotFound
from staffetta.flow.operate import RETRYABLE
from staffetta.mail import explain, preview, safe_html
from staffetta.mail.attempt import code_of, words
from staffetta.mail.lifecycle import FINISHED, IN_WORK, Status
from staffetta.mail.message import Attempt, DeadLetter, Decision, Email, HistoryEntry, Value
from staffetta.mail.preview import Preview
from staffetta.mail.verdict import Table
from staffetta.web.asked import Answer
from staffetta.web.dashboard import render
from staffetta.web.dashboard.visit import Visit, address
from staffetta.web.dashboard.words import happened
from staffetta.web.fields import COMPANY, RECIPIENT, SINCE, STATUS, UNTIL

FILTERS = ("q", "status", "company_id", "since", "until")
PAGE = 50
LISTING = "emails"
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)
RANGES = (("15m", "15 minutes", 900_000), ("1h", "hour", 3_600_000), ("24h", "day", 86_400_000),
          ("7d", "week", 604_800_000))  # fmt: skip


def time_word(word: str) -> str:
    """What a browser's field for a time gives, in UTC, as the filters read it."""
    if _LOCAL_TIME.fullmatch(word):
        return f"{word if word.count(':') == 2 else f'{word}:00'}Z"
    return word


async def listing(visit: Visit) -> Answer:
    asked = visit.asked()
    sought = asked.get("q", "")
    if _ID.fullmatch(sought):
        with contextlib.suppress(NotFound):
            found = await visit.parts.operator.find(sought.lower(), visit.company_id)
            return render.seeing(f"/emails/{found.id}")
        return _listed(visit, asked, (), None, f"There is no e-mail with the id {sought} here.")
    said: dict[str, str] = {name: asked[name] for name in ("status", "company_id") if name in asked}
    if "@" in sought:
        said["recipient"] = sought
    elif sought and visit.company_id is None:
        said.setdefault("company_id", sought[:64])
    elif sought:
        return _listed(visit, asked, (), None, "Search by a whole id, or by a whole recipient: name@host.")
    for name in ("since", "until"):
        if name in asked:
            said[name] = time_word(asked[name])
    wanted = visit.narrowed(said, (STATUS, COMPANY, RECIPIENT, SINCE, UNTIL))
    cursor = await visit.cursors.open(asked.get("cursor"), LISTING, wanted)
    page = await visit.parts.store.emails(wanted, limit=PAGE, cursor=cursor)
    return _listed(visit, asked, page.items, await visit.cursors.seal(page.cursor, LISTING, wanted), "")


def _listed(
    visit: Visit, asked: dict[str, str], items: Sequence[Email], cursor: str | None, missed: str
) -> Answer:
    filters = {name: word for name, word in asked.items() if name in FILTERS}
    return render.page(
        visit, "emails.html", items=items, asked=asked, filtered=bool(filters), missed=missed, statuses=list(Status),
        older=address("/emails", {**filters, "cursor": cursor}) if cursor else "",
        newest=address("/emails", filters) if "cursor" in asked else "",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ the story


class Said(Value, frozen=True, kw_only=True):
    """One reply of one attempt."""

    address: str
    stage: str
    words: str
    tone: str


class Part(Value, frozen=True, kw_only=True):
    """One attempt, or one part of it, in words."""

    attempt: Attempt
    said: tuple[Said, ...]
    why: str
    """The decision with its rule."""
    today: str
    """What the rules in force now would say, where that differs."""
    next_at: int
    took_ms: int
    state: str


class Event(Value, frozen=True, kw_only=True):
    """One row of the timeline."""

    entry: HistoryEntry
    words: str
    parts: tuple[Part, ...] = ()
    after_ms: int = 0
    """Since the row before."""
    reason: str = ""
    """The row's own words, where no reply above has said them already."""


async def story(visit: Visit) -> Answer:
    parts = visit.parts
    email = await parts.operator.find(visit.id, visit.company_id)
    history, attempts, letter, message = await asyncio.gather(
        parts.store.history(email.id), parts.store.attempts(email.id), parts.store.dead_letter(email.id),
        parts.operator.message(email.id),
    )  # fmt: skip
    shown = await asyncio.to_thread(preview.read, message) if message is not None else None
    return render.page(
        visit, "story.html", email=email, letter=letter, preview=shown,
        events=_timeline(history, attempts, parts.rules),
        attempts=len({one.attempt for one in attempts}), may=_may(email, letter), ahead=_ahead(email, attempts),
        subject=shown.subject if shown is not None else "", done=visit.asked().get("did", ""),
        accepted=sum(one.state == "accepted" for one in email.recipients),
    )  # fmt: skip


def _timeline(history: Sequence[HistoryEntry], attempts: Sequence[Attempt], rules: Table) -> list[Event]:
    """The history, each claim with what was tried under it."""
    by_number: dict[int, list[Attempt]] = {}
    for one in attempts:
        by_number.setdefault(one.attempt, []).append(one)
    events, claims, before, told = [], 0, 0, set[str]()
    for entry in history:
        parts: list[Attempt] = []
        if entry.status is Status.PROCESSING:
            claims += 1
            parts = by_number.pop(claims, [])
        shown = tuple(_part(one, rules) for one in parts)
        told |= {one.words for part in shown for one in part.said}
        events.append(
            Event(
                entry=entry,
                words=happened(entry.status, entry.cause),
                parts=shown,
                reason="" if shown or entry.reason in told else entry.reason,
                after_ms=entry.at - before if before else 0,
            )
        )
        before = entry.at
    return events


def _part(one: Attempt, rules: Table) -> Part:
    decision = one.decision
    said = tuple(
        Said(address=each.address, stage=each.reply.stage, words=words(each.reply) or code_of(each.reply),
             tone="good" if each.reply.delivered or 200 <= each.reply.code < 300
             else ("wait" if 400 <= each.reply.code < 500 else "bad"))
        for each in one.replies
    )  # fmt: skip
    if not one.closed_at:
        state = "under way"
    elif one.counted:
        state = "counts"
    else:
        state = "does not count"
    return Part(
        attempt=one,
        said=said,
        why=_why(decision) if decision is not None else "",
        today=""
        if decision is None or explain.same_decision(decision, table=rules)
        else _why(explain.decide_again(decision, table=rules)),
        next_at=decision.next_at if decision is not None else 0,
        took_ms=one.closed_at - one.opened_at if one.closed_at else 0,
        state=state,
    )


def _why(decision: Decision) -> str:
    """The decision in words, without the reply's own, which stand above it."""
    return explain.tell(decision).removeprefix(f"{words(decision.reply)}: ")


class Ahead(Value, frozen=True, kw_only=True):
    """What happens next, in words; `at`: when."""

    words: str
    at: int = 0
    tone: str = "wait"


def _ahead(email: Email, attempts: Sequence[Attempt]) -> Ahead:
    status = email.status
    tried = next((one.decision for one in reversed(attempts) if one.decision is not None), None)
    if status is Status.READY:
        if not email.attempts and not email.opened:
            return Ahead(words="It waits for its company's turn; its first attempt may begin", at=email.due_at)
        left = ""
        if tried is not None and tried.figures is not None:
            left = f" ({email.attempts} of {tried.figures[2]} attempts used, policy {tried.policy})"
        return Ahead(words=f"It is tried again{left}", at=email.due_at)
    words_of = {
        Status.ACCEPTED: ("Its payload is read as soon as a worker has a hand free.", "wait"),
        Status.INTAKING: ("Its payload is being read.", "work"),
        Status.PROCESSING: ("A worker is sending it now.", "work"),
        Status.SENT: ("Done." if not email.callback_due else "Its owner will be told next.", "good"),
        Status.CALLING_SENT_CALLBACK: ("Its owner is being told.", "good"),
        Status.SENT_ACKNOWLEDGED: ("Done, and its owner knows.", "good"),
        Status.FAILED: ("Nothing more happens by itself.", "bad"),
        Status.CALLING_FAILED_CALLBACK: ("Its owner is being told that it was given up.", "bad"),
        Status.FAILED_ACKNOWLEDGED: ("Nothing more happens by itself; its owner knows.", "bad"),
        Status.INVALID: ("Nothing was sent. Mend the payload and hand it in again.", "bad"),
    }
    said, tone = words_of[status]
    if email.callback_exhausted:
        said = "Its owner could not be told within the window; nobody tries again."
    return Ahead(words=said, tone=tone)


def _may(email: Email, letter: DeadLetter | None) -> dict[str, bool]:
    """What can be done to it now."""
    untouched = not email.doubts and not any(one.state == "accepted" for one in email.recipients)
    return {
        "retry": email.status in RETRYABLE,
        "cancel": email.status in (Status.ACCEPTED, Status.READY) and untouched,
        "resolve": email.status in RETRYABLE and email.doubts > 0,
        "requeue": email.status in IN_WORK,
        "discard": letter is not None,
        "erase": email.status in FINISHED and letter is None,
    }


# ------------------------------------------------------------------------------------------- what may be done


async def retry(visit: Visit) -> Answer:
    await visit.parts.operator.retry(visit.id, visit.company_id)
    return _did(visit, "retried")


async def cancel(visit: Visit) -> Answer:
    await visit.parts.operator.cancel(visit.id, visit.company_id)
    return _did(visit, "cancelled")


async def resolve(visit: Visit) -> Answer:
    await visit.parts.operator.resolve(visit.id, visit.company_id)
    return _did(visit, "resolved")


async def requeue(visit: Visit) -> Answer:
    await visit.parts.operator.requeue(visit.id, visit.company_id)
    return _did(visit, "requeued")


async def discard(visit: Visit) -> Answer:
    await visit.parts.operator.discard(visit.id, visit.company_id)
    return _did(visit, "discarded")


async def erase(visit: Visit) -> Answer:
    await visit.parts.operator.erase(visit.id, visit.company_id)
    return _did(visit, "erased")


def _did(visit: Visit, what: str) -> Answer:
    visit.parts.changed()
    return render.seeing(f"/emails/{visit.id}?did={what}")


# ------------------------------------------------------------------------------------------- its message


async def raw(visit: Visit) -> Answer:
    """The message as it is sent, to keep. Never opened by the browser itself."""
    message = await _message(visit)
    headers = (
        (b"content-type", b"message/rfc822"),
        (b"content-disposition", f'attachment; filename="{visit.id}.eml"'.encode()),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
        (b"cache-control", b"no-store"),
        *render.SAFE,
    )
    return Answer(status=200, body=message, headers=headers)


_FRAMED = (
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none';"
    b" frame-ancestors 'self'"
)
_FRAME_STYLE = (
    "html{color-scheme:light;background:#fff;color:#1b1f27;font:15px/1.5 system-ui,sans-serif}"
    "body{margin:16px;overflow-wrap:anywhere}img{max-width:100%;height:auto}table{max-width:100%}"
    ".link{color:#1f5fbf;text-decoration:underline}"
    ".picture{display:inline-block;padding:.4em .8em;border:1px dashed #9aa3b2;border-radius:6px;color:#4a5261;"
    "background:#f4f5f8;font-size:13px}"
)


async def body(visit: Visit) -> Answer:
    """The HTML of a message behind two walls: written anew without rights, in a frame that allows none."""
    shown: Preview = await asyncio.to_thread(preview.read, await _message(visit))
    made = await asyncio.to_thread(safe_html.harmless, shown.html or "", shown.images)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Message</title>'
        f"<style>{_FRAME_STYLE}</style></head><body>{made.html}</body></html>"
    )
    headers: Any = (
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", _FRAMED),
        (b"cache-control", b"no-store"),
        *((name, value) for name, value in render.SAFE if name != b"referrer-policy"),
        (b"referrer-policy", b"no-referrer"),
    )
    return Answer(status=200, body=page.encode("utf-8", errors="replace"), headers=headers)


async def _message(visit: Visit) -> bytes:
    await visit.parts.operator.find(visit.id, visit.company_id)
    message = await visit.parts.operator.message(visit.id)
    if message is None:
        raise NotFound("its content was erased, or never composed")
    return message
