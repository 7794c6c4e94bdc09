"""What this process was given and has neither settled nor given back: a suspect goes out only when it is nothing."""

from __future__ import annotations

from collections.abc import Iterable

from staffetta.mail.message import Job, Millis


class Holding:
    """Ids, each with the end of its lease."""

    def __init__(self) -> None:
        self._until: dict[str, Millis] = {}
        self._numbers: dict[str, int] = {}
        self._suspect: str | None = None

    def given(self, jobs: list[Job], company: int, until: Millis) -> None:
        """`company`: its number in Redis."""
        held, numbers = self._until, self._numbers
        for job in jobs:
            held[job.id] = until
            numbers[job.id] = company
        if jobs and jobs[0].suspect:
            self._suspect = jobs[0].id

    def anything(self, now: Millis) -> bool:
        """Whether anything is in this process's hands. What it lost without hearing of it is forgotten here."""
        if self._until and next(iter(self._until.values())) < now:
            self._until = {name: until for name, until in self._until.items() if until >= now}
            self._numbers = {name: self._numbers[name] for name in self._until}
        return bool(self._until)

    def a_suspect(self, now: Millis) -> bool:
        """Whether a suspect is out: nothing else is given to this process then."""
        if self._suspect is not None and self._until.get(self._suspect, 0) < now:
            self._suspect = None
        return self._suspect is not None

    def extended(self, ids: Iterable[str], lost: set[str], until: Millis) -> None:
        for name in ids:
            if name in lost:
                self._until.pop(name, None)
                self._numbers.pop(name, None)
            elif name in self._until:
                self._until[name] = until

    def let_go(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        """Each with its company's number in Redis, 0 where it is not known."""
        held, numbers = self._until, self._numbers
        gone: list[tuple[str, int]] = []
        for name in ids:
            held.pop(name, None)
            gone.append((name, numbers.pop(name, 0)))
        return gone

    def suspect_gone(self) -> bool:
        """Whether the suspect that was out has just come to its end."""
        if self._suspect is None or self._suspect in self._until:
            return False
        self._suspect = None
        return True
