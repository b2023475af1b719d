"""An OpenAI-compatible server that answers at once: the upstream of all peers.

    python -m bench.peers.stub

It is the instant stub of `bench.proxy_cost`, which also answers health checks, lists a model and
streams on request.
"""

import msgspec

from bench.proxy_cost.stub import TEXT, Stub
from bench.proxy_cost.wire import answer, run

MODEL = "policy"
_MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL}],
}
_INFO = {"model_path": MODEL, "served_model_name": MODEL, "tokenizer_path": MODEL}
_READ = {
    b"/health": answer(b""),
    b"/health_generate": answer(b""),
    b"/version": answer(b'{"version":"0.20.0"}'),
    b"/v1/models": answer(msgspec.json.encode(_MODELS)),
    b"/get_model_info": answer(msgspec.json.encode(_INFO)),
    b"/model_info": answer(msgspec.json.encode(_INFO)),
    b"/get_server_info": answer(msgspec.json.encode(_INFO)),
    b"/server_info": answer(msgspec.json.encode(_INFO)),
}
_PIECES = 12
"""Chunks of a streamed answer."""


def _frame(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1780315200,
        "model": MODEL,
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _streamed() -> bytes:
    words = TEXT.split()[:48]
    size = len(words) // _PIECES
    frames = [_frame({"role": "assistant", "content": ""}, None)]
    for first in range(0, len(words), size):
        frames.append(_frame({"content": " " + " ".join(words[first : first + size])}, None))
    frames += [_frame({}, "stop"), b"data: [DONE]\n\n"]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)
    head = (
        b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    return head + chunks + b"0\r\n\r\n"


class Upstream(Stub):
    """One connection of the upstream."""

    streamed = _streamed()

    def message(self, head: bytes, body: bytes) -> None:
        path = head[head.find(b" ") + 1 : head.find(b" ", 6)]
        if path in _READ:
            self.write(_READ[path])
        elif path == b"/v1/chat/completions" and b'"stream":true' in body.replace(b" ", b""):
            Stub.counts["chats"] += 1
            self.write(self.streamed)
        else:
            super().message(head, body)


if __name__ == "__main__":
    run(Upstream)
