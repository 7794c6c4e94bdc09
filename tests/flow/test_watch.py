"""Who is told of trouble, and how often: alerts that turn, digests of dead letters, a company's threshold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from doubles.receiver import Receiver, Say
from doubles.stocked import Clock, Stock
from staffetta.app import wiring
from staffetta.callback import Caller
from staffetta.config import Config
from staffetta.flow import watch
from staffetta.flow.gathering import Gathering
from staffetta.flow.watch import Watch, WatchMeans
from staffetta.http import Http
from staffetta.logs import Listeners
from staffetta.mail.events import AlertMoved, Event, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Reply, Transition, Value
from staffetta.mail.operators import Filter
from staffetta.mail.report import Receivers
from staffetta.mail.tally import Tally
from staffetta.notify import Notifier
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore

SECRET = "whsec_" + "QUFB" * 11


class Tower(Value, frozen=True, kw_only=True):
    """A watch on a store, with everything around it."""

    store: Store
    stock: Stock
    clock: Clock
    events: list[Event]
    watch: Watch
    receiver: Receiver

    async def look(self, after_ms: int = 61_000) -> None:
        self.clock.turn(after_ms)
        await self.watch.step()

    def alerts(self) -> list[tuple[str, str]]:
        return [(event.alert, event.state) for event in self.events if isinstance(event, AlertMoved)]


@asynccontextmanager
async def tower(folder: Path, *, admin: str | None = "receiver", worker_id: str = "w1") -> AsyncIterator[Tower]:
    clock = Clock()
    store = MemoryStore()
    await store.open()
    events: list[Event] = []
    http = Http(timeout_seconds=5)
    caller = Caller(trusted=http, guarded=Http(timeout_seconds=5, guarded=True), clock=clock)
    async with Receiver(secret=SECRET) as receiver:
        config = Config()
        desk = wiring.desk_for(
            config, store=store, rulebook=wiring.rulebook_for(config), emit=Listeners(), queue=None,
            spool=wiring.spool_for(config),
        )  # fmt: skip
        notifier = Notifier(
            admin=receiver.url("/admin") if admin == "receiver" else admin,
            sender="",
            http=http,
            caller=caller,
            receivers=Receivers(companies={"acme": (receiver.url("/acme"), SECRET)}),
            hand_in=desk.accept,
        )
        means = WatchMeans(
            store=store,
            gathering=Gathering(store, clock, own=(worker_id, Tally())),
            worker_id=worker_id,
            clock=clock,
            emit=events.append,
            tells=notifier,
        )
        made = Tower(
            store=store, stock=Stock(store, clock), clock=clock, events=events, watch=Watch(means), receiver=receiver
        )  # fmt: skip
        await made.watch.step()
        yield made
    await caller.close()
    await store.close()


async def test_an_alert_that_begins_and_ends_is_told_once_each(tmp_path: Path) -> None:
    """Who is woken at night wants to hear of a thing once, and that it is over."""
    async with tower(tmp_path) as here:
        id = await here.stock.in_doubt()
        await here.look()
        await here.look()
        assert [("in-doubt", "firing")] == here.alerts()
        await here.store.discard([id])
        await here.look()
        assert [("in-doubt", "firing"), ("in-doubt", "ok")] == here.alerts()
        told = [
            (alert["name"], alert["state"])
            for call in here.receiver.to("/admin")
            for alert in call.json["alerts"]
        ]
        assert here.alerts() == told


async def test_a_digest_names_new_dead_letters_once_and_at_most_once_a_minute(tmp_path: Path) -> None:
    async with tower(tmp_path) as here:
        first = await here.stock.failed(recipient="ada.lovelace@example.com")
        await here.look()
        second = await here.stock.failed("bistro")
        await here.look(after_ms=2_000)
        assert 1 == len(here.receiver.to("/admin"))
        await here.look()
        await here.look()
        digests = [call.json["dead_letters"] for call in here.receiver.to("/admin")]
        assert [[first], [second]] == [[one["id"] for one in digest["newest"]] for digest in digests]
        assert [{"acme": 1}, {"bistro": 1}] == [digest["by_company"] for digest in digests]
        assert b"lovelace" not in b"".join(call.body for call in here.receiver.calls)


async def test_a_digest_that_did_not_arrive_is_told_again(tmp_path: Path) -> None:
    """A receiver that is down for a while hears everything afterwards, and the log says so once."""
    async with tower(tmp_path) as here:
        here.receiver.answer("/admin", Say(503), Say(503), Say(204))
        failed = await here.stock.failed()
        for _ in range(4):
            await here.look()
        calls = here.receiver.to("/admin")
        assert 3 == len(calls)
        assert {failed} == {one["id"] for call in calls for one in call.json["dead_letters"]["newest"]}
        assert 1 == len([event for event in here.events if isinstance(event, Troubled)])


async def test_what_was_told_is_not_told_again_after_a_restart(tmp_path: Path) -> None:
    async with tower(tmp_path) as here:
        await here.stock.failed()
        await here.stock.in_doubt()
        await here.look()
        again = Watch(here.watch._means)
        here.clock.turn(61_000)
        await again.step()
        here.clock.turn(61_000)
        await again.step()
        assert 1 == len(here.receiver.to("/admin"))
        assert [("in-doubt", "firing")] == here.alerts()


async def test_a_company_that_passes_fifty_hears_of_it_once_signed(tmp_path: Path) -> None:
    async with tower(tmp_path) as here:
        for _ in range(50):
            await here.stock.failed()
        await here.look()
        assert [] == here.receiver.to("/acme")
        for _ in range(5):
            await here.stock.failed()
        await here.look()
        await here.look()
        (call,) = here.receiver.to("/acme")
        assert call.verified
        assert ("dlq.threshold", "acme", 55, 50) == tuple(
            call.json[name] for name in ("type", "company_id", "size", "limit")
        )
        letters = await here.store.dead_letters(Filter(), limit=100)
        await here.store.discard([letter.outbox_id for letter in letters.items[:35]])
        await here.look()
        for _ in range(40):
            await here.stock.failed()
        await here.look()
        assert 2 == len(here.receiver.to("/acme"))


async def test_an_administrator_by_mail_gets_an_e_mail_of_ours(tmp_path: Path) -> None:
    """The notice goes the way of every e-mail; that it fails makes no further notice."""
    async with tower(tmp_path, admin="ops@example.com") as here:
        failed = await here.stock.failed()
        await here.look()
        page = await here.store.emails(Filter(company_id="staffetta-notices"), limit=10)
        (notice,) = page.items
        content = await here.store.content(notice.id)
        assert content is not None
        assert content.payload is not None
        payload = json.loads(content.payload)
        assert ("ops@example.com", "Staffetta: 1 new dead letter") == (payload["to"], payload["subject"])
        assert failed in payload["body_text"]
        claim = await here.stock.processing(notice.id)
        await here.stock.answered(
            claim, Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no"), committed=False
        )
        await here.look()
        assert 1 == len((await here.store.emails(Filter(company_id="staffetta-notices"), limit=10)).items)


async def test_an_invalid_payload_is_told(tmp_path: Path) -> None:
    """It has no dead letter and no callback: somebody must hear of it."""
    async with tower(tmp_path) as here:
        await here.stock.accepted()
        (claim,) = await here.store.claim_intake(tokens=["w1.i"], now=here.clock())
        await here.store.apply(
            Transition(
                id=claim.id, ref=claim.ref, token=claim.token, source=Status.INTAKING, target=Status.INVALID,
                cause=Cause.INVALID, at=here.clock(), reason="subject is missing",
            )
        )  # fmt: skip
        await here.look()
        (call,) = here.receiver.to("/admin")
        assert [(claim.id, "subject is missing")] == [
            (one["id"], one["reason"]) for one in call.json["invalid"]
        ]


async def test_only_the_first_of_several_watches_speaks(tmp_path: Path) -> None:
    async with tower(tmp_path, worker_id="w2") as here:
        other = {"worker": {"id": "w1", "started_at": 0}, "watches": True, "companies": [], "breakers": []}
        await here.stock.in_doubt()
        here.clock.turn(61_000)
        await here.store.publish("w1", json.dumps(other).encode(), here.clock())
        await here.watch.step()
        assert [] == here.alerts()
        assert [] == here.receiver.calls
        await here.look()  # the first one is silent now
        assert [("in-doubt", "firing")] == here.alerts()


@pytest.mark.parametrize("watched", [True, False])
async def test_alerts_are_shown_whether_or_not_somebody_watches(tmp_path: Path, *, watched: bool) -> None:
    async with tower(tmp_path) as here:
        await here.stock.in_doubt()
        if watched:
            await here.look()
        else:
            here.clock.turn(120_000)
        rows = await watch.current(here.store, Gathering(here.store, here.clock), now=here.clock())
        assert ("in-doubt", "firing") == (rows[0]["name"], rows[0]["state"])
