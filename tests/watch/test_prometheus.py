"""The rules and dashboards that we ship, against a real Prometheus and against the names that are exposed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from doubles import engines
from doubles.shell import Program, Shell
from staffetta.mail import alerts
from staffetta.mail.lifecycle import Status
from staffetta.web.exposed import TABLE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = {
    rule["alert"]: rule for rule in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
}

EXPOSED = {metric.name for metric in TABLE} | {
    f"{metric.name}_{part}"
    for metric in TABLE
    if metric.kind == "histogram"
    for part in ("bucket", "count", "sum")
}
_NAME = re.compile(r"\b((?:staffetta|retry|dlq|tenant)_[a-z_]+)\b")
_LABELS = re.compile(r"\b((?:staffetta|retry|dlq|tenant)_[a-z_]+)\{([^}]*)\}")


def strangers(expression: str) -> set[str]:
    """Metrics and labels that nobody exposes."""
    found = {name for name in _NAME.findall(expression) if name not in EXPOSED}
    labels = {
        name: {"le", *metric.labels} for metric in TABLE for name in EXPOSED if name.startswith(metric.name)
    }
    for name, inside in _LABELS.findall(expression):
        found |= {
            f"{name}{{{label}}}" for label in re.findall(r"(\w+)\s*[=!]", inside) if label not in labels[name]
        }
    return found


# ------------------------------------------------------------------------------------------------ rules


def test_the_rules_are_the_engine_s_own_alerts() -> None:
    """One list in two places: who has Prometheus hears of the same, by the same names."""
    ours = {alert.name: (alert.severity, alert.runbook) for alert in alerts.ALERTS}
    theirs = {
        name: (rule["labels"]["severity"], rule["annotations"]["runbook_url"].partition("#")[2])
        for name, rule in RULES.items()
    }
    assert ours == theirs


@pytest.mark.parametrize("name", RULES)
def test_a_rule_asks_only_for_what_is_exposed(name: str) -> None:
    assert set() == strangers(RULES[name]["expr"])


def test_strangers_are_seen() -> None:
    """The check itself: a wrong name and a wrong label are found."""
    assert {"dlq_sizes", "dlq_by_company{code}"} == strangers('max(dlq_sizes) + dlq_by_company{code="x"}')


@pytest.mark.service
def test_each_rule_fires_and_rests_as_its_cases_say() -> None:
    promtool = engines.program("promtool", package="prometheus")
    cases = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text())["tests"]
    assert {f"{name} {what}" for name in RULES for what in ("fires", "does not fire")} == {
        case["name"] for case in cases
    }
    done = subprocess.run(
        [promtool, "test", "rules", "alerts_test.yml"], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.service
def test_the_cases_can_fail(tmp_path: Path) -> None:
    """With every limit moved, the cases that fire no more are named."""
    promtool = engines.program("promtool", package="prometheus")
    moved = re.sub(r"> (0\.\d+|[1-9]\d*)\b", "> 1e12", (DEPLOY / "alerts.yml").read_text())
    (tmp_path / "alerts.yml").write_text(moved)
    (tmp_path / "alerts_test.yml").write_text((DEPLOY / "alerts_test.yml").read_text())
    done = subprocess.run(
        [promtool, "test", "rules", "alerts_test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 != done.returncode
    assert {name for name in RULES if f'alertname=\\"{name}\\"' in done.stdout + done.stderr} >= {
        "failure-rate", "dlq-size", "processing-time", "redis-memory-90", "error-anomaly",
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ dashboards


def _writer() -> Any:
    spec = importlib.util.spec_from_file_location("grafana", ROOT / "scripts" / "grafana.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", ["flow", "retries", "dead-letters", "companies", "redis", "transports"])
def test_a_dashboard_is_current_and_asks_only_for_what_is_exposed(name: str) -> None:
    """`python scripts/grafana.py` writes them anew."""
    told = (DEPLOY / "grafana" / f"{name}.json").read_text()
    assert _writer().text(name) == told
    for panel in json.loads(told)["panels"]:
        for target in panel["targets"]:
            assert set() == strangers(target["expr"]), panel["title"]


# ------------------------------------------------------------------------------------------------ a real scrape


def _ask(port: int, query: str) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def _until(port: int, query: str, wanted: str) -> None:
    """Prometheus has no other way to say that it has scraped."""
    import time

    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        found = _ask(port, query)
        if found and found[0]["value"][1] == wanted:
            return
        time.sleep(0.2)
    raise AssertionError(f"{query} never was {wanted}; now {_ask(port, query)}")


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[tuple[Shell, int]]:
    """A running `serve` with a hundred dead letters to come, and a Prometheus that scrapes it every second."""
    prometheus = engines.program("prometheus", package="prometheus")
    shell = Shell(tmp_path)
    script = tmp_path / "sink.toml"
    script.write_text(
        '[[rule]]\nat = "rcpt"\nrecipient = "no*@example.org"\nreply = "550 5.1.1 No such user"\n'
    )
    sink = Program(shell, "sink", "--port", "0", "--script", str(script))
    sink_port = sink.line(lambda line: line.strip().isdigit()).strip()
    serve = Program(
        shell, "serve", STAFFETTA_LISTEN="127.0.0.1:0", STAFFETTA_TRANSPORT=f"smtp://127.0.0.1:{sink_port}#relay"
    )  # fmt: skip
    url = serve.told("Staffetta is ready")["api"]
    port = engines.free_port()
    rules = tmp_path / "alerts.yml"
    rules.write_text((DEPLOY / "alerts.yml").read_text().replace("interval: 15s", "interval: 1s"))
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": "staffetta", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
                ],
            }
        )
    )
    command = [
        prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    try:
        with engines.running(*command, port=port):
            yield shell, port
    finally:
        serve.stop()
        sink.stop()


@pytest.mark.service
@pytest.mark.xdist_group("prometheus")
def test_a_real_prometheus_scrapes_what_happened_under_load(scraped: tuple[Shell, int]) -> None:
    """Names and labels as exposed, counts that fit what the store says, rules that load and fire."""
    shell, port = scraped
    rows = [
        {"from": "us@example.com", "to": f"{'no' if n % 5 == 0 else 'yes'}{n}@example.org", "subject": f"{n}",
         "body_text": "hello", "company_id": f"company-{n % 7}"}
        for n in range(600)
    ]  # fmt: skip
    shell.process("send", "--jsonl", "-", stdin="\n".join(json.dumps(row) for row in rows))
    _until(port, "max(dlq_size)", "120")
    _until(port, 'sum(staffetta_emails{status="SENT"})', "480")
    _until(port, "sum(tenant_jobs_processed)", "600")
    assert {"company-0": "18", "company-6": "17"} == {
        row["metric"]["company_id"]: row["value"][1]
        for row in _ask(port, 'dlq_by_company{company_id=~"company-[06]"}')
    }
    assert [("550", "120")] == [
        (row["metric"]["code"], row["value"][1]) for row in _ask(port, "dlq_by_error_code")
    ]
    _until(port, 'sum(staffetta_replies_total{code="550"})', "120")
    names = {row["metric"]["__name__"] for row in _ask(port, '{job="staffetta"}')}
    unseen = {metric.name for metric in TABLE} - {
        name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in names
    }
    # What has not happened has no sample: there is no Redis here, and no operator or crash.
    assert {
        "retry_attempts_total", "retry_success_rate", "staffetta_moves_total",
        "staffetta_retries_by_category_total", "staffetta_given_back_total", "staffetta_dead_letters_dropped_total",
        "staffetta_restored_total", "staffetta_locks_lost_total", "staffetta_troubles_total",
        "staffetta_breaker_moves_total", "staffetta_paused", "staffetta_redis_memory_used_ratio",
        "staffetta_redis_rejected_connections",
    } >= unseen  # fmt: skip
    assert {status.value for status in Status} == {
        row["metric"]["status"] for row in _ask(port, "staffetta_emails")
    }
    _until(port, 'count(ALERTS{alertname="dlq-size", alertstate="firing"})', "1")
    _until(port, 'staffetta_alert_firing{alert="dlq-size"}', "1")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    assert [""] * len(RULES) == [rule.get("lastError", "") for group in groups for rule in group["rules"]]
