"""A straightforward implementation of the proxy, as the baseline of the proxy bench.

    python -m bench.proxy_cost.naive STUB_PORT

FastAPI; each candidate has a new `httpx` client; claims run in threads, ends one by one. One TLS
context serves all candidates, and retries, a journal, events and rewards are left out, both in its
favour.
"""

import asyncio
import socket
import sys
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

N = 4
STUB = f"http://127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}"
TLS = httpx.create_ssl_context()
app = FastAPI()


def _post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(STUB + path, json=body, verify=TLS, timeout=60)
    answer.raise_for_status()
    decoded: dict[str, Any] = answer.json()
    return decoded


def _claim() -> dict[str, Any]:
    body = {"client_uuid": "naive", "episode_type": "train", "discard_episode_timeout": 240.0}
    return _post("/claim_episode", body)


def _end(uuid: str, reward: float) -> None:
    output = {"reward": reward, "is_success": True, "metadata": {"task_id": "t"}, "log_metrics": {}}
    body = {"client_uuid": "naive", "episode_uuid": uuid, "task_id": "t", "workflow_output": output}
    _post("/end_episode", body)


class Candidate:
    """One episode."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.uuid = ""
        self.answer: dict[str, Any] = {}

    async def ask(self) -> None:
        """Claim an episode and complete the prompt."""
        claimed = await asyncio.to_thread(_claim)
        self.uuid = claimed["episode_uuid"]
        headers = {"Authorization": f"Bearer {claimed['openai_api_key']}"}
        async with httpx.AsyncClient(verify=TLS, timeout=600, headers=headers) as client:
            answer = await client.post(f"{STUB}/v1/chat/completions", json=self.body)
        self.answer = answer.json()

    @property
    def length(self) -> int:
        """Reward of the text."""
        return len(self.answer["choices"][0]["message"]["content"])


@app.post("/v1/chat/completions")
async def chat(request: Request) -> JSONResponse:
    """One user request: the longest of N answers."""
    body = await request.json()
    candidates = [Candidate(body) for _ in range(N)]
    await asyncio.gather(*(candidate.ask() for candidate in candidates))
    for candidate in candidates:
        await asyncio.to_thread(_end, candidate.uuid, candidate.length / 1000)
    return JSONResponse(max(candidates, key=lambda candidate: candidate.length).answer)


def main() -> None:
    """Serve until terminated; print the port on stdout."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
