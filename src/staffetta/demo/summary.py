"""The closing summary: what was handed in against what the server's own log says that it took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import DeadLetter, Email, Value

ENDED = (Status.SENT, Status.FAILED, Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED, Status.INVALID)
WELL = (Status.SENT, Status.SENT_ACKNOWLEDGED, Status.CALLING_SENT_CALLBACK)


class Taken(msgspec.Struct):
    """A line of the server's log, as far as it is counted."""

    recipients: list[str]


class Outcome(Value, frozen=True, kw_only=True):
    """What came of it all."""

    handed_in: int
    by_status: dict[str, int]
    attempts: int
    lost: int
    """Handed in and gone; or recorded as sent, and the server never took it."""
    doubled: int
    dead_letters: tuple[DeadLetter, ...]
    waits_ms: dict[str, tuple[int, int]]
    """Company → median and longest time from hand-in to SENT."""
    unfinished: int
    """Neither sent nor given up when the time was over: on a machine that is too busy for it."""
    callbacks: int
    forged: int
    seconds: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.forged or self.unfinished)


def read_log(path: Path) -> Counter[str]:
    """How often each recipient's message was taken, by the server's own log."""
    decoder = msgspec.json.Decoder(Taken)
    lines = path.read_bytes().splitlines()
    return Counter(address for line in lines for address in decoder.decode(line).recipients)


def outcome(
    emails: Sequence[Email],
    letters: Sequence[DeadLetter],
    taken: Counter[str],
    *,
    handed_in: int,
    heard: Mapping[str, int],
    forged: int,
    seconds: float,
) -> Outcome:
    """Count. Every address of the demonstration is used once a company, so addresses tell e-mails apart."""
    waits: defaultdict[str, list[int]] = defaultdict(list)
    lost, unfinished = handed_in - len(emails), 0
    for email in emails:
        address = email.recipients[0].address
        if email.status in WELL:
            waits[email.company_id].append(email.reached_at - email.created_at)
            lost += taken[address] == 0
        elif email.status not in ENDED and email.status is not Status.CALLING_FAILED_CALLBACK:
            unfinished += 1
    return Outcome(
        handed_in=handed_in,
        by_status={str(status): count for status, count in Counter(one.status for one in emails).items()},
        attempts=sum(email.opened for email in emails),
        lost=lost,
        doubled=sum(count - 1 for count in taken.values() if count > 1),
        dead_letters=tuple(letters),
        waits_ms={company: (sorted(ms)[len(ms) // 2], max(ms)) for company, ms in sorted(waits.items())},
        unfinished=unfinished,
        callbacks=len(heard),
        forged=forged,
        seconds=seconds,
    )


def lines(found: Outcome) -> Iterator[str]:
    """The summary in words, but for its last line."""
    yield f"{found.handed_in:,} e-mails handed in, {found.attempts:,} attempts, {found.seconds:.1f} s"
    yield ""
    for status, count in sorted(found.by_status.items(), key=lambda pair: -pair[1]):
        yield f"  {count:>7,}  {status}"
    yield ""
    yield "  company       median wait   longest wait"
    for company, (median, longest) in found.waits_ms.items():
        yield f"  {company:<14}{median / 1000:>9.2f} s{longest / 1000:>13.2f} s"
    yield ""
    reasons = Counter((one.last_failure_code or "", one.last_failure_reason) for one in found.dead_letters)
    yield f"  {len(found.dead_letters):>7,}  dead letters"
    for (code, reason), count in reasons.most_common():
        yield f"           {count} × {code}: {reason}"
    yield f"  {found.callbacks:>7,}  outcomes called back, {found.forged} without a true signature"
    if found.unfinished:
        yield f"  {found.unfinished:>7,}  still on their way: this machine was too busy to end in time"
    yield ""
