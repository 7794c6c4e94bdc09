"""Somebody else's server that misbehaves on purpose: what our own sink does, shown by one that we did not write."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts import transports
from contracts.transports import Dumped
from doubles.mouth import Mark, all_of, hand_over, message, opened
from staffetta.mail.attempt import spends_no_attempt
from staffetta.mail.verdict import judge

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("relays")]

# options of smtp-sink -> stage, code or event, action, whether the dot had left
MISBEHAVIOURS = {
    "-f CONNECT": ("connect", 500, "HOLD", False),
    "-r CONNECT": ("connect", 450, "RETRY", False),
    "-q CONNECT": ("connect", "eof", "RETRY", False),
    "-Q CONNECT": ("connect", 421, "RETRY", False),
    "-q EHLO": ("ehlo", "eof", "RETRY", False),
    "-Q EHLO": ("ehlo", 421, "RETRY", False),
    "-f MAIL": ("mail", 500, "FAIL", False),
    "-r MAIL": ("mail", 450, "RETRY", False),
    "-q MAIL": ("mail", "eof", "RETRY", False),
    "-Q MAIL": ("mail", 421, "RETRY", False),
    "-f RCPT": ("rcpt", 500, "FAIL", False),
    "-r RCPT": ("rcpt", 450, "RETRY", False),
    "-q RCPT": ("rcpt", "eof", "RETRY", False),
    "-Q RCPT": ("rcpt", 421, "RETRY", False),
    "-f DATA": ("data", 500, "FAIL", False),
    "-r DATA": ("data", 450, "RETRY", False),
    "-q DATA": ("data", "eof", "RETRY", False),
    "-Q DATA": ("data", 421, "RETRY", False),
    "-f .": ("dot", 500, "FAIL", True),
    "-r .": ("dot", 450, "RETRY", True),
    "-q .": ("dot", "eof", "RETRY", True),
    "-Q .": ("dot", 421, "RETRY", True),
}
MANNERS = (
    "",
    "-p",
    "-e",
    "-8",
    "-E",
    "-a -p -8",
    "-f RSET",
    "-q RSET",
    "-f QUIT",
    "-q QUIT",
    "-Q QUIT",
    "-q NOOP",
)
"""Options under which every message is taken all the same."""


@pytest.mark.parametrize("options", MISBEHAVIOURS)
async def test_a_misbehaviour_is_one_reply_and_means_the_same(options: str) -> None:
    stage, what, action, committed = MISBEHAVIOURS[options]
    with transports.smtp_sink(*options.split(" ")) as (port, _):
        async with opened(transports.at_smtp_sink(port)()) as transport:
            mark = Mark()
            delivery = await hand_over(transport, "a@x.example", "b@x.example", mark=mark)

    for one in delivery.replies:
        reply, verdict = one.reply, judge(one.reply)
        assert (stage, what) == (reply.stage, reply.code or reply.name)
        assert verdict.action == action
        assert verdict.in_doubt == (what == "eof" and committed)
        assert spends_no_attempt(reply, verdict) == (stage in ("connect", "ehlo"))
    assert (mark.made, delivery.committed) == (committed, committed)


@pytest.mark.parametrize("options", MANNERS)
async def test_whatever_its_manners_each_message_arrives_once(options: str) -> None:
    with transports.smtp_sink(*options.split()) as (port, folder):
        far = Dumped(transports.at_smtp_sink(port), Path(folder), frozenset())
        async with opened(far.transport(connections_max=3)) as transport:
            deliveries = await all_of([hand_over(transport, number=n) for n in range(12)])
        arrived = await far.arrived(12)

    assert all(one.replies[0].reply.delivered for one in deliveries)
    assert sorted(one.content for one in arrived) == sorted(message(n) for n in range(12))
