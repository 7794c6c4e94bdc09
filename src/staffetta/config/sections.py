"""Every setting there is: its section, name, kind, default and what it does.

The sample file, the reference page and the checks are made from these lines, so that they cannot differ.
"""

from __future__ import annotations

from typing import Annotated, Literal

from staffetta.config.kinds import (
    chain,
    choice,
    duration,
    levels,
    listen,
    number,
    signing_secret,
    switch,
    text,
    url,
    weights,
    whole,
)
from staffetta.mail import events
from staffetta.mail.message import InDoubtPolicy, Value

_DAY_MS = 86_400_000


class Store(Value, frozen=True, kw_only=True):
    """Where every e-mail lives. The store is the truth."""

    url: Annotated[
        str,
        url(
            "The database. SQLite is one file owned by one `serve`; MySQL and DynamoDB serve many workers.",
            "sqlite", "mysql", "dynamodb",
            form="sqlite:///staffetta.db",
        ),
    ] = "sqlite:///staffetta.db"  # fmt: skip
    table: Annotated[str | None, text("The DynamoDB table; wins over the one in the URL.", most=255)] = None
    shared: Annotated[
        bool,
        switch(
            "Other programs work on the same tables: write payload and message as files that they can send."
        ),
    ] = False


class Queue(Value, frozen=True, kw_only=True):
    """What reminds the workers. Losing all of it loses no mail."""

    url: Annotated[
        str,
        url(
            "`local` for one host, Redis for workers on many.",
            "local", "redis", "rediss", "redis+cluster", "redis+sentinel",
            form="local", bare="local",
        ),
    ] = "local"  # fmt: skip
    strict: Annotated[bool, switch("Refuse to start when Redis is set so that it may lose jobs.")] = False
    waiting_max: Annotated[int, whole("Jobs kept in memory by the local queue at most.", least=1_000)] = 100_000


class Transport(Value, frozen=True, kw_only=True):
    """The mouth: who takes the e-mail on."""

    url: Annotated[
        tuple[str, ...],
        chain("Relay or provider; a list (or commas) is a fallback chain; `#name` at the end names one."),
    ] = ()
    connections: Annotated[int, whole("Connections to one relay at most.", least=1, most=10_000)] = 100
    messages_per_connection: Annotated[
        int, whole("Messages on one connection; then a new one (0: no limit).")
    ] = 0
    messages_per_second: Annotated[
        float, number("Messages a second to one relay (0: no limit). Waiting is no failure.", least=0, most=1e6)
    ] = 0.0
    idle_ms: Annotated[int, duration("An unused connection is closed after this.")] = 30_000
    ehlo_name: Annotated[str | None, text("The name we greet with; default: this host's name.", most=255)] = (
        None
    )
    rules_file: Annotated[
        str | None, text("Your own rules for replies (TOML); they come before the built-in ones.")
    ] = None


class Delivery(Value, frozen=True, kw_only=True):
    """How e-mails are sent."""

    concurrency: Annotated[int, whole("E-mails in flight in one worker.", least=1, most=10_000)] = 600
    in_doubt: Annotated[
        InDoubtPolicy,
        choice(
            "What follows a message handed over without a reply: send once more, or leave it to you.",
            "resend", "hold",
        ),
    ] = "resend"  # fmt: skip
    in_doubt_delay_ms: Annotated[
        int, duration("How long an e-mail in doubt waits before it is sent once more.")
    ] = 900_000
    deadline_ms: Annotated[int, duration("The final dot is never sent later than this after the claim.")] = (
        900_000
    )
    shutdown_grace_ms: Annotated[
        int, duration("How long sends in flight may take to end at a stop.", least_ms=0)
    ] = 20_000
    expires_in_ms: Annotated[
        int, duration("An e-mail not sent within this fails as EXPIRED.", least_ms=1_000)
    ] = _DAY_MS


class Retry(Value, frozen=True, kw_only=True):
    """When a failed attempt is made again."""

    policy: Annotated[
        str,
        choice(
            "`gateway` 1 s to 60 s, 5 attempts; `worker` to 300 s; `patient` 5 min to 24 h, 3 attempts;"
            " `courier` 1 min to 1 h until expiry.",
            "gateway", "worker", "patient", "courier",
        ),
    ] = "gateway"  # fmt: skip
    slow_seconds: Annotated[int, whole("Least wait after a reply that asks to go slow.", least=1)] = 60
    greylist_seconds: Annotated[int, whole("Least wait after greylisting.", least=1)] = 300


class DeadLetters(Value, frozen=True, kw_only=True):
    """E-mails given up."""

    ttl_ms: Annotated[int, whole("How long a dead letter is kept, in milliseconds.", least=1_000)] = 604_800_000
    max_size: Annotated[int, whole("Dead letters kept at most; the oldest go first.", least=1)] = 10_000


class Restore(Value, frozen=True, kw_only=True):
    """Taking back e-mails whose worker is gone."""

    interval_ms: Annotated[int, duration("How often it is looked for them.", least_ms=100)] = 10_000
    timeout_minutes: Annotated[
        int, whole("The backstop for claims of programs that keep no heartbeat.", least=1)
    ] = 30


class Worker(Value, frozen=True, kw_only=True):
    """The processes that work."""

    processes: Annotated[int, whole("Sending processes of one `serve`.", least=1, most=64)] = 1
    heartbeat_ms: Annotated[int, duration("How often a worker writes that it lives.", least_ms=100)] = 10_000
    dead_after_ms: Annotated[int, duration("A worker silent for this long is dead.", least_ms=500)] = 60_000


