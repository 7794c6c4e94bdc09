"""Looks at the figures every few seconds: which alerts fire, who is to be told.

Every process that watches takes its own readings, so that any of them can go on when another ends; one of them, the
leader, writes the states to the store, emits what turned, and tells people. What was told is kept in the store,
after the telling: dying between the two repeats a notice and never loses one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from staffetta.errors import StoreError
from staffetta.flow.gathering import Gathering, Sight
from staffetta.mail import alerts, notices
from staffetta.mail.alerts import Reading, State
from staffetta.mail.events import AlertMoved, Emit, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, Value
from staffetta.mail.operators import Filter
from staffetta.mail.tally import BOUNDS_MS
from staffetta.store.contract import Store

STATES_SETTING = "alerts"
TOLD_SETTING = "notify.told"
FRESH_MS = 30_000
"""States older than this are of a watch that ended."""
SETTLED_MS = 5_000
"""A dead letter is read this long after its time: what was decided a moment ago may not be written yet."""
PAGE = 500
IN_DOUBT = "IN-DOUBT"


class Tells(Protocol):
    """Who carries notices out (see `notify.Notifier`)."""

    @property
    def has_admin(self) -> bool: ...

    def tell_admin(self, told: dict[str, Any]) -> Awaitable[str]: ...

    def tell_company(self, company_id: str, size: int, *, now: Millis) -> Awaitable[str]: ...


class Kept(Value, frozen=True, kw_only=True):
    """The alerts as the leader last found them."""

    at: Millis
    states: tuple[State, ...]


class Told(Value, frozen=True, kw_only=True):
    """What people were told already."""

    until: Millis
    """Dead letters and invalid payloads up to here."""
    companies: tuple[str, ...] = ()
    """Those that know of their many dead letters."""


@dataclasses.dataclass(slots=True, kw_only=True)
class WatchMeans:
    """What the stage is handed."""

    store: Store
    gathering: Gathering
    worker_id: str
    clock: Callable[[], Millis]
    emit: Emit
    tells: Tells


class Watch:
    """The stage."""

    def __init__(self, means: WatchMeans) -> None:
        self._means = means
        self._past: tuple[Reading, ...] = ()
        self._states: tuple[State, ...] = ()
        self._untold: list[State] = []
        """Alerts that turned since the last digest."""
        self._told: Told | None = None
        self._next_digest: Millis = 0
        self._leading = False
        self._failing = False

    async def step(self) -> None:
        """One look. The store may be away: that is an alert as well."""
        means = self._means
        try:
            sight = await means.gathering.look()
            reading = await read(means.store, sight)
        except StoreError:
            sight = means.gathering.own()
            newest = self._past[-1] if self._past else Reading(at=sight.at)
            reading = msgspec.structs.replace(newest, at=sight.at, store_up=False)
        self._past = alerts.remember(self._past, reading)
        if not leads(means.worker_id, sight):
            self._leading = False
            return
        if not self._leading and reading.store_up:
            # What the one before it found, told or not: it goes on from there.
            self._states, self._told, self._leading = await _kept(means.store), None, True
            self._untold.clear()
        before, self._states = self._states, alerts.evaluate(self._past, self._states)
        turned = alerts.turned(before, self._states)
        self._emit(turned, reading.at)
        self._untold += turned
        if reading.store_up:
            kept = Kept(at=reading.at, states=self._states)
            await means.store.put_setting(STATES_SETTING, msgspec.json.encode(kept))
            await self._tell(reading)

    def _emit(self, turned: Sequence[State], at: Millis) -> None:
        for state in turned:
            alert = alerts.BY_NAME[state.name]
            self._means.emit(
                AlertMoved(
                    at=at,
                    alert=alert.name if state.company_id is None else f"{alert.name} {state.company_id}",
                    state="firing" if state.firing else "ok",
                    value=state.value,
                    condition=alert.condition,
                    detail=alert.remedy if state.firing else "",
                )
            )

    # --- telling ------------------------------------------------------------------------------------------------

    async def _tell(self, reading: Reading) -> None:
        means, now = self._means, reading.at
        if now < self._next_digest:
            return
        self._next_digest = now + notices.EVERY_MS
        if self._told is None:
            kept = await means.store.setting(TOLD_SETTING)
            # The first watch of all tells of what comes, not of all there ever was.
            self._told = msgspec.json.decode(kept, type=Told) if kept else Told(until=now - SETTLED_MS)
        companies = await self._tell_companies(reading, self._told.companies)
        until = await self._digest(self._told.until, now - SETTLED_MS)
        after = Told(until=until, companies=companies)
        if after != self._told:
            await means.store.put_setting(TOLD_SETTING, msgspec.json.encode(after))
            self._told = after

    async def _digest(self, since: Millis, now: Millis) -> Millis:
        """Tell the administrator what is new; up to when he knows."""
        means = self._means
        if not means.tells.has_admin:
            self._untold.clear()
            return now
        page = await means.store.dead_letters(Filter(since=since + 1, until=now), limit=PAGE)
        invalid = await means.store.emails(
            Filter(status=(Status.INVALID,), since=since + 1, until=now), limit=PAGE
        )
        letters = [letter for letter in page.items if letter.company_id != notices.COMPANY]
        if not letters and not invalid.items and not self._untold:
            return now
        told = notices.digest(letters, invalid.items, self._untold, more=page.cursor is not None, now=now)
        why = await means.tells.tell_admin(told)
        if why:
            self._trouble(f"the administrator could not be told and is told again in a minute: {why}", now)
            return since
        self._failing = False
        self._untold.clear()
        return now

    async def _tell_companies(self, reading: Reading, known: tuple[str, ...]) -> tuple[str, ...]:
        sizes = reading.letters_by_company
        still = [name for name in known if sizes.get(name, 0) > notices.THRESHOLD_OVER]
        for company_id, size in sorted(sizes.items()):
            if size <= notices.THRESHOLD or company_id in still or company_id == notices.COMPANY:
                continue
            why = await self._means.tells.tell_company(company_id, size, now=reading.at)
            if why:
                self._trouble(
                    f"company {company_id} could not be told of its {size} dead letters: {why}", reading.at
                )
            else:
                still.append(company_id)
        return tuple(still)

    def _trouble(self, message: str, at: Millis) -> None:
        if not self._failing:  # once, until it works again
            self._means.emit(Troubled(at=at, part="alerts", message=message))
        self._failing = True


# ------------------------------------------------------------------------------------------------ readings


async def read(store: Store, sight: Sight) -> Reading:
    """The figures of this moment.

    :raises StoreError: the store does not answer.
    """
    letters = await store.dead_letter_counts()
    waiting, _, _ = await store.queue_counts(now=sight.at)
    pauses = await store.pauses()
    sums = sight.sums
    ended, callbacks = sums.counts.get("ended", {}), sums.counts.get("callbacks", {})
    codes = dict(sums.counts.get("reply_codes", {}))
    processing = sums.spreads.get("in_process", {}).get("")
    redis = [each["redis"] for each in sight.processes if each.get("redis")]
    return Reading(
        at=sight.at,
        sent=ended.get("SENT", 0),
        failed=ended.get("FAILED", 0),
        dead_letters=sums.total("dead_letters"),
        attempts=sum(codes.values()),
        codes=codes,
        processing=tuple(processing.buckets) if processing is not None else (0,) * (len(BOUNDS_MS) + 1),
        callbacks=sum(callbacks.values()),
        callbacks_failed=sum(count for outcome, count in callbacks.items() if outcome != "acknowledged"),
        letters=letters.size,
        letters_by_company=letters.by_company,
        in_doubt=letters.by_code.get(IN_DOUBT, 0),
        waiting=waiting,
        paused=any(pause.scope == "all" for pause in pauses),
        breakers=tuple((row["transport"], row["state"], row["reason"]) for row in sight.breakers()),
        redis_memory=max((each["memory_used_ratio"] for each in redis), default=None),
        redis_rejected=max((each["rejected_connections"] for each in redis), default=None),
    )


def leads(worker_id: str, sight: Sight) -> bool:
    """One of the processes that watch speaks for all: the one whose id comes first. Alone, it is this one."""
    watching = [each["worker"]["id"] for each in sight.processes if each.get("watches")]
    return worker_id <= min(watching, default=worker_id)


async def _kept(store: Store) -> tuple[State, ...]:
    kept = await store.setting(STATES_SETTING)
    states = msgspec.json.decode(kept, type=Kept).states if kept else ()
    return tuple(state for state in states if state.name in alerts.BY_NAME)


async def current(store: Store, gathering: Gathering, *, now: Millis) -> list[dict[str, Any]]:
    """Every alert as it stands, firing ones first. Where nobody watches: by what the store tells by itself."""
    kept = await store.setting(STATES_SETTING)
    found = msgspec.json.decode(kept, type=Kept) if kept else None
    if found is not None and now - found.at <= FRESH_MS:
        states = found.states
    else:
        states = alerts.evaluate((await read(store, await gathering.look()),), found.states if found else ())
    rows = [alerts.shown(state) for state in states if state.name in alerts.BY_NAME]
    return sorted(rows, key=lambda row: row["state"] != "firing")
