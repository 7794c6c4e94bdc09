"""Hands messages to Amazon SES (API v2, `SendEmail`, raw): one request a message, one answer, nothing repeated.

The request carries no token by which SES could tell a repeat, so a request whose answer never came is in doubt,
like a final dot without a reply. Nothing of it leaves before the mark: the connection is made first, then the
mark, then the request.
"""

from __future__ import annotations

import asyncio
import math
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from staffetta import http
from staffetta.aws import Refusal, Signer
from staffetta.errors import NoAnswer, TransportError
from staffetta.http import Http
from staffetta.mail.message import Delivery, RecipientReply, Reply, Value
from staffetta.transport import stuffing, wire
from staffetta.transport.ses import answers
from staffetta.transport.ses.pace import Pace

SEND = "/v2/email/outbound-emails"
ACCOUNT = "/v2/email/account"
ANSWER_SECONDS = 60.0
"""From the mark to the answer. A short time would make duplicates: SES has the message, and we did not wait."""
CONNECT_SECONDS = 10.0
MESSAGE_MAX_BYTES = 40_000_000
TAGS_MAX = 50
TAG_MAX = 256


class SesSettings(Value, frozen=True, kw_only=True):
    """One account in one region."""

    region: str
    endpoint: str | None = None
    """Instead of the region's own."""
    configuration_set: str | None = None
    tags: tuple[str, ...] = ()
    """Of every e-mail; an e-mail's own come beside them."""
    profile: str | None = None
    access_key: str | None = None
    secret_key: str = ""
    connections_max: int = 20
    messages_per_second: float = 0.0
    """0: no limit."""
    idle_seconds: float = 15.0
    answer_seconds: float = ANSWER_SECONDS

    def __repr__(self) -> str:
        return f"SesSettings({self.region!r})"

    __str__ = __repr__

    def checked(self) -> SesSettings:
        """Itself, or ValueError with a sentence that tells what to change."""
        if not _REGION.fullmatch(self.region):
            raise ValueError(f"'{self.region[:40]}' is no region: write ses://eu-west-1")
        if self.endpoint is not None:
            try:
                path = http.parse(self.endpoint).path
            except NoAnswer as error:
                raise ValueError(f"the endpoint cannot be used: {error}") from error
            if path != "/":
                raise ValueError("the endpoint has a path: write only http(s)://host:port")
        if self.connections_max < 1 or self.messages_per_second < 0 or self.idle_seconds <= 0:
            raise ValueError("limits of connections and messages cannot be negative; at least one connection")
        if self.answer_seconds <= 0:
            raise ValueError("the time for an answer must be longer than nothing")
        return self

    @property
    def url(self) -> str:
        if self.endpoint is not None:
            return self.endpoint.rstrip("/")
        return f"https://email.{self.region}.amazonaws.com{'.cn' if self.region.startswith('cn-') else ''}"


_REGION = re.compile(r"[a-z]{2}(-[a-z]{2,12}){1,3}-\d{1,2}")
_QUERY = {
    "endpoint", "configuration_set", "tags", "profile", "connections", "messages_per_second", "idle", "timeout",
}  # fmt: skip


