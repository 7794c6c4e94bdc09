"""Signs requests to Amazon's services: credentials and the signature are botocore's, nothing else of it is used.

Its own clients are not: they cost much CPU a call, and they repeat requests by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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

    def __repr__(self) -> str:
        return f"Signer({self._service!r}, {self._region!r})"

    async def sign(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of this request, the given ones among them.

        :raises Refusal: there are no credentials, or they could not be fetched.
        """
        found = self._found
        known = type(found) is Credentials  # plain ones never expire: no lock, no thread
        credentials = found.get_frozen_credentials() if known else await self._fetched()
        request = AWSRequest(method=method, url=url, data=body, headers=headers)
        SigV4Auth(credentials, self._service, self._region).add_auth(request)
        return dict(request.headers.items())

    async def _fetched(self) -> ReadOnlyCredentials:
        # Looking for them reads files and may ask the network: never in the loop, and one at a time.
        async with self._looking:
            try:
                if self._found is None:
                    self._found = await asyncio.to_thread(Session(profile=self._profile).get_credentials)
                if self._found is None:
                    raise Refusal("NoCredentialsError", NONE_FOUND)
                frozen: ReadOnlyCredentials = await asyncio.to_thread(self._found.get_frozen_credentials)
            except (BotoCoreError, OSError, ValueError) as error:
                raise Refusal(
                    type(error).__name__, f"the AWS credentials could not be fetched: {error}"
                ) from error
            return frozen
