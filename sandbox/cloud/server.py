"""The socket: HTTP/1.1 on loopback, one thread for each connection."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sandbox.cloud.endpoint import Endpoint
from sandbox.cloud.signature import Request
from sandbox.layout import write_private

LARGEST_BODY = 8 * 1024 * 1024


class Server(ThreadingHTTPServer):
    """Port 0 lets the system choose; `port` tells which one it is."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: Endpoint, port: int = 0) -> None:
        self.endpoint = endpoint
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def announce(self, ready: Path) -> None:
        """Tell the port in the ready file: {"port": 41234, "url": "http://127.0.0.1:41234"}."""
        ready.parent.mkdir(parents=True, exist_ok=True)
        write_private(ready, json.dumps({"port": self.port, "url": f"http://127.0.0.1:{self.port}"}) + "\n")

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="cloud-server", daemon=True)
        thread.start()
        return thread


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Nagle's algorithm would hold back the second packet of each answer.
    disable_nagle_algorithm = True
    timeout = 600

    def _serve(self) -> None:
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not length.isdigit() or int(length) > LARGEST_BODY:
            self.send_error(411 if "transfer-encoding" in self.headers else 413)
            return
        target = urlsplit(self.path)
        headers = {name.lower(): tuple(self.headers.get_all(name, [])) for name in self.headers}
        query = tuple(parse_qsl(target.query, keep_blank_values=True))
        body = self.rfile.read(int(length))
        answer = self.server.endpoint.answer(Request(self.command, target.path, query, headers, body))
        if answer.drop:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json;charset=utf-8")
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Requests are in requests.jsonl."""
