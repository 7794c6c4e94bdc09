"""A scripted SMTP server: takes messages, sends none, misbehaves as told. `script.py` has the format."""

from __future__ import annotations

from staffetta.sink.record import Accepted
from staffetta.sink.script import Rule, Script
from staffetta.sink.server import SinkServer

__all__ = ["Accepted", "Rule", "Script", "SinkServer"]
