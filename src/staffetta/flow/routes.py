"""Which transport an e-mail may take now: chains per company, a breaker per transport, pauses, a soft return.

A transport whose breaker is open is not tried; a probe finds out when it is back. Then it carries a few e-mails
at a time, more with each that it takes, so that what has piled up arrives at the rate it can take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from staffetta.mail import breaker
from staffetta.mail.attempt import words
from staffetta.mail.breaker import Breaker
from staffetta.mail.events import BreakerMoved, Emit, Troubled
from staffetta.mail.message import Delivery, Millis, Reply, Verdict
from staffetta.transport.contract import Transport

FIRST_LIMIT = 32
"""E-mails at a time through a transport that has just stood its trial."""
FULL_LIMIT = 256
"""From here on it is taken to be as well as before."""
PAUSED = "paused"


class Route:
    """One transport with what is known of its health."""

    __slots__ = ("breaker", "carried", "limit", "name", "paused", "probing", "transport", "waiting")

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.name = transport.name
        self.breaker: Breaker = breaker.CLOSED
        self.paused = False
        self.limit: int | None = None
        """E-mails at a time while it comes back; None: as many as there are riders and connections."""
        self.carried = 0
        """E-mails on it now; counted while there is a limit."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.probing: asyncio.Task[None] | None = None

    @property
    def open_for_mail(self) -> bool:
        return not self.paused and self.breaker.lets_through

    def wake(self) -> None:
        """Let those that wait look again."""
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(None)


