"""Reads a reply out of any text that tells of it: a log line, a bounce, a library's exception, a bare code.

Only what `explain` and the seeds' functions are asked about goes through here; a transport knows its codes.
"""

from __future__ import annotations

import re

from staffetta.mail.message import Reply

READ_MAX = 2048

_STAGES = {
    "connect": ("connection", "connecting", "banner", "greeting", "tcp", "dns", "connected"),
    "ehlo": ("helo", "lhlo"),
    "starttls": ("tls", "ssl"),
    "auth": ("login", "authentication"),
    "mail": ("mail from", "from", "sender", "envelope"),
    "rcpt": ("rcpt to", "recipient", "recipients", "to"),
    "data": ("data command",),
    "dot": ("end of data", "final dot", "eod", "eom", "end", "message", "body", "content", "after data", "."),
    "rset": (),
    "quit": (),
    "request": ("ses", "api", "http", "https", "sesv2", "sendemail"),
}
_STAGE_OF = {word: stage for stage, words in _STAGES.items() for word in (stage, *words)}

_TOLD_STAGES = (
    # As Postfix, Exim, qmail and Exchange say it, and as libraries name their exceptions.
    ("dot", ("in reply to end of data", "after end of data", "sending end of data", "sending message body")),
    (
        "rcpt",
        (
            "in reply to rcpt to", "after rcpt to", "sending rcpt to", "during rcpt to", "at rcpt to",
            "smtprecipient", "smtpaddressfailed",
        ),
    ),
    (
        "mail",
        (
            "in reply to mail from", "after mail from", "sending mail from", "during mail from",
            "smtpsenderrefused", "smtpsenderfailed",
        ),
    ),
    ("data", ("in reply to data", "after data", "sending data command")),
    (
        "ehlo",
        (
            "in reply to ehlo", "in reply to helo", "performing the ehlo", "performing the helo", "after ehlo",
            "smtpheloerror",
        ),
    ),
    ("auth", ("in reply to auth", "after auth", "smtpauthenticationerror")),
    ("starttls", ("in reply to starttls", "after starttls")),
    (
        "connect",
        (
            "initial server greeting", "refused to talk to", "initial connection", "connect to ", "while connecting",
            "smtpconnecterror", "smtpconnecttimeouterror", "smtpconnectresponseerror",
        ),
    ),
)  # fmt: skip

_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d]|\.\d)")
_ENHANCED_NEXT = re.compile(r"[ \t\-:,;]{0,3}(?:b?['\"])?[(\[#]{0,2}([245]\.\d{1,3}\.\d{1,3})(?![\d]|\.\d)")
_CODE = re.compile(
    r"(?:(?<![\w.@/+%])|(?<=smtp)|(?<=smtp[_-])|(?<=error[_-])|(?<=code[_-])|(?<=err[_-]))"
    r"([1-9]\d\d)(?=[\s\-:;,)\]}>'\".]|$)(?!\.\d)",
    re.IGNORECASE,
)
_AT_START = re.compile(
    r"[\s\"'(\[{<#*]*(?:(?:x-)?smtp\s*[;:]?\s*)?(?:error\s*:?\s*)?[\s\"'(\[]*\Z", re.IGNORECASE
)
_NAMES_IT = re.compile(
    r"(?:smtp|errors?|codes?|status|said|says|respon[a-z]{2,5}|repl[a-z]{1,4}|returned|answered|diagnostic|result"
    r"|reason|fail[a-z]{0,4}|reject[a-z]{0,3}|refused|bounced?|server|host|exception|got|received|gave|with|[:;(\[{'\"<>=|]|[-–]\s)"
    r"[\s\"'(\[:=#_-]{0,4}\Z",
    re.IGNORECASE,
)
_NOT_A_CODE = re.compile(
    r"\b(?:port|errno|line|in|after|for|wait|than|least|per|of|id|pid|limit)[\s:=#]{0,3}\Z", re.IGNORECASE
)
_AMOUNT = re.compile(
    r"[ \-]?(?:s|secs?|seconds?|ms|milliseconds?|m|mins?|minutes?|h|hrs?|hours?|days?|bytes?|octets?|[kmg]i?b"
    r"|%|/|messages|mails|emails|e-mails|recipients|connections|times|attempts|per)\b",
    re.IGNORECASE,
)
_API = re.compile(
    r"status ?code|\bhttp(?!s?://)|error code:|an error occurred \(|amazon|\baws\b|\bses\b|sesv2|botocore",
    re.IGNORECASE,
)
_HTTP_STATUS = re.compile(
    r"\bhttp(?:/\d(?:\.\d)?)?(?: ?error| ?status(?: ?code)?)?[ :=]{1,3}(?=[2-5]\d\d\b)", re.IGNORECASE
)
_REPLY_FIRST = re.compile(r"\s{0,8}[45]\d\d[ \-][45]\.\d{1,3}\.\d{1,3}\b")
_NAME_AND_CODE = re.compile(r"\s*[A-Za-z_]{2,40}[\s:]{1,3}\d\d\d\s*\Z")
"""An error's name and a number: nothing else that the number could be of."""
_UNSEEN = re.compile("\x1b\\[[0-9;]{0,8}[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{4,60}")


