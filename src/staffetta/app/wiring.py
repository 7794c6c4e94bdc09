"""Settings into parts, one function a part. Concrete backends are named here, imported where they are made."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from staffetta import config as settings
from staffetta.config import Config
from staffetta.config.kinds import transport_name
from staffetta.errors import FieldProblem, SettingsError
from staffetta.mail import backoff, identity, limiter, verdict
from staffetta.mail.events import Emit
from staffetta.mail.message import Millis, RetryLimits
from staffetta.mail.rulebook import CompanyRules, RuleBook
from staffetta.mail.verdict import Table
from staffetta.queue.contract import Queue
from staffetta.store.contract import Parted, Store
from staffetta.transport.contract import Transport

if TYPE_CHECKING:  # imported where they are made: most commands need few of them and start the sooner
    from staffetta.attachments import Folder
    from staffetta.flow.accept import Desk
    from staffetta.flow.operate import Operator
    from staffetta.mail.payload import Limits
    from staffetta.mail.report import Receivers, ReportRules
    from staffetta.spool import Spool


def clock() -> Millis:
    """Now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


draw: Callable[[], float] = random.random


def new_id(now: Millis) -> str:
    """A UUIDv7 of this moment."""
    return identity.uuid7(now, os.urandom(identity.RANDOM_BYTES))


def worker_id() -> str:
    """Names this process among all that ever claim. Without a dot: a claim's token goes on after one."""
    return f"{os.getpid()}-{os.urandom(5).hex()}"


def process_figures() -> dict[str, int]:
    """What this process has used. In whole units, so that an idle one tells the same again and again."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) if _PROC else 0
    resident = pages * resource.getpagesize() if pages else used.ru_maxrss * 1024
    return {"cpu_seconds": int(used.ru_utime + used.ru_stime), "resident_mib": resident >> 20}


_PROC = Path("/proc/self/statm").exists()

# ----------------------------------------------------------------------------------------------- the store


def store_for(config: Config, *, owner: bool) -> Store:
    """The store, not yet opened. `owner`: this process serves it; False: a command beside a serving one."""
    scheme = config.store.url.partition(":")[0]
    if scheme == "sqlite":
        from staffetta.store.sqlite import SqliteStore

        return SqliteStore(settings.sqlite_path(config.store.url), owner=owner)
    if scheme == "dynamodb":
        return _dynamodb(config)
    if scheme == "mysql":
        return _mysql(config)
    raise SettingsError([FieldProblem("store.url", f"{scheme}:// stores are not part of this release")])


def _mysql(config: Config) -> Store:
    try:
        from staffetta.store.mysql import MysqlStore, Owners
    except ModuleNotFoundError as error:
        remedy = f"mysql:// needs the library {error.name}: pip install 'staffetta[mysql]'"
        raise SettingsError([FieldProblem("store.url", remedy)]) from error
    rulebook = rulebook_for(config)
    owners = Owners(
        window_ms=config.callback.window_hours * 3_600_000,
        waits=lambda company_id, options: rulebook.rules_for(company_id, options).callback_due,
    )
    try:
        return MysqlStore(config.store.url, parted_after_ms=_parted_after_ms(config), owners=owners)
    except ValueError as error:
        raise SettingsError([FieldProblem("store.url", str(error))]) from error


def _dynamodb(config: Config) -> Store:
    try:
        from staffetta.store.dynamodb import DynamoStore, Owners, read
    except ModuleNotFoundError as error:
        remedy = f"dynamodb:// needs the library {error.name}: pip install 'staffetta[dynamodb]'"
        raise SettingsError([FieldProblem("store.url", remedy)]) from error
    days = config.retention.record_days
    life_ms = None
    if days is not None:
        # Nothing alive ever goes by DynamoDB's TTL: it ends, its owner is told, its dead letter lies, then the days.
        life_ms = config.callback.window_hours * 3_600_000 + config.dlq.ttl_ms + days * 86_400_000
    try:
        place = read(config.store.url, table=config.store.table, life_ms=life_ms, shared=config.store.shared)
    except ValueError as error:
        raise SettingsError([FieldProblem("store.url", str(error))]) from error
    rulebook = rulebook_for(config)
    owners = Owners(
        window_ms=config.callback.window_hours * 3_600_000,
        waits=lambda company_id, options: rulebook.rules_for(company_id, options).callback_due,
        clock=clock,
    )
    after_ms = _parted_after_ms(config)
    return DynamoStore(place, parted_after_ms=after_ms, idle_seconds=DYNAMODB_IDLE_SECONDS, owners=owners)


DYNAMODB_IDLE_SECONDS = 0.4
"""Every question is paid for: where there was nothing to do, nobody asks again for so long."""


def _parted_after_ms(config: Config) -> Millis | None:
    """Where every worker has a queue of its own, who missed two heartbeats has no part of the work any more; what he
    holds stays his until he is dead."""
    if config.queue.url != "local":
        return None
    return min(config.worker.dead_after_ms, 3 * config.worker.heartbeat_ms)


@contextlib.asynccontextmanager
async def opened_store(config: Config, *, owner: bool) -> AsyncIterator[Store]:
    """The store, open. `owner`: this process serves it; False: a command beside whoever does."""
    store = store_for(config, owner=owner)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


SHARED_WINDOW = 10_000
"""What one process sends in some two seconds: so many it takes from a store that others work on too."""


def queue_for(config: Config, *, emit: Emit | None = None, store: Store | None = None) -> Queue:
    """The queue, not yet opened. `store`: the one that it is fed from, where it is known."""
    from staffetta.mail.fairness import Priorities, Weights

    fairness, limit = config.fairness, config.limiter
    order: dict[str, Any] = {
        "clock": clock,
        "batch_max": fairness.max_jobs_per_batch,
        "enabled": fairness.enabled,
        "weights": Weights(named=weights_of(config)),
        "priorities": Priorities(
            base=fairness.base_priority, increment=fairness.increment, highest=fairness.max_priority
        ),
        "limiter": limiter.Limit(max=limit.max, duration_ms=limit.duration_ms) if limit.max else None,
        "rates": {
            name: limiter.per_second(own.rate) for name, own in config.companies.items() if own.rate is not None
        },
    }
    if config.queue.url == "local":
        from staffetta.queue.local import LocalQueue

        parted: object = store
        if isinstance(parted, Parted):
            from staffetta.queue.local.parted import PartedQueue

            window = min(config.queue.waiting_max, SHARED_WINDOW)
            return PartedQueue(mine=parted.mine, waiting_max=window, **order)
        return LocalQueue(waiting_max=config.queue.waiting_max, **order)
    made: Queue = redis_room(config).RedisQueue(
        config.queue.url, strict=config.queue.strict, emit=emit, **order
    )
    return made


def redis_room(config: Config) -> Any:
    """The room that meets the driver; a remedy where the extra was not installed."""
    try:
        import staffetta.queue.redis
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        scheme = config.queue.url.partition(":")[0]
        remedy = f"{scheme}:// needs the extra `redis`, which is not installed: pip install 'staffetta[redis]'"
        raise SettingsError([FieldProblem("queue.url", remedy)]) from error
    return staffetta.queue.redis


def weights_of(config: Config) -> Mapping[str, float]:
    """Weights by company; a company's own line goes before the patterns of `fairness.weights`."""
    own = {name: company.weight for name, company in config.companies.items() if company.weight is not None}
    return {**own, **{name: weight for name, weight in config.fairness.weights.items() if name not in own}}


