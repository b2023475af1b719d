"""Claims that a script sends itself, by the client's `_http_client`, as AgentJet's scripts do."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.compat import (
    ClaimEpisodeRequest,
    ClaimEpisodeResponse,
    SwarmThrottlePolicy,
    Task,
    WorkflowOutput,
)
from ajet_swarm.protocol.errors import SwarmError, WrongUse
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm


@pytest.fixture
def swarm() -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4) as swarm:
        yield swarm


@pytest.fixture
def client(swarm: ThreadedSwarm) -> Iterator[SwarmClient]:
    with SwarmClient(swarm.url) as client:
        yield client
    assert not swarm.server.claimed()


def claim(client: SwarmClient, kind: str = "train") -> ClaimEpisodeResponse:
    body = ClaimEpisodeRequest(
        client_uuid=client.client_uuid,
        episode_type=kind,
        discard_episode_timeout=120,
        throttle_policy=None,
    )
    answer = client._http_client.post(f"{client.server_url}/claim_episode", json=body.model_dump())
    answer.raise_for_status()
    return ClaimEpisodeResponse.model_validate(answer.json())


def test_the_type_of_an_episode_claimed_directly_is_known(client: SwarmClient) -> None:
    for kind in ("train", "eval"):
        uuid = claim(client, kind).episode_uuid
        times = client._swarm._ends.holdings.by_uuid.get(uuid)
        assert times is not None
        assert times.counts == (kind == "train")
        assert client.abort_episode(uuid)


@pytest.mark.slow
def test_an_episode_claimed_directly_is_ended_and_aborted(
    swarm: ThreadedSwarm, client: SwarmClient
) -> None:
    first, second = claim(client), claim(client)
    assert first.success
    assert first.openai_base_url.startswith("http")
    assert client.can_continue_episode(first.episode_uuid)
    output = WorkflowOutput(reward=-0.5, metadata={})
    assert client.end_episode(Task(task_id="t"), first.episode_uuid, output).ended
    assert swarm.server.rewards == {first.episode_uuid: -0.5}
    assert client.abort_episode(second.episode_uuid)
    assert [body["episode_uuid"] for body in swarm.server.aborts] == [second.episode_uuid]


@pytest.mark.slow
def test_many_threads_share_one_client(swarm: ThreadedSwarm, client: SwarmClient) -> None:
    together = threading.Barrier(16)

    def run(number: int) -> tuple[int, str]:
        together.wait(60)
        made = client._http_client
        return id(made), claim(client).episode_uuid

    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(run, range(16)))
    assert len({made for made, _ in done}) == 1
    assert len({uuid for _, uuid in done}) == 16
    for _, uuid in done:
        assert client.end_episode("t", uuid, WorkflowOutput(reward=1)).ended


def test_an_episode_of_another_client_is_not_in_ours(
    swarm: ThreadedSwarm, client: SwarmClient
) -> None:
    body = ClaimEpisodeRequest(
        client_uuid="another", episode_type="train", discard_episode_timeout=120
    )
    answer = client._http_client.post(f"{swarm.url}/claim_episode", json=body.model_dump())
    uuid = answer.json()["episode_uuid"]
    assert not client.abort_episode(uuid)
    assert [record.client for record in swarm.server.claimed()] == ["another"]
    with SwarmClient(swarm.url, client_uuid="another") as other:
        assert other.abort_episode(uuid)


def test_it_is_closed_with_the_client(
    swarm: ThreadedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, never_read = SwarmClient(swarm.url), SwarmClient(swarm.url)
    made = client._http_client
    assert isinstance(made, httpx.Client)
    with monkeypatch.context() as patched:
        patched.setattr("os.getpid", lambda: 1)
        with pytest.raises(WrongUse, match="another process"):
            _ = client._http_client
    claim(client)
    for user in (client, never_read):
        user.close()
        with pytest.raises(WrongUse, match="is closed"):
            _ = user._http_client
    assert made.is_closed
    assert not swarm.server.claimed()


def test_a_claim_is_written_out() -> None:
    policy = SwarmThrottlePolicy(expected_batch_size=2, expected_num_repeat=4, current_task_id="t")
    claim = ClaimEpisodeRequest(
        client_uuid="me",
        episode_type="eval",
        discard_episode_timeout=60,
        throttle_policy=policy,
        partition_limit=None,  # type: ignore[call-arg]  # of an older AgentJet
    )
    assert claim.model_dump() == {
        "client_uuid": "me",
        "episode_type": "eval",
        "discard_episode_timeout": 60.0,
        "throttle_policy": policy.wire,
    }
    assert json.loads(claim.model_dump_json()) == claim.model_dump()
    assert ClaimEpisodeRequest.model_validate(claim.model_dump()) == claim
    assert ClaimEpisodeRequest.model_validate_json(claim.model_dump_json()) == claim


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"client_uuid": 3}, "`client_uuid` is a int, not a str"),
        ({"episode_type": None}, "`episode_type` is a NoneType, not a str"),
        ({"discard_episode_timeout": "soon"}, "`discard_episode_timeout` is 'soon', not a number"),
        ({"throttle_policy": {"ratio": 1.0}}, "`throttle_policy`: .*expected_batch_size"),
    ],
)
def test_an_invalid_claim_is_refused(fields: dict[str, object], result: str) -> None:
    good = {"client_uuid": "me", "episode_type": "train", "discard_episode_timeout": 60}
    assert ClaimEpisodeRequest.model_validate(good).throttle_policy is None
    with pytest.raises(SwarmError, match=result):
        ClaimEpisodeRequest.model_validate({**good, **fields})
    with pytest.raises(SwarmError, match="`client_uuid`, `episode_type` is missing"):
        ClaimEpisodeRequest.model_validate({"discard_episode_timeout": 60})


def test_an_answer_does_not_show_its_key() -> None:
    answer = ClaimEpisodeResponse(
        success=True, client_uuid="me", episode_uuid="e", openai_api_key="secret"
    )
    assert "secret" not in repr(answer)
    with pytest.raises(SwarmError, match="`success` is a str"):
        ClaimEpisodeResponse.model_validate({**answer.model_dump(), "success": "yes"})
