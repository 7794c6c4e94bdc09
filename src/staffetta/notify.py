"""Tells people outside: the administrator by HTTP or by an e-mail through Staffetta itself, a company by its receiver.

Whether and what to tell is decided elsewhere; here it is carried out, and said whether it arrived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from staffetta.callback import Caller
from staffetta.errors import NoAnswer, StaffettaError
from staffetta.http import Http
from staffetta.mail import notices
from staffetta.mail.message import Millis
from staffetta.mail.report import Receivers


class Notifier:
    """Owns no connection of its own: `http` and `caller` are closed by whoever made them."""

    def __init__(
        self,
        *,
        admin: str | None,
        sender: str,
        http: Http,
        caller: Caller,
        receivers: Receivers,
        hand_in: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """`hand_in`: takes a payload as JSON, as the API does."""
        self._admin = admin
        self._sender = sender
        self._http = http
        self._caller = caller
        self._receivers = receivers
        self._hand_in = hand_in

    @property
    def has_admin(self) -> bool:
        return bool(self._admin)

    async def tell_admin(self, told: dict[str, Any]) -> str:
        """Why it did not arrive; empty when it did."""
        admin = self._admin
        if not admin:
            return ""
        if "://" in admin:
            return await self._post(admin, told)
        payload = {
            "company_id": notices.COMPANY,
            "from": self._sender or admin,
            "to": admin,
            "subject": notices.subject_of(told),
            "body_text": notices.text_of(told),
        }
        try:
            await self._hand_in(msgspec.json.encode(payload))
        except StaffettaError as error:
            return str(error)
        return ""

    async def _post(self, url: str, told: Mapping[str, Any]) -> str:
        headers = {"content-type": "application/json", "user-agent": "Staffetta"}
        try:
            answer = await self._http.request("POST", url, body=msgspec.json.encode(told), headers=headers)
        except NoAnswer as error:
            return str(error)
        return "" if 200 <= answer.status < 300 else f"the receiver answered {answer.status}"

    async def tell_company(self, company_id: str, size: int, *, now: Millis) -> str:
        """The one signed `dlq.threshold` call; a company without a receiver counts as told."""
        receiver = self._receivers.of_company(company_id)
        if receiver is None:
            return ""
        body = msgspec.json.encode(notices.threshold(company_id, size, now=now))
        told = await self._caller.call(receiver, f"msg_dlq-threshold_{company_id}_{now}", body)
        return "" if 200 <= told.status < 300 else f"{told.status or 'no answer'}: {told.body}"
