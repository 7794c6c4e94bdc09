"""Several sending processes, of which the first keeps store and queue for all.

    keeper (this process)   store, queue, API, every stage; it sends too
      ├── sending process   riders, transports        each asks the keeper over a socket of its own,
      └── sending process   riders, transports        by the contracts of store and queue

One that dies is started again and its claims are taken back at once. One that hangs is killed first: whoever
cannot be asked must not be able to send any more when others take over what it held.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping

import msgspec

from staffetta.app import wiring
from staffetta.app.engine import Engine, engine
from staffetta.config import Config
from staffetta.errors import QueueError, StaffettaError, StoreError
from staffetta.keeper import line as wire
from staffetta.keeper.service import Service, hello_of
from staffetta.keeper.sharing import Sharing
from staffetta.logs import Listeners
from staffetta.mail.events import Troubled
from staffetta.worker import LAST_SECONDS

BEGINNING_SECONDS = 60.0
"""A process that has not begun to send by then hangs."""
BEGINNINGS = 3
"""One that ends so often before it has begun will never begin: then the whole start has failed."""
GOOD_SECONDS = 10.0
"""One that lived this long was well: the next is started at once."""
LONGEST_PAUSE_SECONDS = 30.0
LOOKS = 20
"""How often it is looked for a sign of life within the time in which there must be one."""
FAREWELL_SECONDS = 5.0
"""How much longer than its worker's own bounds a process may take to end."""
FAILPOINT = "STAFFETTA_FAILPOINT"
"""Set for the keeper alone: a sending process gets what `STAFFETTA_FAILPOINT_SENDING` says, and only once."""


@contextlib.asynccontextmanager
async def keeping(config: Config, *, stages: Collection[str], listeners: Listeners) -> AsyncIterator[Engine]:
    """The engine of a keeper, and the processes that send beside it: `worker.processes` with it."""
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(wiring.opened_store(config, owner=True))
        queue = wiring.queue_for(config, emit=listeners, store=store)
        await queue.open()
        stack.push_async_callback(queue.close)
        sharing = Sharing(queue)
        share = share_of(config)
        crew = Crew(share, sharing, listeners)
        running = await stack.enter_async_context(
            engine(
                share,
                stages=stages,
                listeners=listeners,
                store=store,
                queue=sharing.view(),
                keeps_queue=True,
                lives=crew.lives,
            )
        )
        running.helpers = crew
        stack.push_async_callback(crew.stop)
        await crew.start(running)
        yield running


