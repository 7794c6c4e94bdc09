"""The steps that a process walks beside the sending, made from settings: intake, report, retire, watch."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from staffetta.app import wiring
from staffetta.attachments import Folder
from staffetta.callback import Caller
from staffetta.config import Config
from staffetta.flow.accept import Desk
from staffetta.flow.composing import Composer
from staffetta.flow.deliver import Means
from staffetta.flow.gathering import Gathering
from staffetta.flow.intake import Intake, IntakeMeans
from staffetta.flow.report import Reporter, ReportMeans
from staffetta.flow.retire import RetireMeans, Retirement
from staffetta.flow.visitors import VisitorMeans, Welcome
from staffetta.flow.watch import Watch, WatchMeans
from staffetta.http import Http
from staffetta.notify import Notifier
from staffetta.spool import Spool
from staffetta.store.contract import Visited
from staffetta.worker import Stage

STAGES = frozenset({"intake", "deliver", "report", "restore", "retire", "watch"})
INTAKE_MS = 200
REPORT_MS = 100
RETIRE_MS = 60_000
WATCH_MS = 2_000
DAY_MS = 86_400_000


def made_of(
    config: Config,
    means: Means,
    *,
    stages: Collection[str],
    spool: Spool,
    desk: Desk,
    gathering: Gathering,
    worker_id: str,
    stack: contextlib.AsyncExitStack,
) -> list[Stage]:
    """The steps of those stages that are walked. What they open is closed with `stack`."""
    grace_seconds = config.delivery.shutdown_grace_ms / 1_000
    made: list[Stage] = []
    caller, http = _calls(config, stack)
    if "intake" in stages:
        intake = Intake(_intake_means(config, means, spool))
        made.append(
            Stage(
                name="intake",
                every_ms=INTAKE_MS,
                step=intake.step,
                end=lambda: intake.stop(grace_seconds),
            )
        )
        visited: object = means.store
        if isinstance(visited, Visited):
            welcome = Welcome(_visitor_means(config, means, spool, visited))
            made.append(Stage(name="visitors", every_ms=INTAKE_MS, step=welcome.step))
    if "report" in stages:
        reporter = Reporter(_report_means(config, means, caller))
        made.append(
            Stage(
                name="report",
                every_ms=REPORT_MS,
                step=reporter.step,
                end=lambda: reporter.stop(grace_seconds),
            )
        )
    if "retire" in stages:
        retirement = Retirement(_retire_means(config, means, spool))
        made.append(Stage(name="retire", every_ms=RETIRE_MS, step=retirement.step))
    if "watch" in stages:
        notifier = Notifier(
            admin=config.notify.admin,
            sender=config.notify.sender or "",
            http=http,
            caller=caller,
            receivers=wiring.receivers_for(config),
            hand_in=desk.accept,
        )
        watch = Watch(
            WatchMeans(
                store=means.store,
                gathering=gathering,
                worker_id=worker_id,
                clock=means.clock,
                emit=means.emit,
                tells=notifier,
            )
        )
        # An outage of the store is what it must see: it does not wait for its end.
        made.append(Stage(name="watch", every_ms=WATCH_MS, step=watch.step, needs_store=False))
    return made


def _calls(config: Config, stack: contextlib.AsyncExitStack) -> tuple[Caller, Http]:
    """Who calls receivers, and the client for addresses of the operator's own."""
    seconds = config.callback.timeout_ms / 1_000
    trusted = Http(timeout_seconds=seconds)
    caller = Caller(trusted=trusted, guarded=Http(timeout_seconds=seconds, guarded=True), clock=wiring.clock)
    stack.push_async_callback(caller.close)
    return caller, trusted


def _report_means(config: Config, means: Means, caller: Caller) -> ReportMeans:
    told = config.callback
    return ReportMeans(
        store=means.store,
        presence=means.presence,
        calls=caller,
        receivers=wiring.receivers_for(config),
        rules=wiring.report_rules_for(config),
        new_token=means.new_token,
        new_batch=wiring.new_id,
        clock=wiring.clock,
        ticks=lambda: int(means.monotonic() * 1_000),
        emit=means.emit,
        concurrency=told.concurrency,
        hold_ms=config.restore.timeout_minutes * 30_000,
    )


def _intake_means(config: Config, means: Means, spool: Spool) -> IntakeMeans:
    return IntakeMeans(
        store=means.store,
        queue=means.queue,
        spool=spool,
        composer=Composer(
            attachments=wiring.attachments_for(config),
            limits=wiring.limits_of(config),
            rulebook=means.rulebook,
            expires_in_ms=config.delivery.expires_in_ms,
            shared=config.store.shared,
        ),
        new_token=means.new_token,
        clock=wiring.clock,
        emit=means.emit,
        payload_files=Folder(config.intake.payload_base_path, setting="intake.payload_base_path"),
    )


def _visitor_means(config: Config, means: Means, spool: Spool, store: Visited) -> VisitorMeans:
    taking_in = _intake_means(config, means, spool)
    return VisitorMeans(
        store=store,
        queue=means.queue,
        spool=spool,
        composer=taking_in.composer,
        payload_files=taking_in.payload_files,
        clock=wiring.clock,
        emit=means.emit,
        expires_in_ms=config.delivery.expires_in_ms,
    )


def _retire_means(config: Config, means: Means, spool: Spool) -> RetireMeans:
    days = config.retention.record_days
    return RetireMeans(
        store=means.store,
        spool=spool,
        clock=wiring.clock,
        emit=means.emit,
        content_ms=config.retention.content_days * DAY_MS,
        record_ms=None if days is None else days * DAY_MS,
        dead_letter_max=config.dlq.max_size,
    )
