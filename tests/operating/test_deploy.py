"""The files in deploy/ as far as they can be checked without the machines they are for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from doubles import engines
from doubles.pages import ROOT
from doubles.shell import Program, Shell
from staffetta import config
from staffetta.cli.main import staffetta

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
UNITS = sorted(DEPLOY.glob("*.service"))
INSTALLED, SETTINGS = "/opt/staffetta/bin/staffetta", "/etc/staffetta/staffetta.toml"


def lines_of(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def parsed(arguments: list[str]) -> None:
    """The command line takes these arguments."""
    command: click.Command = staffetta
    context = command.make_context("staffetta", list(arguments), resilient_parsing=False)
    assert isinstance(command, click.Group)
    rest = [*context._protected_args, *context.args]
    name, found, left = command.resolve_command(context, rest)
    assert found is not None
    found.make_context(name, left, parent=context)


# ------------------------------------------------------------------------------------------------ systemd


@pytest.mark.service
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    verify = engines.program("systemd-analyze", package="systemd")
    instance = unit.name.replace("@.", "@1.")
    text = unit.read_text(encoding="utf-8").replace(INSTALLED, sys.executable).replace("%i", "1")
    (tmp_path / instance).write_text(text)
    done = subprocess.run(
        [verify, "verify", "--man=no", str(tmp_path / instance)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if line.startswith((instance, str(tmp_path)))]
    assert [] == ours


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_s_commands_run_and_end_in_order(unit: Path, tmp_path: Path) -> None:
    """Typed as the unit types them, with the program and the settings of this test."""
    settings = tmp_path / "staffetta.toml"
    settings.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/s.db"\n[transport]\nurl = "sink://"\n')
    shell = Shell(tmp_path, STAFFETTA_LISTEN="127.0.0.1:0")
    for line in lines_of(unit, "ExecStartPre"):
        shell.process(*words(line, settings))
    (start,) = lines_of(unit, "ExecStart")
    running = Program(shell, *words(start, settings))
    running.told("Staffetta is ready")
    assert 0 == running.stop()


def words(line: str, settings: Path) -> list[str]:
    program, *arguments = shlex.split(line)
    assert program == INSTALLED
    return [str(settings) if word == SETTINGS else word for word in arguments]


def test_a_stop_has_more_time_than_the_grace() -> None:
    """Killed before its grace is over, a service would leave e-mails in work at every restart."""
    grace = config.load(None, {"STAFFETTA_TRANSPORT": "sink://"}).delivery.shutdown_grace_ms / 1_000
    for unit in UNITS:
        assert float(lines_of(unit, "TimeoutStopSec")[0]) >= 2 * grace
    ours = [one for one in COMPOSE["services"].values() if "stop_grace_period" in one]
    assert all(float(one["stop_grace_period"].removesuffix("s")) >= 2 * grace for one in ours)


# ------------------------------------------------------------------------------------------------ containers


def test_the_compose_file_s_settings_are_ours_and_right() -> None:
    """Every wrong one would be named by `serve` at its first start, in front of a customer."""
    known = {one.variable for one in config.settings()} | set(config.NOT_SETTINGS)
    for name in ("staffetta", "worker"):
        told = {
            variable: re.sub(r"\$\{MYSQL_PASSWORD:[^}]*\}", "secret", value)
            for variable, value in COMPOSE["services"][name]["environment"].items()
        }
        assert set(told) <= known
        found = config.load(None, told)
        assert ("mysql", "redis") == (found.store.url.partition(":")[0], found.queue.url.partition(":")[0])


def test_the_compose_file_s_commands_are_ours() -> None:
    for name in ("staffetta", "worker", "sink"):
        parsed(COMPOSE["services"][name]["command"])


def test_what_the_compose_file_mounts_is_there() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), f"{name} mounts {source}"
            else:
                assert source in COMPOSE["volumes"], f"{name} uses a volume {source} that nobody declares"


def test_the_container_file_copies_what_there_is_and_starts_what_we_have() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)
    (command,) = re.findall(r'^CMD \["(\w+)"\]$', text, re.MULTILINE)
    assert "staffetta" == entry
    parsed([command])
    known = {one.variable for one in config.settings()} | set(config.NOT_SETTINGS)
    assert set(re.findall(r"\b(STAFFETTA_\w+)=", text)) <= known
    (check,) = re.findall(r'CMD python -c "(.+)"$', text, re.MULTILINE)
    compile(check, "HEALTHCHECK", "exec")


@pytest.mark.service
def test_prometheus_understands_its_settings(tmp_path: Path) -> None:
    promtool = engines.program("promtool", package="prometheus")
    key = tmp_path / "key"
    key.write_text("sk_x")
    shutil.copy(DEPLOY / "alerts.yml", tmp_path / "alerts.yml")
    text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    text = text.replace("/etc/prometheus/", f"{tmp_path}/").replace("/run/secrets/staffetta_read_key", str(key))
    (tmp_path / "prometheus.yml").write_text(text)
    done = subprocess.run(
        [promtool, "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "rules found" in done.stdout
