"""The tables and indexes: what a table must have, what `migrate` adds, and what is there.

NAME         Id, Status     StatusIndex (the seed's), TodoIndex, LineIndex, ListIndex, CompanyIndex (ours, sparse)
NAME-engine  Family, Member
"""

from __future__ import annotations

import asyncio
from typing import Any

from staffetta.errors import StoreError, StoreUnavailable, StoreUnusable
from staffetta.mail.message import Value
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.wire import Refused, Wire

STATUS_INDEX = "StatusIndex"
SPARSE: dict[str, tuple[str, str]] = {
    "TodoIndex": ("Todo", "TodoAt"),
    "LineIndex": ("Line", "LineAt"),
    "ListIndex": ("Listed", "ListedAt"),
    "CompanyIndex": ("Company", "ListedAt"),
}
WAIT_SECONDS = 900.0
"""An index over an existing table is filled by DynamoDB, which takes its time."""
_LOOK_SECONDS = (0.05, 1.0)
"""How long after one look the next one is taken: at first, and at most."""


class Shape(Value, frozen=True, kw_only=True):
    """What a table has of all that."""

    sparse: bool
    projects_ttl: bool
    missing: tuple[str, ...] = ()


async def shape(place: Place, wire: Wire) -> Shape:
    """What the outbox's table has. :raises StoreUnusable: it is not there, or another kind of table."""
    told = await describe(wire, place.table)
    if told is None:
        raise StoreUnusable(
            f"there is no table {place.table} in {place.region}: see store.url and EMAIL_OUTBOX_TABLE, or make it"
            " with `staffetta migrate`"
        )
    _check(place, told)
    indexes = _indexes(told)
    missing = tuple(name for name in SPARSE if name not in indexes)
    projection = indexes[STATUS_INDEX]["Projection"]
    return Shape(
        sparse=not missing,
        projects_ttl=projection["ProjectionType"] == "ALL" or "TTL" in projection.get("NonKeyAttributes", ()),
        missing=missing,
    )


def _check(place: Place, told: dict[str, Any]) -> None:
    found = _keys(told["KeySchema"])
    if found != ("Id", "Status"):
        raise StoreUnusable(
            f"table {place.table} has the keys {', '.join(one or 'none' for one in found)}, and an outbox has Id and"
            " Status: name another table in store.url or EMAIL_OUTBOX_TABLE"
        )
    index = _indexes(told).get(STATUS_INDEX)
    if index is None or _keys(index["KeySchema"])[0] != "Status":
        raise StoreUnusable(
            f"table {place.table} has no index {STATUS_INDEX} on Status: `staffetta migrate` adds it"
        )
    projection = index["Projection"]
    if projection["ProjectionType"] != "ALL" and "Attributes" not in projection.get("NonKeyAttributes", ()):
        raise StoreUnusable(
            f"index {STATUS_INDEX} of table {place.table} does not project Attributes: remove that index, then"
            " `staffetta migrate` adds it anew"
        )


def _keys(schema: list[dict[str, str]]) -> tuple[str, str]:
    by_kind = {one["KeyType"]: one["AttributeName"] for one in schema}
    return by_kind.get("HASH", ""), by_kind.get("RANGE", "")


def _indexes(told: dict[str, Any]) -> dict[str, Any]:
    return {one["IndexName"]: one for one in told.get("GlobalSecondaryIndexes") or ()}


async def describe(wire: Wire, table: str) -> dict[str, Any] | None:
    """None: there is no such table."""
    try:
        told = await wire.call("DescribeTable", {"TableName": table})
    except StoreUnusable as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.code == "ResourceNotFoundException":
            return None
        raise
    found: dict[str, Any] = told["Table"]
    return found


# ------------------------------------------------------------------------------------------------ making


async def migrate(place: Place, wire: Wire) -> list[str]:
    """Make what is missing; what was done. Safe to repeat, and beside a second one."""
    done: list[str] = []
    told = await describe(wire, place.table)
    if told is None:
        await _make(wire, place.table, _outbox())
        done.append(f"made table {place.table}, with its indexes")
    elif _keys(told["KeySchema"]) != ("Id", "Status"):
        _check(place, told)
    done += await _add_indexes(place, wire)
    if await make_engine_table(place, wire):
        done.append(f"made table {place.engine_table}")
    for table in (place.table, place.engine_table):
        if await _keep_time_to_live(wire, table):
            done.append(f"table {table}: records go when their TTL is over")
    return done


