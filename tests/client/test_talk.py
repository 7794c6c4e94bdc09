"""When a call is made again, and with which words: walked by hand, without a network."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from uuid import UUID

import pytest

from staffetta.client import answers, messages, talk
from staffetta.client.answers import Answer, Receipt
from staffetta.client.messages import Attachment
from staffetta.client.talk import Draw, Patience, Request, Wait
from staffetta.errors import (
    ApiError,
    Conflict,
    KeyReused,
    MoveNotAllowed,
    NoAnswer,
    NotFound,
    PayloadError,
    StaffettaError,
    StillRunning,
)

ID = "0198f0a0-0000-7000-8000-000000000001"
LETTER: dict[str, Any] = {"from_": "a@example.com", "to": "b@example.com", "subject": "Hi", "body_text": "Hi!"}


class Half(Draw):
    def number(self) -> float:
        return 0.5

    def now_ms(self) -> int:
        return 1_800_000_000_000


def problem(status: int, kind: str, detail: str = "words", **more: Any) -> Answer:
    body = {"type": f"/docs#{kind}", "title": "Title", "status": status, "detail": detail, **more}
    return Answer(status=status, body=json.dumps(body).encode(), retry_after=str(more.get("after", "")))


KEPT = Answer(status=202, body=json.dumps({"id": ID, "status": "READY"}).encode())
LOST = NoAnswer("http://x: lost", kind="lost")


def walked(said: talk.Talk[Any], *came: Answer | NoAnswer) -> tuple[Any, list[Request], list[float]]:
    """What comes of a talk that hears these answers, the requests it made, and how long it waited."""
    requests, waits, heard = [], [], iter(came)
    try:
        step = next(said)
        while True:
            if isinstance(step, Wait):
                waits.append(step.seconds)
                step = said.send(None)
            else:
                requests.append(step)
                step = said.send(next(heard))
    except StopIteration as done:
        return done.value, requests, waits
    except StaffettaError as error:
        return error, requests, waits


def send(*came: Answer | NoAnswer, tries: int = 5) -> tuple[Any, list[Request], list[float]]:
    return walked(talk.send(LETTER, "key-1", Patience(tries=tries), Half()), *came)


# ------------------------------------------------------------------------------------------ what is said


def test_a_message_becomes_a_payload() -> None:
    body = messages.encode(
        messages.payload(
            {
                **LETTER,
                "send_at": dt.datetime(2027, 1, 15, 9, tzinfo=dt.timezone(dt.timedelta(hours=1))),
                "expires_in": dt.timedelta(hours=2),
                "attachments": ["terms.pdf", Attachment(name="a.txt", content=b"hello", type="text/plain")],
                "id": UUID(ID),
                "reply_to": None,
            }
        )
    )

    assert json.loads(body) == {
        "from": "a@example.com",
        "to": "b@example.com",
        "subject": "Hi",
        "body_text": "Hi!",
        "send_at": "2027-01-15T09:00:00+01:00",
        "expires_in": 7200,
        "attachments": ["terms.pdf", {"name": "a.txt", "content": "aGVsbG8=", "type": "text/plain"}],
        "id": ID,
    }


def test_a_payload_as_the_api_has_it_is_taken_as_it_is() -> None:
    assert messages.payload({"from": "a@example.com", "to": "b@example.com"})["from"] == "a@example.com"


def test_a_file_becomes_an_attachment(tmp_path: Any) -> None:
    (tmp_path / "offer.pdf").write_bytes(b"%PDF")
    attachment = Attachment.read(tmp_path / "offer.pdf")

    assert (attachment.name, attachment.content, attachment.type) == ("offer.pdf", b"%PDF", "application/pdf")


def test_an_answer_ends_the_talk() -> None:
    result, requests, waits = send(KEPT)

    assert result == Receipt(id=ID, status="READY")
    assert [(one.method, one.path, one.key) for one in requests] == [("POST", "/v1/emails", "key-1")]
    assert waits == []


def test_ids_are_quoted_into_paths() -> None:
    _, requests, _ = walked(talk.get("a/b?c", Patience(), Half()), problem(404, "not-found"))

    assert requests[0].path == "/v1/emails/a%2Fb%3Fc"


# ------------------------------------------------------------------------------------------ said again


@pytest.mark.parametrize(
    "came",
    [
        LOST, NoAnswer("", kind="refused"), NoAnswer("", kind="timeout"), NoAnswer("", kind="dns"),
        NoAnswer("", kind="unreachable"), problem(500, "our-fault"), problem(503, "store-away"), problem(429, "busy"),
        problem(409, "still-running"), Answer(status=502, body=b"<html>Bad gateway</html>"), problem(408, "too-slow"),
    ],
)  # fmt: skip
def test_what_may_pass_is_asked_again_with_the_same_key_and_body(came: Answer | NoAnswer) -> None:
    result, requests, waits = send(came, KEPT)

    assert result == Receipt(id=ID, status="READY")
    assert requests[0] == requests[1]
    assert len(waits) == 1


@pytest.mark.parametrize(
    "came",
    [
        problem(400, "malformed"), problem(401, "no-key"), problem(403, "not-allowed"), problem(404, "not-found"),
        problem(409, "conflict"), problem(413, "too-large"), problem(422, "wrong-fields"), problem(422, "key-reused"),
        NoAnswer("", kind="tls"), NoAnswer("", kind="address"), Answer(status=302, body=b""),
    ],
)  # fmt: skip
def test_what_will_not_change_is_asked_once(came: Answer | NoAnswer) -> None:
    result, requests, waits = send(came)

    assert isinstance(result, StaffettaError)
    assert (len(requests), waits) == (1, [])


def test_patience_ends() -> None:
    result, requests, waits = send(LOST, LOST, LOST, tries=3)

    assert result is LOST
    assert len(requests) == 3
    assert waits == [0.2 * 0.75, 0.4 * 0.75]


def test_pauses_grow_up_to_a_bound() -> None:
    _, _, waits = send(*[LOST] * 12, tries=12)

    assert waits == sorted(waits)
    assert waits[-1] == talk.LONGEST_WAIT_SECONDS * 0.75


def test_a_server_that_asks_for_time_gets_it_up_to_a_bound() -> None:
    _, _, waits = send(problem(503, "busy", after=7), problem(503, "busy", after=9_999), KEPT)

    assert waits == [7.0, 30.0]


# ------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (404, "not-found", NotFound),
        (409, "conflict", Conflict),
        (409, "still-running", StillRunning),
        (409, "wrong-status", MoveNotAllowed),
        (422, "key-reused", KeyReused),
        (401, "no-key", ApiError),
        (503, "store-away", ApiError),
    ],
)
def test_each_refusal_is_an_error_of_its_own(status: int, kind: str, error: type[StaffettaError]) -> None:
    raised = answers.refusal(problem(status, kind, "the words of the server"))

    assert type(raised) is error
    assert "the words of the server" in str(raised)


def test_wrong_fields_are_named() -> None:
    errors = [{"field": "to", "detail": "is required"}, {"field": "subject", "detail": "holds a line break"}]
    raised = answers.refusal(problem(422, "wrong-fields", errors=errors))

    assert isinstance(raised, PayloadError)
    assert [(one.field, one.problem) for one in raised.problems] == [
        ("to", "is required"),
        ("subject", "holds a line break"),
    ]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"type": 7}', b"\xff\xfe"])
def test_an_answer_that_is_not_staffettas_says_so(body: bytes) -> None:
    """A wrong address often answers something."""
    refused = answers.refusal(Answer(status=404, body=body))

    assert "is this its address" in str(refused)
    with pytest.raises(ApiError, match="is this its address"):
        answers.receipt(Answer(status=200, body=body))


# ------------------------------------------------------------------------------------------ batches


def results(*ids: str) -> Answer:
    return Answer(
        status=202, body=json.dumps({"results": [{"id": one, "status": "READY"} for one in ids]}).encode()
    )


def test_a_batch_gives_one_result_for_each_in_order() -> None:
    error = {"type": "/docs#wrong-fields", "status": 422, "errors": [{"field": "to", "detail": "is required"}]}
    body = {"results": [{"id": "1", "status": "READY"}, {"error": error}, {"id": "3", "status": "ACCEPTED"}]}
    said = talk.send_batch([LETTER] * 3, "key", Patience(), Half())
    result, requests, _ = walked(said, Answer(status=202, body=json.dumps(body).encode()))

    assert [getattr(one, "id", str(one)) for one in result] == ["1", "to: is required", "3"]
    assert [one.key for one in requests] == ["key"]


def test_a_large_batch_goes_in_several_calls_each_with_its_own_key() -> None:
    said = talk.send_batch([LETTER] * 2_500, "key", Patience(), Half())
    result, requests, _ = walked(
        said, results(*map(str, range(1_000))), results(*map(str, range(1_000))), results(*map(str, range(500)))
    )

    assert len(result) == 2_500
    assert [one.key for one in requests] == ["key.0", "key.1", "key.2"]
    assert [len(json.loads(one.body or b"")) for one in requests] == [1_000, 1_000, 500]


def test_an_empty_batch_is_no_call() -> None:
    assert walked(talk.send_batch([], "key", Patience(), Half())) == ([], [], [])


# ------------------------------------------------------------------------------------------ cancelling


def story(status: str, reason: str) -> Answer:
    return Answer(
        status=200, body=json.dumps({"id": ID, "status": status, "company_id": "a", "reason": reason}).encode()
    )


def cancel(*came: Answer | NoAnswer) -> tuple[Any, list[Request], list[float]]:
    return walked(talk.cancel(ID, Patience(), Half()), *came)


def test_a_cancel_that_was_lost_and_then_refused_had_been_done() -> None:
    """The first try cancelled it and its answer was lost; the second finds it FAILED already."""
    cancelled = story("FAILED-ACKNOWLEDGED", "CANCELLED: by request, before it was sent")
    result, requests, _ = cancel(LOST, problem(409, "wrong-status"), cancelled)

    assert result == Receipt(id=ID, status="FAILED-ACKNOWLEDGED")
    assert [one.method for one in requests] == ["POST", "POST", "GET"]


def test_a_cancel_that_came_too_late_is_refused_even_after_a_lost_try() -> None:
    result, _, _ = cancel(LOST, problem(409, "wrong-status", "it is SENT"), story("SENT", "250 OK"))

    assert isinstance(result, MoveNotAllowed)
    assert "it is SENT" in str(result)


def test_a_cancel_that_is_refused_at_once_is_refused() -> None:
    result, requests, _ = cancel(problem(409, "wrong-status"))

    assert isinstance(result, MoveNotAllowed)
    assert len(requests) == 1


def test_an_empty_id_reaches_nobody() -> None:
    """`/v1/emails/` and `/v1/emails//cancel` are other addresses."""
    result, requests, _ = walked(talk.get("", Patience(), Half()))

    assert isinstance(result, PayloadError)
    assert requests == []
