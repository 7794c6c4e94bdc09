"""Makes an e-mail's HTML harmless to look at: writes anew only the elements and attributes that are known good.

The frame around it allows no script and no request either (`web/dashboard/message.py`): this is the inner of two
walls. Nothing that names another place survives: a link becomes its own words, a remote picture a box with its
words. Inline pictures of the message itself are put in as data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from html.parser import HTMLParser

DEPTH_MAX = 200
"""Elements inside each other; what is deeper is written flat."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLOW = _names(
    "a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del dfn div"
    " dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark nav ol p pre q"
    " s samp section small span strike strong sub sup table tbody td tfoot th thead time tr tt u ul var wbr"
)
_VOID = _names("br col hr img wbr")
_SILENT = _names(
    "applet audio button canvas embed frame frameset head iframe link map math meta noembed noframes noscript"
    " object option picture plaintext script select source style svg template textarea title track video xmp"
)
"""Elements that are left out with all that stands in them. Those without an end close at once."""
_SILENT_VOID = _names("embed frame link meta source track")
_PLAIN = _names(
    "align alt bgcolor border cellpadding cellspacing color colspan dir face height lang nowrap rowspan size"
    " span start summary title type valign width"
)
_STYLE_WORDS = re.compile(r"[\w\s.,#%:;!()'\"/+-]*", re.ASCII)
_STYLE_BAD = re.compile(
    r"url|image|expression|import|behaviou?r|binding|@|\\|position|content|cursor|element|/\*", re.IGNORECASE
)


class _Writer(HTMLParser):
    def __init__(self, images: Mapping[str, str]) -> None:
        super().__init__(convert_charrefs=True)
        self._images = images
        self._open: list[str] = []
        self._silent: list[str] = []
        self.written: list[str] = []
        self.remote = 0
        self.links = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._silent:
            if tag == self._silent[-1] and tag not in _SILENT_VOID:
                self._silent.append(tag)
            return
        if tag in _SILENT:
            if tag not in _SILENT_VOID:
                self._silent.append(tag)
            return
        if tag not in _FLOW:
            return
        if tag == "img":
            self._image(dict(attrs))
            return
        if len(self._open) >= DEPTH_MAX and tag not in _VOID:
            return
        named = {name: value or "" for name, value in attrs}
        self.written.append(f"<{tag}{_attributes(named)}{self._link(tag, named)}>")
        if tag not in _VOID:
            self._open.append(tag)

    def _link(self, tag: str, named: Mapping[str, str]) -> str:
        """A link goes nowhere; where it would have gone is told when one points at it."""
        if tag != "a" or not named.get("href"):
            return ""
        self.links += 1
        return f' class="link" title="{escape(_visible(named["href"]))}"'

    def _image(self, named: Mapping[str, str | None]) -> None:
        source = (named.get("src") or "").strip()
        sizes = {name: value for name in ("width", "height", "alt", "align") if (value := named.get(name))}
        inline = self._images.get(source[4:].strip("<>")) if source[:4].lower() == "cid:" else None
        if inline is not None:
            self.written.append(f'<img{_attributes(sizes)} src="{escape(inline)}">')
            return
        self.remote += 1
        words = _visible(named.get("alt") or "") or "picture, not loaded"
        self.written.append(f'<span class="picture">{escape(words)}</span>')

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            if tag == self._silent[-1]:
                self._silent.pop()
            return
        if tag not in self._open:
            return
        while True:
            last = self._open.pop()
            self.written.append(f"</{last}>")
            if last == tag:
                return

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.written.append(escape(data, quote=False))

    def end(self) -> None:
        self.close()
        self.written += [f"</{tag}>" for tag in reversed(self._open)]


class Harmless:
    """HTML without rights, and what was left out of it."""

    __slots__ = ("html", "links", "remote")

    def __init__(self, html: str, *, remote: int, links: int) -> None:
        self.html = html
        self.remote = remote
        """Pictures that would have been fetched."""
        self.links = links


def harmless(html: str, images: Mapping[str, str]) -> Harmless:
    """:param images: Content-ID → `data:` address of the message's own pictures."""
    writer = _Writer(images)
    writer.feed(html.replace("\x00", "\ufffd"))
    writer.end()
    return Harmless("".join(writer.written), remote=writer.remote, links=writer.links)


def _attributes(named: Mapping[str, str | None]) -> str:
    kept = []
    for name, value in named.items():
        text = value or ""
        if name in _PLAIN:
            kept.append(f' {name}="{escape(_visible(text))}"')
        elif name == "style" and (style := _style(text)):
            kept.append(f' style="{escape(style)}"')
    return "".join(kept)


def _style(text: str) -> str:
    """Declarations that only say how words and boxes look; one doubtful sign, and that declaration goes."""
    kept = [
        part.strip()
        for part in text.split(";")[:100]
        if ":" in part and _STYLE_WORDS.fullmatch(part) and not _STYLE_BAD.search(part)
    ]
    return "; ".join(kept)[:2_000]


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:500]
