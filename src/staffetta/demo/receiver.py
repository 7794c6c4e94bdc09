"""A receiver of callbacks as an application would have one: verifies each signature, and counts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections import Counter
from typing import Any

import msgspec

BODY_MAX = 65_536


class Receiver:
    """Answers 200 to what is signed rightly, 401 to the rest."""

    def __init__(self, secret: str) -> None:
        self._key = base64.b64decode(secret.removeprefix("whsec_"))
        self._server: asyncio.Server | None = None
        self.heard: Counter[str] = Counter()
        """E-mail → how often its outcome was told."""
        self.codes: Counter[str] = Counter()
        self.forged = 0

    async def start(self) -> str:
        """Listen on a free port of this machine; the URL to call."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/outcomes"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                pairs = (line.partition(":") for line in head.split("\r\n")[1:])
                headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(min(int(headers.get("content-length", "0")), BODY_MAX))
                status = b"200 OK" if self._genuine(headers, body) else b"401 Unauthorized"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the caller is done, or is no caller of ours
        finally:
            writer.close()

    def _genuine(self, headers: dict[str, str], body: bytes) -> bool:
        signed = f"{headers.get('webhook-id', '')}.{headers.get('webhook-timestamp', '')}.".encode() + body
        wanted = base64.b64encode(hmac.digest(self._key, signed, hashlib.sha256)).decode()
        given = (one.partition(",")[2] for one in headers.get("webhook-signature", "").split(" "))
        if not any(hmac.compare_digest(wanted, one) for one in given):
            self.forged += 1
            return False
        told: dict[str, Any] = msgspec.json.decode(body)
        self.heard.update(told["message_ids"])
        self.codes[told["code"]] += len(told["message_ids"])
        return True
