"""A straightforward implementation of the proxy, as the baseline of the proxy bench.

    python -m bench.proxy_cost.naive STUB_PORT [--one-context]

FastAPI; each candidate has a new `httpx` client whose TLS context its claim, its completion and its
end share; claims in threads, ends one by one. Retries, a journal, events and rewards are left out,
in its favour. `--one-context` makes one TLS context for all candidates there will ever be.
"""

import asyncio
import socket
import ssl
import sys
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

N = 4
STUB = f"http://127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}"
ONE = httpx.create_ssl_context() if "--one-context" in sys.argv else None
app = FastAPI()


def _post(path: str, body: dict[str, Any], context: ssl.SSLContext) -> dict[str, Any]:
    answer = httpx.post(STUB + path, json=body, verify=context, timeout=60)
    answer.raise_for_status()
    decoded: dict[str, Any] = answer.json()
    return decoded


def _claim(context: ssl.SSLContext) -> dict[str, Any]:
    body = {"client_uuid": "naive", "episode_type": "train", "discard_episode_timeout": 240.0}
    return _post("/claim_episode", body, context)


def _end(uuid: str, reward: float, context: ssl.SSLContext) -> None:
    output = {"reward": reward, "is_success": True, "metadata": {"task_id": "t"}, "log_metrics": {}}
    body = {"client_uuid": "naive", "episode_uuid": uuid, "task_id": "t", "workflow_output": output}
    _post("/end_episode", body, context)


class Candidate:
    """One episode."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.context = ONE or httpx.create_ssl_context()
        self.uuid = ""
        self.answer: dict[str, Any] = {}

    async def ask(self) -> None:
        """Claim an episode and complete the prompt."""
        claimed = await asyncio.to_thread(_claim, self.context)
        self.uuid = claimed["episode_uuid"]
        headers = {"Authorization": f"Bearer {claimed['openai_api_key']}"}
        async with httpx.AsyncClient(verify=self.context, timeout=600, headers=headers) as client:
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
    await asyncio.gather(*(one.ask() for one in candidates))
    for one in candidates:
        await asyncio.to_thread(_end, one.uuid, one.length / 1000, one.context)
    return JSONResponse(max(candidates, key=lambda one: one.length).answer)


def main() -> None:
    """Serve until terminated; print the port on stdout."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