# ----------------------------------------------------------------------------------------------- transports


def transports_for(config: Config) -> list[Transport]:
    """Every transport that some chain names, once each."""
    addresses: dict[str, str] = {}
    for address in (*config.transport.url, *(a for own in config.companies.values() for a in own.transport)):
        if "://" in address:
            addresses.setdefault(transport_name(address), address)
    return [_transport(name, address, config) for name, address in addresses.items()]


def _transport(name: str, address: str, config: Config) -> Transport:
    scheme = address.partition(":")[0]
    told = config.transport
    if scheme == "sink":
        from staffetta.transport.sink import SinkTransport

        return SinkTransport(name=name)
    if scheme in ("smtp", "smtps"):
        from staffetta.transport.smtp import SmtpTransport

        try:
            made = SmtpTransport.from_url(
                address,
                ehlo_name=told.ehlo_name,
                connections_max=told.connections,
                messages_per_connection=told.messages_per_connection,
                messages_per_second=told.messages_per_second,
                idle_seconds=told.idle_ms / 1_000,
            )
        except ValueError as error:
            raise SettingsError([FieldProblem("transport.url", str(error))]) from error
        made.name = name
        return made
    assert scheme == "ses", "the settings know no other scheme"
    return _ses(name, address, config)


def _ses(name: str, address: str, config: Config) -> Transport:
    try:
        from staffetta.transport.ses import SesTransport
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library != "botocore":
            raise
        remedy = f"ses:// needs {library}, which is not installed: pip install 'staffetta[ses]'"
        raise SettingsError([FieldProblem("transport.url", remedy)]) from error
    told = config.transport
    try:
        made = SesTransport.from_url(
            address,
            connections_max=told.connections,
            messages_per_second=told.messages_per_second,
            idle_seconds=min(told.idle_ms / 1_000, _SES_IDLE_SECONDS),
        )
    except ValueError as error:
        raise SettingsError([FieldProblem("transport.url", str(error))]) from error
    made.name = name
    return made


