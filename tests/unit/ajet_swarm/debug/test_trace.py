"""The relay passes on what it is given, byte by byte, and keeps every call."""

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ajet_swarm.debug.trace import RecordingRelay

WHOLE = {
    "choices": [{"message": {"content": "five"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
STREAM = (
    b'data: {"choices":[{"delta":{"content":"fi"}}]}\n\n'
    b": keepalive\n\n"
    b'data: {"choices":[{"delta":{"content":"ve"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


class Model(BaseHTTPRequestHandler):
    """Answers whole, in a stream, or breaks off."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.headers["authorization"] == "Bearer k"
        stream = request.get("stream")
        body = STREAM if stream else json.dumps(WHOLE).encode()
        self.send_response(418 if request.get("wrong") else 200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(body) + 10 * bool(request.get("cut"))))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def relay() -> Iterator[RecordingRelay]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with RecordingRelay(f"http://127.0.0.1:{server.server_address[1]}/v1") as one:
        yield one
    server.shutdown()
    thread.join()
    server.server_close()


def ask(base_url: str, body: object) -> tuple[int, bytes]:
    host, _, path = base_url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        head = {"Authorization": "Bearer k"}
        connection.request("POST", f"/{path}/chat/completions", json.dumps(body), head)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_call_is_forwarded_and_recorded(relay: RecordingRelay) -> None:
    request = {"messages": [{"role": "user", "content": "2+3?"}]}
    status, body = ask(relay.base_url, request)
    assert (status, json.loads(body)) == (200, WHOLE)
    [call] = relay.calls
    assert (call.path, call.status, call.text) == ("/v1/chat/completions", 200, "five")
    assert (call.request, call.usage, call.finish) == (request, WHOLE["usage"], "stop")
    assert call.messages == request["messages"]


def test_a_stream_is_forwarded_unchanged_and_its_text_recorded(relay: RecordingRelay) -> None:
    assert ask(relay.base_url, {"stream": True}) == (200, STREAM)
    assert (relay.calls[0].text, relay.calls[0].finish) == ("five", "stop")


def test_an_error_is_passed_on(relay: RecordingRelay) -> None:
    assert ask(relay.base_url, {"wrong": True})[0] == 418
    assert relay.calls[0].status == 418


def test_a_truncated_answer_is_forwarded_as_truncated(relay: RecordingRelay) -> None:
    with pytest.raises(http.client.HTTPException):
        ask(relay.base_url, {"cut": True})
    assert "payload is not completed" in relay.calls[0].error


def test_an_unreachable_server_is_a_502_with_the_reason() -> None:
    with RecordingRelay("http://127.0.0.1:9/v1") as relay:
        status, body = ask(relay.base_url, {})
    assert status == 502
    assert b"Cannot connect" in body
    assert "Cannot connect" in relay.calls[0].error
