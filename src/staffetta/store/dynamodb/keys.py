"""The names under which items lie, and the keys by which sparse indexes find them.

    index         partition             order within it                                   an item is in it
    TodoIndex     Todo  KIND.shard      time, id, what a reader needs to know first       by what is to be done next
    LineIndex     Line  a.b             company, priority, due, id                        while it is READY
    ListIndex     Listed  what.shard     newest first                                      as its kind of listing
    CompanyIndex  Company  name.shard   newest first                                      for ever

Every partition is one of several shards, so that none of them takes every write. Keys tell enough that most
questions are answered without reading an e-mail's own record, which an index may lag behind in any case.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal, TypeAlias

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Job, Millis, Value

META, CONTENT, PAYLOAD, DEAD = "_META", "_CONTENT", "_CONTENT#PAYLOAD", "_DLQ"
ATTEMPT, RECIPIENT = "_ATTEMPT#", "_RCPT#"
SEEN = "_SEEN"
"""Carries the keys of listings where no record of the beginning does: another program's e-mail."""

SHARDS = 4
KINDS = ("READY", "ACCEPTED", "WORK", "REPORT", "ENDED", "ERASED", "VISITOR")
Kind: TypeAlias = Literal["READY", "ACCEPTED", "WORK", "REPORT", "ENDED", "ERASED", "VISITOR"]
"""What is to be done next: send, take in, watch, tell the owner, erase the content, remove the record; or find out
how to send what another program made READY."""

_LATEST = 10**15 - 1
_INVERTED = str.maketrans("0123456789abcdef", "fedcba9876543210")
_END = "\x7f"
_GAP = "\x01"
"""Between a company's name and what follows. Where a name itself has it, it is written another way."""
_WRITTEN = {1: "\x02a", 2: "\x02b"}


def shard(id: str) -> int:
    return zlib.crc32(id.encode()) % SHARDS


def _time(at: Millis) -> str:
    return f"{min(max(at, 0), _LATEST):015d}"


# ------------------------------------------------------------------------------------------------ items


def attempt_item(attempt: int, part: int) -> str:
    """`_ATTEMPT#3`, and `_ATTEMPT#3.2` for its second part."""
    return f"{ATTEMPT}{attempt}" if part == 1 else f"{ATTEMPT}{attempt}.{part}"


def history_item(status: Status | str, entered: int) -> str:
    """`READY`, and `READY#2` when it is entered again."""
    return str(status) if entered == 1 else f"{status}#{entered}"


# ------------------------------------------------------------------------------------------------ what is to do


class Entry(Value, frozen=True, kw_only=True):
    """One e-mail as an index tells of it: it may have moved since."""

    id: str
    at: Millis
    """When it is due (READY), came (ACCEPTED), or last moved."""
    expires_at: Millis = 0
    priority: int = 5
    suspect: bool = False
    company_id: str = ""
    token: str = ""
    """Of the claim that holds it; of what nobody holds: how often it has moved."""

    def job(self) -> Job:
        return Job(
            id=self.id, company_id=self.company_id, priority=self.priority, due_at=self.at, suspect=self.suspect
        )


def todo(kind: Kind, id: str) -> str:
    return f"{kind}.{shard(id)}"


def todos(*kinds: Kind, shards: Sequence[int] = range(SHARDS)) -> list[str]:
    return [f"{kind}.{number}" for kind in kinds for number in shards]


def todo_at(entry: Entry) -> str:
    """Ordered by time, then by id; the company last, for it may hold any sign."""
    suspect = "s" if entry.suspect else "-"
    told = (_time(entry.at), entry.id, _time(entry.expires_at), f"{entry.priority:02d}", suspect)
    return _GAP.join((*told, entry.token, entry.company_id))


def read_todo(kept: str) -> Entry:
    at, id, expires_at, priority, suspect, token, company_id = kept.split(_GAP, 6)
    return Entry(
        id=id, at=int(at), expires_at=int(expires_at), priority=int(priority), suspect=suspect == "s",
        company_id=company_id, token=token,
    )  # fmt: skip


