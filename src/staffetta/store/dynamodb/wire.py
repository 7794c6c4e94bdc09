"""Speaks to DynamoDB: PartiQL over the one HTTP client, one request at a time a connection, nothing hidden.

Errors that pass by themselves are met by running the same request again, byte by byte, under the same
`ClientRequestToken`: a transaction that had taken effect unseen answers yes and takes no second effect. Each move
makes its own token, so that no retry ever meets another move's.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from staffetta import failpoints
from staffetta.aws import Refusal, Signer
from staffetta.errors import NoAnswer, StoreUnavailable, StoreUnusable, Unstorable
from staffetta.http import Answer, Http
from staffetta.store.dynamodb import values
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.values import Item
from staffetta.store.insisting import insist

Statement: TypeAlias = tuple[str, Sequence[object]]
"""A PartiQL text and its parameters."""

TRANSACTION_MAX = 100
"""Statements that one transaction may have."""
BATCH_KEYS = 50
"""Items that one request picks by their keys."""
ANSWER_BYTES = 24 * 1024 * 1024
TIMEOUT_SECONDS = 10.0
QUIET_TURNS = 5
CLOSE_SECONDS = 0.005

_API = "DynamoDB_20120810."
_TYPE = "application/x-amz-json-1.0"
_PASSES = frozenset(
    {
        "ProvisionedThroughputExceededException", "InternalServerError", "ResourceInUseException",
        "RequestLimitExceeded", "TransactionInProgressException", "TransactionConflictException",
        "ThrottlingException", "Throttling", "ServiceUnavailable", "LimitExceededException",
    }
)  # fmt: skip
_REASONS_THAT_PASS = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"})
_NO_ACCESS = frozenset(
    {
        "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException",
        "MissingAuthenticationTokenException", "IncompleteSignatureException", "ExpiredTokenException",
        "InvalidClientTokenId",
    }
)  # fmt: skip
LOST, DUPLICATE = "ConditionalCheckFailed", "DuplicateItem"


class Refused(
    Exception
):  # what DynamoDB answered instead of doing it; translated before it leaves this package
    """`code`: the exception's name. `reasons`: of a cancelled transaction, one code a statement."""

    def __init__(self, code: str, words: str, reasons: Sequence[str] = (), status: int = 400) -> None:
        self.code = code
        self.reasons = tuple(reasons)
        self.status = status
        super().__init__(f"{code}: {words}" if words else code)

    @property
    def passes(self) -> bool:
        """Trying again may help."""
        if self.reasons:
            # A lost condition is final, whatever stands beside it.
            return LOST not in self.reasons and not _REASONS_THAT_PASS.isdisjoint(self.reasons)
        return self.code in _PASSES or self.status >= 500

    @property
    def lost(self) -> bool:
        """Somewhere a condition did not hold."""
        return self.code == "ConditionalCheckFailedException" or LOST in self.reasons

    @property
    def duplicate(self) -> bool:
        """Something to be inserted is there already, and every condition held."""
        return self.code == DUPLICATE or (DUPLICATE in self.reasons and LOST not in self.reasons)


class Traffic:
    """What went over the wire, for whoever measures."""

    __slots__ = ("items_read", "items_written", "received", "requests", "retries", "sent")

    def __init__(self) -> None:
        self.requests = self.retries = self.sent = self.received = self.items_read = self.items_written = 0


