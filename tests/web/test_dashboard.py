"""The dashboard's door: who is let in, what forms must carry, what a company's key sees, and that nothing leaks."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from yarl import URL

from doubles.front import Front, Said, front_door
from staffetta.errors import StoreUnavailable
from staffetta.mail import keys, verdict
from staffetta.mail.keys import Role
from staffetta.mail.lifecycle import Status
from staffetta.mail.verdict import Table
from staffetta.store.memory import MemoryStore
from staffetta.web.dashboard import PAGES
from staffetta.web.dashboard.door import local_path
from staffetta.web.dashboard.sessions import COOKIE, LIFETIME_MS
from staffetta.web.dashboard.visit import Page
from staffetta.web.openapi import document
from staffetta.web.parts import Setting

UNKNOWN = "0198f0a0-ffff-7000-8000-000000000000"
READ = [page for page in PAGES if page.method == "GET" and page.role is not None]
ACTED = [page for page in PAGES if page.method == "POST" and page.role is not None]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def named(page: Page) -> str:
    return f"{page.method} {page.path}"


@dataclasses.dataclass
class Visitor:
    """A browser in a few lines: keeps the cookie, follows nothing by itself."""

    front: Front
    cookie: str = ""

    async def ask(
        self, method: str, path: str, *, form: Mapping[str, object] | None = None, **headers: str
    ) -> Said:
        sent = {"Cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}
        if form is not None:
            sent |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.front.serving.url}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.front.session.request(
            method, URL(self.front.serving.url + path, encoded=True), headers={n: v for n, v in sent.items() if v}, allow_redirects=False,
            data=urlencode(form, doseq=True).encode() if form is not None else None,
            skip_auto_headers=["Content-Type"],
        ) as answer:  # fmt: skip
            return Said(status=answer.status, headers=answer.headers, body=await answer.read())

    async def token(self, path: str = "/dead-letters") -> str:
        said = await self.ask("GET", path)
        found = re.search(r'name="token" value="([^"]+)"', said.body.decode())
        return found[1] if found else ""

    async def sign_in(self, key: str, onward: str = "/") -> Said:
        form = {"key": key, "next": onward, "token": await self.token("/sign-in")}
        said = await self.ask("POST", "/sign-in", form=form)
        if said.status == 303:
            self.cookie = said.headers["Set-Cookie"].partition(";")[0].partition("=")[2]
        return said

    async def act(self, path: str, **fields: object) -> Said:
        token = await self.token("/") or await self.token("/sign-in")
        return await self.ask("POST", path, form={"token": token, **fields})


@pytest.fixture
def visitor(front: Front) -> Visitor:
    return Visitor(front)


async def signed_in(front: Front, role: Role, company_id: str | None = None) -> Visitor:
    visitor = Visitor(front)
    said = await visitor.sign_in(await front.key(role, company_id))
    assert said.status == 303, said.body
    return visitor


def words(said: Said) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", said.body.decode()))


# ------------------------------------------------------------------------------------------------ who is let in


@pytest.mark.parametrize("page", READ, ids=named)
async def test_without_a_session_every_page_leads_to_signing_in(front: Front, page: Page) -> None:
    await front.key("operate")
    said = await Visitor(front).ask("GET", page.path.replace("{id}", UNKNOWN))
    assert said.status == 303
    assert said.headers["Location"].startswith("/sign-in")
    assert said.body == b""


@pytest.mark.parametrize("page", ACTED, ids=named)
async def test_without_a_session_no_form_is_taken(front: Front, page: Page) -> None:
    await front.key("operate")
    visitor = Visitor(front)
    said = await visitor.act(page.path.replace("{id}", UNKNOWN))
    assert said.status == 401


@pytest.mark.parametrize("page", ACTED, ids=named)
async def test_who_may_only_read_changes_nothing(front: Front, page: Page) -> None:
    failed = await front.stock.failed()
    visitor = await signed_in(front, "read")
    said = await visitor.act(
        page.path.replace("{id}", failed), verb="discard", which="all", confirmed="yes", scope="all"
    )
    assert said.status == 403
    assert "operate" in words(said)
    assert await front.store.dead_letter(failed) is not None
    assert await front.store.pauses() == []


@pytest.mark.parametrize("page", READ, ids=named)
async def test_who_may_read_sees_every_page_without_its_buttons(front: Front, page: Page) -> None:
    failed = await front.stock.failed()
    visitor = await signed_in(front, "read")
    said = await visitor.ask("GET", page.path.replace("{id}", failed))
    assert said.status == 200, said.body
    assert b'action="/emails/' not in said.body
    assert b'action="/pause"' not in said.body
    assert b'name="verb"' not in said.body


async def test_a_key_made_a_moment_ago_opens_at_once(front: Front, visitor: Visitor) -> None:
    """The door's copy of the keys may be older than the key that an operator has just pasted."""
    await front.key("read")
    assert (await visitor.ask("GET", "/")).status == 303
    text, stored = keys.make(random=front.random(32), role="operate", company_id=None, now=front.clock())
    await front.store.add_key(stored)
    assert (await visitor.sign_in(text)).status == 303


