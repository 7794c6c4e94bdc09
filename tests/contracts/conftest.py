"""The servers that some backends need, started once for all suites."""

from __future__ import annotations

from doubles.databases import mariadb_server, mysql_server

__all__ = ["mariadb_server", "mysql_server"]
