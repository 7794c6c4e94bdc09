"""Which transport an e-mail may take: chains, pauses, breakers, and a soft return after trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doubles.clock import run, turned
from doubles.transport import ScriptedTransport
from staffetta.flow.routes import FIRST_LIMIT, FULL_LIMIT, Route, Routes
from staffetta.mail import verdict
from staffetta.mail.events import BreakerMoved, Event, Troubled
from staffetta.mail.message import Delivery, RecipientReply, Reply

DOWN = Reply(stage="connect", name="refused", text="connection refused")
PASSWORD = Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed")
OK = Reply(stage="dot", code=250, text="Ok", committed=True)
NEVER = Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user")


class Bench:
    def __init__(self, *names: str, chains: dict[str, Sequence[str]] | None = None) -> None:
        self.events: list[Event] = []
        self.transports = [ScriptedTransport(name) for name in names or ("first", "second")]
        self.routes = Routes(
            self.transports, chain=[one.name for one in self.transports], chains=chains, clock=turned().clock,
            draw=lambda: 0.5, emit=self.events.append, judge=verdict.judge,
        )  # fmt: skip

    def learn(self, name: str, *replies: Reply) -> None:
        pairs = tuple(
            RecipientReply(address=f"r{n}@example.org", reply=reply) for n, reply in enumerate(replies)
        )
        delivery = Delivery(transport=name, replies=pairs, committed=False)
        self.routes.learn(self.route(name), delivery, [verdict.judge(reply) for reply in replies])

    def route(self, name: str) -> Route:
        return next(route for route in self.routes.routes() if route.name == name)

    def picked(self, company_id: str = "acme", *tried: str) -> str | None:
        route = self.routes.pick(company_id, tried)
        return route.name if route else None

    async def well_again(self, name: str) -> None:
        """Its probe is due and goes well."""
        while self.route(name).breaker.state != "closed":
            await asyncio.sleep(1)
            self.routes.probe_due(now=turned().clock())
            await asyncio.sleep(0.1)


def test_the_first_of_the_chain_takes_the_mail_and_the_next_when_it_was_tried() -> None:
    async def story() -> None:
        bench = Bench()

        assert (bench.picked(), bench.picked("acme", "first")) == ("first", "second")
        assert bench.picked("acme", "first", "second") is None

    run(story)


def test_a_company_sends_by_its_own_chain() -> None:
    async def story() -> None:
        bench = Bench(chains={"beta": ("second",)})
        bench.learn("second", PASSWORD)

        assert (bench.picked("beta"), bench.picked("acme")) == (None, "first")
        assert not bench.routes.open_for("beta")
        assert bench.routes.open_for("acme")
        assert "second: 535 5.7.8" in bench.routes.why_closed("beta")

    run(story)


def test_a_paused_transport_is_passed_over_and_never_probed() -> None:
    async def story() -> None:
        bench = Bench()
        bench.learn("first", PASSWORD)
        bench.routes.pause(frozenset({"first"}))
        await asyncio.sleep(600)
        bench.routes.probe_due(now=turned().clock())
        await asyncio.sleep(1)

        assert bench.picked() == "second"
        assert bench.transports[0].probed == 0
        assert [one["state"] for one in bench.routes.figures()] == ["paused", "closed"]
        assert "first: paused" in bench.routes.why_closed("acme")

    run(story)


def test_when_all_are_closed_an_e_mail_is_looked_at_again_with_the_next_probe() -> None:
    async def story() -> None:
        bench = Bench()
        bench.learn("first", PASSWORD)
        bench.learn("second", PASSWORD)
        now = turned().clock()

        assert bench.picked() is None
        assert bench.routes.room() == 0
        probes = [route.breaker.probe_at for route in bench.routes.routes()]
        assert bench.routes.open_again_at("acme", now=now) == min(probes)
        assert "first: " in bench.routes.why_closed("acme")
        assert "second: " in bench.routes.why_closed("acme")

    run(story)


def test_with_nothing_left_to_try_it_is_said_so() -> None:
    async def story() -> None:
        assert Bench().routes.why_closed("acme") == "no other transport is left to try"

    run(story)


def test_a_breaker_that_moves_is_told_with_its_reason() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)
        await bench.well_again("only")

        told = [event for event in bench.events if isinstance(event, BreakerMoved)]
        assert [event.state for event in told] == ["open", "half-open", "closed"]
        assert all("authentication failed" in event.reason for event in told)

    run(story)


def test_trouble_of_the_transport_counts_whatever_else_was_said() -> None:
    """One recipient was refused, the other met a relay that is down."""

    async def story() -> None:
        bench = Bench("only")
        for _ in range(5):
            bench.learn("only", NEVER, DOWN)

        assert bench.picked() is None

    run(story)


def test_refused_recipients_open_nothing() -> None:
    async def story() -> None:
        bench = Bench("only")
        for _ in range(100):
            bench.learn("only", NEVER)

        assert bench.routes.all_open
        assert bench.routes.room() is None

    run(story)


def test_a_transport_that_comes_back_carries_few_and_more_with_each_that_goes() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)
        await bench.well_again("only")
        rooms = []
        while not bench.routes.all_open:
            rooms.append(bench.routes.room())
            bench.learn("only", OK)
            assert len(rooms) < 1_000

        assert rooms[:6] == [1, 2, 4, 8, 16, FIRST_LIMIT]
        assert rooms[-1] == FULL_LIMIT - 1
        assert rooms == sorted(rooms, key=lambda room: room or 0)

    run(story)


def test_places_on_trial_are_waited_for_and_given_back() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)
        await bench.well_again("only")
        first = await bench.routes.admit("acme", ())
        assert first is not None
        waiting = asyncio.create_task(bench.routes.admit("acme", ()))
        await asyncio.sleep(5)
        assert not waiting.done()

        bench.routes.leave(first)

        assert await waiting is first
        assert first.carried == 1

    run(story)


def test_while_one_stands_its_trial_the_others_take_the_next() -> None:
    async def story() -> None:
        bench = Bench()
        bench.learn("first", PASSWORD)
        await bench.well_again("first")

        admitted = [await bench.routes.admit("acme", ()) for _ in range(3)]

        assert [route.name for route in admitted if route] == ["first", "second", "second"]
        assert bench.routes.room() is None

    run(story)


def test_who_waits_for_a_place_hears_when_the_breaker_opens_again() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)
        await bench.well_again("only")
        await bench.routes.admit("acme", ())
        waiting = asyncio.create_task(bench.routes.admit("acme", ()))
        await asyncio.sleep(1)

        bench.learn("only", PASSWORD)

        assert await waiting is None

    run(story)


def test_a_probe_that_breaks_is_told_and_made_again() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)
        broken = True

        async def probe() -> Reply:
            if broken:
                raise RuntimeError("oh")
            return Reply(stage="ehlo", code=250, text="ready")

        bench.transports[0].probe = probe  # type: ignore[method-assign]  # a fault of ours in a transport
        for _ in range(5):
            await asyncio.sleep(70)
            bench.routes.probe_due(now=turned().clock())
            await asyncio.sleep(1)
        assert bench.route("only").breaker.state == "open"
        assert any(isinstance(event, Troubled) and "RuntimeError" in event.error for event in bench.events)

        broken = False
        await bench.well_again("only")
        assert bench.picked() == "only"

    run(story)


def test_closing_ends_probes_that_hang() -> None:
    async def story() -> None:
        bench = Bench("only")
        bench.learn("only", PASSWORD)

        async def hangs() -> Reply:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("never reached")

        bench.transports[0].probe = hangs  # type: ignore[method-assign]  # a server that says nothing
        await asyncio.sleep(70)
        bench.routes.probe_due(now=turned().clock())
        await asyncio.sleep(1)

        await bench.routes.close()

        assert bench.route("only").probing is not None
        assert bench.route("only").probing.done()  # type: ignore[union-attr]  # asserted above

    run(story)
