"""Who may do what: every route under every kind of key, foreign ids, other sites' pages, other machines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from doubles.front import Front, Said, front_door
from staffetta.errors import SettingsError, StoreUnavailable
from staffetta.mail import keys
from staffetta.mail.keys import Role
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import ApiKey
from staffetta.store.memory import MemoryStore
from staffetta.web.auth import check_binding
from staffetta.web.problems import Problem
from staffetta.web.routes import TABLE, Route

UNKNOWN = "0198f0a0-ffff-7000-8000-000000000000"
GUARDED = [route for route in TABLE if route.role is not None]
OPEN = [route for route in TABLE if route.role is None]
WITH_ID = [route for route in TABLE if "{id}" in route.path]
PAYLOAD = {"from": "shop@example.com", "to": "ada@example.com", "subject": "hello", "body_text": "hello"}
BODIES: dict[str, object] = {
    "/v1/emails": PAYLOAD,
    "/v1/emails/batch": [PAYLOAD],
    "/v1/emails/retry": {},
    "/v1/dlq/retry": {},
}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


async def call(front: Front, route: Route, *, key: str | None = None, email_id: str = UNKNOWN) -> Said:
    body = BODIES.get(route.path) if route.method == "POST" else None
    return await front.ask(route.method, route.path.replace("{id}", email_id), key=key, body=body)


@pytest.mark.parametrize("role", keys.ROLES)
@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_a_role_opens_its_own_routes_and_no_others(front: Front, route: Route, role: Role) -> None:
    key = await front.key(role)
    said = await call(front, route, key=key)
    if role in (route.role, "operate"):
        assert said.status in (200, 202, 404), said.body
    else:
        assert (403, "not-allowed") == (said.status, said.kind)
        assert str(route.role) in said.json["detail"]


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_without_a_good_key_no_route_opens(front: Front, route: Route) -> None:
    good = await front.key("operate")
    typo = good[:-1] + ("0" if good[-1] != "0" else "1")
    stranger, _ = keys.make(random=bytes(32), role="operate", company_id=None, now=0)
    for wrong in (None, typo, stranger, "sk_", "", good.lower()):
        said = await call(front, route, key=wrong)
        assert (401, "no-key") == (said.status, said.kind)
        assert "Bearer" in said.headers["WWW-Authenticate"]


@pytest.mark.parametrize("route", OPEN, ids=named)
async def test_health_and_documents_need_no_key(front: Front, route: Route) -> None:
    await front.key("operate")
    assert (await call(front, route)).status == 200


@pytest.mark.parametrize("route", WITH_ID, ids=named)
async def test_another_companys_id_answers_as_one_that_never_was(front: Front, route: Route) -> None:
    """For e-mails in every state: neither status, body nor effect tells that it exists."""
    key = await front.key("operate", "globex")
    foreign = [await front.stock.failed("acme"), await front.stock.sent("acme"), await front.stock.ready("acme"),
               await front.stock.in_doubt("acme")]  # fmt: skip
    before = [await front.store.get(each) for each in foreign]

    never = await call(front, route, key=key, email_id=UNKNOWN)
    answers = [await call(front, route, key=key, email_id=each) for each in foreign]

    assert never.status == 404
    for said in answers:
        assert (404, never.body) == (said.status, said.body)
        assert set(never.headers) == set(said.headers)
    assert before == [await front.store.get(each) for each in foreign]
    assert all([await front.store.content(each) is not None for each in foreign])


@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/stale", "/v1/dlq"])
async def test_listings_show_a_company_its_own_and_say_so_where_another_is_asked_for(
    front: Front, path: str
) -> None:
    key = await front.key("read", "globex")
    await front.stock.alive("w1")
    for company in ("acme", "globex"):
        await front.stock.failed(company)
        await front.stock.processing(await front.stock.ready(company), "w1")
    front.clock.turn(60_000)

    own = (await front.ask("GET", path, key=key)).json["items"]
    foreign = await front.ask("GET", f"{path}?company_id=acme", key=key)

    assert own
    assert {"globex"} == {item.get("company_id", item.get("companyId")) for item in own}
    assert (403, "not-allowed") == (foreign.status, foreign.kind)


@pytest.mark.parametrize("path", ["/v1/emails/retry", "/v1/dlq/retry"])
async def test_retries_by_filter_stay_within_the_company(front: Front, path: str) -> None:
    key = await front.key("operate", "globex")
    mine, foreign = await front.stock.failed("globex"), await front.stock.failed("acme")
    done = await front.ask("POST", path, key=key, body={})
    refused = await front.ask("POST", path, key=key, body={"company_id": "acme"})
    assert [mine] == done.json["ids"]
    assert refused.status == 403
    kept = await front.store.get(foreign)
    assert kept is not None
    assert kept.status == "FAILED"


@pytest.mark.parametrize("body", [{}, {"transport": "relay"}, {"company_id": "acme"}])
async def test_a_companys_operator_pauses_only_his_own(front: Front, body: dict[str, str]) -> None:
    key = await front.key("operate", "globex")
    await front.operator.pause("company", "acme")
    for path in ("/v1/pause", "/v1/resume"):
        assert (await front.ask("POST", path, key=key, body=body)).status == 403
    own = await front.ask("POST", "/v1/pause", key=key, body={"company_id": "globex"})
    assert ["globex"] == [pause["name"] for pause in own.json["pauses"]], "another company's pause is not shown"
    assert {"acme", "globex"} == {pause.name for pause in await front.store.pauses()}


# ----------------------------------------------------------------------------------------------------- keys


async def test_a_revoked_key_dies_within_a_second(front: Front) -> None:
    """The door looks at a copy of the keys; the copy may be a second old, not more."""
    key = await front.key("read")
    assert (await front.ask("GET", "/v1/dlq", key=key)).status == 200
    (stored,) = await front.store.keys()
    await front.store.revoke_key(stored.id, now=front.clock())
    front.seconds.now += 0.95
    assert (await front.ask("GET", "/v1/dlq", key=key)).status == 401


async def test_revoking_the_last_key_does_not_open_the_door(front: Front) -> None:
    key = await front.key("operate")
    (stored,) = await front.store.keys()
    await front.store.revoke_key(stored.id, now=front.clock())
    front.forget_keys()
    assert (await front.ask("GET", "/v1/dlq", key=key)).status == 401
    assert (await front.ask("GET", "/v1/dlq")).status == 401


async def test_the_first_key_closes_the_door_within_a_second(front: Front) -> None:
    assert (await front.ask("GET", "/v1/dlq")).status == 200
    _, stored = keys.make(random=bytes(32), role="read", company_id=None, now=0)
    await front.store.add_key(stored)
    front.seconds.now += 0.95
    assert (await front.ask("GET", "/v1/dlq")).status == 401


async def test_a_busy_door_asks_the_store_for_keys_at_most_a_few_times_a_second(tmp_path: Path) -> None:
    class Counting(MemoryStore):
        asked = 0

        async def keys(self) -> list[ApiKey]:
            self.asked += 1
            return await super().keys()

    store = Counting()
    async with front_door(tmp_path, store=store) as front:
        for _ in range(50):
            await front.ask("GET", "/v1/dlq")
    assert store.asked == 1


async def test_nobody_is_let_in_while_the_keys_cannot_be_read(tmp_path: Path) -> None:
    class Away(MemoryStore):
        away = False

        async def keys(self) -> list[ApiKey]:
            if self.away:
                raise StoreUnavailable
            return await super().keys()

    store = Away()
    async with front_door(tmp_path, store=store) as front:
        key = await front.key("read")
        assert (await front.ask("GET", "/v1/dlq", key=key)).status == 200
        store.away = True
        front.forget_keys()
        said = await front.ask("GET", "/v1/dlq", key=key)
        assert (503, "store-away", "1") == (said.status, said.kind, said.headers["Retry-After"])
        store.away = False
        assert (await front.ask("GET", "/v1/dlq", key=key)).status == 200


async def test_a_key_is_never_shown_again(front: Front) -> None:
    """Neither in an answer nor in what is told to logs."""
    key = await front.key("operate")
    for route in TABLE:
        said = await call(front, route, key=key)
        assert key.encode() not in said.body
        assert key not in str(said.headers)
    assert key not in repr(front.told)


@pytest.mark.parametrize("name", ["Authorization", "Idempotency-Key", "Content-Type", "Origin"])
async def test_two_headers_of_one_meaning_are_refused(front: Front, name: str) -> None:
    reader, writer = await front.wire()
    head = f"POST /v1/pause HTTP/1.1\r\nHost: 127.0.0.1\r\n{name}: a\r\n{name}: b\r\nContent-Length: 0\r\n\r\n"
    writer.write(head.encode())
    assert b" 400 " in await reader.readuntil(b"\r\n")
    writer.close()


# --------------------------------------------------------------------------------- without keys: this machine only


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.0.0.1:8025", "localhost:80", "[::1]:8025", "[::1]"]
)
async def test_without_keys_this_machine_is_answered_by_its_own_names(front: Front, host: str) -> None:
    assert (await front.ask("GET", "/v1/dlq", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8025", "", "8.8.8.8"]
)
@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_without_keys_a_rebound_name_opens_nothing(front: Front, route: Route, host: str) -> None:
    """A page's own name, made to point at this machine, would pass every same-origin check of the browser."""
    path = route.path.replace("{id}", UNKNOWN)
    said = await front.ask(route.method, path, headers={"Host": host})
    assert (421, "wrong-host") == (said.status, said.kind)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("route", [route for route in GUARDED if route.method != "GET"], ids=named)
