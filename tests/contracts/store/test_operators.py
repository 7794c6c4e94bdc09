"""What operators set and see: erasing, pausing, figures of processes, keys, settings."""

from __future__ import annotations

import msgspec
import pytest

from contracts.letters import HOUR, MINUTE, Letters
from contracts.stores import Ground
from staffetta.errors import Conflict, MoveNotAllowed, NotFound
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import ApiKey, Pause

S = Status
FINISHED_WITHOUT_LETTER = (S.SENT, S.INVALID, S.SENT_ACKNOWLEDGED)


# ------------------------------------------------------------------------------------------ erasing


@pytest.mark.parametrize("status", FINISHED_WITHOUT_LETTER)
async def test_content_of_a_finished_email_is_erased_and_its_record_kept(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)
    before = await post.story(id)

    assert await post.store.erase_content(id) == ()

    after = await post.story(id)
    assert after.content is None
    assert (after.email, after.history, after.attempts) == (before.email, before.history, before.attempts)


@pytest.mark.parametrize("status", [status for status in Status if status not in FINISHED_WITHOUT_LETTER])
async def test_content_that_may_be_needed_is_not_erased(post: Letters, status: Status) -> None:
    """Unfinished, or with a dead letter, which is there to be retried."""
    id, _ = await post.brought_to(status)
    before = await post.story(id)

    with pytest.raises(MoveNotAllowed):
        await post.store.erase_content(id)

    assert await post.story(id) == before


async def test_an_outcome_with_an_owner_to_be_told_is_not_finished(post: Letters) -> None:
    id = await post.sent(callback_due=True)

    with pytest.raises(MoveNotAllowed):
        await post.store.erase_content(id)


async def test_content_of_an_unknown_email_is_not_found(post: Letters) -> None:
    with pytest.raises(NotFound):
        await post.store.erase_content("00000000-0000-0000-0000-000000000000")


async def test_files_are_told_when_nobody_names_them_any_more(post: Letters) -> None:
    one = await post.sent(message=None, eml_file_path="s/both.eml", payload=None, payload_file_path="s/1.json")
    two = await post.sent(message=None, eml_file_path="s/both.eml")

    assert await post.store.erase_content(one) == ("s/1.json",)
    assert await post.store.erase_content(two) == ("s/both.eml",)
    found = await post.email(one)
    assert (found.eml_file_path, found.payload_file_path) == (None, None)


async def test_erasing_twice_is_no_error(post: Letters) -> None:
    id = await post.sent()
    await post.store.erase_content(id)

    assert await post.store.erase_content(id) == ()


async def test_after_a_discard_a_failed_ones_content_may_go(post: Letters) -> None:
    id = await post.failed()
    await post.store.discard([id])

    await post.store.erase_content(id)

    assert await post.store.content(id) is None


# ------------------------------------------------------------------------------------------ pausing


async def test_pauses_are_kept_until_they_are_resumed(post: Letters, there: Letters) -> None:
    everything = Pause(scope="all", name="", since=post.now)
    relay = Pause(scope="transport", name="relay", since=post.now - HOUR)
    acme = Pause(scope="company", name="acme", since=post.now)
    for pause in (everything, relay, acme):
        await post.store.pause(pause)

    assert sorted(await there.store.pauses(), key=lambda one: one.scope) == [everything, acme, relay]

    await there.store.resume(acme)
    await there.store.resume(msgspec.structs.replace(everything, since=0))
    assert await post.store.pauses() == [relay]


async def test_pausing_again_keeps_since_when(post: Letters) -> None:
    first = Pause(scope="company", name="acme", since=post.now - HOUR)
    await post.store.pause(first)

    await post.store.pause(msgspec.structs.replace(first, since=post.now))

    assert await post.store.pauses() == [first]


async def test_resuming_what_is_not_paused_is_no_error(post: Letters) -> None:
    await post.store.resume(Pause(scope="company", name="nobody", since=0))

    assert await post.store.pauses() == []


# ------------------------------------------------------------------------------------------ figures, settings


async def test_figures_of_processes_are_shown_to_others_while_they_are_fresh(
    post: Letters, there: Letters
) -> None:
    await post.store.publish("w1", b'{"old": 1}', post.now - HOUR)
    await post.store.publish("w2", b'{"n": 1}', post.now - MINUTE)
    await post.store.publish("w2", b'{"n": 2}', post.now)

    assert await there.store.figures(newer_than=post.now - 10 * MINUTE) == {"w2": b'{"n": 2}'}
    assert sorted(await there.store.figures(newer_than=0)) == ["w1", "w2"]


async def test_settings_are_kept_replaced_and_removed(post: Letters, there: Letters) -> None:
    assert await post.store.setting("weights") is None
    await post.store.put_setting("weights", b"\x00\xffone")
    await post.store.put_setting("epoch", b"7")
    assert await there.store.setting("weights") == b"\x00\xffone"

    await post.store.put_setting("weights", b"")
    assert await there.store.setting("weights") == b""
    await post.store.put_setting("weights", None)
    await post.store.put_setting("weights", None)

    assert await there.store.setting("weights") is None
    assert await there.store.setting("epoch") == b"7"


# ------------------------------------------------------------------------------------------ keys


def key(post: Letters, id: str, **facts: object) -> ApiKey:
    values = {"sha256": "0" * 64, "role": "send", "company_id": None, "created_at": post.now, **facts}
    return msgspec.convert({"id": id, **values}, ApiKey)


async def test_keys_are_listed_oldest_first(post: Letters) -> None:
    young = key(post, "a", role="operate", company_id="acme", note="für Zoë")
    old = key(post, "b", created_at=post.now - HOUR)
    await post.store.add_key(young)
    await post.store.add_key(old)

    assert await post.store.keys() == [old, young]


async def test_an_id_of_a_key_is_taken_once(post: Letters) -> None:
    first = key(post, "a")
    await post.store.add_key(first)

    with pytest.raises(Conflict):
        await post.store.add_key(key(post, "a", role="read"))

    assert await post.store.keys() == [first]


async def test_a_revoked_key_stays_listed_with_its_first_time(post: Letters) -> None:
    await post.store.add_key(key(post, "a"))
    await post.store.revoke_key("a", now=post.now - HOUR)
    (revoked,) = await post.store.keys()

    await post.store.revoke_key("a", now=post.now)

    assert revoked.revoked_at > 0
    assert await post.store.keys() == [revoked]


async def test_an_unknown_key_cannot_be_revoked(post: Letters) -> None:
    with pytest.raises(NotFound):
        await post.store.revoke_key("nobody", now=post.now)


async def test_what_operators_set_outlives_the_process(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    await store.pause(Pause(scope="all", name="", since=post.now))
    await store.add_key(key(post, "a"))
    await store.put_setting("weights", b"1")
    await store.close()

    again = ground.store()
    await again.open()
    try:
        assert len(await again.pauses()) == len(await again.keys()) == 1
        assert await again.setting("weights") == b"1"
    finally:
        await again.close()
