"""Every metric's name as exposed, its labels, and where its samples come from. `metrics.py` writes them."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from staffetta.flow.gathering import Sight
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, Value
from staffetta.mail.operators import Pause
from staffetta.mail.tally import BOUNDS_MS, OTHER, SEPARATOR, Spread, Tally
from staffetta.store.contract import DeadLetterCounts

AGE_BOUNDS_MS = (
    60_000,
    300_000,
    900_000,
    3_600_000,
    14_400_000,
    43_200_000,
    86_400_000,
    259_200_000,
    604_800_000,
)

Kind: TypeAlias = Literal["counter", "gauge", "histogram", "unknown"]
Sample: TypeAlias = tuple[tuple[str, ...], float | Spread]


class Picture(Value, frozen=True, kw_only=True):
    """All that one scrape is made from. What the store tells is None while it does not answer."""

    sight: Sight
    labels: Mapping[str, str]
    """By company: its label."""
    counts: Mapping[Status, int] | None = None
    queue: tuple[int, int, int] | None = None
    letters: DeadLetterCounts | None = None
    ages: Sequence[Millis] | None = None
    pauses: Sequence[Pause] = ()
    firing: Sequence[Mapping[str, Any]] = ()

    @property
    def sums(self) -> Tally:
        return self.sight.sums

    def by_label(
        self, rows: Iterable[tuple[str, float]], fold: Callable[[float, float], float] = operator.add
    ) -> Iterator[Sample]:
        """Companies' values under their labels; those that share one are folded together."""
        folded: dict[str, float] = {}
        for company_id, value in rows:
            label = self.labels.get(company_id, OTHER)
            folded[label] = fold(folded[label], float(value)) if label in folded else float(value)
        for label, total in sorted(folded.items()):
            yield (label,), total


class Metric(Value, frozen=True, kw_only=True):
    """One name as exposed."""

    name: str
    kind: Kind
    words: str
    labels: tuple[str, ...] = ()
    samples: Callable[[Picture], Iterable[Sample]]
    bounds: tuple[Millis, ...] = BOUNDS_MS


# -------------------------------------------------------------------------------------- where samples come from


def _one(value: Callable[[Picture], float | None]) -> Callable[[Picture], Iterable[Sample]]:
    def samples(picture: Picture) -> Iterable[Sample]:
        found = value(picture)
        return () if found is None else (((), float(found)),)

    return samples


def _counted(name: str, *, always: Sequence[str] = ()) -> Callable[[Picture], Iterable[Sample]]:
    """A tally's count by its key's labels. `always`: keys that are shown before anything was counted."""

    def samples(picture: Picture) -> Iterable[Sample]:
        row = {**dict.fromkeys(always, 0), **picture.sums.counts.get(name, {})}
        return ((tuple(key.split(SEPARATOR)), float(value)) for key, value in sorted(row.items()))

    return samples


def _total(name: str) -> Callable[[Picture], Iterable[Sample]]:
    return _one(lambda picture: picture.sums.total(name))


def _spread(name: str, *, labels: int = 0) -> Callable[[Picture], Iterable[Sample]]:
    def samples(picture: Picture) -> Iterable[Sample]:
        rows = picture.sums.spreads.get(name, {} if labels else {"": Spread()})
        for key, spread in sorted(rows.items()):
            named = tuple(key.split(SEPARATOR)) if labels else ()
            yield (named if len(named) == labels else (OTHER,) * labels), spread

    return samples


def _of_companies(field: str, fold: Callable[[float, float], float]) -> Callable[[Picture], Iterable[Sample]]:
    def samples(picture: Picture) -> Iterable[Sample]:
        rows = ((row["companyId"], row[field]) for row in picture.sight.companies())
        return picture.by_label(rows, fold)

    return samples


def _ages(picture: Picture) -> Iterable[Sample]:
    if picture.ages is None:
        return
    spread = Spread(buckets=[0] * (len(AGE_BOUNDS_MS) + 1))
    for at in picture.ages:
        age = max(0, picture.sight.at - at)
        spread.total_ms += age
        spread.buckets[bisect_left(AGE_BOUNDS_MS, age)] += 1
    yield (), spread


def _breakers(picture: Picture) -> Iterable[Sample]:
    for row in picture.sight.breakers():
        for state in ("closed", "open", "half-open", "paused"):
            yield (row["transport"], state), float(row["state"] == state)


