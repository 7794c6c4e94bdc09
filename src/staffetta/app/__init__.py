"""Settings into running parts: the only room that names concrete backends. It decides nothing."""

from staffetta.app.doctor import Finding, examine
from staffetta.app.engine import STAGES, Engine, engine, opened_store
from staffetta.app.running import Ready, answering, run
from staffetta.app.tools import Tools, migrate, tools
from staffetta.app.wiring import table_for
from staffetta.config import Config

__all__ = [
    "STAGES",
    "Config",
    "Engine",
    "Finding",
    "Ready",
    "Tools",
    "answering",
    "engine",
    "examine",
    "migrate",
    "opened_store",
    "run",
    "table_for",
    "tools",
]
