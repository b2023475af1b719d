"""Waiting for the end of a training, and waiting at all."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from ajet_swarm.client import synchronous as waits
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.protocol.errors import EngineOff, TrainingFinished
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runs.episodes import rollout, run_episodes, run_episodes_until_all_complete
from ajet_swarm.runs.executors import PeriodicDrainThreadPoolExecutor, Retry, retry_with_backoff
from ajet_swarm.runs.record import RunRecord
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
DETAIL = "training complete: step 2 of 2"


def complete(server: ScriptedSwarm) -> None:
    """As the embedded engine, after its last update."""
    server.detail = DETAIL
    server.set_state("OFFLINE", 0)


async def ended(server: ScriptedSwarm, steps: int | None, at: int, *, by_us: bool = False) -> str:
    """A job of so many steps is sent and run up to step `at`; the error of a waiting claim."""
    server.set_state("OFFLINE", 0)
    server.automatic = False
    async with AsyncSwarm(server.url, patience=0.5) as swarm:
        await swarm.auto_sync_train_config_and_start_engine(AgentJetJob(total_training_steps=steps))
        for step in range(1, at + 1):
            server.set_state("ROLLING", step)
            await swarm.watcher.wait_for(lambda status, step=step: status.step == step, 60)
        server.set_state("WEIGHT_SYNCING")
        await swarm.watcher.wait_for({EngineState.WEIGHT_SYNCING}, 60)
        if by_us:
            await swarm.stop_engine()
        else:
            server.set_state("OFFLINE", 0)
        with pytest.raises(EngineOff) as raised:
            await swarm.begin_episode(timeout=60)
        return f"{type(raised.value).__name__}: {raised.value.what}"


async def test_completion_is_reported_by_the_engine(server: ScriptedSwarm, tasks: Tasks) -> None:
    server.automatic = False
    async with AsyncSwarm(server.url, patience=None) as swarm:
        await swarm.wait_until_rolling()
        server.set_state("WEIGHT_SYNCING")
        begun = tasks.spawn(swarm.begin_episode(), "begin")
        waiting = tasks.spawn(swarm._wait_until_status_change_to("ENGINE.BOOTING"), "wait")
        await swarm.watcher.wait_for({EngineState.WEIGHT_SYNCING}, 60)
        complete(server)
        async with asyncio.timeout(60):
            for task in (begun, waiting):
                with pytest.raises(TrainingFinished, match=DETAIL):
                    await task
        for call in (swarm.begin_episode, swarm.wait_until_rolling, swarm.agree_sync_weight):
            with pytest.raises(TrainingFinished, match=DETAIL):
                await call()


@pytest.mark.parametrize(
    ("steps", "at", "by_us", "error"),
    [
        (2, 2, False, f"TrainingFinished: {DETAIL}"),
        (3, 2, False, "EngineOff: the engine has been OFFLINE"),
        (2, 2, True, "EngineOff: the engine has been OFFLINE"),
        (None, 2, False, "EngineOff: the engine has been OFFLINE"),
    ],
)
async def test_completion_is_unknown_without_a_report(
    server: ScriptedSwarm, steps: int | None, at: int, by_us: bool, error: str
) -> None:
    assert (await ended(server, steps, at, by_us=by_us)).startswith(error)


async def test_a_job_of_another_client_proves_no_completion(server: ScriptedSwarm) -> None:
    server.automatic = False
    async with AsyncSwarm(server.url, patience=0.3) as swarm:
        await swarm.wait_until_rolling()
        server.set_state("ROLLING", 50)
        await swarm.watcher.wait_for(lambda status: status.step == 50, 60)
        server.set_state("OFFLINE", 0)
        with pytest.raises(EngineOff, match="OFFLINE for") as raised:
            await swarm.begin_episode()
    assert not isinstance(raised.value, TrainingFinished)


@pytest.mark.parametrize("boot", [True, False], ids=["boot seen", "boot not seen"])
async def test_the_steps_of_a_job_do_not_count_for_a_later_run(
    server: ScriptedSwarm, boot: bool
) -> None:
    server.set_state("OFFLINE", 0)
    server.automatic = False
    async with AsyncSwarm(server.url, patience=0.5) as swarm:
        await swarm.auto_sync_train_config_and_start_engine(AgentJetJob(total_training_steps=2))
        for state, step in [
            ("ROLLING", 1),
            ("OFFLINE", 0),
            *([("BOOTING", 0)] if boot else []),
            ("ROLLING", 50),
            ("OFFLINE", 0),
        ]:
            server.set_state(state, step)
            await swarm.watcher.wait_for({EngineState(state)}, 60)
        with pytest.raises(EngineOff) as raised:
            await swarm.begin_episode(timeout=60)
    assert not isinstance(raised.value, TrainingFinished), raised.value.what


async def test_a_new_start_clears_it(server: ScriptedSwarm) -> None:
    server.automatic = False
    async with AsyncSwarm(server.url) as swarm:
        await swarm.wait_until_rolling()
        complete(server)
        with pytest.raises(TrainingFinished):
            await swarm.begin_episode()
        server.detail = None
        server.set_state("ROLLING", 1)
        await swarm.watcher.wait_for({EngineState.ROLLING}, 60)
        uuid, _ = await swarm.begin_episode()
        assert await swarm.abort_episode(uuid)


async def test_a_later_caller_waits_for_a_start_within_its_patience(
    server: ScriptedSwarm, tasks: Tasks
) -> None:
    complete(server)
    async with AsyncSwarm(server.url, patience=0.3) as swarm:
        with pytest.raises(TrainingFinished, match=DETAIL):
            await swarm.begin_episode()
    async with AsyncSwarm(server.url, patience=60) as swarm:
        begun = tasks.spawn(swarm.begin_episode(), "begin")
        await swarm.watcher.wait_for({EngineState.OFFLINE}, 60)
        server.set_state("ROLLING", 1)
        async with asyncio.timeout(60):
            await begun


# --- what tries again ------------------------------------------------------------------------


@pytest.fixture
def swarm() -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4) as swarm:
        yield swarm


def agent(task: Task, api: object) -> WorkflowOutput:
    return WorkflowOutput(reward=1.0)


def test_a_run_returns_the_finished_results(
    swarm: ThreadedSwarm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = RunRecord(tmp_path / "record.jsonl")
    tasks = [Task(task_id=f"t{n}") for n in range(6)]
    with SwarmClient(swarm.url, patience=None) as client:
        run = rollout(client, agent)

        def one(task: Task) -> float:
            if task.task_id == "t3":
                swarm.do(lambda: complete(swarm.server))
            return run(task)

        done = run_episodes(tasks, one, max_workers=1, retry=Retry(tries=None), record=record)
        with pytest.raises(TrainingFinished, match=DETAIL):
            run_episodes_until_all_complete(tasks[3:], run)
    assert [result.task for result in done] == tasks
    assert [result.value for result in done] == [1.0, 1.0, 1.0, None, None, None]
    assert all(isinstance(result.error, TrainingFinished) for result in done[3:])
    assert [len(list(record.done(task.task_id))) for task in tasks] == [1, 1, 1, 0, 0, 0]
    actual = [line for line in caplog.messages if DETAIL in line]
    assert [line for line in actual if "3 of 6 episodes are left" in line]
    assert not any("again in" in line for line in actual)


def test_an_executor_takes_no_more_jobs_until_a_new_start() -> None:
    calls: list[int] = []
    off = True

    def job() -> str:
        calls.append(1)
        if off:
            raise TrainingFinished(DETAIL)
        return "done"

    with PeriodicDrainThreadPoolExecutor(workers=1, auto_retry=True) as executor:
        first = executor.submit(job)
        assert isinstance(first.exception(60), TrainingFinished)
        with pytest.raises(TrainingFinished, match=DETAIL):
            executor.submit_with_periodic_drain(job)
        off = False
        assert executor.submit(job).result(60) == "done"
    assert len(calls) == 2


def test_agentjets_decorator_does_not_try_again() -> None:
    calls: list[int] = []

    @retry_with_backoff(max_retry=5, backoff_fn=lambda _: 0.0)
    def job() -> None:
        calls.append(1)
        raise TrainingFinished(DETAIL)

    with pytest.raises(TrainingFinished):
        job()
    assert len(calls) == 1


SCRIPT = """
import sys
from ajet_swarm.compat import PeriodicDrainThreadPoolExecutor, SwarmClient, Task, WorkflowOutput

client = SwarmClient(sys.argv[1], patience=None)
done = 0


def roll(task: Task) -> None:
    global done
    uuid, api = client.begin_episode()
    client.end_episode(task, uuid, WorkflowOutput(reward=0.5))
    done += 1
    if done == 20:
        print("trained", flush=True)
        sys.stdin.readline()


executor = PeriodicDrainThreadPoolExecutor(workers=64, auto_retry=True)
while True:
    for number in range(1000):
        executor.submit_with_periodic_drain(roll, Task(task_id=str(number)))
"""


def test_an_endless_script_ends_with_a_message_and_code_0(swarm: ThreadedSwarm) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, swarm.url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "trained\n"
            swarm.do(lambda: complete(swarm.server))
            _, value = child.communicate("\n", timeout=60)
        finally:
            child.kill()
    assert child.returncode == 0, value
    assert value.count(DETAIL) == 1, value
    assert value.splitlines()[-1].endswith(DETAIL)
    assert "Traceback" not in value


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
            waits.join(thread for thread in threading.enumerate() if thread.daemon)
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
