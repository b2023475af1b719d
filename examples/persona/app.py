"""A small chat application: a web page, its own API, and a model at an OpenAI address.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 python examples/persona/app.py --port 3000

It knows nothing of training. Whoever serves `OPENAI_BASE_URL` answers.
"""

import argparse
import json
import os
import sys
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

REMEMBERED = 6
"""Number of earlier messages sent with the next one."""
LARGEST = 64_000
"""Maximum size of a request in bytes."""
PAGE = Path(__file__).resolve().parent / "chat.html"


class Chats:
    """The conversations and the model that continues them."""

    def __init__(self, base_url: str, key: str, model: str) -> None:
        self._http = httpx.Client(
            base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=120
        )
        self._model = model
        self._chats: dict[str, list[dict[str, str]]] = {}

    def answer(self, message: str, chat: str) -> dict[str, str]:
        """Return the next answer of a chat; create the chat if needed."""
        chat = chat if chat in self._chats else uuid.uuid4().hex
        messages = [*self._chats.get(chat, []), {"role": "user", "content": message}]
        reply = self._http.post(
            "chat/completions", json={"model": self._model, "messages": messages}
        )
        reply.raise_for_status()
        answer = str(reply.json()["choices"][0]["message"]["content"] or "")
        messages.append({"role": "assistant", "content": answer})
        self._chats[chat] = messages[-REMEMBERED:]
        while len(self._chats) > 1000:
            del self._chats[next(iter(self._chats))]
        return {"answer": answer, "chat": chat}


def handler(chats: Chats) -> type[BaseHTTPRequestHandler]:
    """Return the request handler: `GET /` is the page, `POST /chat` the API."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/":
                self._reply(200, "text/html; charset=utf-8", PAGE.read_bytes())
            else:
                self._reply(404, "text/plain", b"not found")

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            if self.path != "/chat" or not 0 < size <= LARGEST:
                self.close_connection = True
                self._json(404, {"error": "POST /chat with a message"})
                return
            try:
                asked: Any = json.loads(self.rfile.read(size))
                message, chat = str(asked["message"]), str(asked.get("chat") or "")
            except (ValueError, LookupError, TypeError, AttributeError):
                self._json(400, {"error": "a JSON object with a message is expected"})
                return
            try:
                self._json(200, chats.answer(message, chat))
            except (httpx.HTTPError, ValueError, LookupError) as error:
                self._json(502, {"error": f"the model does not answer: {error}"})

        def _json(self, status: int, body: dict[str, str]) -> None:
            self._reply(status, "application/json", json.dumps(body).encode())

        def _reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Do not log requests."""

    return Handler


class Server(ThreadingHTTPServer):
    """Server with daemon threads and a queue for a burst of users."""

    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="A small chat application")
    parser.add_argument("--port", type=int, default=3000)
    port: int = parser.parse_args().port
    base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    key, model = os.environ.get("OPENAI_API_KEY", "any-key"), os.environ.get("MODEL", "ajet")
    server = Server(("127.0.0.1", port), handler(Chats(base_url, key, model)))
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/  model at {base_url}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()


if __name__ == "__main__":
    main()