def _of_processes(read: Callable[[Mapping[str, Any]], float]) -> Callable[[Picture], Iterable[Sample]]:
    def samples(picture: Picture) -> Iterable[Sample]:
        for each in picture.sight.processes:
            if "process" in each:
                yield (each["worker"]["host"], str(each["worker"]["pid"])), read(each)

    return samples


def _redis(field: str) -> Callable[[Picture], Iterable[Sample]]:
    return _one(
        lambda picture: max(
            (each["redis"][field] for each in picture.sight.processes if "redis" in each), default=None
        )
    )


def _queue(picture: Picture) -> Iterable[Sample]:
    if picture.queue is not None:
        for state, value in zip(("waiting", "delayed", "active"), picture.queue, strict=True):
            yield (state,), float(value)


def _statuses(picture: Picture) -> Iterable[Sample]:
    if picture.counts is not None:
        for status in Status:
            yield (status.value,), float(picture.counts.get(status, 0))


TABLE: tuple[Metric, ...] = (
    # --- the names of the seeds, as exposed
    Metric(name="retry_attempts_total", kind="counter", labels=("attempt",), samples=_counted("retries"),
           words="Retries scheduled, by the number of the attempt that failed."),
    Metric(name="retry_backoff_delay_seconds", kind="histogram", samples=_spread("backoff"),
           words="Delays decided before the next attempt."),
    Metric(name="retry_success_rate", kind="gauge", labels=("attempt",),
           samples=lambda p: (((str(n),), rate) for n, rate in p.sums.success_rates(now=p.sight.at).items()),
           words="Share of the last hour's attempts of this number that went well."),
    Metric(name="dlq_entries_total", kind="counter", samples=_total("dead_letters"),
           words="Dead letters written."),
    Metric(name="dlq_size", kind="gauge", samples=_one(lambda p: p.letters.size if p.letters else None),
           words="Dead letters present."),
    Metric(name="dlq_age_seconds", kind="histogram", samples=_ages, bounds=AGE_BOUNDS_MS,
           words="Age of the dead letters present."),
    Metric(name="dlq_by_error_code", kind="gauge", labels=("code",),
           samples=lambda p: _by_code(p.letters.by_code if p.letters else {}),
           words="Dead letters present, by the code of the last failure."),
    Metric(name="dlq_by_company", kind="gauge", labels=("company_id",),
           samples=lambda p: p.by_label(p.letters.by_company.items() if p.letters else ()),
           words="Dead letters present, by company."),
    Metric(name="tenant_jobs_processed", kind="unknown", labels=("company_id",),
           samples=lambda p: p.by_label(p.sight.processed.items()),
           words="E-mails taken for sending, by company. Only grows."),
    Metric(name="tenant_current_priority", kind="gauge", labels=("company_id",),
           samples=_of_companies("currentPriority", min),
           words="Priority shown for a company: 1 has waited longest."),
    Metric(name="tenant_consecutive_batch", kind="gauge", labels=("company_id",),
           samples=_of_companies("consecutiveBatchCount", max),
           words="E-mails of the company taken in a row."),
    Metric(name="tenant_rounds_without_processing", kind="gauge", labels=("company_id",),
           samples=_of_companies("roundsWithoutProcessing", max),
           words="Turns given to others while the company was waiting."),
    # --- e-mails
    Metric(name="staffetta_emails", kind="gauge", labels=("status",), samples=_statuses,
           words="E-mails in the store, by status."),
    Metric(name="staffetta_queue_emails", kind="gauge", labels=("state",), samples=_queue,
           words="READY and due (waiting), READY and due later (delayed), PROCESSING (active), by the store."),
    Metric(name="staffetta_accepted_total", kind="counter", samples=_total("accepted"),
           words="E-mails made durable by hand-in."),
    Metric(name="staffetta_ended_total", kind="counter", labels=("status",),
           samples=_counted("ended", always=("SENT", "FAILED")),
           words="E-mails that came to SENT or FAILED (cancelled ones are not counted)."),
    Metric(name="staffetta_moves_total", kind="counter", labels=("status", "cause"), samples=_counted("moves"),
           words="Moves made beside the sending (intake, expiry, operators), by the status entered."),
    Metric(name="staffetta_accepted_to_sent_seconds", kind="histogram", samples=_spread("to_sent"),
           words="Time from acceptance to SENT."),
    Metric(name="staffetta_processing_seconds", kind="histogram", samples=_spread("in_process"),
           words="Time from READY and due to the end of the attempt."),
    # --- attempts
    Metric(name="staffetta_send_duration_seconds", kind="histogram", labels=("transport", "verdict"),
           samples=_spread("sends", labels=2), words="Time from the claim to the end of the attempt."),
    Metric(name="staffetta_replies_total", kind="counter", labels=("code",), samples=_counted("reply_codes"),
           words="Attempts by the reply that decided them: SMTP code, SES error or event."),
    Metric(name="staffetta_retries_by_category_total", kind="counter", labels=("category",),
           samples=_counted("retries_by_category"), words="Retries scheduled, by category of the reply."),
    Metric(name="staffetta_given_back_total", kind="counter", labels=("cause",), samples=_counted("given_back"),
           words="Attempts that did not count: held by a breaker, or stopped in order."),
    Metric(name="staffetta_time_between_attempts_seconds", kind="histogram",
           samples=_spread("between_attempts"),
           words="Time from the end of a failed attempt to the beginning of the next."),
    # --- around it
    Metric(name="staffetta_callbacks_total", kind="counter", labels=("outcome",),
           samples=_counted("callbacks", always=("acknowledged", "failed")),
           words="E-mails whose owner was called, by outcome."),
    Metric(name="staffetta_dead_letters_dropped_total", kind="counter", labels=("why",),
           samples=_counted("dead_letters_dropped"), words="Dead letters dropped by age or by the cap."),
    Metric(name="staffetta_restored_total", kind="counter", labels=("status",), samples=_counted("restored"),
           words="E-mails taken back from dead workers, by the status they were found in."),
    Metric(name="staffetta_locks_lost_total", kind="counter", labels=("step",), samples=_counted("locks_lost"),
           words="Steps skipped because another worker had the e-mail."),
    Metric(name="staffetta_troubles_total", kind="counter", labels=("part",), samples=_counted("troubles"),
           words="Troubles of our own parts, each with its log line."),
    Metric(name="staffetta_breaker_state", kind="gauge", labels=("transport", "state"), samples=_breakers,
           words="1 for the state a transport's breaker is in."),
    Metric(name="staffetta_breaker_moves_total", kind="counter", labels=("transport", "state"),
           samples=_counted("breaker_moves"), words="Times a breaker entered a state."),
    Metric(name="staffetta_paused", kind="gauge", labels=("scope", "name"),
           samples=lambda p: (((pause.scope, pause.name), 1.0) for pause in p.pauses),
           words="1 for everything, each transport and each company that an operator paused."),
    Metric(name="staffetta_alert_firing", kind="gauge", labels=("alert",),
           samples=lambda p: (
               ((row["name"],), float(row["state"] == "firing")) for row in p.firing if "company_id" not in row
           ),
           words="1 while the alert evaluated in the process fires."),
    # --- processes
    Metric(name="staffetta_store_up", kind="gauge", samples=_one(lambda p: p.counts is not None),
           words="1 when the store answered this scrape."),
    Metric(name="staffetta_processes", kind="gauge", samples=_one(lambda p: len(p.sight.processes)),
           words="Processes that told their figures lately."),
    Metric(name="staffetta_in_flight", kind="gauge",
           samples=_one(lambda p: sum(each["worker"]["in_flight"] for each in p.sight.processes)),
           words="E-mails in the hands of all processes."),
    Metric(name="staffetta_process_cpu_seconds_total", kind="counter", labels=("host", "pid"),
           samples=_of_processes(lambda each: each["process"]["cpu_seconds"]),
           words="CPU time of each process, in whole seconds."),
    Metric(name="staffetta_process_resident_bytes", kind="gauge", labels=("host", "pid"),
           samples=_of_processes(lambda each: each["process"]["resident_mib"] * 2**20),
           words="Memory of each process, in whole MiB."),
    Metric(name="staffetta_redis_memory_used_ratio", kind="gauge", samples=_redis("memory_used_ratio"),
           words="Redis: used_memory / maxmemory. Only where the queue is Redis."),
    Metric(name="staffetta_redis_rejected_connections", kind="gauge", samples=_redis("rejected_connections"),
           words="Redis: rejected_connections. Only where the queue is Redis."),
)  # fmt: skip


def _by_code(by_code: Mapping[str, int]) -> Iterable[Sample]:
    """At most as many codes as a tally keeps; the rarest are `other`."""
    ranked = sorted(by_code.items(), key=lambda item: (-item[1], item[0]))
    for code, size in ranked[:200]:
        yield (code or "none",), float(size)
    if ranked[200:]:
        yield (OTHER,), float(sum(size for _, size in ranked[200:]))
