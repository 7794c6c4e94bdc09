"""Any story told to a store and to the memory store beside it ends alike: the same answers, the same records.

Stories are drawn by hypothesis: hand-ins, claims (their own and stale ones), marks, parts, outcomes, operators,
restores, retirements, the clock, closing and opening anew. What a failing one comes down to is printed.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.letters import DAY, HOUR, LATER, MINUTE, NEVER, OK, Letters
from contracts.stores import BACKENDS, SERVICES, Ground, memory, params
from staffetta.errors import StaffettaError
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Intaken, NewEmail, Options, RecipientState
from staffetta.mail.operators import Filter
from staffetta.store.contract import Store

S, C = Status, Cause
COMPANIES = ("acme", "Ünïcorn", "o'neil")
RECIPIENTS = ("a@example.com", "b@example.com", "c@example.com")
TIMES = frozenset(
    {"at", "created_at", "updated_at", "due_at", "expires_at", "reached_at", "opened_at", "committed_at", "closed_at",
     "moved_at", "enqueued_at", "last_failure_at", "retrying_since", "oldest_at", "next"}
)  # fmt: skip

Step: TypeAlias = tuple[str, int, int]
STEPS = (
    "add", "add", "add", "accept", "again", "clash", "claim", "claim", "claim", "commit", "commit", "outcome",
    "outcome", "outcome", "part", "cancel", "expire", "retry", "resolve", "intake", "composed", "reports", "told",
    "release", "bind", "stuck", "held", "retire", "discard", "erase", "turn", "beat", "news", "reopen",
)  # fmt: skip
stories = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(0, 7)), min_size=5, max_size=45
)


class Player:
    """Tells one story to one store. Choices are made by number, so that two players choose alike."""

    def __init__(self, ground: Ground, owned: bool) -> None:
        self.ground = ground
        self.owned = owned
        self.emails: list[NewEmail] = []
        self.claims: list[Any] = []
        self.intakes: list[Any] = []
        self.calls: list[Any] = []
        self.batches = itertools.count(1)

    async def open(self) -> None:
        self.post = Letters(self.ground.store(), self.ground)
        await self.post.store.open()

    async def step(self, step: Step) -> Any:
        """What the store answers, or the name of what it raised."""
        name, first, second = step
        play: Callable[[int, int], Awaitable[Any]] = getattr(self, name)
        try:
            return await play(first, second)
        except StaffettaError as error:
            return type(error).__name__

    @property
    def store(self) -> Store:
        return self.post.store

    def _one(self, number: int) -> str:
        return self.emails[number % len(self.emails)].id if self.emails else "none"

    async def _status(self, id: str) -> Status:
        found = await self.store.get(id)
        return found.status if found is not None else S.READY

    # --- hand-in ----------------------------------------------------------------------------------

    async def add(self, first: int, second: int) -> Any:
        new = self.post.new(
            company_id=COMPANIES[first % 3], recipients=RECIPIENTS[: 1 + second % 3], priority=1 + first % 2,
            due_in=HOUR if second == 7 else 0, expires_in=-MINUTE if first == 7 else DAY,
            options=Options(tags=("t",)) if first % 2 else Options(),
            eml_file_path="s/shared.eml" if second == 6 else None,
        )  # fmt: skip
        self.emails.append(new)
        return await self.store.add([new])

    async def accept(self, first: int, second: int) -> Any:
        self.emails.append(self.post.new(S.ACCEPTED, company_id=COMPANIES[first % 3], ago=second * MINUTE))
        return await self.store.add([self.emails[-1]])

    async def again(self, first: int, _: int) -> Any:
        return await self.store.add(self.emails[first : first + 2])

    async def clash(self, first: int, _: int) -> Any:
        return await self.store.add(
            [msgspec.structs.replace(new, fingerprint="x") for new in self.emails[first : first + 1]]
        )

    # --- sending ----------------------------------------------------------------------------------

    async def claim(self, first: int, second: int) -> Any:
        claim = await self.post.try_claim(
            self._one(first), token=self.post.token(f"w{second % 3}"), alone=second > 3
        )
        if claim is not None:
            self.claims.append(claim)
        return claim

    def _claim(self, number: int) -> Any:
        """The last ones mostly; stale ones too."""
        return self.claims[-1 - number % len(self.claims)] if self.claims else None

    async def commit(self, first: int, second: int) -> Any:
        claim = self._claim(first)
        if claim is not None:
            await self.post.commit(claim, transport=f"relay-{second % 2}")

    async def outcome(self, first: int, second: int) -> Any:
        claim = self._claim(first)
        if claim is None:
            return None
        post = self.post
        settled = tuple(RecipientState(address=a, state="accepted", reply="250") for a in claim.recipients[:1])
        left = {"settled": (*claim.settled, *settled), "recipients": claim.recipients[1:]}
        moves = (
            post.delivered(claim, callback_due=True, believed=claim.late),
            post.delivered(claim),
            post.deferred(claim),
            post.deferred(claim, due_in=HOUR, attempt=None),
            post.deferred(claim, **left) if len(claim.recipients) > 1 else post.deferred(claim, doubts=1),
            post.refused(claim, callback_due=True),
            post.move(
                claim, S.READY, C.RESTORED, due_at=post.now, crashes=claim.crashes + 1, believed=claim.late,
                attempt=post.closed(claim, counted=False),
            ),
            post.move(claim, S.READY, C.HELD, due_at=post.now + HOUR, attempt=post.closed(claim, counted=False)),
        )  # fmt: skip
        return await self.store.apply(moves[second])

    async def part(self, first: int, second: int) -> Any:
        claim = self._claim(first)
        if claim is None:
            return None
        replies = [(OK, NEVER, LATER)[(second + n) % 3] for n in range(len(claim.recipients))]
        following = await self.store.next_part(claim, self.post.closed(claim, *replies, counted=False))
        self.claims[self.claims.index(claim)] = following  # the part before is over for whoever holds the claim
        return following

    # --- operators and the end of time ------------------------------------------------------------

    async def _operate(self, first: int, target: Status, cause: Cause, **facts: Any) -> Any:
        id = self._one(first)
        return await self.store.apply(self.post.operator(id, await self._status(id), target, cause, **facts))

    async def cancel(self, first: int, _: int) -> Any:
        return await self._operate(first, S.FAILED, C.CANCELLED, callback_due=True)

    async def expire(self, _: int, second: int) -> Any:
        found = await self.store.expired(now=self.post.now, limit=100)
        found.sort(key=lambda one: one.id)
        for one in found[: second % 3]:
            letter = self.post.letter(one.id, company_id=one.company_id, code="EXPIRED")
            await self.store.apply(
                self.post.operator(one.id, one.status, S.FAILED, C.EXPIRED, dead_letter=letter)
            )
        return [one.id for one in found]

    async def retry(self, first: int, second: int) -> Any:
        due = self.post.now + (HOUR if second == 7 else 0)
        return await self._operate(
            first,
            S.READY,
            C.RETRIED,
            due_at=due,
            expires_at=self.post.now + DAY,
            attempts=0,
            doubts=0,
            settled=(),
        )

    async def resolve(self, first: int, _: int) -> Any:
        return await self._operate(first, S.SENT, C.RESOLVED, callback_due=True)

    async def discard(self, first: int, _: int) -> Any:
        return await self.store.discard([self._one(first)])

    async def erase(self, first: int, _: int) -> Any:
        return sorted(await self.store.erase_content(self._one(first)))

    async def retire(self, first: int, second: int) -> Any:
        # Nothing is bounded here: which of several goes first is the backend's to choose where they are of one time.
        count = await self.store.retire(
            now=self.post.now, content_ms=(0, HOUR)[first % 2], record_ms=(None, HOUR, 0)[second % 3],
            dead_letter_max=100, limit=100,
        )  # fmt: skip
        return count.contents, count.dead_letters, count.records, sorted(count.files)

    # --- the other stages -------------------------------------------------------------------------

    async def intake(self, first: int, second: int) -> Any:
        taken = await self.store.claim_intake(
            tokens=self.post.tokens(1 + first % 3, f"w{second % 3}"), now=self.post.now
        )
        self.intakes += taken
        return taken

    async def composed(self, first: int, second: int) -> Any:
        if not self.intakes:
            return None
        claim = self.intakes[-1 - first % len(self.intakes)]
        made = Intaken(
            sender="s@example.com", recipients=RECIPIENTS[:2], message=b"m", eml_file_path=None, due_at=self.post.now,
            expires_at=self.post.now + DAY, priority=3, options=Options(),
            company_id="acme" if second > 4 else None,
        )  # fmt: skip
        if second == 0:
            return await self.store.apply(self.post.move(claim, S.INVALID, C.INVALID))
        if second == 1:
            return await self.store.apply(self.post.move(claim, S.ACCEPTED, C.RESTORED))
        return await self.store.apply(self.post.move(claim, S.READY, C.COMPOSED, intaken=made))

    async def reports(self, first: int, second: int) -> Any:
        taken = await self.store.claim_reports(tokens=self.post.tokens(8, f"w{second % 3}"), now=self.post.now)
        self.calls += sorted(taken, key=lambda one: str(one.id))
        return sorted(taken, key=lambda one: str(one.id))

    def _report(self, number: int) -> Any:
        return self.calls[-1 - number % len(self.calls)] if self.calls else None

    async def told(self, first: int, second: int) -> Any:
        claim = self._report(first)
        if claim is None:
            return None
        sent = claim.status is S.CALLING_SENT_CALLBACK
        over, back = (S.SENT_ACKNOWLEDGED, S.SENT) if sent else (S.FAILED_ACKNOWLEDGED, S.FAILED)
        move = (over, C.ACKNOWLEDGED) if second % 2 else (back, C.RESTORED)
        return await self.store.apply(self.post.move(claim, *move))

    async def release(self, first: int, second: int) -> Any:
        claim = self._report(first)
        if claim is None:
            return None
        (result,) = await self.store.release_reports([claim], now=self.post.now, exhausted=second > 4)
        return type(result).__name__

    async def bind(self, first: int, _: int) -> Any:
        claim = self._report(first)
        if claim is None:
            return None
        name = f"batch-{next(self.batches)}"
        await self.store.bind_batch(name, [claim])
        return await self.store.batch_members(name)

    # --- upkeep -----------------------------------------------------------------------------------

    async def stuck(self, first: int, second: int) -> Any:
        found = await self.store.stuck(
            now=self.post.now, dead_after_ms=None if first == 7 else HOUR, timeout_ms=(HOUR, 10**12)[second % 2],
            workers=[f"w{first % 3}"] if first < 6 else [],
        )  # fmt: skip
        return sorted(found, key=lambda one: one.claim.id)

    async def held(self, first: int, _: int) -> Any:
        return await self.store.held(self._one(first))

    async def beat(self, first: int, _: int) -> Any:
        await self.store.heartbeat(self.post.worker(f"w{first % 3}"))

    async def turn(self, first: int, second: int) -> Any:
        if self.ground.clock.turns:
            self.ground.clock.turn((1, MINUTE, HOUR, DAY)[first % 4] * (1 + second))

    async def news(self, _: int, __: int) -> Any:
        told = {job.id for job in await self.store.news(now=self.post.now, limit=1_000)}
        return sorted(told) if self.owned else None

    async def reopen(self, _: int, __: int) -> Any:
        await self.store.close()
        old = self.post
        self.post = old.beside(self.ground.store())
        await self.store.open()

    # --- all that can be seen ---------------------------------------------------------------------

    async def seen(self) -> Any:
        store, now = self.store, self.post.now
        listed = {}
        for filter in (
            Filter(),
            Filter(company_id="acme"),
            Filter(status=(S.READY, S.FAILED)),
            Filter(recipient="a@example.com"),
        ):
            page = await store.emails(filter, limit=100)
            listed[str(filter)] = sorted(one.id for one in page.items)
        return {
            "stories": [await self.post.story(new.id) for new in self.emails],
            "counts": await store.counts(),
            "queue": await store.queue_counts(now=now),
            "companies": sorted(await store.waiting_companies(now=now)),
            "lines": {name: await store.waiting(name, now=now, limit=100) for name in COMPANIES},
            "listed": listed,
            "letters": sorted(one.outbox_id for one in (await store.dead_letters(Filter(), limit=100)).items),
            "letter counts": await store.dead_letter_counts(),
            "held": [await store.held(new.id) for new in self.emails],
            "next": await store.next_due(now=now),
        }  # fmt: skip


def plain(value: Any, *, times: bool, version: bool) -> Any:
    """As plain data, without what backends may choose for themselves: handles, and where they do, times and version."""

    def strip(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                str(key): bool(one) if key in TIMES and not times and isinstance(one, int) else strip(one)
                for key, one in part.items()
                if key != "ref" and (version or key != "version")
            }
        if isinstance(part, list | tuple):
            return [strip(one) for one in part]
        return part

    return strip(_by_name(value))


def _by_name(value: Any) -> Any:
    """Structs by their fields' names, also those that are written as arrays."""
    if isinstance(value, msgspec.Struct):
        return {name: _by_name(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): _by_name(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_by_name(one) for one in value]
    return type(value).__name__ if isinstance(value, Exception) else value


def differences(found: Any, expected: Any, where: str = "") -> Iterator[str]:
    """Where two values differ, each place with what is found there and what was expected."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for key in found:
            yield from differences(found[key], expected[key], f"{where}.{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif found != expected:
        yield f"{where}: {found!r} instead of {expected!r}"


async def play(request: pytest.FixtureRequest, backend: str, story: list[Step]) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ground = await stack.enter_async_context(BACKENDS[backend](request, folder))
        model_ground = await stack.enter_async_context(memory(request, folder))
        model_ground.clock = type(ground.clock)()
        probe = ground.store()
        freely = {"times": ground.clock.turns, "version": probe.keeps_version}
        real, model = Player(ground, probe.owned), Player(model_ground, probe.owned)
        await real.open()
        await model.open()
        try:
            for number, step in enumerate(story):
                answers = [plain(await player.step(step), **freely) for player in (model, real)]
                assert list(differences(answers[1], answers[0], f"step {number} {step}")) == [], story
            expected, found = [plain(await player.seen(), **freely) for player in (model, real)]
            assert list(differences(found, expected)) == [], story
        finally:
            await real.store.close()


def tell_stories(request: pytest.FixtureRequest, backend: str, *, here: int, on_a_server: int) -> None:
    """Each story has a new, empty store: on a real server that takes its time."""

    @settings(
        max_examples=on_a_server if backend in SERVICES else here, deadline=None, print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(story=stories)
    def tell(story: list[Step]) -> None:
        asyncio.run(play(request, backend, story))

    tell()


OTHERS = [one for one in params() if one != "memory"]


@pytest.mark.parametrize("backend", OTHERS)
def test_any_story_ends_as_in_memory(request: pytest.FixtureRequest, backend: str) -> None:
    tell_stories(request, backend, here=60, on_a_server=20)


@pytest.mark.soak
@pytest.mark.parametrize("backend", OTHERS)
def test_any_of_many_stories_ends_as_in_memory(request: pytest.FixtureRequest, backend: str) -> None:
    tell_stories(request, backend, here=1_500, on_a_server=200)
