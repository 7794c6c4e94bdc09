"""Listens to the engine as logs and metrics do, and keeps what is worth showing while it runs."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from staffetta.demo.plan import COMPANIES
from staffetta.mail.attempt import words
from staffetta.mail.events import AcceptedEmail, Attempted, BreakerMoved, Event
from staffetta.mail.lifecycle import Status


@dataclasses.dataclass(slots=True)
class Standing:
    """How one company stands."""

    handed_in: int = 0
    sent: int = 0
    failed: int = 0
    deferred: int = 0
    """Attempts after which an e-mail waits for its next one."""
    waited_ms: int = 0
    """From hand-in to SENT, of the last one sent."""


class Heard:
    """A listener. What happens often is told once a kind, with how often it happened."""

    def __init__(self) -> None:
        self.companies = {company_id: Standing() for company_id in COMPANIES}
        self._notes: list[str] = []
        self._kinds: defaultdict[str, list[float]] = defaultdict(list)
        """What was said and what follows → the waits, in seconds, of each time."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, AcceptedEmail):
            self.companies[event.company_id].handed_in += 1
        elif isinstance(event, Attempted):
            self._attempted(event)
        elif isinstance(event, BreakerMoved):
            told = {
                "open": "breaker open: e-mails are held, no attempt counts",
                "closed": "breaker closed: sending goes on",
            }
            self.note(told.get(event.state, f"breaker {event.state}: a probe is on its way"))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def news(self) -> tuple[str, ...]:
        """What happened since this was asked last."""
        found = (*self._notes, *(_told(kind, waits) for kind, waits in self._kinds.items()))
        self._notes.clear()
        self._kinds.clear()
        return found

    def _attempted(self, event: Attempted) -> None:
        standing = self.companies[event.company_id]
        if event.target is Status.SENT:
            standing.sent += 1
            standing.waited_ms = event.at - event.accepted_at
            return
        said = words(event.decision.reply) if event.decision else event.reason
        if event.target is Status.FAILED:
            standing.failed += 1
            self._kinds[f"{said} → dead letter"].append(0.0)
            return
        standing.deferred += 1
        decision = event.decision
        if decision is not None and decision.next_at:
            self._kinds[f"{said} → tried again"].append(decision.delay_ms / 1000)
        else:
            self._kinds[f"{said} → held"].append(0.0)


def _told(kind: str, waits: Sequence[float]) -> str:
    """One kind of happening in words: how often, and after which waits it goes on."""
    often = f"{len(waits)} × " if len(waits) > 1 else ""
    least, most = f"{min(waits):.1f}", f"{max(waits):.1f}"
    wait = "" if most == "0.0" else f" in {least} s" if least == most else f" in {least} to {most} s"
    return f"{often}{kind}{wait}"
