"""An OpenAI-compatible server that answers at once: the upstream of all subjects.

    python -m bench.peers.stub

It is the instant stub of `bench.proxy_cost`, which also answers health checks and lists a model.
"""

import msgspec

from bench.proxy_cost.stub import Stub
from bench.proxy_cost.wire import answer, run

MODEL = "policy"
_MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL}],
}
_READ = {
    b"/health": answer(b""),
    b"/version": answer(b'{"version":"0.20.0"}'),
    b"/v1/models": answer(msgspec.json.encode(_MODELS)),
}


class Upstream(Stub):
    """One connection of the upstream."""

    def message(self, head: bytes, body: bytes) -> None:
        path = head[head.find(b" ") + 1 : head.find(b" ", 6)]
        if path in _READ:
            self.write(_READ[path])
        else:
            super().message(head, body)


if __name__ == "__main__":
    run(Upstream)
