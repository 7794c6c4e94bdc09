"""A server that speaks SES's API v2 as far as sending goes, checks the signature, and misbehaves as told.

Written on bare sockets: it can close, stall or break off at any moment of a request.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY = "AKIASTAFFETTATEST"
SECRET = "a-secret-that-no-log-may-show"
REGION = "eu-west-1"


@dataclass(frozen=True)
class Play:
    """What it does with one request."""

    status: int = 200
    error: str = ""
    """An error's name, told as SES tells it."""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Instead of an answer of SES's own."""
    raw: bytes | None = None
    """Instead of HTTP."""
    at: Literal["headers", "answer"] = "answer"
    """Where `does` happens: before the body is read, or when all of the request is there."""
    does: Literal["answer", "close", "reset", "stall"] = "answer"
    keep: bool = False
    """The message is taken although no good answer goes out."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class SesServer:
    """`async with SesServer() as ses`; then `ses.url`, `ses.messages`, `ses.requests`."""

    def __init__(self, *plays: Play, account: Mapping[str, Any] | None = None, per_second: int = 0) -> None:
        """`per_second`: the account's rate, counted by the loop's clock; 0: any."""
        self.plays = deque(plays)
        self.per_second = per_second
        self.throttled = 0
        self._lately: deque[float] = deque()
        self.account = dict(account or {"SendingEnabled": True, "EnforcementStatus": "HEALTHY"})
        self.account_play: Play | None = None
        self.requests: list[Request] = []
        """Whole ones, in order."""
        self.messages: list[tuple[tuple[str, ...], bytes]] = []
        """Recipients and message of what it took."""
        self.begun = 0
        """Connections ever made."""
        self.bytes_heard = 0
        self.host = "127.0.0.1"
        self.port = 0
        self.met = asyncio.Event()
        """Somebody has connected."""
        self.taken = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._over = asyncio.Event()
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> SesServer:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._over.set()
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(list(self._serving))
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun += 1
        self.met.set()
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._once(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self._serving[task]
            writer.close()

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        self.bytes_heard += len(head)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        sending = path == "/v2/email/outbound-emails"
        play = self.plays.popleft() if sending and self.plays else Play()
        if sending and self.per_second and self._too_fast():
            self.throttled += 1
            play = Play(429, "TooManyRequestsException", "Maximum sending rate exceeded.")
        if not sending and self.account_play is not None:
            play = self.account_play
        if play.at == "headers" and play.does != "answer":
            return await self._misbehave(play, writer)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.bytes_heard += len(body)
        request = Request(method=method, path=path, headers=headers, body=body)
        self.requests.append(request)
        good = play.status == 200 and not play.error and play.does == "answer" and play.raw is None
        if sending and (play.keep or (good and self._signed(request))):
            self._take(request)
        if play.does != "answer":
            return await self._misbehave(play, writer)
        writer.write(play.raw if play.raw is not None else self._answer(play, request))
        await writer.drain()
        return play.raw is None

    def _too_fast(self) -> bool:
        now = asyncio.get_running_loop().time()
        while self._lately and self._lately[0] <= now - 1.0:
            self._lately.popleft()
        if len(self._lately) >= self.per_second:
            return True
        self._lately.append(now)
        return False

    async def _misbehave(self, play: Play, writer: asyncio.StreamWriter) -> bool:
        if play.does == "stall":
            await self._over.wait()
        if play.does == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False

    def _take(self, request: Request) -> None:
        asked = request.json
        to = asked["Destination"]
        recipients = tuple(
            address for kind in ("ToAddresses", "CcAddresses", "BccAddresses") for address in to.get(kind, ())
        )
        self.messages.append((recipients, base64.b64decode(asked["Content"]["Raw"]["Data"], validate=True)))
        self.taken.set()

    def _answer(self, play: Play, request: Request) -> bytes:
        error, message, status = play.error, play.message, play.status
        if status == 200 and not error and not self._signed(request):
            error, message, status = "SignatureDoesNotMatch", "The request signature we calculated differs", 403
        headers = {"Content-Type": "application/json", **play.headers}
        if play.body is not None:
            body = play.body
        elif error:
            headers["x-amzn-ErrorType"] = f"{error}:http://internal.amazon.com/coral/com.amazonaws.sesv2/"
            body = json.dumps({"message": message}).encode()
        elif request.path == "/v2/email/account":
            body = json.dumps(self.account).encode()
        else:
            body = json.dumps({"MessageId": f"0100-{len(self.messages)}"}).encode() if status == 200 else b"{}"
        headers["Content-Length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Told\r\n{lines}\r\n".encode("latin-1") + body

    def _signed(self, request: Request) -> bool:
        """Whether the signature is the one that AWS's own code makes for this request and secret."""
        told = request.headers.get("authorization", "")
        signed = told.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        again = AWSRequest(
            method=request.method,
            url=f"http://{request.headers['host']}{request.path}",
            data=request.body,
            headers={name: value for name, value in request.headers.items() if name in signed},
        )
        again.context["timestamp"] = request.headers["x-amz-date"]
        signer = SigV4Auth(Credentials(KEY, SECRET), "ses", REGION)
        signature = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
        return told.endswith(f"Signature={signature}") and f"Credential={KEY}/" in told