async def test_a_key_that_only_hands_in_is_told_so(front: Front, visitor: Visitor) -> None:
    said = await visitor.sign_in(await front.key("send"))
    assert said.status == 403
    assert "only hand e-mails in" in words(said)
    assert "Set-Cookie" not in said.headers


async def test_a_wrong_key_is_refused_and_never_shown_again(front: Front, visitor: Visitor) -> None:
    good = await front.key("operate")
    for wrong in (good[:-1] + "x", "sk_nothing", "", HOSTILE):
        said = await visitor.sign_in(wrong)
        assert said.status == 401
        assert not wrong or wrong.encode() not in said.body
        assert "Set-Cookie" not in said.headers


async def test_the_key_typed_once_is_in_no_cookie_and_no_page(front: Front, visitor: Visitor) -> None:
    key = await front.key("operate")
    said = await visitor.sign_in(key)
    cookie = said.headers["Set-Cookie"]
    assert key not in cookie
    assert keys.sha256(key) not in cookie
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert key.encode() not in (await visitor.ask("GET", "/settings")).body


async def test_behind_tls_the_cookie_stays_on_tls(front: Front, visitor: Visitor) -> None:
    key = await front.key("read")
    form = {"key": key, "token": await visitor.token("/sign-in")}
    said = await visitor.ask("POST", "/sign-in", form=form, X_Forwarded_Proto="https")
    assert "; Secure" in said.headers["Set-Cookie"]


async def test_a_revoked_keys_sessions_end_within_a_second(front: Front) -> None:
    visitor = await signed_in(front, "operate")
    assert (await visitor.ask("GET", "/")).status == 200
    (stored,) = await front.store.keys()
    await front.store.revoke_key(stored.id, now=front.clock())
    front.seconds.now += 0.95
    assert (await visitor.ask("GET", "/")).status == 303
    assert (await visitor.act("/pause", scope="all")).status == 401
    assert await front.store.pauses() == []


async def test_a_session_ends_by_itself_and_by_signing_out(front: Front) -> None:
    visitor = await signed_in(front, "read")
    out = await visitor.act("/sign-out")
    assert (303, True) == (out.status, "Max-Age=0" in out.headers["Set-Cookie"])
    front.clock.turn(LIFETIME_MS)
    assert (await visitor.ask("GET", "/")).status == 303


async def test_a_forged_cookie_opens_nothing(front: Front) -> None:
    visitor = await signed_in(front, "operate")
    told, _, mac = visitor.cookie.partition(".")
    swapped = mac[:-2] + ("AA" if not mac.endswith("AA") else "BB")
    for forged in (f"{told}.{swapped}", f"{told}.", told, "x.y", f"{told[:-4]}AAAA.{mac}", "é", "A" * 5_000):
        said = await Visitor(front, forged.encode("latin-1", "replace").decode("latin-1")).ask("GET", "/")
        assert said.status == 303, forged


async def test_tries_to_sign_in_are_few(front: Front, visitor: Visitor) -> None:
    key = await front.key("operate")
    seen = [(await visitor.sign_in("sk_wrong")).status for _ in range(12)]
    assert seen == [401] * 10 + [429] * 2
    assert (await visitor.sign_in(key)).status == 429
    front.seconds.now += 6.0
    assert (await visitor.sign_in(key)).status == 303


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)",
                                       "/ok\r\nX: y", "", "x", "/" * 3_000, "/\tevil"])  # fmt: skip
async def test_signing_in_leads_nowhere_else(front: Front, visitor: Visitor, elsewhere: str) -> None:
    said = await visitor.sign_in(await front.key("read"), elsewhere)
    assert "/" == said.headers["Location"] == local_path(elsewhere)