class Crew:
    """The sending processes of one keeper."""

    def __init__(self, config: Config, sharing: Sharing, emit: Listeners) -> None:
        self._config = config
        self._sharing = sharing
        self._emit = emit
        self._keeper: Engine | None = None
        self._lives: dict[int, Life] = {}
        self._slots: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failpoint = os.environ.get(f"{FAILPOINT}_SENDING", "")

    # --- what the keeper's engine asks ---------------------------------------------------------------------

    def lives(self, worker_id: str) -> bool:
        """Whether one of these processes is this worker."""
        return any(worker_id in life.service.workers for life in self._lives.values())

    def changed(self) -> None:
        """An operator changed something: all look at it now."""
        for life in self._lives.values():
            life.service.say(wire.CHANGED)

    def hurry(self) -> None:
        """The grace of the stop is over now."""
        for life in self._lives.values():
            life.service.say(wire.HURRY)

    # --- from the first to the last --------------------------------------------------------------------------

    async def start(self, keeper: Engine) -> None:
        """Until all of them send. :raises StaffettaError: one ended before it had begun."""
        self._keeper = keeper
        begun = [asyncio.get_running_loop().create_future() for _ in range(self._config.worker.processes - 1)]
        for number, future in enumerate(begun):
            self._slots.append(asyncio.create_task(self._keep(number, future), name=f"sending {number}"))
        for ended in await asyncio.gather(*begun, return_exceptions=True):
            if ended is not None:
                raise ended

    async def stop(self) -> None:
        """All end in order; who does not is killed. Nothing of theirs is left in work."""
        self._stopping.set()
        for life in self._lives.values():
            life.service.say(wire.STOP)
        grace = self._config.delivery.shutdown_grace_ms / 1_000 + LAST_SECONDS + FAREWELL_SECONDS
        if self._slots:
            _, late = await asyncio.wait(self._slots, timeout=grace)
            for life in self._lives.values():
                life.kill()
            if late:
                await asyncio.wait(late)

    async def _keep(self, number: int, begun: asyncio.Future[None]) -> None:
        """One process after the other, as long as they are wanted."""
        failures = 0
        while not self._stopping.is_set():
            since = time.monotonic()
            told = await self._live(number, begun)
            failures = 0 if time.monotonic() - since > GOOD_SECONDS else failures + 1
            if not begun.done() and (failures == BEGINNINGS or self._stopping.is_set()):
                begun.set_exception(StaffettaError(f"a sending process ended before it had begun: {told}"))
                return
            if self._stopping.is_set():
                return
            pause = min(0.1 * 2.0**failures, LONGEST_PAUSE_SECONDS) if failures > 1 else 0.0
            message = f"a sending process ended; its e-mails are taken back, another starts in {pause:.1f} s"
            self._say(message, told)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _live(self, number: int, begun: asyncio.Future[None]) -> str:
        """One life of one process, from its start until what it held is taken back; how it ended."""
        view = self._sharing.view()
        keeper = self._engine
        life = Life(
            Service(
                keeper.store,
                view,
                hear=lambda kind: _hear(kind, begun),
                leaving=keeper.gathering.look,
                unusable=keeper.presence.lost,
            )
        )
        self._lives[number] = life
        try:
            told = await self._run(life)
        finally:
            del self._lives[number]
        await self._take_back(life.service.workers)
        with contextlib.suppress(QueueError):
            await view.leave()
        return told

    @property
    def _engine(self) -> Engine:
        assert self._keeper is not None, "set by `start`"
        return self._keeper

    async def _run(self, life: Life) -> str:
        """Until it has ended and what it had asked for has taken effect: an outcome it told is not in doubt, and a
        claim whose answer it never read must be there when its claims are taken back."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await life.begin(theirs, self._environment())
            theirs.close()
            hello = hello_of(self._engine.store, settings=msgspec.msgpack.encode(self._config))
            await life.service.connect(ours.dup(), hello)
            watch = asyncio.create_task(self._watch(life))
            if self._stopping.is_set():
                life.service.say(wire.STOP)
            told = await life.ended()
            watch.cancel()
            await life.service.finished(ours)
        return told

    def _environment(self) -> Mapping[str, str]:
        """A process that died of a failpoint is not to die of it again."""
        named, self._failpoint = self._failpoint, ""
        others = {name: value for name, value in os.environ.items() if not name.startswith(FAILPOINT)}
        return {**others, FAILPOINT: named} if named else others

    async def _watch(self, life: Life) -> None:
        """Kill what shows no life. Looks are counted, not time: when this process itself stood still, everybody
        looks silent for a moment."""
        allowed_seconds = self._config.worker.dead_after_ms / 1_000
        heard, silent = 0, 0.0
        while silent < (allowed_seconds if heard else max(allowed_seconds, BEGINNING_SECONDS)):
            await asyncio.sleep(allowed_seconds / LOOKS)
            if heard == life.service.beats:
                silent += allowed_seconds / LOOKS
            else:
                heard, silent = life.service.beats, 0.0
        self._say(f"sending process {life.pid} shows no life and is killed", f"silent for {silent:.0f} s")
        life.kill()

    async def _take_back(self, workers: Collection[str]) -> None:
        """These are dead: what they held goes on at once, however long the store is away."""
        keeper = self._engine
        if not workers:
            return
        with contextlib.suppress(StoreError):
            await keeper.gathering.look()  # what they last told is counted before it grows old
        dead = sorted(workers)
        try:
            await keeper.presence.insist(lambda: keeper.worker.restore_workers(dead))
            for worker_id in dead:
                await keeper.store.forget_worker(worker_id)
        except Exception as error:  # noqa: BLE001  # the next process starts; restore finds these by their silence
            self._say("what a sending process held could not be taken back at once", repr(error))

    def _say(self, message: str, error: str) -> None:
        self._emit(Troubled(at=wiring.clock(), part="processes", message=message, error=error))


def _hear(kind: int, begun: asyncio.Future[None]) -> None:
    if kind == wire.BEGUN and not begun.done():
        begun.set_result(None)


def share_of(config: Config) -> Config:
    """One process's settings: what all share of a transport's limits is parted among them."""
    count, told = config.worker.processes, config.transport
    rate = told.messages_per_second
    return msgspec.structs.replace(
        config,
        transport=msgspec.structs.replace(
            told,
            connections=max(1, told.connections // count),
            messages_per_second=None if rate is None else rate / count,
        ),
    )


class Life:
    """One process and the service that answers it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def begin(self, end: socket.socket, environment: Mapping[str, str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "staffetta.app.sending", str(end.fileno()),
            pass_fds=(end.fileno(),), stdin=asyncio.subprocess.DEVNULL, env=environment,
        )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def ended(self) -> str:
        """How it ended."""
        assert self._process is not None, "begun"
        code = await self._process.wait()
        return f"process {self.pid} " + (
            f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        )
