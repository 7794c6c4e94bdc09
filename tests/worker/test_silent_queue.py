"""A queue that does not answer: the store has every e-mail, so nobody ends, nothing is lost, pauses hold."""

from __future__ import annotations

import asyncio
from typing import Any

from doubles.clock import run
from doubles.rig import Rig, new_email
from staffetta.errors import QueueError
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Pause
from staffetta.queue.local import LocalQueue


class SilentQueue(LocalQueue):
    """Answers until it is told to be silent: all calls, or those named."""

    silent: bool | frozenset[str] = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        silent = super().__getattribute__("silent")
        if name.startswith("_") or not asyncio.iscoroutinefunction(found) or name in ("open", "close"):
            return found
        if silent is True or (silent and name in silent):
            return self._away
        return found

    async def _away(self, *_: object, **__: object) -> Any:
        raise QueueError("the queue is away")


def a_rig(**silent: Any) -> tuple[Rig, SilentQueue]:
    queue = SilentQueue()
    rig = Rig(queue=queue)
    queue._clock = rig.clock
    queue.silent = silent.get("silent", False)
    return rig, queue


async def until_sent(rig: Rig, count: int) -> None:
    for _ in range(6_000):
        if (await rig.store.counts())[Status.SENT] == count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(await rig.store.counts())


def test_a_worker_that_starts_without_its_queue_waits_for_it() -> None:
    """It ended instead, and with it the process, though hand-in and store were well."""

    async def story() -> None:
        rig, queue = a_rig(silent=True)
        for added in await rig.store.add([new_email(n, now=rig.clock()) for n in range(5)]):
            assert not isinstance(added, Exception)
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(120)
        assert not running.done()
        assert worker.started.is_set()

        queue.silent = False
        await until_sent(rig, 5)
        worker.stop()
        await running

    run(story)


def test_a_stop_while_the_queue_is_away_is_an_orderly_one() -> None:
    """The stop failed, and the worker's record stayed: others took it for one that may come back."""

    async def story() -> None:
        rig, queue = a_rig()
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(3)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await until_sent(rig, 3)
        queue.silent = True

        worker.stop()
        await running

        assert await rig.store.workers() == []
        assert (await rig.store.counts())[Status.PROCESSING] == 0

    run(story)


def test_a_pause_of_everything_holds_though_the_queue_cannot_be_told() -> None:
    async def story() -> None:
        rig, queue = a_rig(silent=frozenset({"block", "unblock"}))
        await rig.store.pause(Pause(scope="company", name="other", since=rig.clock()))
        await rig.store.pause(Pause(scope="all", name="", since=rig.clock()))
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(3)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(60)
        assert rig.transport.calls == 0

        await rig.store.resume(Pause(scope="all", name="", since=0))
        await until_sent(rig, 3)
        queue.silent = False
        worker.stop()
        await running

    run(story)


def test_a_company_whose_unblocking_failed_is_unblocked_later() -> None:
    """It was forgotten here and stayed blocked there: its e-mails waited for ever."""

    async def story() -> None:
        rig, queue = a_rig()
        pause = Pause(scope="company", name="acme", since=rig.clock())
        await rig.store.pause(pause)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(3)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        queue.silent = frozenset({"unblock"})
        await rig.store.resume(pause)
        await asyncio.sleep(30)

        queue.silent = False
        await until_sent(rig, 3)
        worker.stop()
        await running

    run(story)
