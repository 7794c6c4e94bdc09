"""Claims of one's own stages are not taken for old because somebody set the clock."""

from __future__ import annotations

from staffetta.flow.patience import Patience


def test_a_claim_that_looks_old_is_believed_until_it_has_looked_so_for_as_long_again() -> None:
    """After a jump of the clock every claim of this moment looks an hour old; a forgotten one goes on doing so."""
    now = [0.0]
    patience = Patience(lambda: now[0], seconds=60)
    for now[0] in (0.0, 30.0, 59.0):
        patience.look_again()
        assert patience.lasts("w.1")
    now[0] = 60.0
    patience.look_again()
    assert not patience.lasts("w.1")


def test_one_that_ended_meanwhile_begins_anew() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0], seconds=60)
    assert patience.lasts("w.1")
    patience.look_again()
    patience.look_again()
    now[0] = 100.0
    assert patience.lasts("w.1")
