"""The dashboard's door: knows the visitor by cookie, checks forms, and tells what went wrong as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qs, quote

from staffetta.errors import FieldProblem
from staffetta.mail import keys
from staffetta.mail.operators import ApiKey
from staffetta.web import auth, problems
from staffetta.web.asked import Answer, our_fault
from staffetta.web.auth import ANYONE_HERE, Caller, Keyring
from staffetta.web.bodies import Body, ClientGone
from staffetta.web.cursors import Cursors
from staffetta.web.dashboard import render, sessions
from staffetta.web.dashboard.sessions import Patience, Sessions
from staffetta.web.dashboard.visit import QUERY_BYTES_MAX, Page, Visit
from staffetta.web.parts import Parts, Scope
from staffetta.web.problems import Problem

FORM_BYTES_MAX = 64 * 1024
FORM_FIELDS_MAX = 1_000
NOBODY = Caller(role="", company_id=None)
_SIGN_IN = "/sign-in"


class Door:
    """One for a process."""

    def __init__(self, parts: Parts, keyring: Keyring, cursors: Cursors, seconds: Callable[[], float]) -> None:
        self._parts = parts
        self._keyring = keyring
        self._cursors = cursors
        self._sessions = Sessions(parts.store, parts.random)
        self._patience = Patience(seconds)

    async def answer(
        self, page: Page, scope: Scope, headers: Mapping[bytes, bytes], body: Body, id: str
    ) -> Answer:
        """Never raises, but for a visitor who hung up."""
        try:
            return await self._answer(page, scope, headers, body, id)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001  # whatever failed, the visitor hears of it and the engine lives on
            return render.problem(problems.of(error) or our_fault(self._parts, error))

    async def _answer(
        self, page: Page, scope: Scope, headers: Mapping[bytes, bytes], body: Body, id: str
    ) -> Answer:
        if page.path == "/static/{id}":
            return render.static(id, scope["query_string"])
        known = await self._keyring.by_id()
        cookie = sessions.cookie_of(headers)
        caller, signed_in = NOBODY, False
        if not known:
            auth.only_this_machine(scope, headers)
            caller, cookie = ANYONE_HERE, ""
        else:
            key = await self._sessions.of(cookie, known, self._parts.clock()) if cookie else None
            if key is not None:
                caller, signed_in = Caller(role=key.role, company_id=key.company_id, key_id=key.id), True
            else:
                cookie = ""
        token = await self._sessions.token(cookie)
        form: Mapping[str, Sequence[str]] = {}
        if page.method == "POST":
            _check_origin(headers)
            form = _fields(await body.form(FORM_BYTES_MAX))
            if page.role is not None and caller is NOBODY:
                raise Problem("no-key", "your session has ended, or your key was revoked: sign in again")
            await self._check_token(form, token, cookie)
        elif page.role is not None and caller is NOBODY:
            return _to_sign_in(page, scope, id)
        if page.role is not None:
            _check_may(page, caller)
        if page.path == _SIGN_IN and page.method == "POST":
            return await self._sign_in(scope, headers, form, known, token)
        if page.path == "/sign-out":
            return render.seeing(_SIGN_IN, (sessions.set_cookie("", secure=_is_secure(headers)),))
        visit = Visit(
            page=page, parts=self._parts, cursors=self._cursors, caller=caller, signed_in=signed_in, id=id,
            query=scope["query_string"][:QUERY_BYTES_MAX], token=token, address=_peer(scope), form=form,
        )  # fmt: skip
        return await page.handler(visit)

    async def _check_token(self, form: Mapping[str, Sequence[str]], token: str, cookie: str) -> None:
        said = (form.get("token") or [""])[0].encode()
        if keys.same(said, token.encode()):
            return
        await self._sessions.forget_secret()  # another process may have made the secret first
        if not keys.same(said, (await self._sessions.token(cookie)).encode()):
            detail = "this form is from an older session: go back, load the page again, and repeat what you did"
            raise Problem("not-allowed", detail)

    async def _sign_in(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        form: Mapping[str, Sequence[str]],
        known: Mapping[str, ApiKey],
        token: str,
    ) -> Answer:
        """The key typed once becomes a cookie. What was typed is never shown again."""
        onward = local_path((form.get("next") or ["/"])[0])
        if not self._patience.lets(_peer(scope)):
            words = "Too many tries from your address. Wait a minute, then try again."
            return render.sign_in(token, onward, words, status=429)
        text = (form.get("key") or [""])[0].strip()
        public_id = keys.public_id(text) or ""
        if public_id and public_id not in known:
            known = await self._keyring.newest()  # made a moment ago, perhaps
        key = known.get(public_id)
        if not keys.opens(text, key) or key is None:
            words = "This key is unknown or revoked. Keys begin with sk_ and are 52 characters long."
            return render.sign_in(token, onward, words, status=401)
        if not keys.allows(key.role, "read"):
            words = "This key may only hand e-mails in. Looking needs a key with the role read or operate."
            return render.sign_in(token, onward, words, status=403)
        cookie = await self._sessions.begin(key, self._parts.clock())
        return render.seeing(onward, (sessions.set_cookie(cookie, secure=_is_secure(headers)),))


def _check_may(page: Page, caller: Caller) -> None:
    assert page.role is not None, "open pages are not asked about"
    auth.check_role(caller, page.role)
    if page.whole and caller.company_id is not None:
        raise Problem("not-allowed", "this page speaks of every company: it needs a key that is bound to none")


def _check_origin(headers: Mapping[bytes, bytes]) -> None:
    """A form must come from a page of ours. Every browser says where from; a form that does not is not ours."""
    auth.check_origin("POST", headers)
    if b"origin" not in headers and headers.get(b"sec-fetch-site") != b"same-origin":
        raise Problem("not-allowed", "forms are taken from the dashboard's own pages only")


def _fields(raw: bytes) -> Mapping[str, Sequence[str]]:
    try:
        return parse_qs(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:
        raise problems.told([FieldProblem("form", f"at most {FORM_FIELDS_MAX} fields, in UTF-8")]) from None


def _to_sign_in(page: Page, scope: Scope, id: str) -> Answer:
    path = page.path.replace("{id}", quote(id, safe=""))
    query = scope["query_string"].decode("latin-1")
    onward = local_path(f"{path}?{query}" if query else path)
    return render.seeing(_SIGN_IN if onward == "/" else f"{_SIGN_IN}?next={quote(onward, safe='')}")


def local_path(text: str) -> str:
    """A path of ours to go on to; anything that could lead elsewhere is the front page."""
    if not text.startswith("/") or text.startswith(("//", "/\\")) or len(text) > 2_000:
        return "/"
    if not text.isascii() or not text.isprintable() or "\\" in text:
        return "/"
    return text


def _is_secure(headers: Mapping[bytes, bytes]) -> bool:
    """Behind a proxy with TLS the cookie stays on TLS. A liar can only make his own cookie useless."""
    return headers.get(b"x-forwarded-proto", b"").lower() == b"https"


def _peer(scope: Scope) -> str:
    """Whose patience counts: the address, of IPv6 its network."""
    client = scope.get("client")
    host = str(client[0]) if client else ""
    return ":".join(host.split(":")[:4]) if ":" in host else host