async def test_signing_in_goes_on_where_one_wanted_to(front: Front, visitor: Visitor) -> None:
    key = await front.key("read")
    away = await visitor.ask("GET", "/emails?status=FAILED&q=a%40b.example")
    onward = re.search(r"next=(.+)", away.headers["Location"])
    assert onward
    said = await visitor.sign_in(key, "/emails?status=FAILED&q=a%40b.example")
    assert said.headers["Location"] == "/emails?status=FAILED&q=a%40b.example"
    assert onward[1] == quote(said.headers["Location"], safe="")


async def test_without_any_key_this_machine_needs_none(visitor: Visitor) -> None:
    assert (await visitor.ask("GET", "/")).status == 200
    assert (await visitor.ask("GET", "/sign-in")).headers["Location"] == "/"
    assert (await visitor.ask("GET", "/", Host="rebound.example")).status == 421


# ------------------------------------------------------------------------------------------------ forms


@pytest.mark.parametrize("page", ACTED, ids=named)
async def test_a_form_without_its_token_changes_nothing(front: Front, page: Page) -> None:
    failed = await front.stock.failed()
    visitor = await signed_in(front, "operate")
    other = await signed_in(front, "operate")
    path = page.path.replace("{id}", failed)
    for token in ("", "x", await other.token(), await Visitor(front).token("/sign-in")):
        form = {"token": token, "verb": "discard", "which": "all", "confirmed": "yes", "scope": "all"}
        said = await visitor.ask("POST", path, form=form)
        assert said.status == 403, (path, token)
    assert await front.store.dead_letter(failed) is not None
    assert await front.store.pauses() == []


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""},
                                     {"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "cross-site"},
                                     {"Sec_Fetch_Site": "same-site"}])  # fmt: skip
@pytest.mark.parametrize("keyed", [True, False])
async def test_forms_of_other_sites_are_refused(front: Front, headers: dict[str, str], keyed: bool) -> None:
    visitor = await signed_in(front, "operate") if keyed else Visitor(front)
    form = {"token": await visitor.token("/companies" if keyed else "/"), "scope": "all", "name": ""}
    said = await visitor.ask("POST", "/pause", form=form, **headers)
    assert said.status == 403
    assert await front.store.pauses() == []


async def test_the_browsers_own_word_is_enough_where_it_sends_no_origin(front: Front, visitor: Visitor) -> None:
    form = {"token": await visitor.token("/"), "scope": "all", "name": ""}
    said = await visitor.ask("POST", "/pause", form=form, Origin="", Sec_Fetch_Site="same-origin")
    assert said.status == 303
    assert [pause.scope for pause in await front.store.pauses()] == ["all"]


async def test_large_and_strange_forms_are_refused(visitor: Visitor) -> None:
    token = await visitor.token("/")
    assert (await visitor.ask("POST", "/pause", form={"token": token, "x": "y" * 70_000})).status == 413
    assert (
        await visitor.ask("POST", "/pause", form={"token": token, **{f"f{n}": 1 for n in range(1_200)}})
    ).status == 422
    json_body = await visitor.ask("POST", "/pause", form={"token": token}, Content_Type="application/json")
    assert json_body.status == 415


async def test_the_api_takes_no_session_and_the_dashboard_no_key(front: Front) -> None:
    """A cookie travels by itself: only pages, whose forms carry tokens, may act on it."""
    visitor = await signed_in(front, "operate")
    assert (await visitor.ask("GET", "/v1/emails")).status == 401
    key = await front.key("operate")
    assert (await Visitor(front).ask("GET", "/emails", Authorization=f"Bearer {key}")).status == 303


# ------------------------------------------------------------------------------------------------ a company's own


async def test_a_companys_key_sees_only_its_own(front: Front) -> None:
    mine = [await front.stock.failed("globex"), await front.stock.sent("globex")]
    foreign = [
        await front.stock.failed("acme", recipient="secret@acme.example"),
        await front.stock.ready("acme"),
    ]
    await front.operator.pause("company", "acme")
    visitor = await signed_in(front, "operate", "globex")
    for path in ("/", "/emails", "/dead-letters", "/companies", "/alerts", "/dead-letters/export"):
        said = await visitor.ask("GET", path)
        assert said.status == 200, path
        assert b"acme" not in said.body, path
    for path in ("/transports", "/settings", "/emails?company_id=acme", "/dead-letters?company_id=acme"):
        assert (await visitor.ask("GET", path)).status == 403, path
    never = await visitor.ask("GET", f"/emails/{UNKNOWN}")
    for each in foreign:
        for path in (f"/emails/{each}", f"/emails/{each}/raw", f"/emails/{each}/body"):
            said = await visitor.ask("GET", path)
            assert (404, never.body.replace(UNKNOWN.encode(), each.encode())) == (said.status, said.body)
        assert (await visitor.ask("GET", f"/emails?q={each}")).body.count(each.encode()) >= 1
    assert (await visitor.ask("GET", f"/emails/{mine[0]}")).status == 200


