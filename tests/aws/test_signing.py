"""Requests to Amazon's services are signed with what its own tools would find, or refused with the remedy."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials

from staffetta.aws import Refusal, Signer

URL = "http://127.0.0.1:8000/"


@pytest.fixture(autouse=True)
def _nobody_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of whoever runs the tests, and no asking of the host's own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def signed(signer: Signer) -> dict[str, str]:
    return await signer.sign("POST", URL, b"{}", {"X-Amz-Target": "DynamoDB_20120810.ListTables"})


async def test_a_request_carries_a_signature_of_its_service_and_region() -> None:
    headers = await signed(
        Signer(service="dynamodb", region="eu-south-1", access_key="AKID", secret_key="secret")
    )
    assert "Credential=AKID/" in headers["Authorization"]
    assert "/eu-south-1/dynamodb/aws4_request" in headers["Authorization"]
    assert headers["X-Amz-Target"] == "DynamoDB_20120810.ListTables"


async def test_credentials_are_found_where_amazons_own_tools_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of a role")
    headers = await signed(Signer(service="dynamodb", region="eu-south-1"))
    assert "Credential=FROMENV/" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "of a role"


async def test_without_credentials_nothing_is_sent_and_the_remedy_is_named() -> None:
    with pytest.raises(Refusal, match="AWS_ACCESS_KEY_ID") as refused:
        await signed(Signer(service="dynamodb", region="eu-south-1"))
    assert refused.value.name == "NoCredentialsError"


async def test_hundreds_that_ask_at_once_look_once_and_all_hear_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host without credentials asks the network for them, for a second or more each time."""
    signer = Signer(service="ses", region="eu-west-1")
    looks = 0
    look = signer._look

    async def counted() -> ReadOnlyCredentials:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(signer, "_look", counted)
    heard = await asyncio.gather(*(signed(signer) for _ in range(300)), return_exceptions=True)

    assert [type(one) for one in heard] == [Refusal] * 300
    assert looks == 1
    with pytest.raises(Refusal):
        await signed(signer)
    assert looks == 2, "who asks later looks again: they may have been set meanwhile"


async def test_a_profile_that_is_not_there_is_named() -> None:
    with pytest.raises(Refusal, match="nobody"):
        await signed(Signer(service="dynamodb", region="eu-south-1", profile="nobody"))


@pytest.mark.parametrize("token", [None, "of a role"])
@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://127.0.0.1:8000/", "/"),
        ("https://email.eu-west-1.amazonaws.com/v2/email/outbound-emails", "/v2/email/outbound-emails"),
    ],
)
async def test_a_plain_request_is_signed_as_amazons_own_library_signs_it(
    monkeypatch: pytest.MonkeyPatch, token: str | None, url: str, path: str
) -> None:
    credentials = Credentials("AKID", "se/cr+et", token).get_frozen_credentials()
    headers = {"Content-Type": "application/json", "X-Amz-Target": "DynamoDB_20120810.ListTables"}
    request = AWSRequest(method="POST", url=url, data=b'{"a":1}', headers=dict(headers))
    SigV4Auth(credentials, "dynamodb", "eu-south-1").add_auth(request)
    moment = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    signer = Signer(service="dynamodb", region="eu-south-1")
    host = url.split("/")[2]
    signed_here = signer._signed(
        "POST", host, path, b'{"a":1}', headers=headers, credentials=credentials, now=moment
    )

    assert dict(request.headers.items()) == signed_here


@pytest.mark.parametrize(
    "url", ["https://x.org/a%20b", "https://x.org/a?b=c", "https://x.org/../a", "https://[::1]:8000/"]
)
async def test_what_is_not_plain_is_left_to_the_library(url: str) -> None:
    signer = Signer(service="dynamodb", region="eu-south-1", access_key="AKID", secret_key="secret")
    assert "Signature=" in (await signer.sign("POST", url, b"{}", {}))["Authorization"]
