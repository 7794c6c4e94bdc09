"""What `doctor` looks at: whether the tables are as they keep promises best. Nothing is changed."""

from __future__ import annotations

from typing import Any

from staffetta.errors import StoreError
from staffetta.store.contract import Advice
from staffetta.store.dynamodb import schema
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.wire import Wire

LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")


async def examine(place: Place, wire: Wire) -> list[Advice]:
    """How the tables are; a remedy beside what is well is advice."""
    found = [_endpoint(place), _indexes(await schema.shape(place, wire), place)]
    for table in (place.table, place.engine_table):
        told = await schema.describe(wire, table)
        if told is not None:
            found.append(_protection(table, told))
            found += await _time_to_live(place, wire, table)
    return [*found, *await _backups(place, wire)]


def _endpoint(place: Place) -> Advice:
    if place.endpoint.startswith("http://") and not place.endpoint.startswith(LOOPBACK):
        remedy = "use https:// in the endpoint of store.url, or none: the region's own is used then"
        return Advice(ok=False, words=f"{place.endpoint} is reached without TLS", remedy=remedy)
    return Advice(ok=True, words=f"table {place.table} in {place.region}, at {place.endpoint}")


def _indexes(shape: schema.Shape, place: Place) -> Advice:
    if shape.sparse:
        return Advice(
            ok=True, words="all indexes are there: asking for work costs the same however much is finished"
        )
    remedy = "`staffetta migrate` adds them; until then listings are refused and every question reads the whole index"
    return Advice(ok=True, words=f"table {place.table} has no {', '.join(shape.missing)}", remedy=remedy)


def _protection(table: str, told: dict[str, Any]) -> Advice:
    if told.get("DeletionProtectionEnabled"):
        return Advice(ok=True, words=f"table {table} is protected from deletion")
    remedy = f"aws dynamodb update-table --table-name {table} --deletion-protection-enabled"
    return Advice(ok=True, words=f"table {table} could be deleted by one call", remedy=remedy)


async def _time_to_live(place: Place, wire: Wire, table: str) -> list[Advice]:
    told = await wire.call("DescribeTimeToLive", {"TableName": table})
    state = told.get("TimeToLiveDescription", {})
    named = state.get("AttributeName", "TTL") == "TTL"
    if state.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") and named:
        return [Advice(ok=True, words=f"table {table}: records go when their TTL is over")]
    if place.life_ms is None and table == place.table:
        return []  # none has one
    remedy = "`staffetta migrate` sets it to the attribute TTL"
    return [Advice(ok=False, words=f"table {table} keeps records for ever: its TTL is off", remedy=remedy)]


async def _backups(place: Place, wire: Wire) -> list[Advice]:
    try:
        told = await wire.call("DescribeContinuousBackups", {"TableName": place.table})
    except StoreError:
        return []  # not allowed to ask, or not the service itself
    state = told.get("ContinuousBackupsDescription", {}).get("PointInTimeRecoveryDescription", {})
    if state.get("PointInTimeRecoveryStatus") == "ENABLED":
        return [Advice(ok=True, words="point-in-time recovery is on")]
    remedy = (
        f"aws dynamodb update-continuous-backups --table-name {place.table}"
        " --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"
    )
    return [Advice(ok=True, words="point-in-time recovery is off", remedy=remedy)]
