"""Writes the Grafana dashboards in deploy/grafana/ from the tables below: `python scripts/grafana.py`.

A panel is a title, a unit, how it is drawn and its queries; places are given out row by row. A test keeps the files
equal to what this program writes, and every metric named here to those that are exposed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Query = tuple[str, str]
"""Expression and legend."""
Panel = tuple[str, str, str, list[Query]]
"""Title, unit, `lines`, `stack`, `bars`, `number` or `table`; its queries."""

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
WIDE, HIGH = 24, 8


def quantiles(metric: str, by: str = "") -> list[Query]:
    labels = f"le{', ' + by if by else ''}"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval]))"
    return [(f"histogram_quantile({q}, {rate})", f"p{q * 100:g}{legend}") for q in (0.5, 0.95, 0.99)]


DASHBOARDS: dict[str, tuple[str, list[Panel]]] = {
    "flow": ("Flow: from hand-in to the owner's answer", [
        ("Handed in and sent", "reqps", "lines", [
            ("sum(rate(staffetta_accepted_total[$__rate_interval]))", "handed in"),
            ('sum(rate(staffetta_ended_total{status="SENT"}[$__rate_interval]))', "sent"),
            ('sum(rate(staffetta_ended_total{status="FAILED"}[$__rate_interval]))', "failed"),
        ]),
        ("Waiting, delayed, active", "short", "stack", [("sum by (state) (staffetta_queue_emails)", "{{state}}")]),
        ("E-mails by status", "short", "bars", [("sum by (status) (staffetta_emails)", "{{status}}")]),
        ("From acceptance to SENT", "s", "lines", quantiles("staffetta_accepted_to_sent_seconds")),
        ("From due to the end of the attempt", "s", "lines", quantiles("staffetta_processing_seconds")),
        ("Callbacks", "reqps", "lines", [
            ("sum by (outcome) (rate(staffetta_callbacks_total[$__rate_interval]))", "{{outcome}}")]),
        ("Moves beside the sending", "reqps", "lines", [
            ("sum by (status, cause) (rate(staffetta_moves_total[$__rate_interval]))", "{{status}} {{cause}}")]),
        ("Alerts that fire", "short", "table", [("staffetta_alert_firing == 1", "{{alert}}")]),
        ("Processes", "short", "number", [
            ("max(staffetta_processes)", "processes"), ("max(staffetta_store_up)", "store")]),
        ("In flight", "short", "lines", [("max(staffetta_in_flight)", "in flight")]),
        ("CPU", "percentunit", "lines", [
            ("rate(staffetta_process_cpu_seconds_total[$__rate_interval])", "{{host}} {{pid}}")]),
        ("Memory", "bytes", "lines", [("staffetta_process_resident_bytes", "{{host}} {{pid}}")]),
    ]),
    "retries": ("Retries: what is tried again, why and when", [
        ("Retries by attempt", "reqps", "stack", [
            ("sum by (attempt) (rate(retry_attempts_total[$__rate_interval]))", "attempt {{attempt}}")]),
        ("Success by attempt, last hour", "percentunit", "bars", [("retry_success_rate", "attempt {{attempt}}")]),
        ("Delay decided", "s", "lines", quantiles("retry_backoff_delay_seconds")),
        ("Time between attempts", "s", "lines", quantiles("staffetta_time_between_attempts_seconds")),
        ("Retries by category", "reqps", "stack", [
            ("sum by (category) (rate(staffetta_retries_by_category_total[$__rate_interval]))", "{{category}}")]),
        ("Given back without counting", "reqps", "lines", [
            ("sum by (cause) (rate(staffetta_given_back_total[$__rate_interval]))", "{{cause}}")]),
        ("Replies by code", "reqps", "stack", [
            ('topk(12, sum by (code) (rate(staffetta_replies_total{code!~"2.."}[$__rate_interval])))', "{{code}}")]),
    ]),
    "dead-letters": ("Dead letters: what was given up", [
        ("Present", "short", "number", [("max(dlq_size)", "dead letters")]),
        ("Written", "reqps", "lines", [("sum(rate(dlq_entries_total[$__rate_interval]))", "dead letters")]),
        ("Share of what ended", "percentunit", "lines", [
            ("sum(increase(dlq_entries_total[5m])) / sum(increase(staffetta_ended_total[5m]))", "share")]),
        ("By code", "short", "bars", [("topk(20, dlq_by_error_code)", "{{code}}")]),
        ("By company", "short", "bars", [("topk(20, dlq_by_company)", "{{company_id}}")]),
        ("Age", "s", "lines", [
            (f"histogram_quantile({q}, dlq_age_seconds_bucket)", f"p{q * 100:g}") for q in (0.5, 0.95)]),
        ("Dropped by age or cap", "reqps", "lines", [
            ("sum by (why) (rate(staffetta_dead_letters_dropped_total[$__rate_interval]))", "{{why}}")]),
    ]),
    "companies": ("Companies: shares, waits, turns", [
        ("Processed", "reqps", "stack", [
            ("topk(15, sum by (company_id) (rate(tenant_jobs_processed[$__rate_interval])))", "{{company_id}}")]),
        ("Rounds without processing", "short", "lines", [
            ("topk(15, tenant_rounds_without_processing)", "{{company_id}}")]),
        ("Current priority (1 waited longest)", "short", "lines", [
            ("bottomk(15, tenant_current_priority)", "{{company_id}}")]),
        ("Taken in a row", "short", "lines", [("topk(15, tenant_consecutive_batch)", "{{company_id}}")]),
        ("Dead letters", "short", "bars", [("topk(15, dlq_by_company)", "{{company_id}}")]),
        ("Paused", "short", "table", [("staffetta_paused", "{{scope}} {{name}}")]),
    ]),
    "redis": ("Redis: the queue's memory", [
        ("Memory used of maxmemory", "percentunit", "lines", [("max(staffetta_redis_memory_used_ratio)", "used")]),
        ("Rejected connections", "short", "lines", [("max(staffetta_redis_rejected_connections)", "rejected")]),
        ("Queue", "short", "stack", [("sum by (state) (staffetta_queue_emails)", "{{state}}")]),
        ("Troubles of the queue", "reqps", "lines", [
            ('sum(rate(staffetta_troubles_total{part="queue"}[$__rate_interval]))', "troubles")]),
    ]),
    "transports": ("Transports: health, speed, replies", [
        ("Breakers", "short", "lines", [
            ('max by (transport) (staffetta_breaker_state{state=~"open|half-open"})', "{{transport}} away")]),
        ("Breaker moves", "short", "lines", [
            ("sum by (transport, state) (increase(staffetta_breaker_moves_total[5m]))", "{{transport}} {{state}}")]),
        ("Attempts by verdict", "reqps", "stack", [
            ("sum by (transport, verdict) (rate(staffetta_send_duration_seconds_count[$__rate_interval]))",
             "{{transport}} {{verdict}}")]),
        ("Send duration", "s", "lines", quantiles("staffetta_send_duration_seconds", "transport")),
        ("Replies", "reqps", "stack", [
            ("topk(12, sum by (code) (rate(staffetta_replies_total[$__rate_interval])))", "{{code}}")]),
        ("Restored from dead workers", "reqps", "lines", [
            ("sum by (status) (rate(staffetta_restored_total[$__rate_interval]))", "{{status}}")]),
        ("Steps another worker had", "reqps", "lines", [
            ("sum by (step) (rate(staffetta_locks_lost_total[$__rate_interval]))", "{{step}}")]),
        ("Troubles of our own", "reqps", "lines", [
            ("sum by (part) (rate(staffetta_troubles_total[$__rate_interval]))", "{{part}}")]),
    ]),
}  # fmt: skip

_DRAWN = {"lines": "timeseries", "stack": "timeseries", "bars": "bargauge", "number": "stat", "table": "table"}
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number: int, told: Panel) -> dict[str, Any]:
    title, unit, drawn, queries = told
    instant = drawn in {"bars", "number", "table"}
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 40} if drawn == "stack" else {"fillOpacity": 5}
    return {
        "id": number + 1,
        "title": title,
        "type": _DRAWN[drawn],
        "datasource": _SOURCE,
        "gridPos": {"x": number % 3 * WIDE // 3, "y": number // 3 * HIGH, "w": WIDE // 3, "h": HIGH},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {} if instant else custom}, "overrides": []},
        "options": {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(65 + place), "expr": expr, "legendFormat": legend, "instant": instant, "datasource": _SOURCE}
            for place, (expr, legend) in enumerate(queries)
        ],
    }  # fmt: skip


def dashboard(name: str) -> dict[str, Any]:
    title, panels = DASHBOARDS[name]
    others = {
        "title": "Staffetta",
        "type": "dashboards",
        "tags": ["staffetta"],
        "asDropdown": True,
        "keepTime": True,
    }
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"staffetta-{name}",
        "title": f"Staffetta · {title}",
        "tags": ["staffetta"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "links": [others],
        "panels": [panel(number, told) for number, told in enumerate(panels)],
    }


def text(name: str) -> str:
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
    sys.stdout.write(f"{len(DASHBOARDS)} dashboards in {FOLDER}\n")


if __name__ == "__main__":
    main()