class SesTransport:
    """One account at SES. See `transport/contract.py` for what is promised."""

    def __init__(self, settings: SesSettings, *, name: str | None = None) -> None:
        self.settings = settings.checked()
        self.name = name or f"ses-{settings.region}"
        self._url = self.settings.url
        self._signer = Signer(
            service="ses",
            region=settings.region,
            profile=settings.profile,
            access_key=settings.access_key,
            secret_key=settings.secret_key,
        )
        self._http: Http | None = None
        self._pace = Pace(settings.messages_per_second)
        self._turn = asyncio.Lock()

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        connections_max: int = 20,
        messages_per_second: float = 0.0,
        idle_seconds: float = 15.0,
    ) -> SesTransport:
        """Read `ses://eu-west-1?endpoint=http://127.0.0.1:8000&configuration_set=x&tags=app:shop;env:prod#name`.

        The query may also set `profile` (of the AWS configuration), `connections`, `messages_per_second`,
        `idle` and `timeout` (seconds); it wins over the arguments. `ses://KEY:SECRET@region` gives credentials
        of its own (percent-encoded); otherwise they are found where AWS's own tools look. Raises ValueError
        with a sentence that never shows them.
        """
        try:
            parts = urlsplit(url)
            region, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("the transport's address cannot be read: write ses://eu-west-1") from None
        if parts.scheme != "ses" or not region or port is not None or parts.path not in ("", "/"):
            raise ValueError("the transport's address must be ses://region, such as ses://eu-west-1")
        if parts.username is not None and not parts.password:
            raise ValueError(
                "credentials in the address are an access key and a secret: ses://KEY:SECRET@region"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = set(query) - _QUERY
        if unknown:
            raise ValueError(f"'{min(unknown)}' is no setting of SES: known are {', '.join(sorted(_QUERY))}")
        return cls(
            SesSettings(
                region=region,
                endpoint=query.get("endpoint"),
                configuration_set=query.get("configuration_set") or None,
                tags=tuple(tag for tag in query.get("tags", "").split(";") if tag),
                profile=query.get("profile") or None,
                access_key=unquote(parts.username) if parts.username is not None else None,
                secret_key=unquote(parts.password or ""),
                connections_max=int(_number(query, "connections", connections_max)),
                messages_per_second=_number(query, "messages_per_second", messages_per_second),
                idle_seconds=_number(query, "idle", idle_seconds),
                answer_seconds=_number(query, "timeout", ANSWER_SECONDS),
            ),
            name=unquote(parts.fragment) or None,
        )

    def __repr__(self) -> str:
        return f"SesTransport({self.name!r})"

    async def open(self) -> None:
        settings = self.settings
        self._turn = asyncio.Lock()
        self._http = Http(
            timeout_seconds=settings.answer_seconds,
            connect_seconds=CONNECT_SECONDS,
            per_host=settings.connections_max,
            idle_seconds=settings.idle_seconds,
        )

    async def close(self) -> None:
        client, self._http = self._http, None
        if client is not None:
            await client.close()

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),
    ) -> Delivery:
        if self._http is None or not recipients:
            raise TransportError("a transport must be open, and a message needs a recipient, before it is sent")
        paths = [_path(address) for address in recipients]
        content = stuffing.with_line_ends(message)
        reply = _refused_here(sender, paths, content)
        committed = False
        if reply is None:
            to = [path for path in paths if isinstance(path, str)]
            reply, committed = await self._hand_over(self._request(sender, to, content, tags), before_dot)
        return Delivery(
            transport=self.name,
            replies=tuple(
                RecipientReply(address=address, reply=path if isinstance(path, Reply) else reply)
                for address, path in zip(recipients, paths, strict=True)
            ),
            committed=committed,
        )

    def _request(self, sender: str, recipients: list[str], content: bytes, tags: Sequence[str]) -> bytes:
        settings = self.settings
        raw = b64encode(content).decode("ascii")
        asked: dict[str, object] = {
            "Content": {"Raw": {"Data": raw}},
            "Destination": {"ToAddresses": recipients},
        }
        if sender:
            asked["FromEmailAddress"] = wire.ascii_domain(sender) or sender
        if settings.configuration_set:
            asked["ConfigurationSetName"] = settings.configuration_set
        if named := named_tags([*settings.tags, *tags]):
            asked["EmailTags"] = named
        return msgspec.json.encode(asked)

    async def _hand_over(self, body: bytes, before_dot: Callable[[], Awaitable[None]]) -> tuple[Reply, bool]:
        """The answer, and whether the request was allowed to leave."""
        now = asyncio.get_running_loop().time
        async with self._turn:
            while ahead := self._pace.wait(now()):  # noqa: ASYNC110  # the turn moves away while we wait
                await asyncio.sleep(ahead)
            self._pace.go(now())
        marked = False

        async def mark() -> None:
            nonlocal marked
            await before_dot()
            marked = True

        try:
            answer = await self._ask("POST", SEND, body, before_body=mark)
        except Refusal as refused:
            return Reply(stage="request", name=refused.name, text=str(refused)), False
        except NoAnswer as error:
            return answers.none_came(error, committed=marked), marked
        reply = answers.to_sending(answer)
        if reply.delivered:
            self._pace.went_well()
        elif answers.too_fast(reply):
            self._pace.too_fast(now())
        return reply, marked

    async def _ask(
        self, method: str, path: str, body: bytes, *, before_body: Callable[[], Awaitable[None]] | None = None
    ) -> http.Answer:
        client = self._http
        if client is None:
            raise NoAnswer("the transport was closed", kind="lost")
        url = self._url + path
        headers = await self._signer.sign(method, url, body, {"Content-Type": "application/json"})
        return await client.request(method, url, body=body or None, headers=headers, before_body=before_body)

    async def probe(self) -> Reply:
        """Asks for the account: signed like a sending, and it tells of a pause and of the day's quota."""
        try:
            answer = await self._ask("GET", ACCOUNT, b"")
        except Refusal as refused:
            return Reply(stage="request", name=refused.name, text=str(refused))
        except NoAnswer as error:
            return answers.none_came(error, committed=False)
        return answers.to_probe(answer)


def _number(query: dict[str, str], key: str, default: float) -> float:
    if key not in query:
        return default
    try:
        number = float(query[key])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key}={query[key]} in the transport's address is not a number")
    return number


def _path(address: str) -> str | Reply:
    """The address as SES takes it: 7-bit, its domain as A-labels; or why it is not used."""
    fault = wire.address_fault(address) if address else "it is empty"
    if fault:
        return Reply(stage="request", name="bad-address", text=f"this address was not used: {fault}")
    if address.isascii():
        return address
    return wire.ascii_domain(address) or Reply(
        stage="request", name="utf8-unsupported", text="this address needs SMTPUTF8, which SES does not offer"
    )


def _refused_here(sender: str, paths: list[str | Reply], content: bytes) -> Reply | None:
    """What can be told of the message before anything is asked; None: nothing speaks against it."""
    if all(isinstance(path, Reply) for path in paths):
        return Reply(stage="request", name="bad-address", text="no recipient is left to ask for")
    if fault := wire.address_fault(sender):
        return Reply(stage="request", name="bad-address", text=f"the sender's address was not used: {fault}")
    if len(content) > MESSAGE_MAX_BYTES:
        text = f"the message has {len(content)} bytes, SES takes at most {MESSAGE_MAX_BYTES}"
        return Reply(stage="request", name="too-large", text=text)
    if stuffing.too_long(content):
        text = f"a line of the message has more than the {stuffing.LINE_MAX_BYTES} bytes that e-mail carries"
        return Reply(stage="request", name="too-large", text=text)
    return None


def named_tags(tags: Sequence[str]) -> list[dict[str, str]]:
    """Tags as SES has them: a name and a value, in ASCII letters, digits, `_` and `-`; each name once.

    `app:shop` and `app=shop` have both; a tag of one word is its own name, with the value `true`.
    """
    found: dict[str, str] = {}
    for tag in tags:
        name, _, value = re.sub("=", ":", tag, count=1).partition(":")
        name, value = _plain(name), _plain(value) or "true"
        if name:
            found[name] = value
    return [{"Name": name, "Value": value} for name, value in list(found.items())[:TAGS_MAX]]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text.strip())[:TAG_MAX]
