"""Finds the rows of one page of a listing, newest first, each by an index that has them in this order.

asked for                       found by
code                            dead_letters_by_code
recipient                       recipients
READY, PROCESSING, CALLING-…    line and claims, which hold only what is to do; put in order afterwards
ACCEPTED, INVALID, FAILED…      mail_by_status, mail_by_company_status
SENT, SENT-ACKNOWLEDGED         mail_by_company, mail_by_time: nearly all are, so the first that come will do;
                                few SENT among many that are acknowledged: mail_to_report
nothing of these                mail_by_company, mail_by_time
"""

from __future__ import annotations

import heapq
from typing import Any, TypeAlias

from staffetta.mail.lifecycle import IN_WORK, Status
from staffetta.mail.message import Millis
from staffetta.mail.operators import Filter
from staffetta.store.sqlite import codes, records
from staffetta.store.sqlite.rows import Db

Place: TypeAlias = tuple[Millis, int]
"""When, and which row."""

WALKED = 10_000
"""So many e-mails are looked at for READY ones by time; where they are too thin, the lines are read instead."""

_STATUS = "coalesce((SELECT c.status FROM claims c WHERE c.ref = m.ref), m.status)"
_TOTAL = "SELECT total FROM statuses WHERE code = ?"
_SENT_FOR_GOOD = f"""
    SELECT (SELECT total FROM statuses WHERE code = {codes.STATUS[Status.SENT]})
         - (SELECT count(*) FROM mail INDEXED BY mail_to_report
            WHERE callback = 1 AND status = {codes.STATUS[Status.SENT]})
         - (SELECT count(*) FROM claims WHERE status = {codes.STATUS[Status.CALLING_SENT_CALLBACK]})
"""
"""SENT ones that no owner waits to hear of, or that were given up: 0, or there is nothing to be said of them."""
_UNHELD = "NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)"


class _Query:
    """One SELECT of places, put together from constants of ours; what was asked for goes in as parameters."""

    def __init__(self, filter: Filter, *, limit: int, before: Place | None) -> None:
        self.conditions: list[str] = []
        self.facts: dict[str, Any] = {
            "since": filter.since, "until": filter.until, "company": filter.company_id, "code": filter.code,
            "recipient": filter.recipient, "limit": limit,
        }  # fmt: skip
        if before is not None:
            self.facts |= {"at": before[0], "ref": before[1]}
        self._has = {name for name, fact in self.facts.items() if fact is not None}

    def between(self, time: str, ref: str) -> str:
        """Conditions on the place in the order of the listing."""
        parts = []
        if "at" in self._has:
            parts.append(f"({time}, {ref}) < (:at, :ref)")
        if "since" in self._has:
            parts.append(f"{time} >= :since")
        if "until" in self._has:
            parts.append(f"{time} < :until")
        return " AND ".join(parts) or "1"

    def narrow(self, *but: str) -> str:
        """Conditions on the e-mail `m` that the index did not keep already."""
        asked = {
            "company": "m.company = (SELECT company FROM companies WHERE name = :company)",
            "recipient": "EXISTS (SELECT 1 FROM recipients r WHERE r.address = :recipient"
            " AND r.created_at = m.created_at AND r.ref = m.ref)",
            "code": "EXISTS (SELECT 1 FROM dead_letters x WHERE x.ref = m.ref AND x.code = :code)",
        }
        return " AND ".join(text for name, text in asked.items() if name in self._has - set(but)) or "1"

    def run(self, connection: Db, statement: str) -> list[Place]:
        return connection.execute(statement, self.facts, can_cache=True).fetchall()

    def __contains__(self, name: str) -> bool:
        return name in self._has


# ------------------------------------------------------------------------------------------------ e-mails


def emails(connection: Db, filter: Filter, *, limit: int, before: Place | None) -> list[Place]:
    """Places of the first `limit` e-mails behind `before`."""
    query = _Query(filter, limit=limit, before=before)
    if "code" in query or "recipient" in query or not filter.status:
        return query.run(connection, _by_other_than_status(query, filter))
    found = (_by_status(connection, query, status) for status in dict.fromkeys(filter.status))
    return list(heapq.merge(*found, reverse=True))[:limit]


def _by_other_than_status(query: _Query, filter: Filter) -> str:
    is_status = f"{_STATUS} IN ({_codes_of(filter)})" if filter.status else "1"
    if "code" in query:
        return f"""
            SELECT m.created_at, m.ref
            FROM dead_letters d INDEXED BY dead_letters_by_code CROSS JOIN mail m ON m.ref = d.ref
            WHERE d.code = :code AND {query.between("m.created_at", "m.ref")} AND {query.narrow("code")} AND {is_status}
            ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
        """  # constants of ours
    if "recipient" in query:
        return f"""
            SELECT r.created_at, r.ref FROM recipients r CROSS JOIN mail m ON m.ref = r.ref
            WHERE r.address = :recipient AND {query.between("r.created_at", "r.ref")}
              AND {query.narrow("recipient")} AND {is_status}
            ORDER BY r.created_at DESC, r.ref DESC LIMIT :limit
        """
    return _by_time(query, "1")


def _codes_of(filter: Filter) -> str:
    return ", ".join(str(codes.STATUS[status]) for status in filter.status)


