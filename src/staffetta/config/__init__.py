"""Settings: `staffetta.toml` and the environment become one frozen `Config`, checked whole at the start.

Every wrong value is named at once, with where it came from and what would be right.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from staffetta.config import sections
from staffetta.config.kinds import Kind, Wrong, choice, transport_name
from staffetta.errors import FieldProblem, SettingsError
from staffetta.mail.message import Value

PREFIX = "STAFFETTA_"
SHORT_VARIABLES = {
    "STAFFETTA_STORE": "store.url",
    "STAFFETTA_QUEUE": "queue.url",
    "STAFFETTA_TRANSPORT": "transport.url",
    "STAFFETTA_CALLBACK_URL": "callback.url",
    "STAFFETTA_LISTEN": "api.listen",
    "STAFFETTA_PROFILE": "profile",
    "EMAIL_OUTBOX_TABLE": "store.table",
}
NOT_SETTINGS = (
    "STAFFETTA_URL", "STAFFETTA_KEY", "STAFFETTA_CONFIG", "STAFFETTA_SEED", "STAFFETTA_SEEDS", "STAFFETTA_FAILPOINT",
    "STAFFETTA_FAILPOINT_SENDING",
)  # fmt: skip
"""Variables that the command line, the clients and the tests read for themselves."""

_PROFILE = choice("Development retries sooner and gives up earlier.", "production", "development")


class Config(Value, frozen=True, kw_only=True):
    """Every setting in force. `repr` hides secrets by hiding everything: print `shown` instead."""

    profile: Literal["production", "development"] = "production"
    store: sections.Store = sections.Store()
    queue: sections.Queue = sections.Queue()
    transport: sections.Transport = sections.Transport()
    delivery: sections.Delivery = sections.Delivery()
    retry: sections.Retry = sections.Retry()
    dlq: sections.DeadLetters = sections.DeadLetters()
    restore: sections.Restore = sections.Restore()
    worker: sections.Worker = sections.Worker()
    fairness: sections.Fairness = sections.Fairness()
    limiter: sections.Limiter = sections.Limiter()
    intake: sections.Intake = sections.Intake()
    attachments: sections.Attachments = sections.Attachments()
    spool: sections.Spool = sections.Spool()
    limits: sections.Limits = sections.Limits()
    callback: sections.Callback = sections.Callback()
    retention: sections.Retention = sections.Retention()
    notify: sections.Notify = sections.Notify()
    api: sections.Api = sections.Api()
    log: sections.Log = sections.Log()
    metrics: sections.Metrics = sections.Metrics()
    companies: dict[str, sections.Company] = {}
    sources: dict[str, str] = {}
    """Where each setting that is not a default came from: setting → file or variable."""

    def __repr__(self) -> str:
        return "Config(…)"


class Setting(Value, frozen=True, kw_only=True):
    """One line of the reference: what a setting is called, takes, defaults to and does."""

    name: str
    section: str
    field: str
    kind: Kind
    default: Any
    variable: str


def _key(field: str, kind: Kind) -> str:
    if kind.key:
        return kind.key
    return field.removesuffix("_ms") if "500ms" in kind.form else field


def _kinds(section: type[Value]) -> dict[str, tuple[str, Kind]]:
    """TOML key → (field, kind) of one section."""
    hints = get_type_hints(section, include_extras=True)
    result: dict[str, tuple[str, Kind]] = {}
    for field, hint in hints.items():
        kind = next(meta for meta in hint.__metadata__ if isinstance(meta, Kind))
        result[_key(field, kind)] = (field, kind)
    return result


SECTIONS: dict[str, type[Value]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Config)
    if isinstance(field.type, type) and issubclass(field.type, Value)
}
_KINDS = {name: _kinds(section) for name, section in SECTIONS.items()}
_COMPANY_KINDS = _kinds(sections.Company)


def settings() -> list[Setting]:
    """Every setting, in the order of the sample file."""
    found = [
        Setting(
            name="profile",
            section="",
            field="profile",
            kind=_PROFILE,
            default="production",
            variable="STAFFETTA_PROFILE",
        )
    ]
    shorts = {setting: variable for variable, setting in SHORT_VARIABLES.items()}
    for section, kinds in _KINDS.items():
        defaults = SECTIONS[section]()
        for key, (field, kind) in kinds.items():
            name = f"{section}.{key}"
            found.append(
                Setting(
                    name=name,
                    section=section,
                    field=field,
                    kind=kind,
                    default=getattr(defaults, field),
                    variable=shorts.get(name, f"{PREFIX}{section}__{key}".upper()),
                )
            )
    return found


def company_settings() -> list[Setting]:
    """What `[companies."x"]` may hold."""
    return [
        Setting(name=key, section="companies", field=field, kind=kind, default=None, variable="")
        for key, (field, kind) in _COMPANY_KINDS.items()
    ]


class _Reading:
    """Gathers values and every problem with them, so that all are told at once."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []
        self.values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        self.companies: dict[str, dict[str, Any]] = {}
        self.profile: str = "production"
        self.sources: dict[str, str] = {}

    def wrong(self, name: str, source: str, problem: str) -> None:
        self.problems.append(FieldProblem(name, f"{problem} (from {source})"))

    def one(self, name: str, value: Any, source: str) -> None:
        if name == "profile":
            target, field, kind = None, "profile", _PROFILE
        else:
            section, _, key = name.partition(".")
            if section not in _KINDS or key not in _KINDS[section]:
                self.wrong(name, source, f"there is no such setting{_near(name)}")
                return
            field, kind = _KINDS[section][key]
            target = self.values[section]
        try:
            read = kind.read(value)
        except Wrong as wrong:
            self.wrong(name, source, str(wrong))
            return
        self.sources[name] = source
        if target is None:
            self.profile = read
        else:
            target[field] = read

    def file(self, data: Mapping[str, Any], source: str) -> None:
        for section, body in data.items():
            if section == "profile":
                self.one("profile", body, source)
            elif section == "companies" and isinstance(body, dict):
                for company_id, own in body.items():
                    self.company(company_id, own, source)
            elif not isinstance(body, dict):
                self.wrong(section, source, f"there is no such setting{_near(section)}")
            elif section not in _KINDS:
                self.wrong(section, source, f"there is no such section{_near(section)}")
            else:
                for key, value in body.items():
                    self.one(f"{section}.{key}", value, source)

    def company(self, company_id: str, own: Any, source: str) -> None:
        name = f'companies."{company_id}"'
        if not isinstance(own, dict) or not 1 <= len(company_id) <= 64:
            self.wrong(name, source, "must be a table, its company's id 1 to 64 characters")
            return
        values = self.companies.setdefault(company_id, {})
        for key, value in own.items():
            if key not in _COMPANY_KINDS:
                self.wrong(f"{name}.{key}", source, f"there is no such setting{_near(key, _COMPANY_KINDS)}")
                continue
            field, kind = _COMPANY_KINDS[key]
            try:
                values[field] = kind.read(value)
            except Wrong as wrong:
                self.wrong(f"{name}.{key}", source, str(wrong))

    def environment(self, environ: Mapping[str, str]) -> None:
        for variable, value in sorted(environ.items()):
            if not value:
                continue  # compose files and service units pass on what is not set as nothing
            source = f"the environment variable {variable}"
            if variable in SHORT_VARIABLES:
                self.one(SHORT_VARIABLES[variable], value, source)
            elif variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
                section, found, key = variable.removeprefix(PREFIX).lower().partition("__")
                if found:
                    self.one(f"{section}.{key}", value, source)
                else:
                    self.wrong(variable, source, f"there is no such setting{_near(variable, SHORT_VARIABLES)}")