class Wire:
    """One table's statements. Made anywhere, used inside one event loop, closed once."""

    def __init__(self, place: Place, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._place = place
        self._pause = pause
        self._signer = Signer(
            service="dynamodb",
            region=place.region,
            profile=place.profile,
            access_key=place.access_key,
            secret_key=place.secret_key,
        )
        self._http = Http(
            timeout_seconds=TIMEOUT_SECONDS,
            answer_bytes=ANSWER_BYTES,
            per_host=place.connections,
            idle_seconds=30.0,
        )
        self.traffic = Traffic()
        self._asked = 0

    async def close(self) -> None:
        """What was asked for is answered first."""
        quiet = 0
        while quiet < QUIET_TURNS:  # between two requests of one call there is nothing to be seen
            quiet = 0 if self._asked else quiet + 1
            await asyncio.sleep(0 if quiet else CLOSE_SECONDS)
        await self._http.close()

    # --- statements --------------------------------------------------------------------------------------------

    async def execute(self, text: str, *parameters: object, consistent: bool = False) -> list[Item]:
        """One statement, all pages of its answer."""
        found: list[Item] = []
        page, token = await self.page(text, parameters, consistent=consistent)
        found += page
        while token is not None:
            page, token = await self.page(text, parameters, consistent=consistent, token=token)
            found += page
        return found

    async def page(
        self,
        text: str,
        parameters: Sequence[object],
        *,
        consistent: bool = False,
        limit: int | None = None,
        token: str | None = None,
    ) -> tuple[list[Item], str | None]:
        """One page, and where the next begins. `limit` counts what is looked at, not what fits."""
        body: dict[str, Any] = {"Statement": text}
        if parameters:
            body["Parameters"] = [values.written(one) for one in parameters]
        if consistent:
            body["ConsistentRead"] = True
        if limit is not None:
            body["Limit"] = limit
        if token is not None:
            body["NextToken"] = token
        told = await self.call("ExecuteStatement", body)
        items = [values.read_item(one) for one in told.get("Items") or ()]
        if text.startswith("SELECT"):
            self.traffic.items_read += len(items)
        else:
            self.traffic.items_written += 1
        return items, told.get("NextToken")

    async def pick(self, text: str, keys_: Sequence[Sequence[object]]) -> list[Item]:
        """One item for each key, by a statement that names the whole key; those that are there.

        By a transaction of reads: several keys in one statement may make DynamoDB walk through the whole table.
        """
        if len(keys_) == 1:
            return (await self.page(text, keys_[0], consistent=True))[0]
        found: list[Item] = []
        for start in range(0, len(keys_), BATCH_KEYS):
            asked = [
                {"Statement": text, "Parameters": [values.written(one) for one in key]}
                for key in keys_[start : start + BATCH_KEYS]
            ]
            told = await self.call("ExecuteTransaction", {"TransactStatements": asked})
            found += [values.read_item(one["Item"]) for one in told["Responses"] if one.get("Item")]
        self.traffic.items_read += len(found)
        return found

    async def transact(self, statements: Sequence[Statement]) -> None:
        """All of these writes or none, once, however often the answer is lost on the way."""
        if failpoints.armed:
            failpoints.reach("store.before-commit")
        await self.call(
            "ExecuteTransaction",
            {
                "TransactStatements": [
                    {"Statement": text, "Parameters": [values.written(one) for one in parameters]}
                    for text, parameters in statements
                ],
                "ClientRequestToken": uuid.uuid4().hex,
            },
        )
        self.traffic.items_written += len(statements)
        if failpoints.armed:
            failpoints.reach("store.after-commit")

    # --- requests ----------------------------------------------------------------------------------------------

    async def call(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request and its answer; run again by the policy while its trouble passes.

        :raises Refused: a condition did not hold, or something is there already.
        """
        with storable():
            raw = msgspec.json.encode(body)
        tries = 0

        async def once() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return await self._once(operation, raw)

        self._asked += 1
        try:
            return await insist(once, passes=_passes, pause=self._pause)
        except (Refused, NoAnswer, Refusal) as error:
            if isinstance(error, Refused) and (error.lost or error.duplicate):
                raise
            raise self._translated(error) from error
        finally:
            self._asked -= 1
            self.traffic.retries += tries - 1

    async def _once(self, operation: str, raw: bytes) -> dict[str, Any]:
        url = self._place.endpoint
        headers = await self._signer.sign(
            "POST", url, raw, {"Content-Type": _TYPE, "X-Amz-Target": _API + operation}
        )
        if failpoints.armed:
            failpoints.reach("store.before-read")
        self.traffic.requests += 1
        self.traffic.sent += len(raw)
        answer = await self._http.request("POST", url, body=raw, headers=headers)
        self.traffic.received += len(answer.body)
        if failpoints.armed:
            failpoints.reach("store.after-read")
        if answer.status != 200:
            raise _refusal(answer)
        try:
            told: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise NoAnswer(f"{url} answers, but not as DynamoDB does", kind="protocol") from error
        return told

    def _translated(self, error: Exception) -> Exception:
        table, region = self._place.table, self._place.region
        if isinstance(error, Refusal):
            return StoreUnusable(f"DynamoDB table {table} in {region}: {error}")
        if isinstance(error, NoAnswer):
            return StoreUnavailable(f"DynamoDB does not answer: {error}")
        assert isinstance(error, Refused), "nothing else is caught"
        return self._meant(error)

    def _meant(self, error: Refused) -> Exception:
        """What a refusal means for whoever can mend it."""
        table, region = self._place.table, self._place.region
        if error.passes:
            return StoreUnavailable(f"DynamoDB is busy: {error}")
        if error.code == "ResourceNotFoundException":
            remedy = "see region and table in store.url, or make them with `staffetta migrate`"
            return StoreUnusable(f"there is no table {table} with its tables and indexes in {region}: {remedy}")
        if error.code in _NO_ACCESS:
            remedy = "see the credentials and their rights (docs/guides/dynamodb.md names the least)"
            return StoreUnusable(f"DynamoDB lets us not use {table} in {region}: {remedy} ({error})")
        if "item size" in str(error).lower() or "size limit" in str(error).lower():
            return Unstorable(f"DynamoDB keeps no item of this size: {error}")
        return StoreUnusable(f"DynamoDB refused what table {table} was asked: {error}")


@contextlib.contextmanager
def storable() -> Iterator[None]:
    """:raises Unstorable: a value that no item could hold."""
    try:
        yield
    except (UnicodeEncodeError, TypeError, OverflowError) as error:
        raise Unstorable(f"a value cannot be kept ({type(error).__name__}: {error})") from error


def _passes(error: Exception) -> bool:
    if isinstance(error, Refused):
        return error.passes
    return isinstance(error, NoAnswer) and error.kind in ("lost", "timeout", "refused", "unreachable", "dns")


def _refusal(answer: Answer) -> Refused:
    try:
        told = msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.DecodeError:
        code = "ServiceUnavailable" if answer.status >= 500 else f"HTTP {answer.status}"
        return Refused(code, "the answer is not DynamoDB's", status=answer.status)
    code = str(told.get("__type", f"HTTP {answer.status}")).rpartition("#")[2]
    words = str(told.get("message") or told.get("Message") or "")
    reasons = [_reason(one) for one in told.get("CancellationReasons") or ()]
    return Refused(code, words, reasons, answer.status)


def _reason(told: dict[str, Any]) -> str:
    code, words = str(told.get("Code") or "None"), str(told.get("Message") or "")
    # DynamoDB Local calls a key that is there already a wrong value; the service has a name for it.
    return DUPLICATE if code == "ValidationError" and words.startswith("Duplicate primary key") else code
