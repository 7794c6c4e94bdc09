"""Dead letters: by cause and by company, picked one by one or by filter, retried or discarded after a dry run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from staffetta.errors import FieldProblem
from staffetta.flow import selected
from staffetta.flow.operate import MANY_MAX, Done
from staffetta.mail import shapes
from staffetta.mail.operators import Filter
from staffetta.store.contract import DeadLetterCounts
from staffetta.web import problems
from staffetta.web.asked import Answer
from staffetta.web.dashboard import charts, render
from staffetta.web.dashboard.emails import time_word
from staffetta.web.dashboard.visit import Visit, address
from staffetta.web.fields import CODE, COMPANY, RECIPIENT, SINCE, UNTIL

PAGE = 50
LISTING = "dlq"
GROUPS_SHOWN = 8
SKIPPED_SHOWN = 20
FILTERS = ("code", "company_id", "recipient", "since", "until")
_KNOWN = (COMPANY, RECIPIENT, CODE, SINCE, UNTIL)
_VERBS = {"retry": "Retry", "discard": "Discard"}


def _wanted(visit: Visit, words: dict[str, str]) -> Filter:
    said = {name: time_word(words[name]) if name in ("since", "until") else words[name]
            for name in FILTERS if words.get(name)}  # fmt: skip
    return visit.narrowed(said, _KNOWN)


async def listing(visit: Visit) -> Answer:
    asked = visit.asked()
    wanted = _wanted(visit, asked)
    cursor = await visit.cursors.open(asked.get("cursor"), LISTING, wanted)
    store = visit.parts.store
    page, counts = await asyncio.gather(
        store.dead_letters(wanted, limit=PAGE, cursor=cursor), store.dead_letter_counts()
    )
    filters = {name: asked[name] for name in FILTERS if name in asked}
    sealed = await visit.cursors.seal(page.cursor, LISTING, wanted)
    own = visit.company_id
    return render.page(
        visit, "letters.html", items=page.items, asked=asked, filters=filters, charts=charts,
        size=counts.size if own is None else counts.by_company.get(own, 0),
        oldest=counts.oldest_at if own is None else None,
        codes=_groups(counts.by_code) if own is None else [],
        companies=_groups(counts.by_company) if own is None else [],
        older=address("/dead-letters", {**filters, "cursor": sealed}) if sealed else "",
        newest=address("/dead-letters", filters) if "cursor" in asked else "",
        export=address("/dead-letters/export", filters), did=_did(asked), known=_known(counts, filters, own),
        address=address,
    )  # fmt: skip


def _groups(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))[:GROUPS_SHOWN]


def _known(counts: DeadLetterCounts, filters: dict[str, str], own: str | None) -> int | None:
    """How many the filter means, where that is kept; counting would be scanning."""
    if own is not None:
        return counts.by_company.get(own, 0) if not filters else None
    if not filters:
        return counts.size
    if set(filters) == {"code"}:
        return counts.by_code.get(filters["code"], 0)
    if set(filters) == {"company_id"}:
        return counts.by_company.get(filters["company_id"], 0)
    return None


def _did(asked: dict[str, str]) -> tuple[str, int, int] | None:
    """What was just done, told once more by numbers: nothing that stands in an address is shown as it is."""
    did, count, skipped = asked.get("did"), asked.get("count", ""), asked.get("skipped", "0")
    if did not in _VERBS or not count.isdecimal() or not skipped.isdecimal() or len(count + skipped) > 12:
        return None
    return did, int(count), int(skipped)


# ------------------------------------------------------------------------------------------------ doing


async def act(visit: Visit) -> Answer:
    """First what would be done, then, confirmed, doing it."""
    verb = visit.said("verb")
    if verb not in _VERBS:
        raise problems.told([FieldProblem("verb", "retry or discard")])
    confirmed = visit.said("confirmed") == "yes"
    filters = {name: visit.said(name) for name in FILTERS if visit.said(name)}
    ids = [one for one in visit.form.get("id", ()) if one]
    by_filter = visit.said("which") == "all"
    if not by_filter and not ids:
        return render.page(visit, "ask.html", verb=verb, verb_word=_VERBS[verb], found=Done(), ids=[], filters=filters,
                           by_filter=False, nothing=True, skipped=(), most=MANY_MAX,
                           back=address("/dead-letters", filters))  # fmt: skip
    done = await _do(visit, verb, ids, filters if by_filter else None, dry_run=not confirmed)
    if confirmed:
        visit.parts.changed()
        told = {"did": verb, "count": str(len(done.changed)), "skipped": str(len(done.skipped))}
        left = {} if verb == "discard" else filters
        return render.seeing(address("/dead-letters", {**left, **told}))
    return render.page(
        visit, "ask.html", verb=verb, verb_word=_VERBS[verb], found=done, ids=[] if by_filter else ids,
        filters=filters, by_filter=by_filter, nothing=False, skipped=done.skipped[:SKIPPED_SHOWN], most=MANY_MAX,
        back=address("/dead-letters", filters),
    )  # fmt: skip


async def _do(
    visit: Visit,
    verb: str,
    ids: list[str],
    filters: dict[str, str] | None,
    *,
    dry_run: bool,
) -> Done:
    operator = visit.parts.operator
    if filters is None:
        step = selected.retry if verb == "retry" else selected.discard
        return await step(operator, ids, visit.company_id, dry_run=dry_run)
    wanted = _wanted(visit, filters)
    if verb == "retry":
        return await operator.retry_dead_letters(wanted, dry_run=dry_run)
    return await operator.discard_dead_letters(wanted, dry_run=dry_run)


async def export(visit: Visit) -> Answer:
    """Every dead letter of the filter with its payload, a JSON object a line, one at a time in memory."""
    wanted = _wanted(visit, visit.asked())

    async def lines() -> AsyncIterator[bytes]:
        async for letter, payload in visit.parts.operator.export(wanted):
            yield msgspec.json.encode(shapes.whole_dead_letter(letter, payload)) + b"\n"

    headers = (
        (b"content-type", b"application/x-ndjson"),
        (b"content-disposition", b'attachment; filename="dead-letters.jsonl"'),
        (b"cache-control", b"no-store"),
        *render.SAFE,
    )
    return Answer(status=200, headers=headers, pieces=lines())
