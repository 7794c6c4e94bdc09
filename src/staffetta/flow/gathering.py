"""Lays together what all processes on one store have counted, for metrics and alerts.

Each process publishes its tally with its figures. What a tally grew since the last look is added to the sums
here, so these only grow: a process that ends takes nothing back. One that began before this process is counted
from the first look on, as if it began then, for a counter that starts anew must not start with a jump.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from staffetta.flow import figures
from staffetta.mail.message import Millis, Value
from staffetta.mail.tally import Tally
from staffetta.store.contract import Store

GONE_MS = 3_600_000
"""A process that was silent for this long does not come back."""


class Seen(msgspec.Struct):
    """What was last read of one process."""

    tally: Tally
    at: Millis


class Given(msgspec.Struct):
    """What was last read of one queue: e-mails given out, by company."""

    totals: dict[str, int]
    at: Millis


class Sight(Value, frozen=True, kw_only=True):
    """All processes at one look."""

    at: Millis
    processes: tuple[dict[str, Any], ...]
    """Each living process's figures as it told them."""
    sums: Tally
    processed: Mapping[str, int]
    """By company: e-mails taken for it since this process began to look."""

    def companies(self) -> list[dict[str, Any]]:
        """Every company's figures, those of several processes laid together."""
        return figures.laid_together(row for each in self.processes for row in each.get("companies", ()))

    def breakers(self) -> list[dict[str, Any]]:
        """Each transport's health; where processes differ, the worst is told."""
        worst: dict[str, dict[str, Any]] = {}
        for each in self.processes:
            for row in each.get("breakers", ()):
                known = worst.get(row["transport"])
                if known is None or _RANK[row["state"]] > _RANK[known["state"]]:
                    worst[row["transport"]] = row
        return [worst[name] for name in sorted(worst)]

    def replies(self) -> list[dict[str, Any]]:
        """What transports last said when they did not take an e-mail, the latest first; `times` added up."""
        known: dict[tuple[str, str, str], dict[str, Any]] = {}
        for each in self.processes:
            for row in each.get("replies", ()):
                key = (row["transport"], row["action"], row["code"])
                before = known.get(key)
                if before is None:
                    known[key] = dict(row)
                    continue
                times = before["times"] + row["times"]
                known[key] = {**(row if row["at"] > before["at"] else before), "times": times}
        return sorted(known.values(), key=lambda row: -row["at"])


_RANK = {"closed": 0, "paused": 1, "half-open": 2, "open": 3}


class Gathering:
    """One for a process. `own`: this process's id and tally, which are read without the store between."""

    def __init__(
        self, store: Store, clock: Callable[[], Millis], *, own: tuple[str, Tally] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._own = own
        self._began = clock()
        self._looking = asyncio.Lock()
        self._seen: dict[str, Seen] = {}
        self._given: dict[str, Given] = {}
        self._shared = False
        self._sums = Tally()
        self._processed: dict[str, int] = {}

    async def look(self) -> Sight:
        """Read every process's figures, add what they grew.

        :raises StoreError: the store does not answer.
        """
        async with self._looking:  # an older reading that is added after a newer one would make counters fall
            return await self._look()

    def own(self) -> Sight:
        """What is known without the store: this process alone, and what was gathered before."""
        now = self._clock()
        if self._own is not None:
            self._grow(*self._own, now, began=self._began)
        return Sight(at=now, processes=(), sums=self._sums, processed=self._processed)

    async def _look(self) -> Sight:
        now = self._clock()
        processes = await figures.published(self._store, now=now)
        own_id = self._own[0] if self._own is not None else ""
        for each in processes:
            told = each["worker"]
            tally = self._own[1] if self._own is not None and told["id"] == own_id else _tally_of(each)
            self._grow(told["id"], tally, now, began=told["started_at"])
            self._take_on(each, now)
        if self._own is not None and all(each["worker"]["id"] != own_id for each in processes):
            self._grow(own_id, self._own[1], now, began=self._began)
        for gone in [name for name, seen in self._seen.items() if seen.at <= now - GONE_MS]:
            del self._seen[gone]
        for gone in [name for name, given in self._given.items() if given.at <= now - GONE_MS]:
            del self._given[gone]
        return Sight(at=now, processes=tuple(processes), sums=self._sums, processed=self._processed)

    def _grow(self, name: str, tally: Tally, now: Millis, *, began: Millis) -> None:
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = Seen(tally=Tally(), at=now)
            if began < self._began and not self._is_own(name):
                seen.tally = tally.copy()
                return
        self._sums.grow(tally, seen.tally)
        seen.tally = tally.copy()
        seen.at = now

    def _is_own(self, name: str) -> bool:
        return self._own is not None and name == self._own[0]

    def _take_on(self, each: Mapping[str, Any], now: Millis) -> None:
        """What a queue gave out by company: a process's own queue, or the one that several share."""
        rows, shared = each.get("companies", ()), each.get("shared", "")
        if shared and not rows:
            return  # Another process tells them.
        told = each["worker"]
        name = shared or told["id"]
        totals = {row["companyId"]: row["totalProcessed"] for row in rows}
        given = self._given.get(name)
        if given is None:
            given = self._given[name] = Given(totals={}, at=now)
            # A shared queue may have served others long before; one that forgot everything counts anew.
            past = not self._shared if shared else told["started_at"] < self._began and not self._is_own(name)
            self._shared = self._shared or bool(shared)
            if past:
                given.totals = totals
                for company_id in totals:
                    self._processed.setdefault(company_id, 0)
                return
        for company_id, total in totals.items():
            before = given.totals.get(company_id, 0)
            # A queue that forgot a company counts it from nothing again.
            grown = total - before if total >= before else total
            self._processed[company_id] = self._processed.get(company_id, 0) + grown
        given.totals.update(totals)
        given.at = now


def _tally_of(told: Mapping[str, Any]) -> Tally:
    return msgspec.convert(told["tally"], Tally, strict=False) if "tally" in told else Tally()
