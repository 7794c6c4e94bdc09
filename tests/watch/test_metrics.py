"""What `/metrics` exposes: the names to the letter, right figures, bounded labels."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doubles.clock import run, turned
from doubles.front import Front
from doubles.rig import Rig, new_email
from doubles.transport import ScriptedTransport, accepts, refuses
from staffetta.errors import StoreUnavailable
from staffetta.flow.gathering import Gathering
from staffetta.mail.counting import Counting
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Value
from staffetta.store.memory import MemoryStore
from staffetta.web import metrics
from staffetta.web.exposed import TABLE
from staffetta.web.metrics import Labels, Metrics
from staffetta.worker import Worker

ROOT = Path(__file__).parents[2]

SEED_NAMES = """
    retry_attempts_total{attempt} retry_backoff_delay_seconds retry_success_rate{attempt} dlq_entries_total dlq_size
    dlq_age_seconds dlq_by_error_code{code} dlq_by_company{company_id} tenant_jobs_processed{company_id}
    tenant_current_priority{company_id} tenant_consecutive_batch{company_id}
    tenant_rounds_without_processing{company_id}
"""


class Scrape(dict[str, float]):
    """Samples by `name{label="value"}`, as they stand in the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                self[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value


class Watched(Value, frozen=True, kw_only=True):
    rig: Rig
    worker: Worker
    metrics: Metrics

    async def scrape(self) -> Scrape:
        return Scrape(await self.metrics.text())


def watched(rig: Rig, **settings: Any) -> Watched:
    """An engine whose events are counted and published as `app` does it."""
    counting = Counting()
    rig.means.emit = rig.routes._emit = counting
    worker = Worker(
        id="w1", means=rig.means, pace=rig.worker()._pace, counted=lambda: {"tally": counting.tally}
    )
    gathering = Gathering(rig.store, rig.clock, own=("w1", counting.tally))
    return Watched(rig=rig, worker=worker, metrics=Metrics(rig.store, gathering, **settings))


async def until_ended(rig: Rig, count: int) -> None:
    """The turned clock goes on until so many e-mails are finished, and everything was published."""
    while sum([(await rig.store.counts())[status] for status in (Status.SENT, Status.FAILED)]) < count:  # noqa: ASYNC110  # turned time costs nothing
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)


def test_every_name_of_the_contract_is_in_the_table() -> None:
    """Dashboards and alerts of others are written against these, to the letter."""
    exposed = {metric.name + (f"{{{','.join(metric.labels)}}}" if metric.labels else "") for metric in TABLE}
    assert set(SEED_NAMES.split()) <= exposed


def test_the_reference_page_is_made_from_the_table() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert page == metrics.markdown(), "python -m staffetta.web.metrics > docs/reference/metrics.md"


