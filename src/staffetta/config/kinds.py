"""What a setting's text may be: each kind turns TOML's value or a variable's text into the value used inside,
or says in one sentence what is wrong and what would be right.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


class Wrong(ValueError):
    """What is wrong with a value, and what would be right. Never repeats a secret."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How one setting is read, shown and described."""

    read: Callable[[Any], Any]
    words: str
    """What it does, for the sample file and the reference."""
    form: str
    """What may stand there, for the reference."""
    secret: bool = False
    key: str = ""
    """Its name in the file, where that differs from the field's."""
    show: Callable[[Any], str] = str


def duration(words: str, *, least_ms: int = 1, most_ms: int = 30 * 86_400_000) -> Kind:
    """Seconds, or text such as 500ms, 15m, 24h. The field ends in `_ms`, the setting does not."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Wrong("must be seconds or text such as 500ms, 15m, 24h")
        matched = _DURATION.fullmatch(str(value).strip())
        if matched is None:
            raise Wrong(f"'{value}' is no length of time: write seconds or text such as 500ms, 15m, 24h")
        number, unit = matched.groups()
        milliseconds = round(float(number) * _UNITS_MS[unit or "s"])
        if not least_ms <= milliseconds <= most_ms:
            raise Wrong(f"must be between {shown_duration(least_ms)} and {shown_duration(most_ms)}")
        return milliseconds

    return Kind(
        read=read, words=words, form="seconds, or text such as `500ms`, `15m`, `24h`", show=shown_duration
    )


def shown_duration(milliseconds: int) -> str:
    for unit in ("d", "h", "m", "s"):
        if milliseconds and milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"


def whole(words: str, *, least: int = 0, most: int = 2**53) -> Kind:
    def read(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            raise Wrong(f"'{value}' is no whole number") from None
        if isinstance(number, bool) or not isinstance(number, int):
            raise Wrong("must be a whole number")
        if not least <= number <= most:
            raise Wrong(f"must be between {least} and {most}")
        return number

    return Kind(read=read, words=words, form=f"whole number from {least}")


def number(words: str, *, least: float, most: float) -> Kind:
    def read(value: Any) -> float:
        try:
            result = float(value)
        except (TypeError, ValueError):
            raise Wrong("must be a number") from None
        if isinstance(value, bool) or not least <= result <= most:
            raise Wrong(f"must be a number between {least:g} and {most:g}")
        return result

    return Kind(
        read=read, words=words, form=f"number from {least:g} to {most:g}", show=lambda value: f"{value:g}"
    )


def switch(words: str) -> Kind:
    def read(value: Any) -> bool:
        known = {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in known:
            return known[value.lower()]
        raise Wrong("must be true or false")

    return Kind(read=read, words=words, form="true or false", show=lambda value: "true" if value else "false")


def choice(words: str, *allowed: str) -> Kind:
    def read(value: Any) -> str:
        if value not in allowed:
            raise Wrong(f"'{value}' is not one of {', '.join(allowed)}")
        return str(value)

    return Kind(read=read, words=words, form=" or ".join(f"`{one}`" for one in allowed))


def text(words: str, *, most: int = 1_000, form: str = "text", empty: bool = False) -> Kind:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or not (value.strip() or empty):
            raise Wrong(f"must be text of 1 to {most} characters")
        if not value.isprintable():
            raise Wrong("must not contain control characters")
        return value

    return Kind(read=read, words=words, form=form)


def url(words: str, *schemes: str, form: str, bare: str = "") -> Kind:
    """An address whose scheme is one of these, or the one `bare` word. Shown without its password."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Wrong(f"must be an address such as {form}")
        address: str = value.strip()
        if bare and address == bare:
            return address
        parts = split_url(_first_host(address))
        if parts.scheme not in schemes:
            raise Wrong(
                f"unknown scheme '{parts.scheme}': write one of {', '.join(f'{s}://' for s in schemes)}"
            )
        if parts.scheme in ("http", "https") and not parts.hostname:
            raise Wrong("names no host")
        return address

    return Kind(read=read, words=words, form=f"`{form}`", show=hidden_password)


def _first_host(address: str) -> str:
    """A Cluster or Sentinels are named by several hosts with commas between; the first stands for them all here."""
    scheme, mark, rest = address.partition("://")
    if scheme not in ("redis+cluster", "redis+sentinel"):
        return address
    hosts, slash, path = rest.partition("/")
    return f"{scheme}{mark}{hosts.partition(',')[0]}{slash}{path}"


def split_url(value: str) -> SplitResult:
    """`urlsplit` with its errors said as ours, never repeating a password."""
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  # reading it checks it
    except ValueError as error:
        wrong = (
            "the port must be a number from 0 to 65535"
            if "ort" in str(error)
            else "cannot be read as an address"
        )
        raise Wrong(wrong) from None
    if "://" not in value:
        raise Wrong("has no scheme: write it as scheme://…")
    return parts


def hidden_password(value: str) -> str:
    """An address as people may see it: no password, no secret in its query."""
    try:
        parts = urlsplit(value)
        if parts.password is None and "password=" not in parts.query:
            return value
        parts = parts._replace(query=re.sub(r"(password=)[^&]*", r"\1***", parts.query))
        if parts.password is not None:
            host = parts.netloc.rpartition("@")[2]
            parts = parts._replace(netloc=f"{parts.username}:***@{host}")
        return str(parts.geturl())
    except ValueError:
        return "(unreadable)"


