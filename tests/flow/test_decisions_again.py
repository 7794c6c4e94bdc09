"""Every decision can be argued with: what an attempt kept is enough to take it again, and to tell it in words."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from doubles import replies
from doubles.clock import run
from doubles.rig import Rig, new_email
from doubles.transport import Call, ScriptedTransport
from staffetta.cli import story
from staffetta.mail import backoff, bounce_text
from staffetta.mail.explain import decide_again, same_decision, tell
from staffetta.mail.message import Attempt, Decision, Delivery, Options, Reply, RetryLimits
from staffetta.mail.rulebook import RuleBook
from staffetta.mail.verdict import DEFAULT, Table, packaged

SAID = [
    bounce_text.read_reply(one.said, one.stage, names=DEFAULT.names)
    for one in replies.of_servers()
    if not one.said.startswith("@")
]
SAID += [Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: queued")] * (len(SAID) // 10)
LATE = ("dot", "request")


def on_a_line(reply: Reply) -> Reply:
    """The reply as a transport would hand it back: at a stage, committed where that is so."""
    stage = reply.stage if reply.stage not in ("", "quit", "rset", "stopped") else "rcpt"
    return msgspec.structs.replace(reply, stage=stage, committed=stage in LATE)


async def _walked(policy: str, in_doubt: str, seed: int) -> tuple[Rig, list[str]]:
    """Many e-mails of many wishes, answered by whatever servers have ever said, to their ends."""
    chance = random.Random(seed)

    async def answers(call: Call) -> Delivery:
        given = [on_a_line(chance.choice(SAID)) for _ in call.recipients]
        if any(reply.stage in LATE for reply in given):
            await call.before_dot()
            return call.delivery(*given, committed=True)
        return call.delivery(*given)

    rules = RuleBook(policy=backoff.POLICIES[policy], in_doubt=in_doubt)  # type: ignore[arg-type]  # one of two words
    first, second = ScriptedTransport("first", always=answers), ScriptedTransport("second", always=answers)
    rig = Rig(transports=[first, second], rulebook=rules, seed=seed)
    wishes = [
        Options(),
        Options(limits=RetryLimits(max_attempts=3)),
        Options(limits=RetryLimits(retry_delay_ms=2_000, max_retry_delay_ms=9_000)),
        Options(in_doubt="hold"),
    ]
    emails = [
        new_email(
            number, now=rig.clock(), options=chance.choice(wishes),
            recipients=[f"r{n}@example.org" for n in range(chance.choice((1, 1, 1, 2, 4)))],
        )
        for number in range(80)
    ]  # fmt: skip
    await rig.add(*emails)
    worker = rig.worker()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(3_600)
    worker.stop()
    await running
    await rig.routes.close()
    return rig, [email.id for email in emails]


@pytest.mark.parametrize(
    ("policy", "in_doubt"),
    [("gateway", "resend"), ("worker", "hold"), ("patient", "resend"), ("courier", "hold")],
)
def test_every_kept_decision_is_taken_again_alike(policy: str, in_doubt: str) -> None:
    """After a release, an operator asks why: the same rules give the same answer, to the millisecond."""
    seed = len(policy) * 7

    async def told() -> None:
        rig, ids = await _walked(policy, in_doubt, seed)
        kept: list[Decision] = []
        for id in ids:
            attempts = await rig.store.attempts(id)
            kept.extend(one.decision for one in attempts if one.decision is not None)
            lines = list(
                story.tell(
                    await rig.email(id),
                    await rig.store.history(id),
                    attempts,
                    None,
                    rules=DEFAULT,
                )
            )
            assert not any("by the rules in force today" in line for line in lines)
            assert all(_is_told(one, lines) for one in attempts)

        assert [decision for decision in kept if not same_decision(decision)] == []
        again = [msgspec.json.decode(msgspec.json.encode(decision), type=Decision) for decision in kept]
        assert again == [decide_again(decision) for decision in kept], "as a store keeps them"
        actions = Counter(decision.verdict.action for decision in kept)
        assert {"RETRY", "RETRY_SLOW", "FAIL", "HOLD", "DELIVERED"} <= set(actions)

    print(f"seed {seed}")
    run(told)


def _is_told(attempt: Attempt, lines: list[str]) -> bool:
    """The story names the transport, the rule and what followed."""
    if attempt.decision is None:
        return True
    rule = f"(rule {attempt.decision.verdict.rule})"
    return any(rule in line for line in lines) and any(f" by {attempt.transport}:" in line for line in lines)


def test_other_rules_give_another_answer_and_it_is_said() -> None:
    """An operator who wrote a rule sees what it would have changed."""
    own = (
        '[[rule]]\nrule = "ours"\ncode = ["554"]\ncategory = "TRANSIENT"\naction = "RETRY"\nreach = "message"\n'
    )
    table = Table.parse(packaged(), first=own)

    async def told() -> None:
        rig = Rig()
        rig.transport.always = _refuses_554
        (job,) = await rig.add(new_email(1, now=rig.clock()))
        email = await rig.deliver(job)
        lines = list(
            story.tell(
                email, await rig.store.history(job.id), await rig.store.attempts(job.id), None, rules=table
            )
        )
        assert any("by the rules in force today" in line and "(rule ours)" in line for line in lines)

    run(told)


async def _refuses_554(call: Call) -> Delivery:
    return call.delivery(Reply(stage="rcpt", code=554, enhanced="5.7.1", text="5.7.1 no"))


def test_a_wait_is_told_with_all_that_made_it() -> None:
    """Policy, attempt, draw and the least that the server asked for: nobody need guess."""

    async def told() -> None:
        rig = Rig()

        async def greylists(call: Call) -> Delivery:
            text = "4.7.1 Greylisted, please try again in 8 minutes"
            return call.delivery(Reply(stage="rcpt", code=450, enhanced="4.7.1", text=text))

        rig.transport.always = greylists
        (job,) = await rig.add(new_email(1, now=rig.clock()))
        await rig.deliver(job)
        (attempt,) = await rig.store.attempts(job.id)
        assert attempt.decision is not None
        words = tell(attempt.decision)

        assert attempt.decision.delay_ms == 480_000
        for part in (
            "450 4.7.1 Greylisted",
            "rule greylisted",
            "again after 480 s",
            "policy gateway",
            "attempt 1",
            "draw 0.",
        ):
            assert part in words
        assert "at least 480 s by the rule or the server's word" in words

    run(told)