async def test_a_page_of_another_site_changes_nothing(
    front: Front, route: Route, headers: dict[str, str]
) -> None:
    path = route.path.replace("{id}", await front.stock.failed())
    said = await front.ask(route.method, path, headers=headers)
    assert (403, "not-allowed") == (said.status, said.kind)
    assert [] == await front.store.pauses()
    assert 1 == (await front.store.counts())[Status.FAILED]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                  "text/plain; application/json", ""])  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/batch", "/v1/emails/retry", "/v1/pause"])
async def test_what_a_form_can_send_is_not_understood(front: Front, path: str, kind: str) -> None:
    said = await front.ask("POST", path, raw=b"{}", headers={"Content-Type": kind})
    assert (415, "wrong-media-type") == (said.status, said.kind)
    assert [] == await front.store.pauses()


@pytest.mark.parametrize("route", TABLE, ids=named)
async def test_no_other_site_is_ever_invited(front: Front, route: Route) -> None:
    path = route.path.replace("{id}", UNKNOWN)
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": route.method}
    said = await front.ask("OPTIONS", path, headers=preflight)
    assert said.status == 204
    assert not [name for name in said.headers if name.lower().startswith("access-control")]


@dataclasses.dataclass
class Peer:
    host: str
    allowed: bool


@pytest.mark.parametrize(
    "peer",
    [Peer("127.0.0.1", True), Peer("127.9.9.9", True), Peer("::1", True), Peer("::ffff:127.0.0.1", True),
     Peer("192.168.1.7", False), Peer("::ffff:192.168.1.7", False), Peer("fe80::1", False)],
    ids=str,
)  # fmt: skip
async def test_without_keys_another_machine_is_refused(front: Front, peer: Peer) -> None:
    from staffetta.web import auth

    scope = {"client": (peer.host, 5000)}
    headers = {b"host": b"localhost"}
    keyring = auth.Keyring(front.store, lambda: 0.0)
    if peer.allowed:
        assert await auth.caller(keyring, scope, headers) is auth.ANYONE_HERE
    else:
        with pytest.raises(Problem) as refused:
            await auth.caller(keyring, scope, headers)
        assert refused.value.status == 401


_, LIVE = keys.make(random=bytes(32), role="read", company_id=None, now=1)
_, DEAD = keys.make(random=b"x" * 32, role="read", company_id=None, now=1)
DEAD = ApiKey(**{**{name: getattr(DEAD, name) for name in DEAD.__struct_fields__}, "revoked_at": 2})


@pytest.mark.parametrize("listen", ["127.0.0.1:8025", "[::1]:8025", "localhost:1", "127.5.5.5:80"])
def test_loopback_needs_no_key(listen: str) -> None:
    check_binding(listen, [])


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:8025", "[::]:8025", "192.168.1.7:80", "mail.example:80", ":8025", "[::ffff:10.0.0.1]:1"]
)
def test_any_other_address_needs_a_living_key(listen: str) -> None:
    check_binding(listen, [DEAD, LIVE])
    for known in ([], [DEAD]):
        with pytest.raises(SettingsError, match="staffetta keys create") as refused:
            check_binding(listen, known)
        assert ["api.listen"] == [problem.field for problem in refused.value.problems]
