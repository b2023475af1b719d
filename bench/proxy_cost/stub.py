"""A swarm server that answers at once: the instant stub of the proxy bench.

    python -m bench.proxy_cost.stub

It rolls for ever with room for everybody, so that what is measured is the proxy. Claims, chats,
ends and aborts are counted: `GET /stub` tells them, `POST /stub/delay/500` makes completions take
500 ms. Health checks and the list of models make it the upstream of `bench.peers`.
"""

import asyncio
import base64
import itertools
from typing import ClassVar

import msgspec

from bench.proxy_cost.wire import Messages, answer, run

REPEAT = 4
TEXT = (
    "the answer to this is that a policy learns from the spread of rewards within a group so we "
    "sample several candidates score each of them and keep the best one for the user while all of "
    "them go back to the server with what they earned and the next update makes good ones more "
    "likely than bad ones which is all that is needed here and now for a small model on a laptop"
)
WORDS = TEXT.split()
"""Words of its answers: 40 to 60 at another offset each, so that no two candidates are equal."""


class _Episode(msgspec.Struct):
    """Fields of an end or an abort that are read."""

    episode_uuid: str


def _completion(number: int) -> bytes:
    start, length = number * 7 % 23, 40 + number * 5 % 21
    text = " ".join((WORDS * 2)[start : start + length]).capitalize() + "."
    return answer(
        msgspec.json.encode(
            {
                "id": f"chatcmpl-{number:032x}",
                "object": "chat.completion",
                "created": 1780315200,
                "model": "policy",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": text,
                            "refusal": None,
                            "annotations": None,
                            "audio": None,
                            "function_call": None,
                            "tool_calls": [],
                            "reasoning": None,
                        },
                        "logprobs": None,
                        "finish_reason": "stop",
                        "stop_reason": None,
                    }
                ],
                "usage": {
                    "prompt_tokens": 210,
                    "total_tokens": 210 + length,
                    "completion_tokens": length,
                    "prompt_tokens_details": None,
                },
            }
        )
    )


_KEY = base64.b64encode(
    b'{"agent_name":"default_agent_name","target_tag":"default_target_tag",'
    b'"episode_uuid":"%b","episode_address":"ipc:///tmp/agentjet/llm.sock"}' % (b"0" * 36)
)
_CLAIM = answer(
    b'{"success":true,"client_uuid":"","episode_uuid":"@@@@@@@@-0000-4000-8000-000000000000",'
    b'"openai_base_url":"http://localhost:10086/v1","openai_api_key":"sk-ajet-%b","fail_cause":""}'
    % _KEY
)
_UUID_AT = _CLAIM.index(b"@")
_BEFORE, _AFTER = _CLAIM[:_UUID_AT], _CLAIM[_UUID_AT + 8 :]
_DONE = answer(b'{"success":true,"failure_reason":""}')
_GONE = answer(b'{"detail":"Episode not found."}', b"400 Bad Request")
_NO_ROUTE = answer(b'{"detail":"Not Found"}', b"404 Not Found")
_STATUS = {"engine_status": "ENGINE.ROLLING", "engine_status_detail": None, "global_step": 1}
_POOL = {
    "sample_collection_method": "rollout_until_finish_enough_tasks",
    "completed_episodes": 0,
    "completed_episode_target": 40_000_000,
    "completed_tasks": 0,
    "completed_task_target": 10_000_000,
    "completed_non_dummy_tasks": 0,
    "completed_non_dummy_task_target": 10_000_000,
    "task_expected_num_repeat": REPEAT,
    "running_episode_details": None,
    "engine_status": "ENGINE.ROLLING",
    "global_step": 1,
    "training_model_path": "policy",
}
_ROUTES = (
    "/claim_episode",
    "/end_episode",
    "/abort_episode",
    "/can_continue_episode",
    "/get_episode_buffer",
    "/get_engine_status",
    "/get_current_batch_rollout_pool_information",
    "/v1/chat/completions",
)
_MODELS = {
    "object": "list",
    "data": [{"id": "policy", "object": "model", "created": 1, "owned_by": "vllm"}],
}
_FIXED = {
    b"/health": answer(b""),
    b"/version": answer(b'{"version":"0.20.0"}'),
    b"/v1/models": answer(msgspec.json.encode(_MODELS)),
    b"/get_engine_status": answer(msgspec.json.encode(_STATUS)),
    b"/get_current_batch_rollout_pool_information": answer(msgspec.json.encode(_POOL)),
    b"/can_continue_episode": answer(b'{"can_continue":true}'),
    b"/openapi.json": answer(msgspec.json.encode({"paths": {path: {} for path in _ROUTES}})),
}
_episode = msgspec.json.Decoder(_Episode).decode


class Stub(Messages):
    """One connection; all connections share the server's state."""

    open: ClassVar[set[str]] = set()
    counts: ClassVar[dict[str, int]] = {"claims": 0, "chats": 0, "ends": 0, "aborts": 0, "lost": 0}
    delay: ClassVar[float] = 0.0
    numbers: ClassVar["itertools.count[int]"] = itertools.count(1)
    completions: ClassVar[list[bytes]] = [_completion(number) for number in range(64)]

    def message(self, head: bytes, body: bytes) -> None:
        path = head[head.find(b" ") + 1 : head.find(b" ", 6)]
        if path == b"/claim_episode":
            self._claim()
        elif path == b"/v1/chat/completions":
            self._chat()
        elif path in (b"/end_episode", b"/abort_episode"):
            self._over("ends" if path == b"/end_episode" else "aborts", body)
        elif path == b"/get_episode_buffer":
            self._buffer()
        elif path.startswith(b"/stub"):
            self._command(path)
        else:
            self.write(_FIXED.get(path, _NO_ROUTE))

    def _claim(self) -> None:
        number = b"%08x" % next(Stub.numbers)
        Stub.counts["claims"] += 1
        Stub.open.add(f"{number.decode()}-0000-4000-8000-000000000000")
        self.write(_BEFORE + number + _AFTER)

    def _chat(self) -> None:
        data = Stub.completions[Stub.counts["chats"] % len(Stub.completions)]
        Stub.counts["chats"] += 1
        if Stub.delay:
            asyncio.get_running_loop().call_later(Stub.delay, self.write, data)
        else:
            self.write(data)

    def _over(self, how: str, body: bytes) -> None:
        uuid = _episode(body).episode_uuid
        is_open = uuid in Stub.open
        Stub.open.discard(uuid)
        Stub.counts[how if is_open else "lost"] += 1
        self.write(_DONE if is_open else _GONE)

    def _buffer(self) -> None:
        """Mark all of its episodes as claimed by another client."""
        held = [{"episode_uuid": uuid, "episode_status": "claimed"} for uuid in Stub.open]
        self.write(answer(msgspec.json.encode({"buffer": held})))

    def _command(self, path: bytes) -> None:
        parts = path.decode().split("/")
        if parts[2:3] == ["delay"]:
            Stub.delay = float(parts[3]) / 1000
        self.write(answer(msgspec.json.encode({**Stub.counts, "open": len(Stub.open)})))


if __name__ == "__main__":
    run(Stub)