class Routes:
    """All transports of a worker, and the chain that each company sends by."""

    def __init__(
        self,
        transports: Sequence[Transport],
        *,
        chain: Sequence[str],
        chains: Mapping[str, Sequence[str]] | None = None,
        clock: Callable[[], Millis],
        draw: Callable[[], float],
        emit: Emit,
        judge: Callable[[Reply], Verdict],
    ) -> None:
        self._routes = {transport.name: Route(transport) for transport in transports}
        self._chain = tuple(self._routes[name] for name in chain)
        self._chains = {
            company_id: tuple(self._routes[name] for name in names)
            for company_id, names in (chains or {}).items()
        }
        self._clock = clock
        self._draw = draw
        self._judge = judge
        self._emit = emit
        self.all_open = True
        """Every transport takes mail without a limit: nobody needs to look closer."""
        self._trouble = asyncio.Event()

    def routes(self) -> list[Route]:
        return list(self._routes.values())

    def chain_of(self, company_id: str) -> tuple[Route, ...]:
        return self._chains.get(company_id, self._chain)

    # --- choosing ---------------------------------------------------------------------------------------------

    def pick(self, company_id: str, tried: Sequence[str] = ()) -> Route | None:
        """The first transport of the company's chain that takes mail now and was not tried in this attempt."""
        for route in self._chains.get(company_id, self._chain):
            if not route.paused and route.breaker.state == "closed" and route.name not in tried:
                return route
        return None

    def open_for(self, company_id: str) -> bool:
        """Whether any transport that the company may use takes mail now."""
        return self.all_open or self.pick(company_id) is not None

    def room(self) -> int | None:
        """How many e-mails may be on their way at once while transports come back; None: no limit."""
        if self.all_open:
            return None
        limits = [route.limit for route in self._routes.values() if route.open_for_mail]
        return None if None in limits else sum(limit for limit in limits if limit is not None)

    async def admit(self, company_id: str, tried: Sequence[str]) -> Route | None:
        """As `pick`, waiting for a place on a transport that comes back. `leave` gives the place back."""
        while True:
            route = self._with_room(company_id, tried)
            if route is None or route.limit is None:
                return route
            if route.carried < route.limit:
                route.carried += 1
                return route
            future = asyncio.get_running_loop().create_future()
            route.waiting.append(future)
            await future

    def _with_room(self, company_id: str, tried: Sequence[str]) -> Route | None:
        """While one e-mail tries out a transport, the others take the next of the chain rather than wait."""
        first: Route | None = None
        for route in self.chain_of(company_id):
            if not route.open_for_mail or route.name in tried:
                continue
            if route.limit is None or route.carried < route.limit:
                return route
            first = first or route
        return first

    def leave(self, route: Route) -> None:
        """The place that `admit` gave is free again."""
        route.carried = max(0, route.carried - 1)
        if route.waiting:
            route.wake()

    # --- learning ---------------------------------------------------------------------------------------------

    def learn(self, route: Route, delivery: Delivery, verdicts: Sequence[Verdict]) -> None:
        """What the replies of one e-mail tell about the transport."""
        well = route.breaker is breaker.CLOSED and route.limit is None
        if well and (verdicts[0].action == "DELIVERED" or not any(map(breaker.counts_against, verdicts))):
            return
        # Trouble that reaches the transport comes first: it is there whatever else was said.
        answer, verdict = max(
            zip(delivery.replies, verdicts, strict=True), key=lambda pair: breaker.counts_against(pair[1])
        )
        stood_trial = route.breaker.on_trial
        now, draw = self._clock(), self._draw()
        after = breaker.after_verdict(route.breaker, verdict, reason=words(answer.reply), now=now, draw=draw)
        self._set(route, after)
        if after.on_trial:
            self._limit(route, after.room)
        elif stood_trial and after is breaker.CLOSED:
            self._limit(route, FIRST_LIMIT)
        elif route.limit is not None and verdict.action == "DELIVERED":
            self._limit(route, route.limit + 1 if route.limit + 1 < FULL_LIMIT else None)

    def _set(self, route: Route, after: Breaker) -> None:
        before, route.breaker = route.breaker, after
        if before.state == after.state:
            return
        reason = after.reason or before.reason
        self._emit(BreakerMoved(at=self._clock(), transport=route.name, state=after.state, reason=reason))
        self._limit(route, after.room)

    def _limit(self, route: Route, limit: int | None) -> None:
        route.limit = limit
        route.wake()
        self._look_closer()

    def _look_closer(self) -> None:
        self.all_open = all(route.open_for_mail and route.limit is None for route in self._routes.values())
        if self.all_open:
            self._trouble.clear()
        else:
            self._trouble.set()

    async def until_trouble(self) -> None:
        """Return when some transport does not take mail as usual."""
        await self._trouble.wait()

    # --- pausing ----------------------------------------------------------------------------------------------

    def pause(self, names: frozenset[str]) -> None:
        """These transports are paused by an operator, all others are not."""
        for route in self._routes.values():
            if route.paused != (route.name in names):
                route.paused = not route.paused
                route.wake()
        self._look_closer()

    # --- telling ----------------------------------------------------------------------------------------------

    def open_again_at(self, company_id: str, *, now: Millis) -> Millis:
        """When a transport of this company is asked again: no e-mail of it needs to be looked at before."""
        asked = [
            r.breaker.probe_at for r in self.chain_of(company_id) if not r.paused and r.breaker.state == "open"
        ]
        return max(now, min(asked, default=now))

    def why_closed(self, company_id: str) -> str:
        """For the e-mail's history: what keeps it back."""
        told = "; ".join(
            f"{route.name}: {PAUSED if route.paused else route.breaker.reason}"
            for route in self.chain_of(company_id)
            if not route.open_for_mail
        )
        return f"no transport takes mail now ({told})" if told else "no other transport is left to try"

    def figures(self) -> list[dict[str, object]]:
        """Each transport's health, for whoever asks."""
        return [
            {
                "transport": route.name,
                "state": PAUSED if route.paused else route.breaker.shown,
                "reason": route.breaker.reason,
                "since": route.breaker.since,
                "limit": route.limit,
            }
            for route in self._routes.values()
        ]

    # --- probing ----------------------------------------------------------------------------------------------

    def probe_due(self, *, now: Millis) -> None:
        """Begin the probes that are due. Each may take its time; there is one at a time for a transport."""
        for route in self._routes.values():
            if not route.paused and breaker.probe_due(route.breaker, now=now):
                self._set(route, breaker.begin_probe(route.breaker))
                route.probing = asyncio.create_task(self._probe(route), name=f"probe {route.name}")

    async def _probe(self, route: Route) -> None:
        try:
            reply = await route.transport.probe()
        except Exception as error:  # noqa: BLE001  # a broken transport is probed again like one that is away
            message = f"the probe of transport {route.name} broke; it is probed again"
            self._emit(Troubled(at=self._clock(), part="transport", message=message, error=repr(error)))
            reply = Reply(stage="connect", name="unexpected", text=f"{type(error).__name__}: {error}")
        verdict = None if 200 <= reply.code < 300 else self._judge(reply)
        after = breaker.after_probe(
            route.breaker, verdict, reason=words(reply), now=self._clock(), draw=self._draw()
        )
        self._set(route, after)

    async def close(self) -> None:
        """End probes and free whoever waits."""
        probes = [route.probing for route in self._routes.values() if route.probing is not None]
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
