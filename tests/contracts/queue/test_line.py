"""One company's line in memory, held to a plain sorted list whatever comes, goes, and comes back."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from contracts.queues import NOW, job
from staffetta.mail.message import Job
from staffetta.queue.local.line import Line

steps_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3), st.integers(0, 4)),
        st.tuples(st.just("put"), st.integers(1, 3), st.integers(0, 4)),
        st.tuples(st.just("take"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("back"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("last"), st.just(0), st.just(0)),
        st.tuples(st.just("drop last"), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
    ),
    max_size=60,
)


_DROPPED = [("put", 1, 0), ("put", 1, 1), ("put", 1, 0), ("drop last", 0, 0), ("last", 0, 0)]
"""Once the run's last one was gone, a late one could stand behind the new last one."""


@given(steps=steps_strategy, by_age=st.booleans())
@example(steps=_DROPPED, by_age=False)
def test_a_line_is_a_sorted_list(steps: list[tuple[str, int, int]], *, by_age: bool) -> None:
    """Equals stand as they came; one that came back unsent stands before its equals. `last` may settle the latter."""
    line = Line(by_age=by_age)
    waiting: list[Job] = []
    out: list[Job] = []
    made = 0

    def rank(one: Job) -> tuple[int, int]:
        return (0 if by_age else one.priority, one.due_at)

    for what, one, two in steps:
        match what:
            case "put":
                made += 1
                new = job(made, priority=one, due_at=NOW + two)
                line.put(new)
                waiting.insert(sum(rank(other) <= rank(new) for other in waiting), new)
            case "take":
                taken: list[Job] = []
                line.take(min(one, len(line)), taken)
                assert waiting[: len(taken)] == taken
                del waiting[: len(taken)]
                out = taken
            case "back":
                # All equals of what comes back stand behind it only if they were behind it when it was taken.
                for back in out:
                    line.put_back(back)
                    place = sum(rank(other) < rank(back) for other in waiting)
                    while place < len(waiting) and waiting[place] in out and rank(waiting[place]) == rank(back):
                        place += 1
                    waiting.insert(place, back)
                out = []
            case "last" if waiting:
                assert waiting[-1] is line.last()
            case "drop last" if waiting:
                assert waiting.pop() is line.drop_last()
            case "remove" if waiting:
                gone = waiting.pop(one % len(waiting))
                assert line.remove(gone)
                assert not line.remove(gone)
        assert len(waiting) == len(line)
        if waiting:
            assert waiting[0] is line.head()
    assert sorted(one.id for one in waiting) == sorted(one.id for one in line)
    rest: list[Job] = []
    line.take(len(line), rest)
    assert waiting == rest