def _by_time(query: _Query, also: str, *, of: str = "mail") -> str:
    index = "mail_by_company" if "company" in query else "mail_by_time"
    return f"""
        SELECT m.created_at, m.ref FROM {of} m INDEXED BY {index}
        WHERE {query.between("m.created_at", "m.ref")} AND {query.narrow()} AND {also}
        ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
    """


def _by_status(connection: Db, query: _Query, status: Status) -> list[Place]:
    code = codes.STATUS[status]
    if status in IN_WORK:
        return query.run(connection, _in_work(query, code))
    if code >= codes.FEW:
        index = "mail_by_company_status" if "company" in query else "mail_by_status"
        return query.run(
            connection,
            f"""
            SELECT m.created_at, m.ref FROM mail m INDEXED BY {index}
            WHERE m.status = {code} AND m.status >= {codes.FEW} AND {query.between("m.created_at", "m.ref")}
              AND {query.narrow()} AND {_UNHELD}
            ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
            """,
        )
    is_status = f"m.status = {code} AND {_UNHELD}"
    if status is Status.READY:
        return _ready(connection, query, is_status)
    if not connection.execute(_TOTAL, (code,)).get:
        return []
    if status is Status.SENT:
        return _sent(connection, query, is_status)
    return query.run(connection, _by_time(query, is_status))


def _in_work(query: _Query, code: int) -> str:
    return f"""
        SELECT m.created_at, m.ref FROM claims c CROSS JOIN mail m ON m.ref = c.ref
        WHERE c.status = {code} AND {query.between("m.created_at", "m.ref")} AND {query.narrow()}
        ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
    """


def _sent(connection: Db, query: _Query, is_status: str) -> list[Place]:
    """Where owners are told, only those are SENT whose owner waits; then they all stand in the index for that."""
    found = query.run(connection, _newest(query, is_status))
    if len(found) == query.facts["limit"]:
        return found
    if connection.execute(_SENT_FOR_GOOD).get:
        return query.run(connection, _by_time(query, is_status))
    return query.run(
        connection,
        f"""
        SELECT m.created_at, m.ref FROM mail m INDEXED BY mail_to_report
        WHERE m.callback = 1 AND {query.between("m.created_at", "m.ref")} AND {query.narrow()} AND {is_status}
        ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
        """,
    )


def _newest(query: _Query, is_status: str) -> str:
    """Those of a status among the newest that else fit."""
    index = "mail_by_company" if "company" in query else "mail_by_time"
    return f"""
        SELECT m.created_at, m.ref FROM (
            SELECT m.created_at, m.ref, m.status FROM mail m INDEXED BY {index}
            WHERE {query.between("m.created_at", "m.ref")} AND {query.narrow()}
            ORDER BY m.created_at DESC, m.ref DESC LIMIT {WALKED}
        ) m
        WHERE {is_status} ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
    """


def _ready(connection: Db, query: _Query, is_status: str) -> list[Place]:
    """The newest are mostly READY; where they are not, everything that is READY stands in the lines."""
    found = query.run(connection, _newest(query, is_status))
    if len(found) == query.facts["limit"]:
        return found
    of_company = (
        "l.company = (SELECT company FROM companies WHERE name = :company)" if "company" in query else "1"
    )
    return query.run(
        connection,
        f"""
        SELECT m.created_at, m.ref FROM line l CROSS JOIN mail m ON m.ref = l.ref
        WHERE {of_company} AND {query.between("m.created_at", "m.ref")} AND {records.LIVE}
        ORDER BY m.created_at DESC, m.ref DESC LIMIT :limit
        """,
    )


# ------------------------------------------------------------------------------------------------ dead letters


def dead_letters(connection: Db, filter: Filter, *, limit: int, before: Place | None) -> list[Place]:
    """Places of the first `limit` dead letters behind `before`, by the time of their burial."""
    query = _Query(filter, limit=limit, before=before)
    is_status = f"{_STATUS} IN ({_codes_of(filter)})" if filter.status else "1"
    among = f"{query.between('d.moved_at', 'd.ref')} AND {is_status}"
    rest = "ORDER BY d.moved_at DESC, d.ref DESC LIMIT :limit"
    if "recipient" in query:
        statement = f"""
            SELECT d.moved_at, d.ref FROM recipients r CROSS JOIN dead_letters d ON d.ref = r.ref
            CROSS JOIN mail m ON m.ref = d.ref
            WHERE r.address = :recipient AND {among} AND {query.narrow("recipient")} {rest}
        """
    elif "code" in query:
        statement = f"""
            SELECT d.moved_at, d.ref FROM dead_letters d INDEXED BY dead_letters_by_code
            CROSS JOIN mail m ON m.ref = d.ref
            WHERE d.code = :code AND {among} AND {query.narrow("code")} {rest}
        """
    elif "company" in query:
        statement = f"""
            SELECT d.moved_at, d.ref FROM dead_letters d INDEXED BY dead_letters_by_company
            CROSS JOIN mail m ON m.ref = d.ref
            WHERE d.company = (SELECT company FROM companies WHERE name = :company) AND {among} {rest}
        """
    else:
        statement = f"""
            SELECT d.moved_at, d.ref FROM dead_letters d INDEXED BY dead_letters_by_time
            CROSS JOIN mail m ON m.ref = d.ref WHERE {among} {rest}
        """
    return query.run(connection, statement)
