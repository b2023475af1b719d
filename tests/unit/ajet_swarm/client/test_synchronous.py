"""The client that waits: many threads, one loop."""

import threading
from collections.abc import Iterator

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.protocol.errors import GaveUp, SwarmError
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.runs.episodes import run_episodes
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

pytestmark = pytest.mark.slow

OUTPUT = WorkflowOutput(reward=0.5)


@pytest.fixture
def swarm() -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4) as swarm:
        yield swarm


@pytest.fixture
def client(swarm: ThreadedSwarm, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwarmClient]:
    monkeypatch.setattr(watcher, "QUIET", 0.2)
    with SwarmClient(swarm.url) as client:
        yield client
    assert not swarm.server.claimed()


def test_one_episode(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    uuid, api = client.begin_episode(discard_episode_timeout=60, episode_type="train")
    assert api.base_url == f"{swarm.url}/v1"
    assert client.can_continue_episode(uuid)
    assert client.end_episode(Task(task_id="t"), uuid, OUTPUT).ended
    assert swarm.server.rewards == {uuid: 0.5}


def test_many_threads_over_several_batches(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    def run(task: Task) -> str:
        uuid, _ = client.begin_episode()
        swarm.do(lambda: swarm.server.episodes[uuid].__setattr__("calls", 1))
        client.end_episode(task, uuid, WorkflowOutput(reward=0.5))
        return uuid

    # what of a task is done at a boundary is gone: twice as many as the batches would take
    tasks = [Task(task_id=f"t{n}") for n in range(40) for _ in range(4)]
    done = run_episodes(tasks, run, max_workers=32)
    assert all(one.ok for one in done)
    assert len({one.value for one in done}) == 160
    assert len(swarm.server.reward_log) == 160
    assert not swarm.server.duplicate_ends
    assert (swarm.server.step or 0) >= 3


def test_updates_shorter_than_a_poll_are_called_for(
    swarm: ThreadedSwarm, client: SwarmClient
) -> None:
    swarm.server.sync_seconds = 0.001
    client.wait_until_rolling()
    called: list[int] = []
    client.add_entering_weight_sync_callback(lambda: called.append(1))

    def run(task: Task) -> None:
        uuid, _ = client.begin_episode()
        swarm.do(lambda: swarm.server.episodes[uuid].__setattr__("calls", 1))
        client.end_episode(task, uuid, OUTPUT)

    swarm.do(lambda: setattr(swarm.server, "repeat", 1))
    run_episodes([Task(task_id=f"t{n}") for n in range(60)], run, max_workers=4)
    swarm.until(lambda: len(called) == (swarm.server.step or 0) - 1)
    assert len(called) >= 10


def test_the_context_aborts_on_an_exception(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    def failing() -> None:
        with client.episode("t") as episode:
            assert swarm.server.episodes[episode.uuid].claimed
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not swarm.server.claimed()
    with client.episode("t") as episode:
        assert episode.end(1.0).ended


def test_it_gives_up(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    swarm.server.automatic = False
    swarm.do(lambda: swarm.server.set_state("WEIGHT_SYNCING"))
    with pytest.raises(GaveUp):
        client.begin_episode(timeout=3)


def test_closing_gives_back_episodes_and_wakes_waiting_threads(swarm: ThreadedSwarm) -> None:
    client = SwarmClient(swarm.url)
    client.begin_episode()
    for _ in range(15):
        client.begin_episode()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            client.begin_episode()
        except SwarmError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    swarm.until(lambda: swarm.server.refusals)
    client.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert raised
    assert not swarm.server.claimed()
    with pytest.raises(SwarmError, match="closed"):
        client.get_engine_status()


def test_it_survives_a_restart_of_the_server(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    client.begin_episode()
    swarm.do(swarm.server.freeze)
    begun: list[object] = []
    waiting = threading.Thread(target=lambda: begun.append(client.begin_episode(timeout=60)))
    waiting.start()
    swarm.do(lambda: swarm.server.set_state("OFFLINE", 0))
    swarm.do(swarm.server.unfreeze)
    assert client.get_engine_status()[0] == "ENGINE.OFFLINE"
    client.auto_sync_train_config_and_start_engine(AgentJetJob(model="m"))
    waiting.join(90)
    assert begun


def test_several_engines(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    job = AgentJetJob(model="m")
    with threaded_swarm(state="OFFLINE") as second, SwarmClient(second.url) as other:
        SwarmClient.async_and_start_multi_engine([(client, job), (other, job)])
        assert second.server.state == "ROLLING"
        second.do(lambda: setattr(second.server, "start_error", "no GPU"))
        other.stop_engine()
        with pytest.raises(SwarmError, match="no GPU") as failed:
            SwarmClient.async_and_start_multi_engine([(client, job), (other, job)], timeout=60)
        assert not isinstance(failed.value, GaveUp)
        second.server.automatic = False
        second.do(lambda: second.server.set_state("WEIGHT_SYNCING"))
        with pytest.raises(GaveUp, match=r"1 of 2 .*: ROLLING did not come in 3 s"):
            SwarmClient.async_and_start_multi_engine([(client, job), (other, job)], timeout=3)


def test_the_client_logs_its_progress(
    swarm: ThreadedSwarm, client: SwarmClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.print_rollout_stat()
    assert "tasks 0/4, episodes 0/16" in capsys.readouterr().out


def test_a_callback_at_each_update(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    called = threading.Event()
    client.add_entering_weight_sync_callback(called.set)
    swarm.server.sync_seconds = None
    swarm.do(lambda: swarm.server.set_state("WEIGHT_SYNCING"))
    assert called.wait(60)


def test_the_address_comes_from_the_environment(
    swarm: ThreadedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AJET_SWARM_URL", swarm.url)
    with SwarmClient() as client:
        assert client.get_global_step() == 1


def test_it_is_not_used_from_its_own_thread(client: SwarmClient) -> None:
    raised: list[BaseException] = []

    def inside() -> None:
        try:
            client.get_engine_status()
        except SwarmError as error:
            raised.append(error)

    client._thread._loop.call_soon_threadsafe(inside)
    client.get_engine_status()
    assert "cannot wait for itself" in str(raised[0])


def test_a_client_used_after_a_fork_raises_an_error(
    client: SwarmClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("os.getpid", lambda: 1)
        with pytest.raises(SwarmError, match="another process"):
            client.get_engine_status()
