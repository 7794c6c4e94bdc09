"""Makes one signed call to a receiver, and says what came of it. Whether to call again is decided elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable

from staffetta.errors import NoAnswer
from staffetta.http import Http
from staffetta.mail import report
from staffetta.mail.message import Millis
from staffetta.mail.report import Receiver, Told
from staffetta.mail.retry_after import retry_after_ms

_NOT_OF_RECEIVER = ("address", "forbidden")
_key = functools.lru_cache(maxsize=4_096)(report.signing_key)


class Caller:
    """Posts to receivers: by `guarded` to those that may not be private, by `trusted` to all others."""

    def __init__(self, *, trusted: Http, guarded: Http, clock: Callable[[], Millis]) -> None:
        self._trusted = trusted
        self._guarded = guarded
        self._clock = clock

    async def call(self, receiver: Receiver, webhook_id: str, body: bytes) -> Told:
        """One POST, signed where there is a secret. Never raises for what a receiver or the road to it does."""
        now = self._clock()
        headers = {"content-type": "application/json", "user-agent": "Staffetta", "webhook-id": webhook_id}
        seconds = now // 1_000
        headers["webhook-timestamp"] = str(seconds)
        if receiver.secret is not None:
            signature = report.signature(_key(receiver.secret), webhook_id, seconds, body)
            headers["webhook-signature"] = signature
        http = self._guarded if receiver.guarded else self._trusted
        try:
            # A receiver knows a repeat by its webhook-id, so meeting a connection closed idle costs nothing.
            answer = await http.request("POST", receiver.url, body=body, headers=headers, repeat_lost=True)
        except NoAnswer as error:
            return Told(status=0, body=str(error), of_receiver=error.kind not in _NOT_OF_RECEIVER)
        if 200 <= answer.status < 300:
            return Told(status=answer.status)
        return Told(
            status=answer.status,
            body=answer.body[: report.BODY_KEPT_BYTES].decode(errors="replace"),
            retry_after_ms=retry_after_ms(answer.headers.get("retry-after", ""), now=now),
        )

    async def close(self) -> None:
        await self._trusted.close()
        await self._guarded.close()
