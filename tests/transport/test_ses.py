"""Sending by SES: one signed request a message, nothing repeated; an answer that never came is in doubt."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from doubles.mouth import RECIPIENT, SENDER, Mark, all_of, hand_over, heard, message, only, opened
from doubles.ses import KEY, REGION, SECRET, Play, SesServer
from staffetta import config
from staffetta.app import wiring
from staffetta.errors import SettingsError, TransportError
from staffetta.mail.attempt import spends_no_attempt
from staffetta.mail.explain import as_explained
from staffetta.mail.verdict import judge
from staffetta.transport.ses import SesSettings, SesTransport, named_tags


def client(server: SesServer, **settings: Any) -> SesTransport:
    told = {"region": REGION, "endpoint": server.url, "access_key": KEY, "secret_key": SECRET, **settings}
    return SesTransport(SesSettings(**told))


async def test_a_message_is_one_signed_request() -> None:
    """The scripted server computes the signature itself, by AWS's own code."""
    async with (
        SesServer() as ses,
        opened(client(ses, configuration_set="main", tags=("app:shop",))) as transport,
    ):
        delivery = await hand_over(transport, "a@x.example", "b@x.example")

    assert heard(delivery) == [("request", 200)] * 2
    assert delivery.committed
    assert only_text(delivery).startswith("MessageId 0100-")
    (request,) = ses.requests
    assert ("POST", "/v2/email/outbound-emails") == (request.method, request.path)
    assert request.json["FromEmailAddress"] == SENDER
    assert request.json["ConfigurationSetName"] == "main"
    assert request.json["EmailTags"] == [{"Name": "app", "Value": "shop"}]
    assert ses.messages == [(("a@x.example", "b@x.example"), message())]


def only_text(delivery: Any) -> str:
    return str(delivery.replies[0].reply.text)


async def test_an_e_mails_own_tags_come_beside_the_transports() -> None:
    async with SesServer() as ses, opened(client(ses, tags=("env:prod",))) as transport:
        await transport.send(
            SENDER, (RECIPIENT,), message(), before_dot=Mark(), tags=("welcome", "campaign=spring 26")
        )
    assert ses.requests[0].json["EmailTags"] == [
        {"Name": "env", "Value": "prod"},
        {"Name": "welcome", "Value": "true"},
        {"Name": "campaign", "Value": "spring_26"},
    ]


def test_tags_are_told_in_the_characters_that_ses_takes() -> None:
    assert named_tags(["größe:XL", "", ":x", "a:1", "a:2", "b=" + "x" * 300]) == [
        {"Name": "gr_e", "Value": "XL"},
        {"Name": "a", "Value": "2"},
        {"Name": "b", "Value": "x" * 256},
    ]


async def test_nothing_of_the_request_leaves_before_the_mark() -> None:
    """Only the connection is made: a crash before the mark leaves no doubt."""
    async with SesServer() as ses, opened(client(ses)) as transport:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(transport, mark=mark))
        await mark.begun.wait()
        async with asyncio.timeout(10):
            await ses.met.wait()
        assert ses.bytes_heard == 0
        mark.may_end.set()
        assert heard(await sent) == [("request", 200)]
    assert mark.made == 1


async def test_a_mark_that_fails_sends_nothing_and_goes_up() -> None:
    async with SesServer() as ses, opened(client(ses)) as transport:
        with pytest.raises(LookupError, match="overtaken"):
            await hand_over(transport, mark=Mark(error=LookupError("overtaken")))
        with pytest.raises(TimeoutError, match="store"):
            await hand_over(transport, mark=Mark(error=TimeoutError("store")))
        assert heard(await hand_over(transport, number=2)) == [("request", 200)]
    assert [kept for _, kept in ses.messages] == [message(2)]


async def test_cancelling_before_the_mark_ends_sends_nothing() -> None:
    async with SesServer() as ses, opened(client(ses)) as transport:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(transport, mark=mark))
        await mark.begun.wait()
        sent.cancel()
        await asyncio.wait([sent])
        assert sent.cancelled()
        assert heard(await hand_over(transport, number=2)) == [("request", 200)]
    assert [kept for _, kept in ses.messages] == [message(2)]


