"""The seed's formula for database errors that pass by themselves, and the parts in which workers share the work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import insistence, parting


def test_the_waits_are_the_seeds() -> None:
    """min(2^attempt x 30 ms, 1 s), and after the eighth attempt none."""
    most = [insistence.wait_ms(attempt, 1.0) for attempt in range(insistence.ATTEMPTS)]
    assert [30, 60, 120, 240, 480, 960, 1_000, None] == most


@given(attempt=st.integers(0, 6), draw=st.floats(0, 1, exclude_max=True))
def test_a_wait_is_uniform_between_nothing_and_the_most(attempt: int, draw: float) -> None:
    """All who failed together must not come again together."""
    wait = insistence.wait_ms(attempt, draw)
    assert wait is not None
    assert draw * insistence.longest_wait_ms(attempt) == wait
    assert 0 <= wait <= 1_000


@given(
    living=st.sets(st.text("abcdef0123456789-", min_size=1, max_size=12), min_size=1, max_size=9), id=st.uuids()
)
def test_every_email_is_in_exactly_one_living_workers_part(living: set[str], id: object) -> None:
    """Else it would be sent by two, or by nobody."""
    whose = [worker for worker in living if parting.part_of(worker, living).has(str(id))]
    assert len(whose) == 1


def test_who_does_not_send_has_no_part() -> None:
    """A process with the API only, or a worker that is taken for dead."""
    part = parting.part_of("api", ["w1", "w2"])
    assert part == parting.NOTHING
    assert not part.has("0198f0a0-0000-7000-8000-000000000001")
