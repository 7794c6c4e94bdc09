"""The client for asyncio. One set of connections for all its calls; use it inside one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from staffetta.client import talk
from staffetta.client.answers import Answer, Email, Receipt
from staffetta.client.door import Door
from staffetta.client.messages import Message
from staffetta.client.talk import Patience, Request, Talk, Wait
from staffetta.errors import NoAnswer, StaffettaError

Result = TypeVar("Result")


class AsyncClient:
    """Talks to one Staffetta. Close it, or use it with `async with`."""

    def __init__(
        self, url: str, key: str = "", *, timeout_seconds: float = 30.0, tries: int = 5, connections: int = 100
    ) -> None:
        from staffetta.http import Http  # aiohttp is large: who only imports the names does not wait for it

        self._door = Door(url, key)
        self._patience = Patience(tries=tries)
        self._http = Http(
            timeout_seconds=timeout_seconds,
            connect_seconds=min(5.0, timeout_seconds),
            connections=connections,
            answer_bytes=self._door.answer_bytes,
        )

    async def send(self, *, idempotency_key: str | None = None, **message: Unpack[Message]) -> Receipt:
        """Hand one e-mail in; it is durable when this returns.

        :raises PayloadError: fields are wrong; each is named. :raises Conflict: its id is another e-mail's.
        :raises NoAnswer: no answer came, in all tries. :raises ApiError: any other refusal.
        """
        key = idempotency_key or self._door.new_key()
        return await self._walk(talk.send(message, key, self._patience, self._door))

    async def send_batch(
        self, messages: Sequence[Message | Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Receipt | StaffettaError]:
        """Hand many in; one result each, in order: a receipt, or what is wrong with it. Right ones are kept."""
        key = idempotency_key or self._door.new_key()
        return await self._walk(talk.send_batch(messages, key, self._patience, self._door))

    async def get(self, id: str) -> Email:
        """One e-mail with its history and attempts. :raises NotFound: there is no such e-mail for this key."""
        return await self._walk(talk.get(id, self._patience, self._door))

    async def cancel(self, id: str) -> Receipt:
        """Stop one that is not sent yet. :raises MoveNotAllowed: it is too late for that."""
        return await self._walk(talk.cancel(id, self._patience, self._door))

    async def close(self) -> None:
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _walk(self, said: Talk[Result]) -> Result:
        came: Answer | NoAnswer | None = None
        try:
            step = next(said)
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    came = None
                else:
                    came = await self._once(step)
                step = said.send(came)
        except StopIteration as done:
            result: Result = done.value
            return result

    async def _once(self, request: Request) -> Answer | NoAnswer:
        try:
            answer = await self._http.request(
                request.method,
                self._door.url + request.path,
                body=request.body,
                headers=self._door.headers(request),
                repeat_lost=request.repeatable,
            )
        except NoAnswer as error:
            return error
        retry_after = answer.headers.get("retry-after", "")
        return Answer(status=answer.status, body=answer.body, retry_after=retry_after)