async def test_a_line_lost_while_the_mark_is_made_leaves_nothing_in_doubt() -> None:
    """Not a byte of the request was out: certainly unsent, and it costs no attempt."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await mark.begun.wait()
        writer.transport.abort()

    mark = Mark()
    mark.may_end.clear()
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = SesTransport(SesSettings(region=REGION, endpoint=url, access_key=KEY, secret_key=SECRET))
    async with server, opened(transport):
        delivery = await hand_over(transport, mark=mark)
    assert (delivery.committed, only(delivery).committed, only(delivery).name) == (False, False, "reset")
    verdict = judge(only(delivery))
    assert (verdict.action, verdict.reach, verdict.in_doubt) == ("RETRY", "transport", False)
    assert spends_no_attempt(only(delivery), verdict)


async def test_cancelling_after_the_mark_ends_the_wait_and_harms_nobody_else() -> None:
    """The journal's mark tells: whoever cancelled knows that the message may be out."""
    async with SesServer(Play(does="stall", keep=True)) as ses, opened(client(ses)) as transport:
        sent = asyncio.ensure_future(hand_over(transport))
        async with asyncio.timeout(10):
            await ses.taken.wait()
        sent.cancel()
        await asyncio.wait([sent])
        assert sent.cancelled()
        assert heard(await hand_over(transport, number=2)) == [("request", 200)]


async def test_a_send_in_flight_when_the_transport_closes_is_answered() -> None:
    """Nobody may wait for ever on a transport that is gone; what was out is in doubt."""
    async with SesServer(Play(does="stall", keep=True)) as ses:
        transport = client(ses)
        await transport.open()
        sent = asyncio.ensure_future(hand_over(transport))
        async with asyncio.timeout(10):
            await ses.taken.wait()
            await transport.close()
            delivery = await sent
    assert judge(only(delivery)).in_doubt
    assert delivery.committed