class Fairness(Value, frozen=True, kw_only=True):
    """Whose turn it is."""

    enabled: Annotated[bool, switch("Off: plain order by age, whatever the company.")] = True
    max_jobs_per_batch: Annotated[int, whole("Jobs of one company in a row.", least=1, most=1_000)] = 3
    base_priority: Annotated[int, whole("The figure shown for a company that was just served.", least=1)] = 5
    max_priority: Annotated[int, whole("The figure shown for the company that waits longest.", least=1)] = 1
    increment: Annotated[int, whole("By how much each turn given to others moves the figure.", least=1)] = 1
    weights: Annotated[
        dict[str, float], weights("Shares by company or pattern; the first that fits counts; default 1.")
    ] = {}


class Limiter(Value, frozen=True, kw_only=True):
    """A limit over all workers."""

    max: Annotated[int, whole("Jobs per `duration` (0: no limit).")] = 0
    duration_ms: Annotated[int, duration("The window of `max`.", least_ms=10)] = 60_000


class Intake(Value, frozen=True, kw_only=True):
    """Payloads that arrive as files."""

    payload_base_path: Annotated[
        str | None, text("The only folder from which payload files are read; unset: none are.")
    ] = None


class Attachments(Value, frozen=True, kw_only=True):
    """Attachments named by path."""

    base_path: Annotated[
        str | None, text("The only folder from which attachments are read; unset: none are.")
    ] = None


class Spool(Value, frozen=True, kw_only=True):
    """Content above 256 KiB."""

    path: Annotated[str, text("Folder for large content, on a disk that all hosts share.")] = "spool"


class Limits(Value, frozen=True, kw_only=True):
    """How large an e-mail may be."""

    body_bytes: Annotated[int, whole("Text and HTML together.", least=1, most=100 * 2**20)] = 10 * 2**20
    message_bytes: Annotated[int, whole("All attachments together.", least=1, most=500 * 2**20)] = 25 * 2**20


class Callback(Value, frozen=True, kw_only=True):
    """Telling the owner how it ended."""

    url: Annotated[
        str | None,
        url(
            "Where outcomes are posted; unset: SENT and FAILED are the end.", "http", "https", form="https://…"
        ),
    ] = None
    secret: Annotated[str | None, signing_secret("Signs callbacks (Standard Webhooks).")] = None
    timeout_ms: Annotated[int, duration("How long a receiver may take to answer.")] = 10_000
    max_retries: Annotated[int, whole("Further tries after a 409.", most=100)] = 3
    retry_interval_ms: Annotated[int, duration("The pause between them.", least_ms=0)] = 5_000
    batch: Annotated[
        int, whole("Outcomes of one company, URL and reason in one call.", least=1, most=1_000)
    ] = 1
    window_hours: Annotated[int, whole("After this a callback is given up.", least=1)] = 72
    concurrency: Annotated[int, whole("Calls at a time.", least=1, most=1_000)] = 32
    allow_private: Annotated[bool, switch("Let payloads name callback URLs inside private networks.")] = False
    sent_reason: Annotated[str, text("The reason told with a success.", most=500)] = (
        "Delivered to the mail server"
    )


class Retention(Value, frozen=True, kw_only=True):
    """How long finished things are kept."""

    content_days: Annotated[int, whole("An e-mail's content is erased this long after its end.")] = 30
    record_days: Annotated[int | None, whole("Records are deleted after this; unset: never.", least=1)] = None


class Notify(Value, frozen=True, kw_only=True):
    """Who is told of trouble."""

    admin: Annotated[
        str | None, text("A URL or an e-mail address that gets digests of dead letters and alerts.")
    ] = None
    sender: Annotated[
        str | None, text("The sender of digests that leave as e-mails; left out: the administrator's address.")
    ] = None


class Api(Value, frozen=True, kw_only=True):
    """HTTP."""

    listen: Annotated[str, listen("Address and port. Without API keys only loopback is allowed.")] = (
        "127.0.0.1:8025"
    )
    batch_bytes: Annotated[int, whole("The largest request body.", least=1_000, most=2**31)] = 64 * 2**20


class Log(Value, frozen=True, kw_only=True):
    """What is written to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        choice("From which level on.", "debug", "info", "warning", "error"),
    ] = "info"
    levels: Annotated[
        dict[str, str],
        levels("Sections with a level of their own.", events.SECTIONS, ("debug", "info", "warning", "error")),
    ] = {}
    format: Annotated[
        Literal["auto", "json", "text"],
        choice("`auto`: readable on a terminal, JSON elsewhere.", "auto", "json", "text"),
    ] = "auto"


class Metrics(Value, frozen=True, kw_only=True):
    """Prometheus."""

    companies_max: Annotated[
        int, whole("Companies with a label of their own; the rest is `other`.", least=1)
    ] = 100


class Company(Value, frozen=True, kw_only=True):
    """One company's own settings: `[companies."acme"]`."""

    weight: Annotated[float | None, number("Its share against others.", least=0.01, most=1_000)] = None
    transport: Annotated[
        tuple[str, ...], chain("Its own chain: addresses, or names of the others'.", named=True)
    ] = ()
    callback_url: Annotated[str | None, url("Its own receiver.", "http", "https", form="https://…")] = None
    callback_secret: Annotated[str | None, signing_secret("Signs its callbacks.")] = None
    rate: Annotated[float | None, number("Its e-mails a second at most.", least=0.001, most=1e6)] = None
    max_attempts: Annotated[int | None, whole("Its own limit of attempts.", least=1, most=1_000)] = None
    retry_delay: Annotated[
        int | None, whole("First delay in milliseconds (selects the curve of `patient`).", least=1)
    ] = None
    max_retry_delay: Annotated[int | None, whole("Longest delay in milliseconds.", least=1)] = None
