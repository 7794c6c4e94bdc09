"""The engine's side: a store and a queue that ask the keeper, made from the contracts that they keep."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from staffetta.errors import QueueError, StaffettaError, StoreUnavailable, Unstorable
from staffetta.keeper import line as wire
from staffetta.keeper.calls import QUEUE_CALLS, STORE_CALLS, Call, encode, read_trouble
from staffetta.keeper.line import Line
from staffetta.mail.message import Claim, Value
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

GONE = "the process that keeps the store is gone"
Waiting: TypeAlias = tuple[asyncio.Future[Any], Call]


class Hello(Value, frozen=True, kw_only=True):
    """The keeper's first words: what its store declares, and what the engine is to do."""

    resolution_ms: int
    has_clock: bool
    owned: bool
    keeps_version: bool
    settings: bytes = b""
    """Of the engine's process; whoever started it knows the form."""


_read_hello = msgspec.msgpack.Decoder(Hello).decode


class Client:
    """One engine's line to the keeper."""

    def __init__(self, hear: Callable[[int], None] = lambda _: None) -> None:
        self._hear_word = hear
        self._line: Line | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Waiting] = {}
        self._hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        """The keeper is gone: nothing that this process knows can be kept any more."""

    async def connect(self, end: socket.socket) -> Hello:
        self._line = await wire.lay(end, self._hear, self._lose)
        return await self._hello

    async def close(self) -> None:
        """Whoever asked before has his answer first."""
        while asked := [answer for answer, _ in self._waiting.values() if not answer.done()]:
            await asyncio.wait(asked)
        if self._line is not None:
            self._line.close()
            await self.lost.wait()

    def say(self, kind: int, body: bytes = b"") -> None:
        if self._line is not None:
            self._line.say(kind, body=body)

    # --- asking ------------------------------------------------------------------------------------------

    async def ask(self, call: Call, arguments: Any) -> Any:
        """The keeper's answer."""
        body = _written(arguments)
        line = self._line
        if line is None or line.gone:
            raise _gone(call)
        number = next(self._numbers) & 0xFFFFFFFF or next(self._numbers)
        answer = line._loop.create_future()  # noqa: SLF001  # the loop that the line lives in, without asking for it each time
        self._waiting[number] = (answer, call)
        line.say(call.kind, number, body)
        return await answer

    def post(self, call: Call, arguments: Any) -> None:
        """A call whose answer nobody waits for. It comes before whatever is asked later."""
        if self._line is not None and not self._line.gone:
            self._line.say(call.kind, wire.NOBODY, _written(arguments))

    # --- hearing -----------------------------------------------------------------------------------------

    def _hear(self, number: int, kind: int, body: memoryview) -> None:
        if kind == wire.HELLO:
            if not self._hello.done():
                self._hello.set_result(_read_hello(body))
        elif kind in (wire.ANSWER, wire.TROUBLE):
            self._hear_answer(number, kind, body)
        else:
            self._hear_word(kind)

    def _hear_answer(self, number: int, kind: int, body: memoryview) -> None:
        answer, call = self._waiting.pop(number)
        if answer.done():
            return  # whoever asked was cancelled
        if kind == wire.TROUBLE:
            answer.set_exception(read_trouble(body).error())
        else:
            told = call.read_answer(body)
            answer.set_result(told if call.unpack is None else call.unpack(told))

    def _lose(self) -> None:
        self.lost.set()
        waiting, self._waiting = self._waiting, {}
        for answer, call in waiting.values():
            if not answer.done():
                answer.set_exception(_gone(call))
        if not self._hello.done():
            self._hello.set_exception(StoreUnavailable(GONE))


def _gone(call: Call) -> StaffettaError:
    return StoreUnavailable(GONE) if call.owner == "store" else QueueError(GONE)


def _written(arguments: Any) -> bytes:
    try:
        return encode(arguments)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise Unstorable(f"a value cannot be kept ({type(error).__name__}: {error})") from error


# ---------------------------------------------------------------------------------------- store and queue


def store(client: Client, hello: Hello) -> Store:
    """The keeper's store. Opening it opens nothing: it is open as long as the line is."""
    declared = {name: getattr(hello, name) for name in ("resolution_ms", "has_clock", "owned", "keeps_version")}
    methods = {call.name: _method(client, call) for call in STORE_CALLS}
    made = type("KeptStore", (), {**declared, **methods, "open": _nothing, "close": _nothing})
    return cast("Store", made())


def queue(client: Client) -> Queue:
    """The keeper's queue."""
    settled = _Settled(client)
    methods = {call.name: _method(client, call, first=settled.post) for call in QUEUE_CALLS}
    methods["settle"] = settled.settle
    made = type("KeptQueue", (), {**methods, "open": _nothing, "close": _nothing})
    return cast("Queue", made())


def _method(client: Client, call: Call, first: Callable[[], None] | None = None) -> Any:
    ask, bound = client.ask, call.arguments

    async def method(_: Any, *args: Any, **named: Any) -> Any:
        if first is not None:
            first()
        return await ask(call, bound(*args, **named))

    async def without_content(_: Any, claim: Claim, *args: Any, **named: Any) -> Any:
        """A claim goes back without the message: the store has it."""
        light = msgspec.structs.replace(claim, message=b"")
        answer = await ask(call, bound(light, *args, **named))
        if isinstance(answer, Claim):
            msgspec.structs.force_setattr(answer, "message", claim.message)
        return answer

    async def for_each(self: Any, several: Sequence[Any], *args: Any, **named: Any) -> Any:
        """A value that cannot even be said fails alone."""
        try:
            return await method(self, several, *args, **named)
        except Unstorable as error:
            if len(several) == 1 or named.get("keep") is not None:
                return [error] * len(several)
            return [(await for_each(self, [one], *args, **named))[0] for one in several]

    if call.each:
        return for_each
    return without_content if call.carries_claim else method


async def _nothing(_: Any) -> None:
    """The keeper opens and closes what it keeps."""


class _Settled:
    """Ids that are done with, gathered into one call. Nobody waits for it: forgetting has no answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ids: list[str] = []
        (self._call,) = (call for call in QUEUE_CALLS if call.name == "settle")

        async def settle(_: Any, ids: Sequence[str]) -> None:
            if not self._ids:
                asyncio.get_running_loop().call_soon(self.post)
            self._ids.extend(ids)
            if client.lost.is_set():
                raise QueueError(GONE)

        self.settle = settle

    def post(self) -> None:
        """Before anything else is asked of the queue, so that calls keep their order."""
        if self._ids:
            ids, self._ids = self._ids, []
            self._client.post(self._call, self._call.arguments(ids))
