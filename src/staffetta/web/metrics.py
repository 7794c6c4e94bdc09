"""Answers Prometheus's scrapes in its text format 0.0.4, from the table in `exposed.py` and nothing else.

`python -m staffetta.web.metrics` prints the reference page.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from staffetta.errors import StoreError
from staffetta.flow.gathering import Gathering
from staffetta.mail.message import Millis
from staffetta.mail.operators import Filter
from staffetta.mail.tally import BOUNDS_MS, Spread
from staffetta.store.contract import Store
from staffetta.web.exposed import AGE_BOUNDS_MS, TABLE, Metric, Picture, Sample

AGES_KEPT_MS = 15_000
"""The dead letters' ages are read again after this; they are read one by one."""
PAGE = 1_000


class Labels:
    """Which companies have a label of their own: who was large first keeps it, the rest is `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: dict[str, str] = {}

    def learn(self, sizes: Mapping[str, float]) -> Mapping[str, str]:
        """Give labels that are still free to the largest companies without one."""
        free = self._most - len(self._own)
        if free > 0:
            unknown = [name for name in sizes if name not in self._own]
            for name in sorted(unknown, key=lambda name: (-sizes[name], name))[:free]:
                self._own[name] = name
        return self._own


class Metrics(Collector):
    """Answers scrapes; one for a process."""

    def __init__(
        self,
        store: Store,
        gathering: Gathering,
        *,
        companies_max: int = 100,
        alerts: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None,
    ) -> None:
        self._store = store
        self._gathering = gathering
        self._labels = Labels(companies_max)
        self._alerts = alerts
        self._ages: Sequence[Millis] = ()
        self._ages_at: Millis | None = None
        self._picture: Picture | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def text(self) -> str:
        """One scrape. Never fails for the store's sake: what it would tell is left out."""
        self._picture = await self._look()
        return generate_latest(self._registry).decode()

    async def _look(self) -> Picture:
        store = self._store
        try:
            sight = await self._gathering.look()
            counts = await store.counts()
            queue = await store.queue_counts(now=sight.at)
            letters = await store.dead_letter_counts()
            pauses = await store.pauses()
            ages = await self._read_ages(sight.at)
            firing = await self._alerts() if self._alerts is not None else ()
        except StoreError:
            sight = self._gathering.own()
            return Picture(sight=sight, labels=self._labels.learn(sight.processed))
        sizes: dict[str, float] = dict(sight.processed)
        for company_id, size in letters.by_company.items():
            sizes[company_id] = sizes.get(company_id, 0) + size
        return Picture(
            sight=sight, labels=self._labels.learn(sizes), counts=counts, queue=queue, letters=letters,
            ages=ages, pauses=pauses, firing=firing,
        )  # fmt: skip

    async def _read_ages(self, now: Millis) -> Sequence[Millis]:
        """When each dead letter present was written."""
        if self._ages_at is not None and now - self._ages_at < AGES_KEPT_MS:
            return self._ages
        ages: list[Millis] = []
        cursor: str | None = None
        while True:
            page = await self._store.dead_letters(Filter(), limit=PAGE, cursor=cursor)
            ages += [letter.moved_at for letter in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        self._ages, self._ages_at = ages, now
        return ages

    def collect(self) -> Iterator[Family]:
        assert self._picture is not None, "a scrape looks before it writes"
        for metric in TABLE:
            yield _family(metric, metric.samples(self._picture))


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    counter = metric.kind == "counter"
    family = Family(metric.name.removesuffix("_total") if counter else metric.name, metric.words, metric.kind)
    for values, value in samples:
        labels = dict(zip(metric.labels, values, strict=True))
        if not isinstance(value, Spread):
            family.add_sample(metric.name, labels, value)
            continue
        reached = 0
        for bound, size in zip((*metric.bounds, None), value.buckets, strict=True):
            reached += size
            le = "+Inf" if bound is None else f"{bound / 1000:g}"
            family.add_sample(f"{metric.name}_bucket", {**labels, "le": le}, reached)
        family.add_sample(f"{metric.name}_count", labels, reached)
        family.add_sample(f"{metric.name}_sum", labels, value.total_ms / 1000)
    return family


# ------------------------------------------------------------------------------------------------ the reference

_HEAD = """# Metrics

This page is made from the table of names (`python -m staffetta.web.metrics > docs/reference/metrics.md`).

`GET /metrics` answers in Prometheus's text format 0.0.4. Scrape the process that runs the API: it lays together
what every process on the store has counted. Counters begin at 0 with that process. Where keys exist, the scrape
needs one with the role `read` that is bound to no company.

Company labels are bounded by `metrics.companies_max`: the largest companies get one and keep it for the life of
the process, the rest is `other`. Histograms of durations have the bounds
{bounds} seconds; `dlq_age_seconds` has {ages}.

| name | kind | labels | means |
|---|---|---|---|
"""


def markdown() -> str:
    """The reference page."""

    def seconds(bounds: Sequence[Millis]) -> str:
        return ", ".join(f"{bound / 1000:g}" for bound in bounds)

    rows = [
        f"| `{metric.name}` | {'untyped' if metric.kind == 'unknown' else metric.kind}"
        f" | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.words} |\n"
        for metric in TABLE
    ]
    tail = "\n`process_*` are the client library's own, of the process that answers.\n"
    return _HEAD.format(bounds=seconds(BOUNDS_MS), ages=seconds(AGE_BOUNDS_MS)) + "".join(rows) + tail


if __name__ == "__main__":
    sys.stdout.write(markdown())