_SES_IDLE_SECONDS = 15.0
"""SES closes an unused connection after some 20 s; a request that meets the close would be in doubt."""


def chains_of(config: Config) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The default chain and the companies' own, by names."""
    chain = tuple(transport_name(address) for address in config.transport.url)
    own = {
        company_id: tuple(transport_name(address) for address in company.transport)
        for company_id, company in config.companies.items()
        if company.transport
    }
    return chain, own


def table_for(config: Config) -> Table:
    """The rules for replies; the operator's own come first."""
    path = config.transport.rules_file
    try:
        own = Path(path).read_text(encoding="utf-8") if path else None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([FieldProblem("transport.rules_file", f"cannot be read: {error}")]) from error
    return Table.parse(
        verdict.packaged(),
        first=own,
        slow_ms=config.retry.slow_seconds * 1_000,
        greylist_ms=config.retry.greylist_seconds * 1_000,
    )


# ----------------------------------------------------------------------------------------------- rules


def rulebook_for(config: Config) -> RuleBook:
    name = "worker-development" if config.profile == "development" else config.retry.policy
    return RuleBook(
        policy=backoff.POLICIES[name],
        in_doubt=config.delivery.in_doubt,
        in_doubt_delay_ms=config.delivery.in_doubt_delay_ms,
        dead_letter_ttl_ms=config.dlq.ttl_ms,
        callback_url=config.callback.url,
        companies={
            company_id: CompanyRules(
                limits=_limits(own),
                callback_url=own.callback_url,
                transports=tuple(transport_name(address) for address in own.transport),
            )
            for company_id, own in config.companies.items()
        },
    )


def _limits(own: Any) -> RetryLimits | None:
    if own.max_attempts is None and own.retry_delay is None and own.max_retry_delay is None:
        return None
    return RetryLimits(
        max_attempts=own.max_attempts, retry_delay_ms=own.retry_delay, max_retry_delay_ms=own.max_retry_delay
    )


def receivers_for(config: Config) -> Receivers:
    from staffetta.mail.report import Receivers

    return Receivers(
        url=config.callback.url,
        secret=config.callback.secret,
        companies={
            company_id: (own.callback_url, own.callback_secret)
            for company_id, own in config.companies.items()
            if own.callback_url or own.callback_secret
        },
        allow_private=config.callback.allow_private,
    )


def report_rules_for(config: Config) -> ReportRules:
    from staffetta.mail.report import ReportRules

    told = config.callback
    return ReportRules(
        batch=told.batch,
        max_retries=told.max_retries,
        retry_interval_ms=told.retry_interval_ms,
        window_ms=told.window_hours * 3_600_000,
        sent_reason=told.sent_reason,
    )


# ----------------------------------------------------------------------------------------------- hands


def spool_for(config: Config) -> Spool:
    from staffetta.spool import Spool

    return Spool(Path(config.spool.path))


def operator_for(
    config: Config, *, store: Store, rulebook: RuleBook, emit: Emit, queue: Queue | None, spool: Spool
) -> Operator:
    from staffetta.flow.operate import Operator

    return Operator(
        store=store,
        rulebook=rulebook,
        clock=clock,
        draw=draw,
        emit=emit,
        expires_in_ms=config.delivery.expires_in_ms,
        dead_after_ms=config.worker.dead_after_ms,
        timeout_ms=config.restore.timeout_minutes * 60_000,
        spool=spool,
        queue=queue,
    )


def desk_for(
    config: Config, *, store: Store, rulebook: RuleBook, emit: Emit, queue: Queue | None, spool: Spool
) -> Desk:
    from staffetta.flow.accept import Desk

    return Desk(
        store=store,
        spool=spool,
        clock=clock,
        new_id=new_id,
        emit=emit,
        queue=queue,
        attachments=attachments_for(config),
        limits=limits_of(config),
        rulebook=rulebook,
        expires_in_ms=config.delivery.expires_in_ms,
        shared=config.store.shared,
    )


def attachments_for(config: Config) -> Folder:
    from staffetta.attachments import Folder

    return Folder(config.attachments.base_path, setting="attachments.base_path")


def limits_of(config: Config) -> Limits:
    from staffetta.mail.payload import Limits

    return Limits(body_bytes=config.limits.body_bytes, message_bytes=config.limits.message_bytes)
