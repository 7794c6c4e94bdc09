"""Moving to another store takes everything along: each e-mail in every status, as it stood, and all that is steered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contracts.letters import HOUR, Letters
from contracts.stores import BACKENDS, Ground
from doubles.databases import mariadb_server, mysql_server
from staffetta.flow.copy import Copied, copy
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Options
from staffetta.mail.operators import ApiKey, Pause
from staffetta.store.contract import Store
from staffetta.store.sqlite import SqliteStore

__all__ = ["mariadb_server", "mysql_server"]

WAYS = [
    pytest.param(("sqlite", "dynamodb"), marks=pytest.mark.service),
    pytest.param(("sqlite", "mariadb"), marks=pytest.mark.service),
    pytest.param(("dynamodb", "mariadb"), marks=pytest.mark.service),
]


@dataclass
class Way:
    source: Store
    target: Store
    post: Letters
    ground: Ground
    """Of the target."""

    async def go(self) -> Copied:
        return await copy(self.source, self.target, lambda _, __: None)

    @property
    def there(self) -> Letters:
        return Letters(self.target, self.ground)


@pytest.fixture(params=WAYS, ids=lambda way: " to ".join(way))
async def way(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Way]:
    first, second = request.param
    async with BACKENDS[first](request, tmp_path) as here, BACKENDS[second](request, tmp_path) as there:
        # The time is the target's: what is due here must be due there.
        here.clock = there.clock
        source, target = here.store(), there.store()
        await source.open()
        await target.open()
        yield Way(source, target, Letters(source, here), there)
        await source.close()
        await target.close()


async def filled(post: Letters) -> list[str]:
    """E-mails in every status, with parts, doubts, late replies, files, a batch and dead letters."""
    ids = [await post.sent(), await post.failed(), await post.failed(code=None, company_id="zürich")]
    ids.append((await post.intaking()).id)
    invalid = await post.intaking()
    await post.store.apply(post.move(invalid, Status.INVALID, Cause.INVALID, reason="from: must be an address"))
    ids.append(invalid.id)
    ids += [await post.accepted(payload=None, payload_file_path="in/a.json"), await post.ready(priority=2)]
    for failing in (False, True):
        for acknowledged in (False, True):
            ids.append(await (post.failed if failing else post.sent)(callback_due=True))
            calling = await post.calling()
            ended = Status.FAILED_ACKNOWLEDGED if failing else Status.SENT_ACKNOWLEDGED
            if acknowledged:
                await post.store.apply(post.move(calling, ended, Cause.ACKNOWLEDGED))
            else:
                await post.store.bind_batch(f"batch {failing}", [calling])
    ids.append(
        await post.ready(options=Options(tags=("a", "b"), in_doubt="hold"), recipients=("a@x.org", "b@x.org"))
    )
    deferred = await post.claim(ids[-1])
    await post.store.apply(post.deferred(deferred, due_in=HOUR, attempts=1))
    held = await post.claim(await post.ready(), worker="gone")
    await post.commit(held)
    ids.append(held.id)
    return ids


async def test_every_email_stands_there_as_it_stood(way: Way) -> None:
    ids = await filled(way.post)
    before = {id: await way.post.story(id) for id in ids}

    copied = await way.go()

    assert copied.whole
    assert (copied.total, copied.moved, copied.known) == (len(ids), len(ids), 0)
    assert await way.source.counts() == await way.target.counts()
    for id in ids:
        old, new = before[id], await way.there.story(id)
        assert old.email is not None
        assert new.email is not None
        for name in ("status", "company_id", "reason", "attempts", "opened", "due_at", "expires_at", "priority",
                     "sequence", "reached_at", "recipients", "sender", "options", "token", "callback_due",
                     "payload_file_path", "created_at"):  # fmt: skip
            assert getattr(old.email, name) == getattr(new.email, name), (id, name)
        assert [(e.status, e.cause, e.reason, e.at) for e in old.history] == [
            (e.status, e.cause, e.reason, e.at) for e in new.history
        ]
        assert old.attempts == new.attempts
        assert old.content == new.content
        assert old.dead_letter == new.dead_letter
    assert (await way.target.dead_letter_counts()).size == (await way.source.dead_letter_counts()).size


async def test_what_was_unfinished_goes_on_there(way: Way) -> None:
    id = await way.post.ready(recipients=("a@x.org", "b@x.org"))
    claim = await way.post.claim(id)
    await way.source.apply(way.post.deferred(claim, attempts=1))

    await way.go()
    again = await way.there.claim(id)

    assert (again.attempt, again.attempts, again.recipients) == (2, 1, ("a@x.org", "b@x.org"))
    assert again.message == (await way.post.claim(id)).message
    await way.target.apply(way.there.delivered(again))
    assert await way.there.status(id) is Status.SENT


async def test_a_late_reply_is_believed_there(way: Way) -> None:
    """Else the e-mail would be sent a second time."""
    id = await way.post.ready()
    lost = await way.post.claim(id)
    await way.post.commit(lost)
    await way.source.apply(way.post.move(lost, Status.READY, Cause.RESTORED, due_at=way.post.now))
    await way.source.apply_all([way.post.delivered(lost)])

    await way.go()

    late = (await way.there.claim(id)).late
    assert late is not None
    assert late.replies[0].reply.delivered


async def test_an_id_that_came_before_is_known_there(way: Way) -> None:
    new = way.post.new()
    await way.post.add(new)
    await way.go()

    (added,) = await way.target.add([new])

    assert not isinstance(added, Exception)
    assert not added.fresh


async def test_it_may_be_run_again(way: Way) -> None:
    await filled(way.post)
    first = await way.go()
    id = await way.post.ready()

    second = await way.go()

    assert (second.moved, second.known) == (1, first.total)
    assert second.whole
    assert await way.there.status(id) is Status.READY


async def test_what_moved_on_in_the_target_is_told_and_stays(way: Way) -> None:
    id = await way.post.ready()
    await way.go()
    await way.target.apply(way.there.delivered(await way.there.claim(id)))

    copied = await way.go()

    assert copied.differing == [id]
    assert not copied.whole
    assert await way.there.status(id) is Status.SENT


async def test_keys_pauses_and_settings_go_along(way: Way) -> None:
    key = ApiKey(
        id="k1", sha256="00" * 32, role="send", company_id="acme", note="shop", created_at=way.post.now
    )
    await way.source.add_key(key)
    await way.source.pause(Pause(scope="company", name="acme", since=way.post.now))
    await way.source.put_setting("weights", b'{"acme":2}')
    await way.source.put_setting("other", b"old")
    await way.target.put_setting("other", b"new")

    for _ in range(2):
        await way.go()

    assert await way.target.keys() == [key]
    assert [(pause.scope, pause.name) for pause in await way.target.pauses()] == [("company", "acme")]
    assert await way.target.setting("weights") == b'{"acme":2}'
    assert await way.target.setting("other") == b"new"


async def test_batches_stay_together(way: Way) -> None:
    for _ in range(3):
        await way.post.sent(callback_due=True)
    claims = await way.source.claim_reports(tokens=way.post.tokens(3), now=way.post.now)
    await way.source.bind_batch("b1", claims)

    await way.go()

    assert await way.target.batch_members("b1") == [claim.id for claim in claims]


async def test_from_a_store_that_somebody_serves_nothing_is_taken(tmp_path: Path) -> None:
    from staffetta.app.copying import copy as command
    from staffetta.config import load
    from staffetta.errors import StoreOwned

    served = SqliteStore(tmp_path / "a.db")
    await served.open()
    try:
        with pytest.raises(StoreOwned):
            await command(load(None, {}), f"sqlite:///{tmp_path}/a.db", "sqlite:///b.db", lambda _, __: None)
    finally:
        await served.close()
