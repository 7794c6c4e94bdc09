"""The way to Redis: gathers the calls of many steps into one round trip, notices when Redis is away or has forgotten.

While it is away every call fails at once, without a try; one task alone looks for it, less and less often.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from staffetta.errors import QueueError
from staffetta.mail.message import Millis
from staffetta.queue.redis.address import Address
from staffetta.queue.redis.scripts import Script
from staffetta.queue.redis.server import AWAY, PREFIX, OutOfMemoryError, RedisError, Server, find
from staffetta.queue.redis.tasks import ended

FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 1.0
TOGETHER = 1_000
"""Items (ids, jobs, companies) in one call of a script: it must not hold up all others."""


class Request(NamedTuple):
    """One caller's share of a call."""

    move: Move
    wish: Any
    items: int
    now: Millis | None
    """The caller's own time, where it brought one."""
    future: asyncio.Future[Any]

    def settle(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class Move:
    """A script as the queue calls it: how requests become its arguments, and its answer theirs."""

    def __init__(
        self,
        script: str,
        pack: Callable[[Sequence[Any]], list[Any]],
        unpack: Callable[[Any, Sequence[Any]], Sequence[Any]],
        *,
        together: bool = False,
    ) -> None:
        self.script = script
        self.pack = pack
        self.unpack = unpack
        self.together = together


class Link:
    """One connection for all moves of this process."""

    def __init__(
        self,
        address: Address,
        scripts: Mapping[str, Script],
        *,
        name: str,
        settings: Callable[[Millis | None], bytes],
        arrived: Callable[[Server], Awaitable[None]],
        forgotten: Callable[[], None],
        told: Callable[[str, str], None],
    ) -> None:
        """`arrived`: a connection was made; what must be done before the first move. `forgotten`: the epoch is
        another one. `told`: what an operator should hear."""
        self.address = address
        self.name = name
        self._scripts = scripts
        self._settings = settings
        self._arrived = arrived
        self._forgotten = forgotten
        self._told = told
        self._server: Server | None = None
        self._pending: list[Request] = []
        self._wanted = asyncio.Event()
        self.here = asyncio.Event()
        self._gone = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.why = "not connected yet"
        self.full = ""
        """What Redis said when it had no memory left; empty when it has."""
        self.epoch = b""
        self.round_trips = 0
        self.outages = 0

    async def open(self) -> None:
        """Connect; where that fails, go on trying beside."""
        try:
            await self._connect()
        except (*AWAY, RedisError) as error:
            self.lost(error)
        self._tasks = [
            asyncio.create_task(self._carry(), name="redis"),
            asyncio.create_task(self._return(), name="redis: look for it"),
        ]

    async def close(self) -> None:
        await ended(self._tasks)
        self._fail(QueueError("the queue was closed"))
        if self._server is not None:
            await self._server.close()
            self._server = None

    # --- calling ----------------------------------------------------------------------------------------------

    async def call(self, move: Move, wish: Any, items: int = 1, *, now: Millis | None = None) -> Any:
        """The answer to one request. It may travel and be answered with others."""
        if not self.here.is_set():
            raise QueueError(self.why)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append(Request(move, wish, items, now, future))
        self._wanted.set()
        return await future

    async def ask(self, *command: Any) -> Any:
        """A plain command, in its turn among the moves."""
        return await self.call(Move("", lambda _: list(command), lambda answer, _: [answer]), None)

    async def _carry(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            pending, self._pending = self._pending, []
            groups = _grouped(pending)
            server = self._server
            if server is None:
                _fail_all(groups, QueueError(self.why))
                continue
            try:
                await self._ask(server, groups)
            except (*AWAY, RedisError) as error:
                self.lost(error)
                _fail_all(groups, _as_queue_error(error, self.why))
            except BaseException:
                _fail_all(groups, QueueError("the queue was closed"))
                raise

    async def _ask(self, server: Server, groups: list[list[Request]]) -> None:
        commands = [self._command(group) for group in groups]
        self.round_trips += 1
        answers = await server.ask_all(commands)
        if any(_unknown_script(answer) for answer in answers):
            await self._load(server)
            again = [place for place, answer in enumerate(answers) if _unknown_script(answer)]
            for place, answer in zip(again, await server.ask_all([commands[p] for p in again]), strict=True):
                answers[place] = answer
        lost: Exception | None = None
        for group, answer in zip(groups, answers, strict=True):
            move = group[0].move
            if isinstance(answer, Exception):
                if isinstance(answer, AWAY):
                    lost = answer
                _fail_all([group], self._refused(answer, move))
                continue
            if not move.script:
                group[0].settle(answer)
                continue
            self._see(answer[0])
            if move.script in ("offer", "stock"):
                self.full = ""
            for one, part in zip(group, move.unpack(answer[1], [one.wish for one in group]), strict=True):
                one.settle(part)
        if lost is not None:
            raise lost

    def _command(self, group: Sequence[Request]) -> tuple[Any, ...]:
        move = group[0].move
        if not move.script:
            return tuple(move.pack([]))
        script = self._scripts[move.script]
        settings = self._settings(group[0].now)
        return (
            "EVALSHA",
            script.sha,
            1,
            PREFIX,
            settings,
            os.urandom(8),
            *move.pack([one.wish for one in group]),
        )

    def _refused(self, error: Exception, move: Move) -> QueueError:
        if isinstance(error, OutOfMemoryError):
            if not self.full:
                self._told(
                    "Redis has no memory left: jobs stay in the store and come as others leave; raise `maxmemory`",
                    str(error),
                )
            self.full = "Redis has no memory left (maxmemory): e-mails are accepted and wait in the store"
            return _caused(QueueError(self.full), error)
        return _caused(QueueError(f"Redis refused `{move.script}`: {error}"), error)

    def _see(self, epoch: bytes) -> None:
        if epoch != self.epoch:
            known, self.epoch = self.epoch, epoch
            if known:
                self._forgotten()

    # --- being away -------------------------------------------------------------------------------------------

    def lost(self, error: BaseException) -> None:
        """The connection is no good; nobody tries until it is found again."""
        server, self._server = self._server, None
        if server is not None:
            self._closing = asyncio.create_task(server.close())
        first = self.here.is_set() or not self.outages
        self.here.clear()
        self._gone.set()
        self.why = f"Redis at {self.address} does not answer: {str(error) or type(error).__name__}"
        if first:
            self.outages += 1
            self._told(
                "the queue is away: e-mails are accepted and wait in the store; see that Redis is up", self.why
            )
        pending, self._pending = self._pending, []
        _fail_all([pending], QueueError(self.why))

    async def _return(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            await self._gone.wait()
            try:
                await self._connect()
                wait = FIRST_WAIT_SECONDS
            except (*AWAY, RedisError, QueueError) as error:
                self.why = f"Redis at {self.address} does not answer: {str(error) or type(error).__name__}"
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _connect(self) -> None:
        server = await find(self.address, client_name=self.name)
        try:
            await self._load(server)
            await self._arrived(server)
        except BaseException:
            await server.close()
            raise
        self._server = server
        self._gone.clear()
        self.here.set()

    async def _load(self, server: Server) -> None:
        answers = await server.ask_all([("SCRIPT", "LOAD", one.text) for one in self._scripts.values()])
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer

    async def enrol(self, server: Server, run_id: str) -> bool:
        """Tell the queue which server this is; whether all jobs were forgotten."""
        script = self._scripts["enrol"]
        epoch, emptied = await server.ask(
            "EVALSHA", script.sha, 1, PREFIX, self._settings(None), os.urandom(8), run_id
        )
        self.epoch = epoch
        return bool(emptied)

    def _fail(self, error: QueueError) -> None:
        pending, self._pending = self._pending, []
        _fail_all([pending], error)


def _grouped(
    pending: Sequence[Request],
) -> list[list[Request]]:
    """Neighbours that may share a call, in the order in which they came."""
    groups: list[list[Request]] = []
    items = 0
    for one in pending:
        if groups and one.move.together and groups[-1][0].move is one.move and items + one.items <= TOGETHER:
            groups[-1].append(one)
            items += one.items
        else:
            groups.append([one])
            items = one.items
    return groups


def _fail_all(groups: Sequence[Sequence[Request]], error: QueueError) -> None:
    for group in groups:
        for one in group:
            if not one.future.done():
                one.future.set_exception(error)


def _unknown_script(answer: Any) -> bool:
    return isinstance(answer, RedisError) and "NOSCRIPT" in f"{type(answer).__name__.upper()} {answer}"


def _as_queue_error(error: BaseException, why: str) -> QueueError:
    return _caused(QueueError(why), error)


def _caused(error: QueueError, cause: BaseException) -> QueueError:
    error.__cause__ = cause
    return error
