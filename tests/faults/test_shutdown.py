"""The proxy's process is stopped during work, and serves over TLS."""

import asyncio
import json
import signal
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.runtime.home import running
from core.runtime.tls import verification_for
from proxy.main import GRACE
from tests.support.proxy.front import BODIES, LAST, sse
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack
from tests.support.stored import stored_bytes
from tests.support.tls import certificate
from tests.support.wire import Answer, wire

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

CHAT = "/v1/chat/completions"


async def by_user(name: str, body: dict[str, Any], index: int) -> str:
    """Slow users wait for longer than the grace time, quick ones for less."""
    await asyncio.sleep({"slow": 600.0, "quick": 2.0}.get(body.get("user", ""), 0.0))
    return f"answer {index}"


async def ask(url: str, path: str, body: dict[str, Any]) -> Answer:
    async with wire(url) as one:
        await one.ask("POST", path, body)
        answer = await one.answer(GRACE + 60.0)
        assert await one.closed() == b""  # and the connection is closed in order
        return answer


def failed(path: str, text: str) -> bool:
    """Whether a stream ends with an error in its dialect's own form."""
    last = sse(text)[-1]
    if path == "/v1/messages":
        return "event: error\n" in text and last["type"] == "error"
    if path == "/v1/responses":
        return bool(last["type"] == "response.failed")
    return "error" in last and text.endswith("data: [DONE]\n\n")


async def test_a_stop_during_answers(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=100, slots=200, answer=by_user) as swarm:
        with Stack(tmp_path) as stack:
            info = await asyncio.to_thread(stack.proxy, "--swarm-url", swarm.url)
            child = stack.children["proxy"]
            async with asyncio.TaskGroup() as tasks:

                def each(user: str, stream: bool) -> dict[str, asyncio.Task[Answer]]:
                    more = {"user": user, "stream": stream}
                    return {
                        path: tasks.create_task(ask(info.url, path, {**body, **more}))
                        for path, body in BODIES.items()
                    }

                slow, quick = each("slow", True), each("quick", True)
                whole, soon = each("slow", False), each("quick", False)
                await swarm.until(lambda: len(swarm.chats) == 64, 90)
                child.send_signal(signal.SIGTERM)
                async with httpx.AsyncClient(timeout=60, base_url=info.url) as client:
                    while (await client.get("/health")).status_code == 200:
                        await asyncio.sleep(0.02)
                    late = await client.post(CHAT, json={**BODIES[CHAT], "user": "late"})
                    assert late.status_code == 503
                    assert late.headers["retry-after"]
            for path in BODIES:
                assert LAST[path] in quick[path].result().body
                assert soon[path].result().status == 200
                result = slow[path].result().body.decode()
                assert failed(path, result)
                assert "shutting down" in result
                assert "in time" not in result
                assert "rate_limit_exceeded" not in result
                assert whole[path].result().status == 503
                assert whole[path].result().headers["retry-after"]
                assert b"shutting down" in whole[path].result().body
            assert await asyncio.to_thread(child.wait, 60) == 0
            assert not swarm.claimed()
            assert "Traceback" not in stack.log("proxy")


async def test_served_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    home = tmp_path / "home"
    async with ScriptedSwarm() as swarm:
        with Stack(home) as stack:
            result = ("--swarm-url", swarm.url, "--tls-cert", cert, "--tls-key", key)
            info = await asyncio.to_thread(stack.proxy, *result)
            assert info.url.startswith("https://127.0.0.1:")
            trusted = verification_for(info.url, cert)
            async with httpx.AsyncClient(timeout=60, base_url=info.url, verify=trusted) as client:
                for stream in (False, True):
                    body = {**BODIES[CHAT], "stream": stream}
                    answer = await client.post(CHAT, json=body)
                    assert answer.status_code == 200
                    assert "answer 0 of" in answer.text
            async with httpx.AsyncClient(timeout=60, base_url=info.url) as client:
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await client.get("/health")
            async with wire(info.url) as plain:
                await plain.ask("GET", "/health")
                assert b"200 OK" not in await plain.closed()
            shown = await asyncio.to_thread(stack.run, "status", "--json")
            assert json.loads(shown.stdout)["proxy"]["proxy_pid"] == info.pid, shown.stdout
            mode = await asyncio.to_thread(stack.run, "rating", "mode", "hold")
            assert mode.returncode == 0, mode.stderr
            assert (await asyncio.to_thread(stack.run, "rating", "mode", "off")).returncode == 0
            rows = tmp_path / "rows.jsonl"
            rows.write_text('{"query": "one"}\n{"query": "two"}\n')
            mock_run = await asyncio.to_thread(stack.run, "run", "mock", str(rows))
            assert mock_run.returncode == 0, mock_run.stderr
            assert await asyncio.to_thread(stack.stop, "proxy") == 0


async def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with Stack(tmp_path / "home") as stack:
        for value, why in (
            (("--tls-cert", cert), "both --tls-cert and --tls-key"),
            (("--tls-cert", key, "--tls-key", cert), "cannot be used"),
            (("--tls-cert", cert, "--tls-key", str(tmp_path / "none.pem")), "cannot be used"),
        ):
            ended = await asyncio.to_thread(stack.run, "run", "proxy", "--port", "0", *value)
            assert ended.returncode == 2
            assert why in ended.stderr
            assert "Traceback" not in ended.stderr
        assert running(stack.home, "proxy") is None
    assert isinstance(verification_for("https://gpu-box:8000", cert), ssl.SSLContext)
    assert verification_for("http://gpu-box:8000", cert) is False


@pytest.mark.parametrize("in_file", [True, False])
async def test_a_key_is_required_and_never_written(tmp_path: Path, in_file: bool) -> None:
    secret = "sk-nobody-shall-read-this"
    file = tmp_path / "key"
    file.write_text(f"{secret}\n")
    result = ("--api-key-file", str(file)) if in_file else ("--api-key", secret)
    async with ScriptedSwarm() as swarm:
        with Stack(tmp_path / "home") as stack:
            info = await asyncio.to_thread(stack.proxy, "--swarm-url", swarm.url, *result)
            async with httpx.AsyncClient(timeout=60, base_url=info.url) as client:
                assert (await client.post(CHAT, json=BODIES[CHAT])).status_code == 401
                bearer = {"authorization": f"Bearer {secret}"}
                answer = await client.post(CHAT, json=BODIES[CHAT], headers=bearer)
                assert answer.status_code == 200
            assert secret not in (stack.home.run / "proxy.json").read_text()
            await asyncio.to_thread(stack.stop, "proxy")
            files = [path for path in stack.home.root.rglob("*") if path.is_file()]
            assert stack.home.journal in files
            assert not [path for path in files if secret.encode() in stored_bytes(path)]


def test_a_login_in_a_servers_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        result = stack.run(
            "run", "proxy", "--swarm-url", "http://me:hush@127.0.0.1:1", "--port", "0"
        )
        assert result.returncode == 2
        assert "contains a user or a password" in result.stderr
        assert "hush" not in result.stderr + result.stdout
        assert b"hush" not in stored_bytes(stack.home.root)
