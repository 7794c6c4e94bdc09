"""Makes the reference page of replies from the table that judges them: `python -m … docs/reference` writes it."""

from __future__ import annotations

from collections.abc import Iterator

from staffetta.mail.message import Reply, Verdict
from staffetta.mail.reply_rows import Row
from staffetta.mail.verdict import DEFAULT

HEAD = """\
# Replies

What is made of each reply, event and error. `staffetta explain "550 5.7.1 …"` answers for one, and names its rule.

| action | what follows |
|---|---|
| RETRY | tried again by the retry policy |
| RETRY_SLOW | tried again, not before `retry.slow_seconds` |
| SPLIT | the accepted recipients are done, the rest goes at once; no attempt counts |
| HOLD | the transport's breaker opens, e-mails stay READY, no attempt counts; a probe closes it |
| FAIL | never tried again: a dead letter, or a refused recipient where others were accepted |

The **reach** tells what the trouble is of: recipient, message, destination or transport. Failures before MAIL that
reach the transport use up no attempt. After the final dot (or the request to SES) an answer that never came is *in
doubt*, whatever else is known, and follows `delivery.in_doubt`; an error while leaving takes no delivery back.

- Without words of its own, a 4yz is tried again and a 5yz is not: no text turns one into the other.
- An enhanced code counts only if its class is the reply's first digit.
- 550 alone is both: an enhanced code 4.x.x retries it, then words that say temporary do; otherwise it is permanent.
- "Try again in 5 minutes" and `Retry-After` raise the delay, up to an hour; greylisting waits at least
  `retry.greylist_seconds`.
- 2 KiB of a reply are read.

Rules of your own, in the file named by `transport.rules_file`, come before all of these, written as they are
(`src/staffetta/mail/replies.toml`); see [transports](../guides/transports.md#your-own-rules).
"""
STAGES = ("connect", "starttls", "auth", "mail", "rcpt", "data", "dot")
CODES = (
    421, 422, 431, 432, 441, 442, 446, 447, 449, 450, 451, 452, 453, 454, 455, 458, 459, 471, 499,
    500, 501, 502, 503, 504, 510, 511, 512, 513, 521, 523, 525, 530, 534, 535, 538, 541,
    550, 551, 552, 553, 554, 555, 556, 571, 599,
)  # fmt: skip


def reference() -> str:
    return "\n".join([HEAD, *_codes(), "", *_names(), "", *_rules()]) + "\n"


def _codes() -> Iterator[str]:
    yield "## Codes alone"
    yield ""
    yield "A code without an enhanced code and without words, by the stage at which it is said."
    yield ""
    yield f"| code | {' | '.join(STAGES)} |"
    yield f"|---|{'---|' * len(STAGES)}"
    for code in CODES:
        cells = [_short(DEFAULT.judge(Reply(stage=stage, code=code))) for stage in STAGES]
        yield f"| `{code}` | {' | '.join(cells)} |"


def _names() -> Iterator[str]:
    yield "## Events and errors of SES"
    yield ""
    yield "With no words beside the name; before the final dot or the request."
    yield ""
    yield "| name | category | action | reach | rule |"
    yield "|---|---|---|---|---|"
    for row in DEFAULT.rows:
        if (
            not row.name
            or row.text
            or (row.stage and "request" not in row.stage and "connect" not in row.stage)
        ):
            continue
        stage = "request" if "request" in row.stage or row.rule.startswith("ses-") else "connect"
        for name in sorted(row.said or row.name):
            verdict = DEFAULT.judge(Reply(stage=stage, name=name))
            if verdict.rule == row.rule:
                cells = (verdict.category, verdict.action, verdict.reach, f"`{verdict.rule}`")
                yield f"| `{name}` | {' | '.join(cells)} |"


def _rules() -> Iterator[str]:
    yield "## All rules, in their order"
    yield ""
    yield "The first that fits decides; what stands in one line must all be so. `*` leaves a word open."
    yield ""
    yield "| rule | when | category | action | reach |"
    yield "|---|---|---|---|---|"
    for row in DEFAULT.rows:
        yield f"| `{row.rule}` | {_when(row)} | {row.category} | {_action(row)} | {row.reach or 'by stage'} |"


def _when(row: Row) -> str:
    parts = []
    if row.stage:
        parts.append(f"at {', '.join(sorted(row.stage - {'unknown'}))}")
    if row.code:
        parts.append(f"code {', '.join('no code' if code == 'none' else code for code in sorted(row.code))}")
    if row.enhanced:
        parts.append(f"enhanced {', '.join(row.enhanced)}")
    if row.name:
        parts.append(f"named {', '.join(f'`{name}`' for name in sorted(row.said or row.name))}")
    if row.text:
        parts.append(f"says {' · '.join(row.text)}".replace("|", "\\|").replace("*", "\\*"))
    return "; ".join(parts) + (f" ({row.note})" if row.note else "")


def _action(row: Row) -> str:
    told = row.action or (
        ("RETRY_SLOW for 4yz" if row.slow else "RETRY for 4yz")
        + ", FAIL for 5yz"
        + (f", {row.bare} without a code" if row.bare else "")
    )
    least = f", after {row.least} s" if row.least and row.least != "greylist" else ""
    most = f", {row.attempts} attempts at most" if row.attempts else ""
    doubt = ", in doubt" if row.in_doubt else ""
    return told + least + most + doubt


def _short(verdict: Verdict) -> str:
    return f"{verdict.category} {verdict.action}"


if __name__ == "__main__":
    import sys
    from pathlib import Path

    (Path(sys.argv[1]) / "replies.md").write_text(reference(), encoding="utf-8")
