"""Signs requests to Amazon's services: credentials are botocore's, and the signature of what is not plain.

Its own clients are not used: they cost much CPU a call, and they repeat requests by themselves. Plain requests (a
path without signs that need writing another way, no query) are signed here, by the same rules (Signature Version 4)
at a fifth of the cost: the day's key is derived once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

NONE_FOUND = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role that"
    " AWS's own tools find"
)


_PLAIN = re.compile(r"https?://(?P<host>[a-z0-9.-]+(?::\d+)?)(?P<path>(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?)")


class Refusal(Exception):  # a "no" of our own side, carried up to where it becomes a reply or an error
    """No request could be signed; nothing was sent."""

    def __init__(self, name: str, words: str) -> None:
        self.name = name
        super().__init__(words)


class Signer:
    """Holds the credentials; those of a role are fetched anew before they expire."""

    def __init__(
        self,
        *,
        service: str,
        region: str,
        profile: str | None = None,
        access_key: str | None = None,
        secret_key: str = "",
    ) -> None:
        """`access_key`: these credentials, instead of those that AWS's own tools would find."""
        self._service = service
        self._region = region
        self._profile = profile
        self._found: Any = Credentials(access_key, secret_key) if access_key is not None else None
        self._looking = asyncio.Lock()
        self._in_vain: tuple[float, Refusal] | None = None
        """When they were last looked for without finding any, and what was said then."""
        self._derived: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def __repr__(self) -> str:
        return f"Signer({self._service!r}, {self._region!r})"

    async def sign(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of this request, the given ones among them.

        :raises Refusal: there are no credentials, or they could not be fetched.
        """
        found = self._found
        known = type(found) is Credentials  # plain ones never expire: no lock, no thread
        credentials = found.get_frozen_credentials() if known else await self._fetched()
        plain = _PLAIN.fullmatch(url)
        if plain is not None:
            return self._signed(
                method, plain["host"], plain["path"] or "/", body, headers=headers, credentials=credentials
            )
        request = AWSRequest(method=method, url=url, data=body, headers=headers)
        SigV4Auth(credentials, self._service, self._region).add_auth(request)
        return dict(request.headers.items())

    def _signed(
        self,
        method: str,
        host: str,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        credentials: ReadOnlyCredentials,
        now: datetime | None = None,
    ) -> dict[str, str]:
        """Signature Version 4, as Amazon describes it."""
        at = now or datetime.now(UTC)
        moment, day = f"{at:%Y%m%dT%H%M%SZ}", f"{at:%Y%m%d}"
        told = {**headers, "X-Amz-Date": moment}
        if credentials.token:
            told["X-Amz-Security-Token"] = credentials.token
        lines = sorted(
            (name.lower(), " ".join(value.split())) for name, value in {**told, "host": host}.items()
        )
        names = ";".join(name for name, _ in lines)
        shown = "".join(f"{name}:{value}\n" for name, value in lines)
        canonical = f"{method}\n{path}\n\n{shown}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        said = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(self._key(credentials.secret_key, day), said.encode(), hashlib.sha256).hexdigest()
        told["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names},"
            f" Signature={signature}"
        )
        return told

    def _key(self, secret: str, day: str) -> bytes:
        """Derived once a day and secret."""
        if self._derived[0] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), hashlib.sha256)
            self._derived = ((secret, day), key)
        return self._derived[1]

    async def _fetched(self) -> ReadOnlyCredentials:
        # Looking for them reads files and may ask the network: never in the loop, and one at a time.
        asked_at = asyncio.get_running_loop().time()
        async with self._looking:
            if self._in_vain is not None and self._in_vain[0] >= asked_at:
                # Somebody looked while we waited: hundreds that look one after another would take minutes.
                raise Refusal(self._in_vain[1].name, str(self._in_vain[1]))
            try:
                return await self._look()
            except Refusal as refusal:
                self._in_vain = (asyncio.get_running_loop().time(), refusal)
                raise

    async def _look(self) -> ReadOnlyCredentials:
        try:
            if self._found is None:
                self._found = await asyncio.to_thread(Session(profile=self._profile).get_credentials)
            if self._found is None:
                raise Refusal("NoCredentialsError", NONE_FOUND)
            frozen: ReadOnlyCredentials = await asyncio.to_thread(self._found.get_frozen_credentials)
        except (BotoCoreError, OSError, ValueError) as error:
            raise Refusal(type(error).__name__, f"the AWS credentials could not be fetched: {error}") from error
        return frozen