def signing_secret(words: str) -> Kind:
    """A Standard Webhooks secret: `whsec_` and 24 to 64 bytes in base64."""

    def read(value: Any) -> str:
        remedy = "write whsec_ and 24 to 64 random bytes in base64"
        if not isinstance(value, str) or not value.startswith("whsec_"):
            raise Wrong(f"does not begin with whsec_: {remedy}")
        try:
            size = len(base64.b64decode(value.removeprefix("whsec_"), validate=True))
        except (binascii.Error, ValueError):
            raise Wrong(f"is not base64 after whsec_: {remedy}") from None
        if not 24 <= size <= 64:
            raise Wrong(f"holds {size} bytes: {remedy}")
        return value

    return Kind(read=read, words=words, form="`whsec_…`", secret=True)


_TLS_MODES = ("required", "starttls", "opportunistic", "none")
_TRANSPORTS = ("smtp", "smtps", "ses", "sink")


def chain(words: str, *, named: bool = False) -> Kind:
    """One or more transports, in the order in which they are tried. `named`: names of known ones will do."""

    def read(value: Any) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise Wrong("must be an address, a list of them, or several with commas between")
        addresses = tuple(part.strip() for part in parts if part.strip())
        for address in addresses:
            if "://" in address or not named:
                _check_transport(address)
        names = [transport_name(address) for address in addresses]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Wrong(f"two transports are called '{min(twice)}': name them apart with #name at the end")
        return addresses

    def show(value: Any) -> str:
        return ", ".join(hidden_password(one) for one in value)

    form = "`smtp://user:pw@host:587?tls=starttls`, `smtps://host:465`, `ses://eu-west-1`, `sink://`"
    return Kind(read=read, words=words, form=form, show=show)


def listen(words: str) -> Kind:
    """Address and port to answer on."""

    def read(value: Any) -> str:
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise Wrong("must be address:port, such as 127.0.0.1:8025 or [::]:8025")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise Wrong("an IPv6 address stands in brackets: [::1]:8025")
        return str(value)

    return Kind(read=read, words=words, form="`127.0.0.1:8025`, `[::]:8025`")


def _check_transport(address: str) -> None:
    parts = split_url(address)
    if parts.scheme not in _TRANSPORTS:
        raise Wrong(
            f"unknown scheme '{parts.scheme}': write one of {', '.join(f'{s}://' for s in _TRANSPORTS)}"
        )
    if parts.scheme in ("smtp", "smtps") and not parts.hostname:
        raise Wrong("names no host: write smtp://host:port")
    if parts.scheme == "ses" and not parts.hostname:
        raise Wrong("names no region: write ses://eu-west-1")
    modes = [
        value for key, _, value in (pair.partition("=") for pair in parts.query.split("&")) if key == "tls"
    ]
    if modes and modes[0] not in _TLS_MODES:
        raise Wrong(f"tls={modes[0]} is not one of {', '.join(_TLS_MODES)}")


def transport_name(address: str) -> str:
    """How a transport is called everywhere: `#name`, else host:port. Never a secret."""
    parts = urlsplit(address)
    if parts.fragment:
        return parts.fragment
    if not parts.scheme or "://" not in address:
        return address
    if parts.scheme == "sink":
        return "sink"
    if parts.scheme == "ses":
        return f"ses-{parts.hostname}"
    default = 465 if parts.scheme == "smtps" else (587 if parts.username else 25)
    return f"{parts.hostname}:{parts.port or default}"


def weights(words: str) -> Kind:
    """A table of company (or pattern with `*`) to weight."""

    def read(value: Any) -> dict[str, float]:
        if not isinstance(value, dict):
            raise Wrong('must be a table such as { "acme" = 3, "trial-*" = 0.5 }')
        one = number(words, least=0.01, most=1_000)
        result: dict[str, float] = {}
        for name, weight in value.items():
            try:
                result[str(name)] = one.read(weight)
            except Wrong as wrong:
                raise Wrong(f'"{name}" {wrong}') from None
        return result

    def show(value: Any) -> str:
        return ", ".join(f'"{name}" = {weight:g}' for name, weight in value.items()) or "none"

    return Kind(read=read, words=words, form='table: `{ "acme" = 3, "trial-*" = 0.5 }`', show=show)


def levels(words: str, sections: Sequence[str], allowed: Sequence[str]) -> Kind:
    """A table of section to level."""

    def read(value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise Wrong('must be a table such as { "queue" = "debug", "deliver" = "warning" }')
        unknown = sorted(str(name) for name in value if name not in sections)
        if unknown:
            raise Wrong(f"knows no section {', '.join(unknown)}; there are {', '.join(sections)}")
        one = choice(words, *allowed)
        result: dict[str, str] = {}
        for name, level in value.items():
            try:
                result[name] = one.read(level)
            except Wrong as wrong:
                raise Wrong(f'"{name}" {wrong}') from None
        return result

    def show(value: Any) -> str:
        return ", ".join(f'"{name}" = "{level}"' for name, level in value.items()) or "none"

    return Kind(read=read, words=words, form='table: `{ "queue" = "debug" }`', show=show)
