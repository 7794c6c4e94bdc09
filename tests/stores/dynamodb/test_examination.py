"""What `doctor` says of a DynamoDB table, and what a command says where nothing can be done."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from doubles.dynamodb_local import DynamoDBLocal
from doubles.dynamodb_proxy import Fault, proxy_to
from doubles.seeds_table import make
from doubles.shell import Shell
from staffetta.errors import StoreUnavailable, StoreUnusable
from staffetta.store.dynamodb import DynamoStore, Place, read

pytestmark = pytest.mark.service

NOBODY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none",
}  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path, dynamodb_local: DynamoDBLocal) -> Shell:
    return Shell(
        tmp_path, STAFFETTA_STORE=dynamodb_local.url(dynamodb_local.table()), STAFFETTA_TRANSPORT="sink://"
    )


def test_a_table_as_it_should_be_is_well(shell: Shell) -> None:
    shell("migrate")
    said = shell("doctor").out
    assert "all indexes are there" in said
    assert "records go when their TTL is over" in said
    assert "secret" not in said


async def test_a_table_without_our_indexes_works_and_is_told_the_remedy(dynamodb_local: DynamoDBLocal) -> None:
    place = dynamodb_local.place()
    store = DynamoStore(place)
    await make(store.wire, place.table)
    await store.open()
    told = {one.words: one.remedy for one in await store.examine()}
    await store.close()
    (words,) = (words for words in told if "TodoIndex" in words)
    assert "staffetta migrate" in told[words]


async def test_records_that_would_never_go_are_told(dynamodb_local: DynamoDBLocal) -> None:
    place = msgspec.structs.replace(dynamodb_local.place(), life_ms=1)
    store = DynamoStore(place)
    await make(store.wire, place.table)
    await store.open()
    wrong = [one for one in await store.examine() if not one.ok]
    await store.close()
    assert any("its TTL is off" in one.words for one in wrong)


def test_a_table_that_is_not_there_is_named_with_the_remedy(shell: Shell) -> None:
    said = shell("status", code=1)
    assert "there is no table outbox-" in said.err
    assert "staffetta migrate" in said.err
    assert "Traceback" not in said.err


def test_missing_credentials_are_named_with_the_remedy(shell: Shell, dynamodb_local: DynamoDBLocal) -> None:
    url = f"dynamodb://eu-south-1/outbox?endpoint={dynamodb_local.endpoint}"
    for name in [name for name in shell.environment if name.startswith("AWS_")]:
        del shell.environment[name]
    said = shell("status", code=1, STAFFETTA_STORE=url, **NOBODY)
    assert "no AWS credentials were found" in said.err
    assert "AWS_ACCESS_KEY_ID" in said.err


def test_the_table_of_the_environment_wins_over_the_one_in_the_url(shell: Shell) -> None:
    said = shell("status", code=1, EMAIL_OUTBOX_TABLE="another")
    assert "there is no table another" in said.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("dynamodb://nowhere/outbox", "must name a region"),
        ("dynamodb://eu-south-1/ab", "no table's name"),
        ("dynamodb://eu-south-1/outbox?colour=red", "'colour' is no setting"),
        ("dynamodb://eu-south-1/outbox?connections=0", "connections must be"),
        ("dynamodb://eu-south-1/outbox?endpoint=ftp://x", "endpoint must be"),
        ("dynamodb://KEY@eu-south-1/outbox", "a key and a secret"),
    ],
)
def test_a_wrong_url_is_named_and_no_secret_shown(shell: Shell, url: str, words: str) -> None:
    said = shell("status", code=2, STAFFETTA_STORE=url)
    assert words in said.err
    assert "store.url" in said.err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AccessDeniedException", "docs/guides/dynamodb.md names the least"),
        ("UnrecognizedClientException", "see the credentials"),
        ("ExpiredTokenException", "see the credentials"),
        ("ResourceNotFoundException", "staffetta migrate"),
    ],
)
async def test_what_dynamodb_refuses_for_good_is_told_at_once(
    dynamodb_local: DynamoDBLocal, place: Place, code: str, words: str
) -> None:
    async with proxy_to(dynamodb_local.port) as proxy:
        store = DynamoStore(dynamodb_local.place(place.table, endpoint=proxy.endpoint))
        await store.open()
        proxy.script(*[Fault(code)] * 3)
        with pytest.raises(StoreUnusable, match=words):
            await store.get("unknown")
        assert len(proxy.seen) == 1
        await store.close()


async def test_a_place_where_nobody_answers_is_away(place: Place) -> None:
    async def at_once(_: float) -> None: ...

    store = DynamoStore(read("dynamodb://K:S@eu-south-1/outbox?endpoint=http://127.0.0.1:9"), pause=at_once)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9"):
        await store.open()
