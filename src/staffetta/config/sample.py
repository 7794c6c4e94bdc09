"""The commented sample file and the reference page, both made from the settings themselves."""

from __future__ import annotations

import textwrap
from typing import Any

from staffetta import config
from staffetta.config import Setting
from staffetta.config.kinds import shown_duration

_EXAMPLES = {
    "transport.url": '"smtp://user:password@relay.example.com:587?tls=starttls#main"',
    "transport.ehlo_name": '"mail.example.com"',
    "transport.rules_file": '"replies.toml"',
    "store.table": '"outbox"',
    "intake.payload_base_path": '"/srv/payloads"',
    "attachments.base_path": '"/srv/attachments"',
    "callback.url": '"https://app.example.com/mail-outcomes"',
    "callback.secret": '"whsec_…"',
    "retention.record_days": "365",
    "notify.admin": '"https://app.example.com/mail-trouble"',
    "limiter.max": "100",
}
"""What stands in the sample where the default is "not set" (and the seed's own limit)."""

_COMPANY_EXAMPLES = {
    "weight": "3",
    "transport": '["main"]',
    "callback_url": '"https://acme.example.com/outcomes"',
    "callback_secret": '"whsec_…"',
    "rate": "50",
    "max_attempts": "8",
    "retry_delay": "60000",
    "max_retry_delay": "3600000",
}

HEAD = """\
# Staffetta's settings. Every line shows a default (or an example) and may be left out.
# An environment variable wins over this file: STAFFETTA_SECTION__KEY, or the short one named beside a setting.
# Times are seconds or text such as 500ms, 15m, 24h. `staffetta doctor` tells what is in force, and from where.
"""


def _toml(setting: Setting) -> str:
    if setting.name in _EXAMPLES:
        return _EXAMPLES[setting.name]
    return _literal(setting.default, setting)


def _literal(value: Any, setting: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if setting.field.endswith("_ms") and not setting.name.endswith("_ms"):
        return f'"{shown_duration(value)}"'
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, dict):
        return "{}"
    return f'"{value}"'


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 108, initial_indent="# ", subsequent_indent="# ")


def sample() -> str:
    """`staffetta.toml` with every setting commented out: read it, and uncomment what you change."""
    lines = [HEAD]
    section = ""
    for setting in config.settings():
        if setting.section != section:
            section = setting.section
            lines += ["", *_comment((config.SECTIONS[section].__doc__ or "").strip()), f"[{section}]"]
        variable = f" ({setting.variable})" if "__" not in setting.variable else ""
        lines += [
            *_comment(setting.kind.words + variable),
            f"#{setting.name.split('.')[-1]} = {_toml(setting)}",
        ]
    lines += ["", *_comment("One company's own settings, under its id."), '#[companies."acme"]']
    for setting in config.company_settings():
        lines += [*_comment(setting.kind.words), f"#{setting.name} = {_COMPANY_EXAMPLES[setting.name]}"]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """The page `docs/reference/settings.md`."""
    lines = [
        "# Settings",
        "",
        "From `staffetta.toml` (or `--config FILE`), overridden by the environment. Times are seconds or text",
        "such as `500ms`, `15m`, `24h`. A variable that is empty counts as not set. Every wrong value is named",
        "at the start, with source and remedy.",
    ]
    section = None
    for setting in config.settings():
        if setting.section != section:
            section = setting.section
            title = f"[{section}]" if section else "Top of the file"
            words = (config.SECTIONS[section].__doc__ or "").strip() if section else ""
            lines += ["", f"## {title}", "", *([words, ""] if words else [])]
            lines += ["| setting | takes | default | does | variable |", "|---|---|---|---|---|"]
        default = "not set" if setting.default in (None, ()) else f"`{_literal(setting.default, setting)}`"
        lines.append(
            f"| `{setting.name.split('.')[-1]}` | {setting.kind.form} | {default} | {setting.kind.words} "
            f"| `{setting.variable}` |"
        )
    lines += ["", '## [companies."x"]', "", "One company's own settings.", ""]
    lines += ["| setting | takes | does |", "|---|---|---|"]
    lines += [f"| `{s.name}` | {s.kind.form} | {s.kind.words} |" for s in config.company_settings()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys
    from pathlib import Path

    folder = Path(sys.argv[1])
    (folder / "settings.md").write_text(reference(), encoding="utf-8")
    (folder / "staffetta.toml").write_text(sample(), encoding="utf-8")
