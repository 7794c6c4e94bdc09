"""Django, as far as a database connection goes."""

from __future__ import annotations

from typing import Any

import django
import pymysql
from django.conf import settings as django_settings

from doubles.databases import Server


def django_connection(server: Server, database: str, *, user: str = "root", password: str = "") -> Any:
    """A connection as Django makes them, without a project around it."""
    pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks of the driver that it knows
    pymysql.install_as_MySQLdb()
    if not django_settings.configured:
        django_settings.configure(DATABASES={}, INSTALLED_APPS=[])
        django.setup()
    from django.db import connections

    connections.settings = {
        "default": {
            **connections.configure_settings({"default": {"ENGINE": "django.db.backends.mysql"}})["default"],
            "NAME": database, "HOST": "127.0.0.1", "PORT": server.port, "USER": user, "PASSWORD": password,
        }
    }  # fmt: skip
    return connections.create_connection("default")
