"""What one group does inside its transaction: hand-ins, claims, marks and moves of many e-mails as sets.

Every order has its own result. One that loses its compare-and-set hears `LockNotAcquired`, and nothing of it is
written; a reply that it brought is kept with its attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.store.mysql import claims, handin, marks, moves
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.orders import Add, Mark, Move, Order, Take
from staffetta.store.mysql.session import Session


async def run(session: Session, orders: Sequence[Order], address: Address, *, again: bool) -> list[Any]:
    """One result for each order, in order. `again`: an earlier run of this was broken off."""
    results: list[Any] = [None] * len(orders)
    adds = {place: order for place, order in enumerate(orders) if isinstance(order, Add)}
    if adds:
        for place, result in zip(adds, await handin.add(session, list(adds.values()), address), strict=True):
            results[place] = result
    for round_ in _rounds(orders):
        await _round(session, round_, results, again=again)
    return results


async def _round(session: Session, round_: dict[int, Order], results: list[Any], *, again: bool) -> None:
    """Orders that concern different e-mails, kind by kind."""
    moving = {place: order.move for place, order in round_.items() if isinstance(order, Move)}
    marking = {place: order for place, order in round_.items() if isinstance(order, Mark)}
    taking = {place: order for place, order in round_.items() if isinstance(order, Take)}
    if moving:
        for place, outcome in (await moves.make(session, moving)).items():
            results[place] = outcome
    if marking:
        for place, outcome in (await marks.make(session, marking)).items():
            results[place] = outcome
    if taking:
        for place, claim in (await claims.take(session, taking, again=again)).items():
            results[place] = claim


def _rounds(orders: Sequence[Order]) -> list[dict[int, Order]]:
    """Orders cut so that no round has two of one e-mail."""
    rounds: list[dict[int, Order]] = []
    seen: set[str] = set()
    for place, order in enumerate(orders):
        if isinstance(order, Add):
            continue
        if not rounds or order.id in seen:
            rounds.append({})
            seen = set()
        rounds[-1][place] = order
        seen.add(order.id)
    return rounds
