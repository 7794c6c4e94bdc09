"""The seed's own program beside ours: its table as it makes it, its statements as it writes them (seed 001).

Nothing of our store is used for what it does, only the wire.
"""

from __future__ import annotations

from typing import Any

from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import Refused, Wire

INDEX = {
    "IndexName": "StatusIndex",
    "KeySchema": [{"AttributeName": "Status", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["Attributes"]},
}


async def make(wire: Wire, table: str, *, keys: tuple[str, str] = ("Id", "Status"), index: bool = True) -> None:
    """The seed's table: its index projects Id, Status and Attributes, not TTL."""
    kinds = zip(keys, ("HASH", "RANGE"), strict=True)
    body: dict[str, Any] = {
        "TableName": table,
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in keys],
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in kinds],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if index:
        body["GlobalSecondaryIndexes"] = [INDEX]
    await wire.call("CreateTable", body)


class SeedsProgram:
    """Creates, finds and moves e-mails by the seed's statements alone."""

    def __init__(self, wire: Wire, table: str) -> None:
        self._wire = wire
        self._table = table

    async def create(self, id: str, *, payload_path: str, at: str, ttl: int | None = None) -> None:
        told: Item = {"Latest": "ACCEPTED", "UpdatedAt": at, "Reason": "", "PayloadFilePath": payload_path}
        rest: Item = {} if ttl is None else {"TTL": ttl}
        await self._wire.transact(
            [
                self._insert({"Id": id, "Status": "_META", "Attributes": told, **rest}),
                self._insert({"Id": id, "Status": "ACCEPTED", "Attributes": told, **rest}),
            ]
        )

    def _insert(self, item: Item) -> tuple[str, tuple[object, ...]]:
        fields = ", ".join(f"'{name}': ?" for name in item)
        return f'INSERT INTO "{self._table}" VALUE {{{fields}}}', tuple(item.values())

    async def find(self, status: str) -> list[str]:
        """Up to 25 in this status."""
        text = (
            f'SELECT Id, Status, Attributes FROM "{self._table}"."StatusIndex"'
            " WHERE Status=? AND Attributes.Latest =?"
        )
        found: list[str] = []
        token: str | None = None
        while len(found) < 25:
            page, token = await self._wire.page(text, ("_META", status), limit=25, token=token)
            found += [item["Id"] for item in page]
            if token is None:
                break
        return found[:25]

    async def move(self, id: str, source: str, target: str, *, at: str, reason: str = "") -> bool:
        """Whether it was this program that moved it."""
        told: Item = {"Latest": target, "UpdatedAt": at, "Reason": reason}
        update = (
            f'UPDATE "{self._table}" SET Attributes.Latest=?, Attributes.UpdatedAt=?, Attributes.Reason=?'
            " WHERE Id=? AND Status=? AND Attributes.Latest=?"
        )
        try:
            await self._wire.transact(
                [
                    (update, (target, at, reason, id, "_META", source)),
                    self._insert({"Id": id, "Status": target, "Attributes": told}),
                ]
            )
        except Refused:
            return False
        return True