@pytest.mark.parametrize("page", [page for page in ACTED if "{id}" in page.path], ids=named)
async def test_a_companys_operator_changes_nothing_of_others(front: Front, page: Page) -> None:
    foreign = [
        await front.stock.failed("acme"),
        await front.stock.ready("acme"),
        await front.stock.sent("acme"),
    ]
    before = [await front.store.get(each) for each in foreign]
    visitor = await signed_in(front, "operate", "globex")
    for each in foreign:
        assert (await visitor.act(page.path.replace("{id}", each))).status == 404
    assert before == [await front.store.get(each) for each in foreign]
    assert await front.store.dead_letter(foreign[0]) is not None


async def test_a_companys_operator_acts_by_filter_within_his_own(front: Front) -> None:
    mine, foreign = await front.stock.failed("globex"), await front.stock.failed("acme")
    visitor = await signed_in(front, "operate", "globex")
    asked = await visitor.act("/dead-letters", verb="discard", which="all")
    assert "1 e-mail would be discarded" in " ".join(words(asked).split())
    picked = await visitor.act(
        "/dead-letters", verb="discard", which="ticked", id=[mine, foreign], confirmed="yes"
    )
    assert picked.headers["Location"] == "/dead-letters?did=discard&count=1&skipped=1"
    assert await front.store.dead_letter(mine) is None
    assert await front.store.dead_letter(foreign) is not None
    for scope, name in (("all", ""), ("transport", "relay"), ("company", "acme")):
        assert (await visitor.act("/pause", scope=scope, name=name)).status == 403
    assert (await visitor.act("/companies/weight", company_id="globex", weight="9")).status == 403
    assert (await visitor.act("/pause", scope="company", name="globex")).status == 303
    assert [pause.name for pause in await front.store.pauses()] == ["globex"]


# ------------------------------------------------------------------------------------------------ what is shown


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Front]:
    """With figures and settings, as an engine tells them."""
    rows = [{"company_id": HOSTILE[:64], "companyId": HOSTILE[:64], "waiting": 3, "active": 1, "weight": 2.0,
             "roundsWithoutProcessing": 0, "currentPriority": 5, "consecutiveBatchCount": 0, "totalProcessed": 7,
             "lastProcessedAt": "2026-11-19T20:00:00.000Z"}]  # fmt: skip

    async def tenants() -> list[dict[str, object]]:
        return [dict(row) for row in rows]

    async def alerts() -> list[dict[str, object]]:
        return [{"name": HOSTILE, "title": HOSTILE, "remedy": HOSTILE, "state": "firing", "value": HOSTILE, "condition": HOSTILE, "since": HOSTILE},
                {"name": "dlq", "state": "ok", "value": 3, "condition": "> 100"}]  # fmt: skip

    def in_force() -> list[Setting]:
        return [Setting(name="store.url", value=HOSTILE, source="default", about="Where")]

    async with front_door(tmp_path, tenants=tenants, alerts=alerts, settings=in_force) as front:
        yield front


async def test_what_others_wrote_is_shown_and_never_obeyed(told: Front) -> None:
    """Servers' replies, recipients, companies' names, search words: all may be hostile."""
    failed = await told.stock.failed(HOSTILE[:64], recipient='"<script>alert(1)</script>"@example.com')
    visitor = Visitor(told)
    said = quote(HOSTILE)
    for path in ("/", "/emails", f"/emails/{failed}", "/dead-letters", "/companies", "/alerts", "/settings",
                 f"/emails?q={said}", f"/emails?company_id={said}", f"/dead-letters?code={said[:60]}",
                 f"/companies?q={said}", f"/dead-letters?did={said}&count={said}", f"/?span={said}",
                 f"/emails/{failed}?did={said}"):  # fmt: skip
        answer = await visitor.ask("GET", path)
        text = answer.body.decode().lower()
        assert answer.status in (200, 400), path
        assert "<script>" not in text, path
        assert "<img src=x" not in text, path
        assert "unsafe" not in answer.headers["Content-Security-Policy"], path


