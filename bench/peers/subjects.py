"""The peers and ours, each started as its own documentation says, without logs of requests."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.peers.install import install
from bench.peers.stub import MODEL
from bench.proxy_cost.run import Subject
from tests.support.stack import Stack

START_LIMIT = 90.0
BARE = "bare forwarder"
"""Our HTTP stack alone, see `bench.peers.bare`."""
QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}


@dataclass(frozen=True, slots=True)
class Running:
    """A peer that serves."""

    subject: Subject
    headers: Sequence[str] = ()
    """Headers that its clients send, as `name: value`."""


@dataclass(frozen=True, slots=True)
class _Start:
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    headers: Sequence[str] = ()


def _litellm(folder: Path, port: int, upstream: int, work: Path) -> _Start:
    config = work / "litellm.yaml"
    config.write_text(
        "model_list:\n"
        f"  - model_name: {MODEL}\n"
        f"    litellm_params: {{model: openai/{MODEL}, api_key: none, "
        f'api_base: "http://127.0.0.1:{upstream}/v1"}}\n',
        encoding="utf-8",
    )
    command = [str(folder / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1"]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    return _Start([*command, "--port", str(port)], environment)


def _router(program: str, *more: str) -> Sequence[str]:
    flags = ["--host", "127.0.0.1", "--policy", "round_robin", "--log-level", "error"]
    return [program, *more, *flags]


def _vllm_router(folder: Path, port: int, upstream: int, work: Path) -> _Start:
    command = _router(str(folder / "bin" / "vllm-router"))
    ports = ["--port", str(port), "--prometheus-port", str(free_port())]
    return _Start([*command, "--worker-urls", f"http://127.0.0.1:{upstream}", *ports])


def _sglang_router(folder: Path, port: int, upstream: int, work: Path) -> _Start:
    command = _router(str(folder / "bin" / "sglang-router"), "launch")
    ports = ["--port", str(port), "--prometheus-port", str(free_port())]
    return _Start([*command, "--worker-urls", f"http://127.0.0.1:{upstream}", *ports])


def _portkey(folder: Path, port: int, upstream: int, work: Path) -> _Start:
    script = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    headers = (
        "x-portkey-provider: openai",
        f"x-portkey-custom-host: http://127.0.0.1:{upstream}/v1",
        "authorization: Bearer none",
    )
    return _Start(["node", str(script), f"--port={port}", "--headless"], {}, headers)


def _bare(folder: Path, port: int, upstream: int, work: Path) -> _Start:
    command = [sys.executable, "-m", "bench.peers.bare", str(port), str(upstream)]
    return _Start(command, {"PYTHONPATH": str(Path(__file__).parents[2])})


_STARTS = {
    "litellm": _litellm,
    "portkey": _portkey,
    "vllm-router": _vllm_router,
    "sglang-router": _sglang_router,
    BARE: _bare,
}
PEERS = tuple(_STARTS)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@contextlib.contextmanager
def peer(name: str, upstream: int, work: Path) -> Iterator[Running]:
    """Start a peer before the upstream at a port; the peer has answered one question."""
    port = free_port()
    start = _STARTS[name](install(name) if name != BARE else work, port, upstream, work)
    with (work / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            start.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=work,
            env={**os.environ, **start.environment},
        )
    try:
        _wait(name, process, port, start.headers, work)
        yield Running(Subject(name, process.pid, port), start.headers)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


@contextlib.contextmanager
def ours(upstream: int, work: Path, *, observe: bool) -> Iterator[Running]:
    """Start our proxy: in observe mode with fan-out 1, else on a swarm server with fan-out 4."""
    url = f"http://127.0.0.1:{upstream}"
    flags = ("--upstream", f"{url}/v1") if observe else ("--swarm-url", url)
    with Stack(work / ("observe" if observe else "swarm"), forks=False) as stack:
        if observe:
            stack.environment["AJET_CONSOLE__PROXY__REPEATS"] = "1"
        info = stack.proxy(*flags)
        name = "ours, observe" if observe else "ours, N = 4"
        _ask(name, info.port, (), START_LIMIT)
        yield Running(Subject(name, info.pid, info.port))
        stack.stop("proxy")


def _wait(
    name: str, process: "subprocess.Popen[bytes]", port: int, headers: Sequence[str], work: Path
) -> None:
    log = work / f"{name}.log"
    end = time.monotonic() + START_LIMIT
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            _ask(name, port, headers, 0.0)
            return
        time.sleep(0.2)
    raise SystemExit(f"{name} does not answer:\n{log.read_text(errors='replace')[-2000:]}")


def _ask(name: str, port: int, headers: Sequence[str], limit: float) -> None:
    pairs = dict(header.split(": ", 1) for header in headers)
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    end = time.monotonic() + limit
    while True:
        response = httpx.post(url, json=QUESTION, headers=pairs, timeout=20)
        if response.status_code == 200:
            return
        assert time.monotonic() < end, f"{name}: {response.status_code} {response.text[:200]}"
        time.sleep(0.2)
