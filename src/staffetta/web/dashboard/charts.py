"""Pictures as SVG, drawn on the server: they need no script, follow the colours of the page, and are told in words
for those who do not see them. Attributes only, no styles: the policy of the pages allows none inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from staffetta.mail.shapes import rfc3339
from staffetta.mail.tally import BOUNDS_MS
from staffetta.mail.trend import Step, Waits
from staffetta.web.dashboard.words import duration, number

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 8, 14, 26
NARROW = 440


def _nice(most: float) -> float:
    """The end of an axis: 1, 2, 2.5 or 5 times a power of ten."""
    if most <= 4:
        return 4
    power = math.pow(10.0, math.floor(math.log10(most)))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if most <= power * step)


def flow(steps: Sequence[Step], *, per_minute: float, words: str) -> Markup:
    """Sent, deferred and failed e-mails by step, piled up; the axis says e-mails a minute."""
    top = _nice(max((one.sent + one.deferred + one.failed for one in steps), default=0) * per_minute)
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    slot = plot_width / max(1, len(steps))
    parts = [_axis(top, plot_height)]
    for place, one in enumerate(steps):
        x, y = _LEFT + place * slot, float(_TOP + plot_height)
        piled = ((one.sent, "sent"), (one.deferred, "deferred"), (one.failed, "failed"))
        bars = []
        for count, name in piled:
            if not count:
                continue
            tall = max(1.5, count * per_minute / top * plot_height)
            y -= tall
            bars.append(
                f'<rect class="bar-{name}" x="{x + slot * 0.12:.1f}" y="{y:.1f}" width="{slot * 0.76:.1f}"'
                f' height="{tall:.1f}" rx="1"/>'
            )
        told = ", ".join(f"{number(count)} {name}" for count, name in piled if count) or "nothing"
        title = f"{rfc3339(one.since)[11:19]}: {told}"
        parts.append(
            f'<g><title>{title}</title><rect class="hit" x="{x:.1f}" y="{_TOP}" width="{slot:.1f}"'
            f' height="{plot_height}"/>{"".join(bars)}</g>'
        )
    for place in range(0, len(steps), max(1, len(steps) // 5)):
        at = rfc3339(steps[place].since)[11:16]
        parts.append(_label(_LEFT + place * slot, HEIGHT - 6, at, "start"))
    return _svg("".join(parts), WIDTH, HEIGHT, words)


def _axis(top: float, plot_height: int) -> str:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + plot_height * (1 - share)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_label(_LEFT - 6, y + 4, number(top * share), "end"))
    return "".join(lines)


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="axis" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def spread(waits: Waits, *, words: str) -> Markup:
    """How long e-mails took, one bar a bucket; every bound is named where there is room."""
    used = [number for number, size in enumerate(waits.buckets) if size]
    first, last = (max(0, used[0] - 1), min(len(BOUNDS_MS), used[-1] + 1)) if used else (3, 12)
    last = max(last, min(len(BOUNDS_MS), first + 6))
    shown = range(first, last + 1)
    most = max((waits.buckets[place] for place in shown), default=0) or 1
    plot_width, plot_height = NARROW - 16, HEIGHT - _TOP - _BOTTOM
    slot = plot_width / len(shown)
    named = 1 if len(shown) <= 8 else 2
    parts = [
        f'<line class="grid" x1="8" x2="{NARROW - 8}" y1="{_TOP + plot_height}" y2="{_TOP + plot_height}"/>'
    ]
    for order, place in enumerate(shown):
        size, x = waits.buckets[place], 8 + order * slot
        tall = max(1.5, size / most * (plot_height - 14)) if size else 0
        bound = duration(BOUNDS_MS[place]) if place < len(BOUNDS_MS) else "longer"
        y = _TOP + plot_height - tall
        parts.append(f"<g><title>{number(size)} within {bound}</title>")
        if size:
            parts.append(
                f'<rect class="bar-wait" x="{x + slot * 0.1:.1f}" y="{y:.1f}" width="{slot * 0.8:.1f}"'
                f' height="{tall:.1f}" rx="2"/>'
            )
            parts.append(_label(x + slot / 2, y - 4, number(size), "middle"))
        if order % named == 0:
            parts.append(_label(x + slot / 2, HEIGHT - 6, bound, "middle"))
        parts.append("</g>")
    return _svg("".join(parts), NARROW, HEIGHT, words, kind="chart narrow")


def line(values: Sequence[float], *, words: str) -> Markup:
    """A small line beside a figure."""
    width, height = 120, 32
    most = max(values, default=0) or 1
    apart = width / max(1, len(values) - 1)
    points = [
        f"{place * apart:.1f},{height - 2 - value / most * (height - 4):.1f}"
        for place, value in enumerate(values)
    ]
    body = f'<polyline class="spark" points="{" ".join(points)}"/>'
    area = f'<polygon class="spark-area" points="0,{height} {" ".join(points)} {width},{height}"/>'
    return _svg(area + body, width, height, words, kind="sparkline")


def share(part: float, whole: float, *, tone: str = "accent", words: str = "") -> Markup:
    """A bar that is as long as its share."""
    long = 100 * min(1.0, part / whole) if whole else 0.0
    if part and long < 1:
        long = 1.0
    hidden = "" if words else ' aria-hidden="true"'
    label = Markup(' role="img" aria-label="{}"').format(words) if words else ""
    return Markup(  # noqa: S704  # numbers of ours, and a label that was escaped
        f'<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none"{hidden}{label}>'
        f'<rect class="share-all" width="100" height="6"/>'
        f'<rect class="share-{tone}" width="{long:.1f}" height="6"/></svg>'
    )


def _svg(body: str, width: int, height: int, words: str, *, kind: str = "chart") -> Markup:
    label = Markup('aria-label="{}"').format(words)
    return Markup(  # noqa: S704  # numbers and fixed words of ours, and a label that was escaped
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" {label}>{body}</svg>'
    )