ANSWERS: list[tuple[Play, str]] = [
    (Play(400, "MessageRejected", "Email address is not verified. The following identities failed the check"), "CONFIGURATION FAIL message"),
    (Play(400, "MessageRejected", "try again later, throttled"), "PERMANENT FAIL message"),
    (Play(400, "MailFromDomainNotVerifiedException", "no"), "CONFIGURATION FAIL message"),
    (Play(404, "NotFoundException", "Configuration set <x> does not exist."), "CONFIGURATION FAIL message"),
    (Play(400, "ConfigurationSetDoesNotExist", "no"), "CONFIGURATION FAIL message"),
    (Play(400, "BadRequestException", "Missing final '@domain'"), "VALIDATION FAIL message"),
    (Play(429, "TooManyRequestsException", "Maximum sending rate exceeded."), "QUOTA RETRY transport"),
    (Play(429, "TooManyRequestsException", "Daily message quota exceeded."), "QUOTA HOLD transport"),
    (Play(400, "LimitExceededException", "There are too many instances"), "QUOTA RETRY_SLOW transport"),
    (Play(400, "SendingPausedException", "paused"), "CONFIGURATION HOLD transport"),
    (Play(400, "AccountSuspendedException", "restricted"), "CONFIGURATION HOLD transport"),
    (Play(403, "AccessDeniedException", "User is not authorized to perform: ses:SendEmail"), "CONFIGURATION HOLD transport"),
    (Play(403, "InvalidClientTokenId", "The security token included in the request is invalid."), "CONFIGURATION HOLD transport"),
    (Play(403, "UnrecognizedClientException", "no"), "CONFIGURATION HOLD transport"),
    (Play(403, "ExpiredTokenException", "expired"), "CONFIGURATION HOLD transport"),
    (Play(403, "SignatureDoesNotMatch", "no"), "CONFIGURATION HOLD transport"),
    (Play(503, "ServiceUnavailable", "later"), "TRANSIENT RETRY transport"),
    (Play(500, "InternalFailure", ""), "TRANSIENT RETRY transport"),
    (Play(500, "SomethingNobodyKnows", "new"), "TRANSIENT RETRY transport"),
    (Play(400, "SomethingNobodyKnows", "new"), "UNKNOWN FAIL message"),
    (Play(502, body=b"<html>Bad Gateway</html>"), "TRANSIENT RETRY transport"),
    (Play(504, body=b""), "TRANSIENT RETRY transport"),
    (Play(429, body=b"slow down"), "QUOTA RETRY transport"),
    (Play(403, body=b"{}"), "CONFIGURATION HOLD transport"),
    (Play(301, headers={"Location": "https://elsewhere.example/"}, body=b""), "CONFIGURATION HOLD transport"),
    (Play(400, body=b'{"__type":"com.amazonaws.sesv2#MessageRejected","message":"no"}'), "PERMANENT FAIL message"),
    (Play(400, body=b'{"code":"Throttling","Message":"Maximum sending rate exceeded."}'), "QUOTA RETRY transport"),
    (Play(400, body=b"<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Daily message quota exceeded.</Message></Error></ErrorResponse>"), "QUOTA HOLD transport"),
    (Play(400, body=b"[" * 5_000), "UNKNOWN FAIL message"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("play", "means"), ANSWERS, ids=[f"{p.status}-{p.error}-{n}" for n, (p, _) in enumerate(ANSWERS)]
)
async def test_each_answer_is_one_reply_and_means_what_it_says(play: Play, means: str) -> None:
    async with SesServer(play) as ses, opened(client(ses)) as transport:
        reply = only(await hand_over(transport))
        after = await hand_over(transport, number=2)

    verdict = judge(reply)
    assert means == f"{verdict.category} {verdict.action} {verdict.reach}"
    assert (reply.stage, reply.code, reply.committed) == ("request", play.status, True)
    assert as_explained(verdict)["code"] == (play.error or reply.name or str(play.status))
    assert heard(after) == [("request", 200)]
    assert len(ses.requests) == 2, "nothing is repeated"


@pytest.mark.parametrize("kept", [True, False], ids=["taken", "dropped"])
@pytest.mark.parametrize(
    "play",
    [
        {"does": "close"}, {"does": "reset"}, {"does": "stall"}, {"at": "headers", "does": "close"},
        {"raw": b"what?\r\n\r\n"}, {"raw": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"},
        {"body": b"<html>Welcome to our proxy</html>"}, {"body": b"{}"},
    ],
    ids=lambda play: "-".join(str(value)[:12] for value in play.values()),
)  # fmt: skip
async def test_an_answer_that_never_came_is_in_doubt(play: dict[str, Any], *, kept: bool) -> None:
    """Nobody can know whether SES has it: not sent again by itself, by nobody beneath the journal."""
    async with (
        SesServer(Play(keep=kept and "at" not in play, **play)) as ses,
        opened(client(ses, answer_seconds=0.3)) as transport,
    ):
        delivery = await hand_over(transport)

    assert delivery.committed
    assert only(delivery).committed
    assert judge(only(delivery)).in_doubt
    assert len(ses.requests) <= 1, "the same request never goes twice"
    assert ses.begun == 1


async def test_a_server_that_stops_reading_is_given_up() -> None:
    """A large request that nobody takes must not hold its place for ever."""
    big = message(text=("x" * 76 + "\r\n") * 150_000)
    play = Play(at="headers", does="stall")
    async with SesServer(play) as ses, opened(client(ses, answer_seconds=0.5)) as transport:
        delivery = await hand_over(transport, content=big)
    assert heard(delivery) == [("request", "timeout")]
    assert judge(only(delivery)).in_doubt


async def test_who_is_not_reached_has_nothing_and_costs_no_attempt() -> None:
    async with SesServer() as ses:
        transport = client(ses)
    mark = Mark()
    async with opened(transport):
        delivery = await hand_over(transport, mark=mark)
    assert heard(delivery) == [("request", "refused")]
    assert (mark.made, delivery.committed, only(delivery).committed) == (0, False, False)
    assert (judge(only(delivery)).action, judge(only(delivery)).reach) == ("RETRY", "transport")


async def test_a_wrong_secret_holds_and_names_no_secret() -> None:
    async with SesServer() as ses, opened(client(ses, secret_key="wrong-secret")) as transport:
        reply = only(await hand_over(transport))
    assert reply.name == "SignatureDoesNotMatch"
    assert judge(reply).action == "HOLD"
    assert "wrong-secret" not in repr((reply, transport, vars(transport)))
    assert ses.messages == []


async def test_without_credentials_it_is_said_what_to_set(monkeypatch: Any, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    async with SesServer() as ses, opened(client(ses, access_key=None)) as transport:
        mark = Mark()
        delivery = await hand_over(transport, mark=mark)
        probed = await transport.probe()
    assert heard(delivery) == [("request", "NoCredentialsError")]
    assert "AWS_ACCESS_KEY_ID" in only(delivery).text
    assert (mark.made, judge(only(delivery)).action) == (0, "HOLD")
    assert probed.name == "NoCredentialsError"


async def test_credentials_are_found_where_aws_tools_look(monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    async with SesServer() as ses, opened(client(ses, access_key=None)) as transport:
        assert heard(await hand_over(transport)) == [("request", 200)]


async def test_an_unusable_address_is_refused_alone() -> None:
    async with SesServer() as ses, opened(client(ses)) as transport:
        delivery = await hand_over(
            transport, "good@x.example", "a\r\n@x.example", "jörg@x.example", "post@bücher.example"
        )
        nobody = await hand_over(transport, "a\n@x.example")
        unsaid = await hand_over(transport, sender="a>@x.example")
    assert heard(delivery) == [
        ("request", 200), ("request", "bad-address"), ("request", "utf8-unsupported"), ("request", 200),
    ]  # fmt: skip
    assert ses.messages[0][0] == ("good@x.example", "post@xn--bcher-kva.example")
    assert (heard(nobody), nobody.committed) == ([("request", "bad-address")], False)
    assert (heard(unsaid), unsaid.committed) == ([("request", "bad-address")], False)


async def test_line_ends_are_mended_and_a_line_too_long_is_refused() -> None:
    async with SesServer() as ses, opened(client(ses)) as transport:
        await hand_over(transport, content=b"Subject: x\n\nbody\r.\rend")
        long = await hand_over(transport, content=message(text="x" * 999))
    assert ses.messages[0][1] == b"Subject: x\r\n\r\nbody\r\n.\r\nend"
    assert heard(long) == [("request", "too-large")]
    assert judge(only(long)).action == "FAIL"


async def test_ses_own_word_of_when_to_come_back_is_kept() -> None:
    play = Play(429, "TooManyRequestsException", "slow", headers={"Retry-After": "120"})
    async with SesServer(play) as ses, opened(client(ses)) as transport:
        reply = only(await hand_over(transport))
    assert judge(reply).min_delay_ms == 120_000


async def test_the_rate_is_kept_and_connections_are_bounded() -> None:
    async with (
        SesServer() as ses,
        opened(client(ses, messages_per_second=20.0, connections_max=2)) as transport,
    ):
        begun = time.monotonic()
        deliveries = await all_of([hand_over(transport, number=n) for n in range(11)])
        took = time.monotonic() - begun
    assert [heard(one) for one in deliveries] == [[("request", 200)]] * 11
    assert took >= 10 / 20 - 0.06
    assert ses.begun <= 2
    assert sorted(kept for _, kept in ses.messages) == sorted(message(n) for n in range(11))


PROBES: list[tuple[dict[str, Any], Play | None, str]] = [
    ({}, None, ""),
    ({"SendingEnabled": False}, None, "SendingPausedException"),
    ({"EnforcementStatus": "SHUTDOWN"}, None, "SendingPausedException"),
    ({"SendQuota": {"Max24HourSend": 200.0, "SentLast24Hours": 200.0}}, None, "TooManyRequestsException"),
    ({"SendQuota": {"Max24HourSend": 200.0, "SentLast24Hours": 10.0}}, None, ""),
    ({"SendQuota": {"Max24HourSend": -1, "SentLast24Hours": 10.0}}, None, ""),
    ({}, Play(403, "AccessDeniedException", "not authorized to perform: ses:GetAccount"), ""),
    ({}, Play(404, body=b"not here"), ""),
    ({}, Play(501, body=b"not yet"), ""),
    ({}, Play(403, "InvalidClientTokenId", "no"), "InvalidClientTokenId"),
    ({}, Play(503, body=b""), "503"),
]


@pytest.mark.parametrize(("account", "play", "trouble"), PROBES)
async def test_a_probe_tells_whether_e_mails_may_go(
    account: dict[str, Any], play: Play | None, trouble: str
) -> None:
    """Of the day's quota too, so that e-mails need not find out; who may not ask for it may still send."""
    async with SesServer(account={"SendingEnabled": True, **account}) as ses, opened(client(ses)) as transport:
        ses.account_play = play
        reply = await transport.probe()
    assert (reply.name or (str(reply.code) if reply.code != 250 else "")) == trouble
    assert ses.messages == []
    if trouble and trouble != "503":
        assert judge(reply).action == "HOLD"


async def test_a_transport_that_is_not_open_is_a_broken_program() -> None:
    with pytest.raises(TransportError):
        await hand_over(SesTransport(SesSettings(region=REGION)))


def test_a_url_says_all_there_is_to_say() -> None:
    made = SesTransport.from_url(
        "ses://AK:s%2Fcret@eu-south-1?endpoint=http://127.0.0.1:8000&configuration_set=main&tags=app:shop;env:prod"
        "&connections=7&messages_per_second=14&idle=5&timeout=30#second"
    )
    told = made.settings
    assert (made.name, told.region, told.url) == ("second", "eu-south-1", "http://127.0.0.1:8000")
    assert (told.access_key, told.secret_key) == ("AK", "s/cret")
    assert (told.configuration_set, told.tags) == ("main", ("app:shop", "env:prod"))
    assert (told.connections_max, told.messages_per_second, told.idle_seconds, told.answer_seconds) == (
        7,
        14,
        5,
        30,
    )
    assert "cret" not in f"{made!r} {told!r} {vars(made)}"
    assert SesTransport.from_url("ses://eu-west-1").settings.url == "https://email.eu-west-1.amazonaws.com"
    assert SesTransport.from_url("ses://cn-north-1").settings.url == "https://email.cn-north-1.amazonaws.com.cn"
    assert SesTransport.from_url("ses://us-gov-west-1").name == "ses-us-gov-west-1"


@pytest.mark.parametrize(
    "url",
    [
        "ses://", "ses://nowhere", "ses://K:sec@eu-west-1?colour=blue", "ses://K:sec@eu-west-1?endpoint=ftp://x",
        "ses://K:sec@eu-west-1?endpoint=http://u:sec@h", "ses://K:sec@eu-west-1?connections=0",
        "ses://K:sec@eu-west-1?timeout=0", "ses://K:sec@eu-west-1/path", "ses://K@eu-west-1", "smtp://K:sec@h",
        "ses://K:sec@eu-west-1?messages_per_second=nan", "ses://eu-west-1?endpoint=http://h/path", "ses://[::1",
    ],
)  # fmt: skip
def test_a_url_that_is_wrong_is_refused_without_showing_the_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        SesTransport.from_url(url)
    assert "sec" not in str(refused.value).replace("messages_per_second", "").replace("secret", "")


# ------------------------------------------------------------------------------------------------- wired


def wired(url: str, **environment: str) -> SesTransport:
    made = wiring.transports_for(config.load(None, {"STAFFETTA_TRANSPORT": url, **environment}))
    assert len(made) == 1
    assert isinstance(made[0], SesTransport)
    return made[0]


def test_one_setting_makes_it_the_mouth(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made = wired("ses://eu-west-1?endpoint=http://127.0.0.1:1#first", STAFFETTA_TRANSPORT__CONNECTIONS="9")
    assert (made.name, made.settings.url, made.settings.connections_max) == ("first", "http://127.0.0.1:1", 9)
    assert wired("ses://eu-west-1").name == "ses-eu-west-1"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith(("staffetta.transport.ses", "staffetta.aws"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(SettingsError, match=r"pip install 'staffetta\[ses\]'"):
        wired("ses://eu-west-1")


def test_a_wrong_address_is_named_before_anything_starts(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"transport\.url.*colour"):
        wired("ses://K:sec@eu-west-1?colour=blue")
