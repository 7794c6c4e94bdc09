"""Another site: serves what it is given, and remembers who called."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Elsewhere:
    """Pages by path, and every request that came."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.heard: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.heard.append(f"{self.command} {self.path}")
                body = site.pages.get(self.path.partition("?")[0], "").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_OPTIONS = do_GET  # noqa: N815  # the names are the library's

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    site = Elsewhere()
    thread = threading.Thread(
        target=site.server.serve_forever, name="elsewhere", kwargs={"poll_interval": 0.05}
    )
    thread.start()
    try:
        yield site
    finally:
        site.server.shutdown()
        thread.join()
        site.server.server_close()