@pytest.mark.parametrize("page", [*READ, next(p for p in PAGES if p.path == "/sign-in")], ids=named)
async def test_every_page_keeps_to_its_policy(front: Front, page: Page) -> None:
    sent = await front.stock.sent()
    if page.role is None:
        await front.key("read")
    said = await Visitor(front).ask("GET", page.path.replace("{id}", sent))
    assert said.headers["X-Content-Type-Options"] == "nosniff"
    if "Content-Security-Policy" in said.headers:
        assert "default-src 'none'" in said.headers["Content-Security-Policy"]
    if (
        said.status == 200
        and said.headers["Content-Type"].startswith("text/html")
        and not page.path.endswith("/body")
    ):
        text = said.body.decode()
        assert not re.search(r"<[^>]+\s(on\w+|style)=", text)
        assert "<style" not in text
        assert re.findall(r"<script[^>]*>", text) in (
            [], re.findall(r'<script src="/static/live\.js\?v=\w+" defer>', text),
        )  # fmt: skip


async def test_files_beside_the_pages_are_kept_by_browsers_until_they_change(visitor: Visitor) -> None:
    page = (await visitor.ask("GET", "/")).body.decode()
    links = set(re.findall(r'"(/static/[^"]+)"', page))
    assert len(links) == 3
    for link in links:
        assert "immutable" in (await visitor.ask("GET", link)).headers["Cache-Control"]
        assert (await visitor.ask("GET", link.partition("?")[0])).headers["Cache-Control"] == "no-cache"
    for wrong in ("/static/nothing.css", "/static/..%2fapi.py", "/static/%2e%2e"):
        assert (await visitor.ask("GET", wrong)).status == 404


async def test_pages_are_no_part_of_the_document() -> None:
    assert not {page.path for page in PAGES} & set(document()["paths"])


async def test_a_store_that_is_away_is_told_as_a_page(tmp_path: Path) -> None:
    class Away(MemoryStore):
        async def counts(self) -> dict[Status, int]:
            raise StoreUnavailable("gone for lunch")

    async with front_door(tmp_path, store=Away()) as front:
        said = await Visitor(front).ask("GET", "/")
        assert said.status == 503
        assert "Nothing was changed" in words(said)


# ------------------------------------------------------------------------------------------------ doing


async def test_a_dry_run_changes_nothing_and_the_confirmed_one_does(front: Front, visitor: Visitor) -> None:
    ids = [await front.stock.failed() for _ in range(3)]
    other = await front.stock.failed(code=554)
    filter = {"verb": "retry", "which": "all", "code": "550"}
    asked = await visitor.act("/dead-letters", **filter)
    assert "3 e-mails would be put back" in " ".join(words(asked).split())
    assert {(await front.store.get(each)).status for each in ids} == {Status.FAILED}  # type: ignore[union-attr]  # they are there
    done = await visitor.act("/dead-letters", **filter, confirmed="yes")
    assert done.headers["Location"] == "/dead-letters?code=550&did=retry&count=3&skipped=0"
    assert {(await front.store.get(each)).status for each in ids} == {Status.READY}  # type: ignore[union-attr]  # they are there
    kept = await front.store.get(other)
    assert kept is not None
    assert kept.status is Status.FAILED


async def test_picked_ones_are_acted_on_one_by_one(front: Front, visitor: Visitor) -> None:
    first, second, third = [await front.stock.failed() for _ in range(3)]
    await front.operator.retry(third)
    asked = await visitor.act("/dead-letters", verb="retry", which="ticked", id=[first, third, UNKNOWN])
    assert "1 e-mail would be put back" in " ".join(words(asked).split())
    assert "2 e-mails would be left" in " ".join(words(asked).split())
    none = await visitor.act("/dead-letters", verb="retry", which="ticked")
    assert "None was selected" in words(none)
    done = await visitor.act(
        "/dead-letters", verb="discard", which="ticked", id=[first, second], confirmed="yes"
    )
    assert done.headers["Location"] == "/dead-letters?did=discard&count=2&skipped=0"
    assert [await front.store.dead_letter(each) is None for each in (first, second, third)] == [
        True,
        True,
        False,
    ]


async def test_what_the_status_does_not_allow_is_told_and_not_done(front: Front, visitor: Visitor) -> None:
    sent = await front.stock.sent()
    for action in ("retry", "cancel", "resolve", "requeue"):
        said = await visitor.act(f"/emails/{sent}/{action}")
        assert said.status == 409, action
        assert "Nothing was changed" in words(said)
    assert (await visitor.act(f"/emails/{sent}/discard")).status == 404


