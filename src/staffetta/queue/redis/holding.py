"""What this process was given and has neither settled nor given back: a suspect goes out only when it is nothing."""

from __future__ import annotations

from collections.abc import Iterable

from staffetta.mail.message import Job, Millis


class Holding:
    """Ids, each with the end of its lease."""

    def __init__(self) -> None:
        self._until: dict[str, Millis] = {}
        self._suspect: str | None = None

    def given(self, jobs: list[Job], until: Millis) -> None:
        held = self._until
        for job in jobs:
            held[job.id] = until
        if len(jobs) == 1 and jobs[0].suspect:
            self._suspect = jobs[0].id

    def anything(self, now: Millis) -> bool:
        """Whether anything is in this process's hands. What it lost without hearing of it is forgotten here."""
        if self._until and next(iter(self._until.values())) < now:
            self._until = {name: until for name, until in self._until.items() if until >= now}
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
            elif name in self._until:
                self._until[name] = until

    def let_go(self, ids: Iterable[str]) -> bool:
        """Whether the suspect was among them."""
        held = self._until
        for name in ids:
            held.pop(name, None)
        if self._suspect is None or self._suspect in held:
            return False
        self._suspect = None
        return True