async def make_engine_table(place: Place, wire: Wire) -> bool:
    """Whether it had to be made."""
    if await describe(wire, place.engine_table) is not None:
        await _until_active(wire, place.engine_table)
        return False
    await _make(wire, place.engine_table, _table(("Family", "Member"), ()))
    return True


def _outbox() -> dict[str, Any]:
    return _table(("Id", "Status"), (STATUS_INDEX, *SPARSE))


def _table(names: tuple[str, str], indexes: tuple[str, ...]) -> dict[str, Any]:
    used = dict.fromkeys((*names, *(name for one in indexes if one in SPARSE for name in SPARSE[one])))
    told: dict[str, Any] = {
        "AttributeDefinitions": [_text(name) for name in used],
        "KeySchema": _schema(*names),
        "BillingMode": "PAY_PER_REQUEST",
    }
    if indexes:
        told["GlobalSecondaryIndexes"] = [_index(name) for name in indexes]
    return told


def _index(name: str) -> dict[str, Any]:
    if name == STATUS_INDEX:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["Attributes", "TTL"]}
        return {"IndexName": name, "KeySchema": _schema("Status"), "Projection": projection}
    return {
        "IndexName": name,
        "KeySchema": _schema(*SPARSE[name]),
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }


def _schema(hash_key: str, range_key: str | None = None) -> list[dict[str, str]]:
    told = [{"AttributeName": hash_key, "KeyType": "HASH"}]
    return told if range_key is None else [*told, {"AttributeName": range_key, "KeyType": "RANGE"}]


def _text(name: str) -> dict[str, str]:
    return {"AttributeName": name, "AttributeType": "S"}


async def _make(wire: Wire, table: str, told: dict[str, Any]) -> None:
    try:
        await wire.call("CreateTable", {"TableName": table, **told})
    except StoreError as error:
        if not _is(error, "ResourceInUseException"):  # then another one makes it just now
            raise
    await _until_active(wire, table)


async def _add_indexes(place: Place, wire: Wire) -> list[str]:
    """One at a time: DynamoDB makes no two at once."""
    done: list[str] = []
    for name in (STATUS_INDEX, *SPARSE):
        await _until_active(wire, place.table)
        told = await describe(wire, place.table)
        if told is None or name in _indexes(told):
            continue
        used = SPARSE.get(name, ("Status",))
        known = {one["AttributeName"] for one in told["AttributeDefinitions"]}
        definitions = [*told["AttributeDefinitions"], *(_text(one) for one in used if one not in known)]
        index = _index(name)
        if told.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
            throughput = told["ProvisionedThroughput"]
            index["ProvisionedThroughput"] = {
                unit: max(throughput.get(unit, 1), 1) for unit in ("ReadCapacityUnits", "WriteCapacityUnits")
            }
        change = {
            "TableName": place.table, "AttributeDefinitions": definitions,
            "GlobalSecondaryIndexUpdates": [{"Create": index}],
        }  # fmt: skip
        try:
            await wire.call("UpdateTable", change)
        except StoreError as error:
            if not (_is(error, "ResourceInUseException") or "already exists" in str(error)):
                raise
        done.append(f"added index {name} to table {place.table}")
    await _until_active(wire, place.table)
    return done


async def _until_active(wire: Wire, table: str) -> None:
    """Until the table and every index of it answers."""
    try:
        pause, longest = _LOOK_SECONDS
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                told = await describe(wire, table)
                if told is not None and told["TableStatus"] == "ACTIVE":
                    states = {one.get("IndexStatus", "ACTIVE") for one in _indexes(told).values()}
                    if states <= {"ACTIVE"}:
                        return
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
    except TimeoutError:
        words = f"table {table} is still being changed by DynamoDB; run `staffetta migrate` again later"
        raise StoreUnavailable(words) from None


async def _keep_time_to_live(wire: Wire, table: str) -> bool:
    told = await wire.call("DescribeTimeToLive", {"TableName": table})
    if told.get("TimeToLiveDescription", {}).get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
        return False
    wanted = {"Enabled": True, "AttributeName": "TTL"}
    await wire.call("UpdateTimeToLive", {"TableName": table, "TimeToLiveSpecification": wanted})
    return True


def _is(error: StoreError, code: str) -> bool:
    return isinstance(error.__cause__, Refused) and error.__cause__.code == code