async def test_the_export_is_every_dead_letter_with_its_payload(front: Front, visitor: Visitor) -> None:
    ids = {await front.stock.failed() for _ in range(5)}
    said = await visitor.ask("GET", "/dead-letters/export?code=550")
    rows = [json.loads(line) for line in said.body.splitlines()]
    assert ids == {row["jobId"] for row in rows}
    assert all(row["originalData"] == {"subject": "hello"} for row in rows)
    assert "attachment" in said.headers["Content-Disposition"]


async def test_a_weight_is_set_within_its_bounds(front: Front, visitor: Visitor) -> None:
    assert (await visitor.act("/companies/weight", company_id="acme", weight="2,5")).status == 303
    assert await front.store.setting("weights") == b'{"acme":2.5}'
    for wrong in ("0", "-1", "nan", "1e9", "x", ""):
        assert (await visitor.act("/companies/weight", company_id="acme", weight=wrong)).status == 422, wrong
    assert await front.store.setting("weights") == b'{"acme":2.5}'


async def test_searching_finds_by_id_recipient_company_status_and_time(front: Front, visitor: Visitor) -> None:
    await front.stock.ready("acme", recipients=["ada@example.com"])
    wanted = await front.stock.ready("globex", recipients=["bob@example.com"])
    front.clock.turn(3_600_000)
    later = await front.stock.failed("globex")

    async def found(query: str) -> set[str]:
        said = await visitor.ask("GET", f"/emails?{query}")
        assert said.status == 200, said.body
        return set(re.findall(r'href="/emails/([0-9a-f-]{36})"', said.body.decode()))

    assert (await visitor.ask("GET", f"/emails?q={wanted.upper()}")).headers["Location"] == f"/emails/{wanted}"
    assert await found("q=bob%40example.com") == {wanted}
    assert await found("q=globex") == await found("company_id=globex") == {wanted, later}
    assert await found("status=FAILED") == {later}
    assert await found("since=2027-01-15T08:30") == {later}
    assert await found("q=nobody%40example.com") == set()
    wrong = await visitor.ask("GET", "/emails?since=yesterday")
    assert wrong.status == 400
    assert "since" in words(wrong)


async def test_a_wrong_address_is_told_to_people_as_a_page_and_to_programs_as_a_problem(
    visitor: Visitor,
) -> None:
    page = await visitor.ask("GET", "/no/such/place", Accept="text/html,*/*")
    assert (404, True) == (page.status, page.headers["Content-Type"].startswith("text/html"))
    for path, accept in (("/no/such/place", "*/*"), ("/v1/nothing", "text/html")):
        said = await visitor.ask("GET", path, Accept=accept)
        assert (404, "application/problem+json") == (said.status, said.headers["Content-Type"])


async def test_a_look_at_the_head_is_the_page_without_its_body(visitor: Visitor) -> None:
    head, page = await visitor.ask("HEAD", "/emails"), await visitor.ask("GET", "/emails")
    assert (200, b"") == (head.status, head.body)
    assert head.headers["Content-Length"] == str(len(page.body))


async def test_rules_that_changed_since_are_told_beside_the_decision(tmp_path: Path) -> None:
    """An operator's own rule says otherwise today: the story keeps what was decided, and says so."""
    own = '[[rule]]\nrule = "patient-550"\ncode = ["550"]\ncategory = "TRANSIENT"\naction = "RETRY"\nreach = "recipient"\n'
    rules = Table.parse(verdict.packaged(), first=own)
    async with front_door(tmp_path, rules=rules) as front:
        failed = await front.stock.failed()
        text = " ".join(words(await Visitor(front).ask("GET", f"/emails/{failed}")).split())
    assert "By the rules in force today:" in text
    assert "rule patient-550" in text


async def test_pages_of_a_list_follow_by_cursor(front: Front, visitor: Visitor) -> None:
    ids = [await front.stock.ready() for _ in range(120)]
    seen: list[str] = []
    path = "/emails?status=READY"
    while path:
        text = (await visitor.ask("GET", path)).body.decode()
        seen += re.findall(r'<a href="/emails/([0-9a-f-]{36})"', text)
        older = re.search(r'href="([^"]+)" rel="next"', text)
        path = html.unescape(older[1]) if older else ""
    assert seen == ids[::-1]
