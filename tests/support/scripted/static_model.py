"""The scripted player of werewolves behind an OpenAI address."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from examples.werewolves import static


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body: Any = json.loads(self.rfile.read(int(self.headers["content-length"])))
        system, user = (message["content"] for message in body["messages"])
        message = {"role": "assistant", "content": static.answer(system, user)}
        content = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


class StaticServer(ThreadingHTTPServer):
    """Serves while its context lasts.

    Args:
        port: 0 takes a free one.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
