"""How the dashboard says numbers, times and statuses: the filters of its templates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Millis
from staffetta.mail.shapes import rfc3339

_S, _C = Status, Cause

TONES: Mapping[Status, str] = {
    _S.ACCEPTED: "wait", _S.INTAKING: "work", _S.READY: "wait", _S.PROCESSING: "work", _S.SENT: "good",
    _S.SENT_ACKNOWLEDGED: "good", _S.CALLING_SENT_CALLBACK: "good", _S.FAILED: "bad",
    _S.FAILED_ACKNOWLEDGED: "bad", _S.CALLING_FAILED_CALLBACK: "bad", _S.INVALID: "bad",
}  # fmt: skip
"""How each status looks: waiting, in work, well, badly."""

MEANS: Mapping[Status, str] = {
    _S.ACCEPTED: "durable, its payload not read yet",
    _S.INTAKING: "its payload is being read and checked",
    _S.READY: "composed; waits for its turn, or for its next attempt",
    _S.PROCESSING: "a worker is sending it now",
    _S.SENT: "taken by the next mail server",
    _S.FAILED: "given up",
    _S.INVALID: "the payload is wrong; nothing was sent",
    _S.CALLING_SENT_CALLBACK: "sent; its owner is being told",
    _S.CALLING_FAILED_CALLBACK: "given up; its owner is being told",
    _S.SENT_ACKNOWLEDGED: "sent, and its owner knows",
    _S.FAILED_ACKNOWLEDGED: "given up, and its owner knows",
}

_CAUSES: Mapping[tuple[Status, Cause] | Cause, str] = {
    _C.ACCEPTED: "Handed in, and durable",
    (_S.INTAKING, _C.CLAIMED): "Its payload was taken up",
    (_S.PROCESSING, _C.CLAIMED): "An attempt began",
    _C.COMPOSED: "The message was composed",
    _C.INVALID: "The payload is wrong",
    _C.DELIVERED: "The next mail server took it",
    _C.DEFERRED: "Put off: it is tried again",
    _C.HELD: "Held: no transport took mail; nothing counts",
    _C.STOPPED: "The worker stopped in order; nothing counts",
    _C.IN_DOUBT: "In doubt: it may be out",
    _C.ENDED_IN_PART: "Ended: some recipients have it",
    _C.REFUSED: "Refused for good",
    _C.EXHAUSTED: "No attempt is left",
    _C.CRASHED: "Its worker died again and again",
    _C.EXPIRED: "Its time was over",
    _C.CANCELLED: "Cancelled by request",
    _C.REPORTING: "Its owner is being told",
    _C.ACKNOWLEDGED: "Its owner knows",
    _C.RESTORED: "Taken back from a dead worker",
    _C.RETRIED: "Put back on its way by an operator",
    _C.RESOLVED: "Resolved by an operator: it was delivered",
}

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def happened(status: Status, cause: Cause) -> str:
    """A row of the history in words."""
    return _CAUSES.get((status, cause)) or _CAUSES.get(cause) or str(cause)


def number(value: float) -> str:
    """`1,234`; below ten one digit of a fraction, where it has one."""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def duration(ms: float | None) -> str:
    """`850 ms`, `4.2 s`, `3 min`, `2 h`: two figures are enough to compare."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    for size, unit in _UNITS:
        if ms >= size * (2 if unit != "s" else 1):
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 1000:.0f} s"


def relative(at: Millis, now: Millis) -> str:
    """`12 s ago`, `in 3 min`; what is less than two seconds away is now."""
    apart = now - at
    if abs(apart) < 2_000:
        return "now"
    far = _far(abs(apart))
    return f"{far} ago" if apart > 0 else f"in {far}"


def _far(ms: int) -> str:
    """As `duration`, in whole seconds: what is looked at now and then need not tick in tenths."""
    return f"{ms // 1000} s" if ms < 10_000 else duration(ms)


@pass_context
def when(context: Context, at: Millis | None) -> Markup:
    """A time for people, with the exact one where the pointer rests and for machines."""
    if not at:
        return Markup('<span class="quiet">–</span>')
    exact = rfc3339(at)
    shown = exact[:19].replace("T", " ")
    template = Markup('<time datetime="{}" title="{} UTC" data-at="{}">{}</time>')
    return template.format(exact, f"{shown}{exact[19:23]}", at, relative(at, context["now"]))


@pass_context
def since(context: Context, text: str | None) -> Markup:
    """As `when`, of a time that came as text (RFC 3339)."""
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        at = None
    return when(context, round(at.timestamp() * 1_000) if at is not None else None)


def ticked(text: str) -> Markup:
    """With what stands in `ticks` as code."""
    pieces = plain(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else escape(piece) for at, piece in enumerate(pieces)
    )


def exact(at: Millis | None) -> str:
    """`2026-11-19 20:40:11 UTC`."""
    return f"{rfc3339(at)[:19].replace('T', ' ')} UTC" if at else "–"


def clock(at: Millis) -> str:
    """`20:40:11.123`."""
    return rfc3339(at)[11:23]


def size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %" if 0 < share < 0.1 else f"{share * 100:.0f} %"


def plain(text: str) -> str:
    """Control characters gone: what servers say is shown, not obeyed."""
    return "".join(c if c.isprintable() else " " for c in text)


def counted(count: int, one: str, many: str = "") -> str:
    """`1 e-mail`, `2 e-mails`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def tone(status: Status) -> str:
    return TONES[status]


def means(status: Status) -> str:
    return MEANS[status]


FILTERS: Mapping[str, Any] = {
    "clock": clock, "counted": counted, "duration": duration, "exact": exact, "means": means,
    "number": number, "percent": percent, "plain": plain, "since": since, "size": size, "ticked": ticked,
    "tone": tone, "when": when,
}  # fmt: skip
