"""Companies' weights as operators set them while the engine runs: kept in the store, followed within a second."""

from __future__ import annotations

import msgspec

from staffetta.mail.fairness import check_weight
from staffetta.store.contract import Store

SETTING = "weights"


async def read(store: Store) -> dict[str, float]:
    kept = await store.setting(SETTING)
    return msgspec.json.decode(kept, type=dict[str, float]) if kept else {}


async def set_weight(store: Store, company_id: str, weight: float) -> None:
    """:raises ValueError: no such weight is allowed; its words tell the bounds."""
    check_weight(company_id, weight)
    weights = await read(store)
    weights[company_id] = weight
    await store.put_setting(SETTING, msgspec.json.encode(weights))
