"""The servers that tests of single stores need, started once for all of them."""

from __future__ import annotations

from doubles.databases import mariadb_server, mysql_server

__all__ = ["mariadb_server", "mysql_server"]
