"""The proxy as it is written first: the stand-in that the proxy bench measures against.

    python -m bench.cost_naive STUB_PORT

FastAPI; for each candidate a claim in a thread and an `httpx` client of its own, ends one by one.
The TLS context is shared: making one for each client would cost three times as much and say nothing
about the design. Retries, a journal, events and rewards are left out, in its favour.
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
CONTEXT = ssl.create_default_context()
app = FastAPI()


def _post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(STUB + path, json=body, verify=CONTEXT, timeout=60)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def _claim() -> dict[str, Any]:
    body = {"client_uuid": "naive", "episode_type": "train", "discard_episode_timeout": 240.0}
    return _post("/claim_episode", body)


def _end(uuid: str, reward: float) -> None:
    output = {"reward": reward, "is_success": True, "metadata": {"task_id": "t"}, "log_metrics": {}}
    body = {"client_uuid": "naive", "episode_uuid": uuid, "task_id": "t", "workflow_output": output}
    _post("/end_episode", body)


async def _candidate(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    claimed = await asyncio.to_thread(_claim)
    headers = {"Authorization": f"Bearer {claimed['openai_api_key']}"}
    async with httpx.AsyncClient(verify=CONTEXT, timeout=600, headers=headers) as client:
        answer = await client.post(f"{STUB}/v1/chat/completions", json=body)
    return claimed["episode_uuid"], answer.json()


@app.post("/v1/chat/completions")
async def chat(request: Request) -> JSONResponse:
    """One user request: the longest of N answers."""
    body = await request.json()
    found = await asyncio.gather(*(_candidate(body) for _ in range(N)))
    lengths = [len(answer["choices"][0]["message"]["content"]) for _, answer in found]
    for (uuid, _), length in zip(found, lengths, strict=True):
        await asyncio.to_thread(_end, uuid, length / 1000)
    return JSONResponse(found[lengths.index(max(lengths))][1])


def main() -> None:
    """Serve until ended; the port is told on stdout."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