def stage_of(told: str) -> str:
    """A stage as people call it (`RCPT TO`, `banner`, `end-of-data`), by our name; empty when unknown."""
    words = " ".join(told.lower().replace("-", " ").replace("_", " ").split())
    return _STAGE_OF.get(words, "")


def read_reply(text: str, stage: str = "", *, names: frozenset[str] = frozenset()) -> Reply:
    """The reply that a text tells of. `names`: SES errors and events that are known, in lower case."""
    text = _UNSEEN.sub("", text[:READ_MAX])
    where = stage_of(stage) or _stage_told(text)
    http = None if where else _HTTP_STATUS.search(text)
    where = "request" if http else where
    # A server may use an API's words after its code: what begins as an SMTP reply is one.
    name = "" if where != "request" and _REPLY_FIRST.match(text) else _name_in(text, names)
    code_at = None
    if not name or (where != "request" and not _API.search(text)):
        code_at = _CODE.match(text, http.end()) if http else _find_code(text)
    if code_at is None:
        words = text.strip()
        if name:
            return Reply(stage=where or "request", name=name, text=words)
        return Reply(stage=where, enhanced=_enhanced_alone(text), text=words)
    code = int(code_at[1])
    enhanced = _enhanced_after(text, code_at)
    return Reply(stage=where, code=code, enhanced=enhanced, text=_joined(text, code_at, enhanced))


def _stage_told(text: str) -> str:
    low = text.lower()
    return next((stage for stage, told in _TOLD_STAGES if any(words in low for words in told)), "")


def _find_code(text: str) -> re.Match[str] | None:
    """The number that is a reply's code: at the start, before an enhanced code, or where the words name it.

    A "no" counts before a yes: some libraries tell first which code they had expected.
    """
    named = None
    for match in _CODE.finditer(text):
        if not 200 <= int(match[1]) < 600:
            continue
        before, after = text[max(0, match.start() - 40) : match.start()], match.end()
        if _ENHANCED_NEXT.match(text, after):
            return match
        if _AMOUNT.match(text, after) or _NOT_A_CODE.search(before) or before.endswith(":"):
            continue
        if (named is None or named[1] < "4") and (
            (match.start() < 40 and _AT_START.match(before))
            or _NAMES_IT.search(before)
            or _NAME_AND_CODE.match(text)
        ):
            named = match
    return named


def _enhanced_after(text: str, code: re.Match[str]) -> str:
    """Directly after the code whatever its class; elsewhere only where the class is the code's own."""
    directly = _ENHANCED_NEXT.match(text, code.end())
    if directly:
        return directly[1]
    return next((found[1] for found in _ENHANCED.finditer(text) if found[1][0] == code[1][0]), "")


def _enhanced_alone(text: str) -> str:
    found = _ENHANCED.search(text)
    return found[1] if found and found[1][0] in "45" else ""


def _joined(text: str, code: re.Match[str], enhanced: str) -> str:
    """The words after the code; the code and enhanced code that begin each further line go."""
    words = text[code.end() :].lstrip("-: \t,")
    again = (
        rf"(?:\r?\n|(?<=\s)){code[1]}[ \-](?:{re.escape(enhanced)}[ \t]?)?"
        if enhanced
        else rf"\r?\n{code[1]}[ \-]"
    )
    return " ".join(re.sub(again, " ", words).split())


def _name_in(text: str, names: frozenset[str]) -> str:
    """The first known name in the text. One of several words must be written as names are, with a capital."""
    whole = text.strip()
    if whole.lower() in names:
        return whole
    for match in _WORD.finditer(text):
        word = match[0]
        if word.lower() in names and word != word.lower():
            return word
    return ""
