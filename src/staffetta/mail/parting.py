"""Whose e-mail is it: the READY e-mails of one store are parted among the workers that live, by their ids.

Every worker knows the same list and finds the same parts, so that no two read or send the same e-mail, without a
word between them. While the list changes two may reach for one e-mail: then the claim decides, as always.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from staffetta.mail.message import Value


class Part(Value, frozen=True, kw_only=True):
    """One of `count` parts. None of them (`count` 0): it sends nothing."""

    index: int = 0
    count: int = 1

    def has(self, id: str) -> bool:
        """Whether this e-mail is in this part."""
        return self.count == 1 or (self.count > 1 and number_of(id) % self.count == self.index)


WHOLE = Part()
NOTHING = Part(index=0, count=0)


def number_of(id: str) -> int:
    """What e-mails are parted by: SQL's CRC32 of the id."""
    return zlib.crc32(id.encode())


def part_of(worker: str, living: Iterable[str]) -> Part:
    """This worker's part among those that live and send."""
    names = sorted(set(living))
    if worker not in names:
        return NOTHING
    return Part(index=names.index(worker), count=len(names))