def from_time(at: Millis) -> str:
    """Every entry at `at` or later is greater than this."""
    return _time(at)


def to_time(at: Millis) -> str:
    """Every entry at `at` or earlier is smaller than this."""
    return _time(at) + _END


# ------------------------------------------------------------------------------------------------ companies' lines


def line(company_id: str, id: str) -> str:
    """Few partitions hold one company, so that asking for its line asks few; all together hold every company."""
    return f"{shard(company_id)}.{shard(id)}"


def lines_of(company_id: str, shards: Sequence[int]) -> list[str]:
    return [f"{shard(company_id)}.{number}" for number in shards]


def all_lines() -> list[str]:
    return [f"{one}.{other}" for one in range(SHARDS) for other in range(SHARDS)]


def line_at(company_id: str, priority: int, due_at: Millis, id: str, *, suspect: bool) -> str:
    return _GAP.join(
        (company_id.translate(_WRITTEN), f"{priority:02d}", _time(due_at), id, "s" if suspect else "-")
    )


def read_line(kept: str) -> Entry:
    company_id, priority, due_at, id, suspect = kept.rsplit(_GAP, 4)
    name = company_id.replace("\x02a", _GAP).replace("\x02b", "\x02")
    return Entry(id=id, at=int(due_at), priority=int(priority), suspect=suspect == "s", company_id=name)


def line_behind(company_id: str, after: Job) -> str:
    """Smaller than every place behind this job's, greater than its own."""
    return line_at(company_id, after.priority, after.due_at, after.id, suspect=True) + _END


def line_from(company_id: str, priority: int) -> str:
    return _GAP.join((company_id.translate(_WRITTEN), f"{min(priority, 99):02d}"))


def line_end(company_id: str) -> str:
    """Greater than every place of this company, smaller than every other's behind it."""
    return f"{company_id.translate(_WRITTEN)}{_GAP}{_END}"


# ------------------------------------------------------------------------------------------------ listings


def listed_at(at: Millis, id: str, *more: str) -> str:
    """Newest first; ties by the later id first."""
    told = (f"{_LATEST - min(max(at, 0), _LATEST):015d}", id.translate(_INVERTED))
    return _GAP.join((*told, *more))


def read_listed(kept: str) -> tuple[Millis, str, str]:
    """Its time, its id, and what else the key tells."""
    at, id, *more = kept.split(_GAP, 2)
    return _LATEST - int(at), id.translate(_INVERTED), "".join(more)


def listed_range(since: Millis | None, until: Millis | None) -> tuple[str, str]:
    """The keys between which everything of `since` <= time < `until` lies."""
    first = "0" if until is None else f"{_LATEST - min(max(until - 1, 0), _LATEST):015d}"
    last = _END if since is None else f"{_LATEST - min(max(since, 0), _LATEST):015d}{_END}"
    return first, last


def shards_of(what: str) -> list[str]:
    return [f"{what}.{number}" for number in range(SHARDS)]


def listing(what: str, id: str) -> str:
    return f"{what}.{shard(id)}"


EVERY = "EVERY"
FILE = "_FILE#"
"""Names a file of an e-mail's content, so that it is known who else names it."""


def status_listing(status: Status) -> str:
    return f"IS.{status}"


def recipient_listing(address: str) -> str:
    return f"TO.{address}"


def file_listing(path: str) -> str:
    return f"FILE.{path}"


# ------------------------------------------------------------------------------------------------ cursors


def write_cursor(at: Millis, id: str) -> str:
    return f"{at}.{id.encode().hex()}"


def read_cursor(cursor: str) -> tuple[Millis, str]:
    """:raises PayloadError: not a cursor of ours."""
    at, _, written = cursor.partition(".")
    try:
        id = bytes.fromhex(written).decode()
    except ValueError:
        id = ""
    if not (id and at.isascii() and at.isdigit() and len(at) <= 18):
        raise PayloadError([FieldProblem("cursor", "take the cursor of the page before as it stands")])
    return int(at), id


def chunks(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