def test_attempts_retries_and_dead_letters_are_told_as_they_happened() -> None:
    """One e-mail deferred twice, one refused, eight sent at once: every figure follows from that."""

    async def work() -> None:
        busy = refuses("rcpt", 421, "4.3.2 try again later")
        gone = refuses("rcpt", 550, "5.1.1 no such user")
        rig = Rig(transports=[ScriptedTransport(script=deque([busy, busy, accepts, gone]))])
        one = watched(rig)
        task = turned().create_task(one.worker.run())
        await one.worker.started.wait()
        await rig.add(new_email(1, now=rig.clock()))
        await until_ended(rig, 1)
        await rig.add(new_email(2, now=rig.clock(), company_id="quiet"))
        await until_ended(rig, 2)
        await rig.add(*(new_email(number, now=rig.clock(), company_id="quiet") for number in range(3, 11)))
        await until_ended(rig, 10)
        told = await one.scrape()
        one.worker.stop()
        await task

        assert 1 == told['retry_attempts_total{attempt="1"}'] == told['retry_attempts_total{attempt="2"}']
        assert 2 == told["retry_backoff_delay_seconds_count"]
        assert 2 == told["staffetta_time_between_attempts_seconds_count"]
        assert 1 == told["dlq_entries_total"]
        assert 1 == told["dlq_size"]
        assert 1 == told['dlq_by_error_code{code="550"}']
        assert 1 == told['dlq_by_company{company_id="quiet"}']
        assert 1 == told["dlq_age_seconds_count"]
        assert 9 == told['staffetta_ended_total{status="SENT"}'] == told['staffetta_emails{status="SENT"}']
        assert 1 == told['staffetta_ended_total{status="FAILED"}']
        assert 9 == told["staffetta_accepted_to_sent_seconds_count"]
        assert 12 == told["staffetta_processing_seconds_count"]
        assert 9 == told['staffetta_send_duration_seconds_count{transport="relay",verdict="DELIVERED"}']
        assert 2 == told['staffetta_send_duration_seconds_count{transport="relay",verdict="RETRY"}']
        assert (9, 2, 1) == tuple(
            told[f'staffetta_replies_total{{code="{code}"}}'] for code in ("250", "421", "550")
        )
        assert 2 == told['staffetta_retries_by_category_total{category="TRANSIENT"}']
        assert 3 == told['tenant_jobs_processed{company_id="acme"}']
        assert 9 == told['tenant_jobs_processed{company_id="quiet"}']
        assert {'tenant_current_priority{company_id="acme"}', 'tenant_consecutive_batch{company_id="quiet"}',
                'tenant_rounds_without_processing{company_id="acme"}'} <= set(told)  # fmt: skip
        assert 0.8 == told['retry_success_rate{attempt="1"}']
        assert (0, 1) == tuple(told[f'retry_success_rate{{attempt="{number}"}}'] for number in (2, 3))
        assert 1 == told['staffetta_breaker_state{state="closed",transport="relay"}']
        assert 1 == told["staffetta_store_up"] == told["staffetta_processes"]

    run(work)


def test_a_held_email_uses_up_no_attempt_in_the_figures_either() -> None:
    """A relay that is down for an hour must not look like an hour of failing e-mails."""

    async def work() -> None:
        away = refuses("connect", name="refused", text="connection refused")
        rig = Rig(transports=[ScriptedTransport(script=deque(itertools.repeat(away, 5)), always=accepts)])
        one = watched(rig)
        task = turned().create_task(one.worker.run())
        await one.worker.started.wait()
        await rig.add(*(new_email(number, now=rig.clock()) for number in range(1, 6)))
        await until_ended(rig, 5)
        told = await one.scrape()
        one.worker.stop()
        await task
        assert 5 == told['staffetta_given_back_total{cause="held"}']
        assert 1 == told['retry_success_rate{attempt="1"}']
        assert "retry_backoff_delay_seconds_count" in told
        assert 0 == told["retry_backoff_delay_seconds_count"]
        assert 1 <= told['staffetta_breaker_moves_total{state="open",transport="relay"}']

    run(work)


async def test_the_door_answers_scrapes_with_the_format_that_prometheus_asks_for(front: Front) -> None:
    said = await front.ask("GET", "/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (said.status, said.headers["Content-Type"])


def test_labels_of_companies_are_bounded_and_stay_with_who_has_them() -> None:
    """A million companies must not become a million series, and a graph must not change whom it speaks of."""
    labels = Labels(2)
    assert {"big": "big", "middle": "middle"} == labels.learn({"small": 1, "big": 9, "middle": 5})
    assert {"big": "big", "middle": "middle"} == labels.learn({"small": 1_000, "big": 9, "middle": 5})


async def test_companies_without_a_label_are_other_together() -> None:
    store = MemoryStore()
    counting = Counting()
    gathering = Gathering(store, lambda: 0, own=("w", counting.tally))
    gathering._processed.update({"big": 9, "small": 1, "smaller": 2})
    told = Scrape(await Metrics(store, gathering, companies_max=1).text())
    assert (9, 3) == tuple(told[f'tenant_jobs_processed{{company_id="{name}"}}'] for name in ("big", "other"))


async def test_a_scrape_is_answered_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment at which somebody looks: counters stay, what only the store knows is left out, and said."""
    store = MemoryStore()
    counting = Counting()
    counting.tally.count("retries", "1")
    one = Metrics(store, Gathering(store, lambda: 0, own=("w", counting.tally)))

    async def away() -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(store, "counts", away)
    told = Scrape(await one.text())
    assert (0, 1) == (told["staffetta_store_up"], told['retry_attempts_total{attempt="1"}'])
    assert "dlq_size" not in told