def _near(name: str, known: Mapping[str, Any] | None = None) -> str:
    names = list(known) if known is not None else [setting.name for setting in settings()] + list(SECTIONS)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _agree(reading: _Reading) -> None:
    """What no single value can tell: whether the settings fit together."""
    worker, defaults = reading.values["worker"], sections.Worker()
    heartbeat = worker.get("heartbeat_ms", defaults.heartbeat_ms)
    if worker.get("dead_after_ms", defaults.dead_after_ms) < 2 * heartbeat:
        reading.problems.append(
            FieldProblem(
                "worker.dead_after", "must be at least twice worker.heartbeat, or the living count as dead"
            )
        )
    names = {transport_name(address) for address in reading.values["transport"].get("url", ())}
    for company_id, own in reading.companies.items():
        for one in own.get("transport", ()):
            if "://" not in one and one not in names:
                reading.problems.append(
                    FieldProblem(
                        f'companies."{company_id}".transport',
                        f"there is no transport called '{one}': name one of transport.url",
                    )
                )


def read_file(path: Path) -> dict[str, Any]:
    """The file's tables. :raises SettingsError: it cannot be read, or is no TOML (the line is named)."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([FieldProblem(str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError([FieldProblem(str(path), f"is not valid TOML: {error}")]) from error


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """All settings. `path` None: `staffetta.toml` in the working directory where there is one.

    :raises SettingsError: naming every wrong value, its source and the remedy.
    """
    reading = _Reading()
    default = Path("staffetta.toml")
    if path is not None or default.exists():
        path = path or default
        reading.file(read_file(path), str(path))
    reading.environment(environ)
    _agree(reading)
    if reading.problems:
        raise SettingsError(reading.problems)
    made = {name: section(**reading.values[name]) for name, section in SECTIONS.items()}
    return Config(
        profile=reading.profile,  # type: ignore[arg-type]  # checked by its kind
        companies={name: sections.Company(**own) for name, own in reading.companies.items()},
        sources=reading.sources,
        **made,  # type: ignore[arg-type]  # each is of its section's type
    )


def shown(config: Config) -> list[tuple[str, str, str]]:
    """(setting, value, source) for people: secrets hidden, passwords in addresses too."""
    rows = []
    for setting in settings():
        holder = getattr(config, setting.section) if setting.section else config
        value = getattr(holder, setting.field)
        if value is None or value == ():
            text = "(not set)"
        else:
            text = "***" if setting.kind.secret else setting.kind.show(value)
        rows.append((setting.name, text, config.sources.get(setting.name, "default")))
    return rows


def shown_of_companies(config: Config) -> list[tuple[str, str, str]]:
    """The same for what companies have of their own; only what is set."""
    rows = []
    for company_id, own in sorted(config.companies.items()):
        for setting in company_settings():
            value = getattr(own, setting.field)
            if value is not None and value != ():
                text = "***" if setting.kind.secret else setting.kind.show(value)
                rows.append((f'companies."{company_id}".{setting.name}', text, "the settings file"))
    return rows


def sqlite_path(url: str) -> Path:
    """`sqlite:///relative/path.db` and `sqlite:////absolute/path.db`, as everybody writes them."""
    return Path(url.removeprefix("sqlite://").removeprefix("/"))


def listen_address(listen: str) -> tuple[str, int]:
    """Host and port of `api.listen`; `[::]:8025` is `::` and 8025."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
