"""A signal just before the main thread blocks still ends its wait."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from ajet_swarm.client import synchronous as waits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]

ASLEEP = """
import asyncio, os, signal, sys, threading
from ajet_swarm import Retry, run_episodes
from ajet_swarm.client import synchronous as waits
from ajet_swarm.runs.executors import BoundedThreadPoolExecutor
from ajet_swarm.client.synchronous import LoopThread

signal.signal(signal.SIGTERM, signal.default_int_handler)
over = threading.Event()


def hear() -> None:
    # The main thread waits, and does not take it: so it is when it comes just before that blocks.
    main, seen, same = threading.main_thread().ident, None, 0
    while same < 10:
        over.wait(0.02)
        frame = sys._current_frames()[main]
        seen, before = (frame.f_code, frame.f_lasti), seen
        same = same + 1 if seen == before else 0
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    over.wait()


signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Thread(target=hear, daemon=True).start()
hang = threading.Event().wait
try:
    match sys.argv[1]:
        case "join":
            waits.join(one for one in threading.enumerate() if one.daemon)
        case "run":
            run_episodes([1, 2], lambda _: hang(), max_workers=2, retry=Retry(tries=1))
        case "call":
            LoopThread("test").run(asyncio.sleep(600))
        case "room":
            pool = BoundedThreadPoolExecutor(1, 1)
            pool.submit(hang)
            pool.submit(hang)
except KeyboardInterrupt:
    os._exit(130)
"""


@pytest.mark.parametrize("what", ["join", "run", "call", "room"])
def test_a_signal_that_does_not_wake_the_main_thread_ends_its_wait(what: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ASLEEP, what], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 130
        finally:
            child.kill()


def test_a_result_is_waited_for_and_its_own_timeout_is_raised() -> None:
    with ThreadPoolExecutor(1) as pool:
        gate = threading.Event()
        late: Future[bool] = pool.submit(gate.wait)
        timer = threading.Timer(waits.BEAT * 1.2, gate.set)
        timer.start()
        assert waits.result(late)
        timer.join()
    failed: Future[None] = Future()
    failed.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        waits.result(failed)
    cancelled: Future[None] = Future()
    cancelled.cancel()
    with pytest.raises(CancelledError):
        waits.result(cancelled)
