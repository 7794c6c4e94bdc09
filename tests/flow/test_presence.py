"""Whether the store answers: who waits for it, who insists, and that it is told once."""

from __future__ import annotations

import asyncio

import pytest

from doubles.clock import run, turned
from staffetta.errors import LockNotAcquired, StoreError, StoreUnavailable
from staffetta.flow.presence import Presence, wait_seconds
from staffetta.mail.events import Event, Troubled


def a_presence() -> tuple[Presence, list[Event]]:
    events: list[Event] = []
    return Presence(clock=turned().clock, draw=lambda: 1.0, emit=events.append), events


def test_an_outage_is_told_once_and_counted() -> None:
    async def story() -> None:
        presence, events = a_presence()
        for _ in range(5):
            presence.lost(StoreUnavailable("gone"))
        presence.found()
        presence.found()
        presence.lost(StoreUnavailable("gone again"))

        assert presence.outages == 2
        assert [event.error for event in events if isinstance(event, Troubled)] == ["gone", "gone again"]
        assert not presence.here

    run(story)


def test_who_waits_for_it_goes_on_when_it_is_back() -> None:
    async def story() -> None:
        presence, _ = a_presence()
        await presence.until_here()
        presence.lost(StoreUnavailable())
        await presence.until_lost()
        waiting = asyncio.create_task(presence.until_here())
        await asyncio.sleep(60)
        assert not waiting.done()

        presence.found()

        await waiting
        assert presence.here

    run(story)


def test_what_was_heard_is_insisted_on_however_long_the_store_is_away() -> None:
    """Past the eight attempts of one call: outcomes wait for it."""

    async def story() -> None:
        presence, _ = a_presence()
        calls = 0

        async def call() -> str:
            nonlocal calls
            calls += 1
            if turned().time() < 3_600:
                raise StoreUnavailable
            return "written"

        assert await presence.insist(call) == "written"
        assert presence.here
        assert 3_600 <= turned().time() < 3_602
        assert calls < 4_000, "it asks about once a second"

    run(story)


def test_an_answer_that_is_no_outage_is_given_at_once() -> None:
    async def story() -> None:
        presence, events = a_presence()

        async def lost() -> None:
            raise LockNotAcquired

        with pytest.raises(LockNotAcquired):
            await presence.insist(lost)
        assert events == []

    run(story)


def test_cancelling_ends_the_wait_at_once() -> None:
    async def story() -> None:
        presence, _ = a_presence()

        async def away() -> None:
            raise StoreError

        insisting = asyncio.create_task(presence.insist(away))
        await asyncio.sleep(10)
        insisting.cancel()
        before = turned().time()
        with pytest.raises(asyncio.CancelledError):
            await insisting
        assert turned().time() == before

    run(story)


def test_waits_double_from_30_ms_to_a_second() -> None:
    assert [wait_seconds(tries) for tries in (0, 1, 2, 5, 6, 50)] == [0.03, 0.06, 0.12, 0.96, 1.0, 1.0]
