"""Reads request bodies in bounded pieces: what is too large or of another kind is refused on the way."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping

from staffetta import failpoints
from staffetta.web.parts import Receive
from staffetta.web.problems import RETRY_SOON, Problem

SMALL_BYTES_MAX = 64 * 1024
"""Bodies that only say what to do."""
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
"""What a page of another site can make a browser send unasked; programs with nothing to say send any kind."""
_INFLATE_BYTES = 1024 * 1024
"""Decompressed in one go; then others have their turn."""


class ClientGone(Exception):
    """The caller hung up before the request was whole."""


class Budget:
    """The bytes that all bodies being read may hold at one time."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max

    def take(self, size: int) -> None:
        if size > self._free:
            detail = "too many large requests are being read; come again in a moment"
            raise Problem("busy", detail, headers=RETRY_SOON)
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size


class Body:
    """One request's body. `whole`: all of it was read, the connection can be used again."""

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes], budget: Budget) -> None:
        self._receive = receive
        self._headers = headers
        self._budget = budget
        self._held = 0
        self.empty = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        self.whole = self.empty

    async def json(self, bytes_max: int) -> bytes:
        """The bytes of a JSON body, decompressed. :raises Problem: too large, or of another kind."""
        self._check_kind()
        if self.empty:
            return b""
        declared = self._headers.get(b"content-length")
        if declared is not None and (not declared.isdigit() or int(declared) > bytes_max):
            raise _too_large(bytes_max)
        encoding = self._headers.get(b"content-encoding", b"identity").lower()
        if encoding == b"identity":
            return await self._plain(bytes_max)
        if encoding == b"gzip":
            return await self._gunzipped(bytes_max)
        detail = "only gzip is understood as Content-Encoding"
        raise Problem("wrong-media-type", detail, headers=((b"accept-encoding", b"gzip"),))

    async def form(self, bytes_max: int) -> bytes:
        """The bytes of a page's form. :raises Problem: too large, or of another kind."""
        media = self._headers.get(b"content-type", b"").lower().partition(b";")[0].strip()
        if media != _FORMS[0]:
            raise Problem("wrong-media-type", "forms come as application/x-www-form-urlencoded")
        return b"" if self.empty else await self._plain(bytes_max)

    def _check_kind(self) -> None:
        media, _, parameters = self._headers.get(b"content-type", b"").lower().partition(b";")
        media = media.strip()
        if self.empty and media not in _FORMS:
            return
        if media != b"application/json":
            raise Problem("wrong-media-type", "send the header `Content-Type: application/json`")
        charset = parameters.replace(b" ", b"").replace(b'"', b"").partition(b"charset=")[2]
        if charset not in (b"", b"utf-8", b"utf8"):
            raise Problem("wrong-media-type", "JSON is read as UTF-8")

    async def _piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if failpoints.armed:
            failpoints.reach("web.read")
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        self.whole = not more
        return body, more

    def _hold(self, size: int) -> None:
        self._budget.take(size)
        self._held += size

    async def _plain(self, bytes_max: int) -> bytes:
        first, more = await self._piece()
        if not more:  # the usual case: it came with the headers
            if len(first) > bytes_max:
                raise _too_large(bytes_max)
            return first
        whole = bytearray()
        piece = first
        while True:
            if len(whole) + len(piece) > bytes_max:
                raise _too_large(bytes_max)
            self._hold(len(piece))
            whole += piece
            if not more:
                return bytes(whole)
            piece, more = await self._piece()

    async def _gunzipped(self, bytes_max: int) -> bytes:
        inflate = zlib.decompressobj(wbits=31)
        whole = bytearray()
        more = True
        while more:
            piece, more = await self._piece()
            while piece:
                try:
                    grown = inflate.decompress(piece, _INFLATE_BYTES)
                except zlib.error:
                    raise Problem(
                        "malformed", "the body is not gzip, though Content-Encoding says so"
                    ) from None
                if len(whole) + len(grown) > bytes_max:
                    raise _too_large(bytes_max)
                self._hold(len(grown))
                whole += grown
                if inflate.unused_data:
                    raise Problem("malformed", "something follows the gzip body")
                piece = inflate.unconsumed_tail
                if piece:
                    await asyncio.sleep(0)
        if not inflate.eof:
            raise Problem("malformed", "the gzip body ends too early")
        return bytes(whole)

    async def drain(self, seconds: float, bytes_max: int) -> None:
        """Read on for a moment after a refusal, so that a caller still sending gets to read the answer."""
        try:
            async with asyncio.timeout(seconds):
                while not self.whole and bytes_max > 0:
                    piece, _ = await self._piece()
                    bytes_max -= len(piece)
        except (TimeoutError, ClientGone):
            return

    def done(self) -> None:
        if self._held:
            self._budget.give_back(self._held)
            self._held = 0


def _too_large(bytes_max: int) -> Problem:
    return Problem("too-large", f"a body may have {bytes_max} bytes here, after decompression")
