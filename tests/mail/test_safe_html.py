"""What is left of a hostile e-mail's HTML: words and their looks, nothing that acts or names another place."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles import hostile
from staffetta.mail import safe_html
from staffetta.mail.safe_html import harmless

PICTURE = "data:image/png;base64,AAAA"


class Left(HTMLParser):
    """Every element and attribute that came through."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


ALLOWED = safe_html._FLOW
ATTRIBUTES = safe_html._PLAIN | {"style", "class", "src"}


def check(text: str) -> None:
    for tag, attributes in Left(text).elements:
        assert tag in ALLOWED, tag
        assert set(attributes) <= ATTRIBUTES, attributes
        assert (attributes.get("src") or PICTURE) == PICTURE
        assert (attributes.get("class") or "link") in ("link", "picture")
        style = (attributes.get("style") or "").lower()
        assert not any(word in style for word in ("url", "\\", "@", "import", "expression")), style


@pytest.mark.parametrize("text", hostile.mails("evil.example:1"))
def test_nothing_that_acts_comes_through(text: str) -> None:
    check(harmless(text, {}).html)


pieces = st.sampled_from(
    [*hostile.mails("evil.example:1"), "<p>", "</p>", "<table>", "<b", ">", "<!--", "-->", "'", '"', "&lt;", "<a href=", "\x00"]
)  # fmt: skip


@given(st.lists(st.one_of(pieces, st.text(max_size=8)), max_size=12).map("".join))
def test_nor_of_any_mixture_of_them(text: str) -> None:
    check(harmless(text, {"logo": PICTURE}).html)


def test_words_and_their_looks_stay() -> None:
    text = '<table width="600"><tr><td style="color:#123;padding:4px"><b>Bill</b> of <i>3 &lt; 4</i></td></tr></table>'
    assert text.replace("color:#123;", "color:#123; ") == harmless(text, {}).html


def test_links_tell_where_they_would_have_gone() -> None:
    found = harmless('<a href="https://acme.example/?a=1&amp;b=2" onclick=x>look</a>', {})
    assert found.html == '<a class="link" title="https://acme.example/?a=1&amp;b=2">look</a>'
    assert found.links == 1


def test_the_messages_own_pictures_are_shown_and_remote_ones_named() -> None:
    found = harmless(
        '<img src="cid:logo" alt="Acme"><img src="https://x.example/p.gif" alt="Our <logo>">', {"logo": PICTURE}
    )
    assert f'<img alt="Acme" src="{PICTURE}">' in found.html
    assert '<span class="picture">Our &lt;logo&gt;</span>' in found.html
    assert found.remote == 1


def test_what_is_deep_or_left_open_is_closed() -> None:
    found = harmless("<div>" * 5_000 + "x", {}).html
    assert found.count("<div>") == found.count("</div>") == safe_html.DEPTH_MAX
