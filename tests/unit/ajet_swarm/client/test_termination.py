"""SIGTERM to a script: its claims are given back, and it ends as it would have."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ajet_swarm.client.synchronous import SwarmClient
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]

SCRIPT = """
import os, signal, sys, threading, time
from ajet_swarm import SwarmClient, SlidingThreadPoolExecutor

how, url = sys.argv[1:]
if how == "own":
    signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), sys.exit(3)))
if how == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
client = SwarmClient(url)
held = threading.Barrier(5)


def agent() -> None:
    uuid, api = client.begin_episode()
    held.wait()
    threading.Event().wait()  # an answer that does not come


def asked_again() -> None:
    client.begin_episode()
    held.wait()
    raise RuntimeError("again")


if how == "pool":
    pool = SlidingThreadPoolExecutor(4, auto_retry=True)
    for _ in range(4):
        pool.submit(asked_again)
else:
    for _ in range(4):
        threading.Thread(target=agent).start()
held.wait()
print("ready", flush=True)
if how == "ignored":
    sys.stdin.readline()
    client.close()
    os._exit(0)
while True:
    time.sleep(0.1)  # a signal just before a long sleep would wait for its end
"""


@pytest.fixture
def swarm() -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4) as swarm:
        yield swarm


@contextmanager
def script(how: str, swarm: ThreadedSwarm) -> Iterator["subprocess.Popen[str]"]:
    """The script of that name, once it holds its episodes."""
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how, swarm.url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            assert len(swarm.server.claimed()) >= 4
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("how", ["threads", "pool"])
def test_sigterm_gives_back_what_the_script_holds(how: str, swarm: ThreadedSwarm) -> None:
    with script(how, swarm) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(90) == -signal.SIGTERM
        assert not swarm.server.claimed()


def test_a_signal_handler_of_the_script_is_kept(swarm: ThreadedSwarm) -> None:
    with script("own", swarm) as child:
        child.send_signal(signal.SIGTERM)
        assert child.stdout is not None
        assert child.stdout.readline() == "mine\n"


def test_a_script_that_ignores_sigterm_continues(swarm: ThreadedSwarm) -> None:
    with script("ignored", swarm) as child:
        child.send_signal(signal.SIGTERM)
        assert child.poll() is None
        assert len(swarm.server.claimed()) == 4
        child.communicate("end\n", timeout=30)
        assert child.returncode == 0
        assert not swarm.server.claimed()


def test_the_handler_is_there_while_a_client_is_open(swarm: ThreadedSwarm) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with SwarmClient(swarm.url):
            ours = signal.getsignal(signal.SIGTERM)
            assert callable(ours)
            with SwarmClient(swarm.url):
                assert signal.getsignal(signal.SIGTERM) is ours
            assert signal.getsignal(signal.SIGTERM) is ours
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

        with SwarmClient(swarm.url):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
