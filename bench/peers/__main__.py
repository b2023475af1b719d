"""Our proxy beside the gateway Portkey, both before one instant upstream.

    python -m bench.peers [--quick]

Ours forwards in observe mode (fan-out 1, journal on) and, for comparison, answers with the best of
four candidates. Prompts are unique. All subjects are measured in this run in alternation; CPU is
that of all processes of a subject, per request. The bar is the p50 that a proxy adds for one user.

Node and npm must be installed. Portkey is installed below `.venv-peers` from pinned hashes
(`pins/portkey/package-lock.json`; `npm install --package-lock-only
--omit-lockfile-registry-resolved` writes it without addresses).
"""

import argparse
import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from bench.bars import Verdicts
from bench.proxy_cost.run import Figures, Stub, Subject, child, load, measure
from core.runtime.sockets import bind
from tests.support.stack import Stack

PINS: Final = Path(__file__).parent / "pins" / "portkey"
FOLDER: Final = Path(__file__).parents[2] / ".venv-peers" / "portkey"
USERS: Final = (1, 16, 64)
START_LIMIT: Final = 90.0
PORTKEY, OBSERVE, SWARM = "portkey", "ours, observe", "ours, N = 4"
QUESTION: Final = {"model": "policy", "messages": [{"role": "user", "content": "Are you there?"}]}


def install() -> Path:
    """Return the script that starts Portkey; install it if it is missing or its pins changed."""
    lock = "package-lock.json"
    installed = FOLDER / lock
    if not installed.is_file() or installed.read_bytes() != (PINS / lock).read_bytes():
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(PINS, FOLDER)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, check=True, cwd=FOLDER)
    return FOLDER / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"


def headers_of(name: str, upstream: int) -> dict[str, str]:
    """Return the headers that the users of a subject send."""
    if name != PORTKEY:
        return {}
    return {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1",
        "authorization": "Bearer none",
    }


@contextlib.contextmanager
def portkey(upstream: int, work: Path) -> Iterator[Subject]:
    """Start Portkey before the upstream at a port; it has answered one question."""
    script = install()
    with bind("127.0.0.1", 0, False, setting="PORT") as sock:
        port: int = sock.getsockname()[1]
    with (work / "portkey.log").open("wb") as log:
        command = ["node", str(script), f"--port={port}", "--headless"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for_answer(port, headers_of(PORTKEY, upstream))
        yield Subject(PORTKEY, process.pid, port)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def ours(name: str, upstream: int, work: Path) -> Iterator[Subject]:
    """Start our proxy: in observe mode with fan-out 1, else on a swarm server with fan-out 4."""
    url = f"http://127.0.0.1:{upstream}"
    flags = ("--upstream", f"{url}/v1") if name == OBSERVE else ("--swarm-url", url)
    with Stack(work / name.replace(" ", "-"), forks=False) as stack:
        if name == OBSERVE:
            stack.environment["AJET_CONSOLE__PROXY__REPEATS"] = "1"
        info = stack.proxy(*flags)
        wait_for_answer(info.port, {})
        yield Subject(name, info.pid, info.port)
        stack.stop("proxy")


def wait_for_answer(port: int, headers: dict[str, str]) -> None:
    """Ask until the subject answers.

    Raises:
        SystemExit: It gives no answer within `START_LIMIT` seconds.
    """
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    end = time.monotonic() + START_LIMIT
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.post(url, json=QUESTION, headers=headers, timeout=20).status_code == 200:
                return
        time.sleep(0.2)
    raise SystemExit(f"no answer at port {port} within {START_LIMIT:g} s")


def direct(stub: Stub, seconds: float) -> dict[int, float]:
    """Return the p50 of the upstream itself, in ms by number of users."""
    result = {}
    for users in USERS:
        with load(stub.port, users) as crowd:
            crowd.round(requests=100)
            result[users] = crowd.round(seconds=seconds)["p50"]
    return result


def main() -> None:
    """Measure all subjects in alternation; print and compare with the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    rounds, seconds = (1, 1.5) if parser.parse_args().quick else (3, 4.0)
    names = (PORTKEY, OBSERVE, SWARM)
    figures: dict[tuple[str, int], list[Figures]] = {
        (name, users): [] for name in names for users in USERS
    }
    verdicts = Verdicts()
    with (
        tempfile.TemporaryDirectory() as folder,
        child("bench.proxy_cost.stub") as (_, port),
        contextlib.ExitStack() as stack,
    ):
        stub, work = Stub(port), Path(folder)
        plain = direct(stub, seconds)
        subjects = {PORTKEY: stack.enter_context(portkey(port, work))}
        for name in (OBSERVE, SWARM):
            subjects[name] = stack.enter_context(ours(name, port, work))
        for number in range(rounds):
            for name in names if number % 2 == 0 else tuple(reversed(names)):
                headers = headers_of(name, port)
                flags = [f"--header={key}: {value}" for key, value in headers.items()]
                for users in USERS:
                    measured = measure(subjects[name], stub, users, *flags, seconds=seconds)
                    figures[name, users].append(measured)
    print("subject         users  CPU ms/request  added p50 ms  requests/s   p99 ms  errors")
    for (name, users), measured_rounds in figures.items():
        cpu, p50, rate, p99 = (
            statistics.median(getattr(measured, field) for measured in measured_rounds)
            for field in ("cpu", "p50", "rate", "p99")
        )
        errors = sum(measured.errors for measured in measured_rounds)
        added = p50 - plain[users]
        print(f"{name:14}{users:7}{cpu:16.2f}{added:14.1f}{rate:12.0f}{p99:9.0f}{errors:8}")
    added = {
        name: statistics.median(measured.p50 for measured in figures[name, 1]) - plain[1]
        for name in names
    }
    verdicts.at_most("added_p50_of_portkeys", added[OBSERVE] / added[PORTKEY], 1.0, "x")
    verdicts.close()


if __name__ == "__main__":
    main()
