"""Listens to the engine as logs and metrics do, and keeps what is worth showing while it runs."""

from __future__ import annotations

import dataclasses
from collections import Counter

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
        self._kinds: Counter[str] = Counter()

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
        kinds = [f"{count} × {text}" if count > 1 else text for text, count in self._kinds.items()]
        found = (*self._notes, *kinds)
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
            self._kinds[f"{said} → dead letter"] += 1
            return
        standing.deferred += 1
        decision = event.decision
        wait = f"again in {decision.delay_ms / 1000:.1f} s" if decision and decision.next_at else "held"
        self._kinds[f"{said} → {'tried ' if wait != 'held' else ''}{wait}"] += 1
