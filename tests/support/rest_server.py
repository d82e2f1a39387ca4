"""An HTTP server on loopback that answers by path, and keeps what it was asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Rest(BaseHTTPRequestHandler):
    """Answers `answers` by path, and keeps what was asked."""

    answers: dict[str, tuple[int, bytes, dict[str, str]]]
    asked: list[tuple[str, str, dict[str, str], bytes]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path, dict(self.headers), body))
        status, answer, headers = self.answers.get(self.path, (404, b"{}", {}))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def rest(answers: dict[str, tuple[int, bytes, dict[str, str]]]) -> Iterator[tuple[str, list[Any]]]:
    """A server on loopback: its address, and what it is asked."""
    asked: list[Any] = []
    handler = type("Handler", (Rest,), {"answers": answers, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
