"""Jobs for AgentJet servers: what is added, what is refused, what passes through."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.schema import BATCH, KL, LEARNING_RATE, MODEL, REQUIRED
from ajet_swarm.job.server import MODEL_VARIABLE, for_server
from ajet_swarm.job.tree import Job, JobError, dump_job, get, put
from ajet_swarm.protocol.errors import SwarmError
from core.jobs import default_job, hand_job, server_hand_job, server_job
from tests.support.scripted.job import compose, trainer_error
from tests.support.scripted.swarm import ScriptedSwarm

SHORT = "ajet: {model: {path: m}}"
METHOD = "ajet.interchange_server.interchange_method"


def values(text: str) -> dict[str, Any]:
    tree = yaml.safe_load(text)
    return {path: get(tree, path) for path in REQUIRED}


@pytest.mark.parametrize(
    "text",
    [
        SHORT,
        dump_job(server_job("m")),
        dump_job(server_hand_job("m")),
        AgentJetJob(model="m").to_yaml(),
        "ajet: {model: {path: m}, task_judge: null}\ndefaults: null\nhydra: {run: {dir: x}}\n",
    ],
)
def test_every_key_that_starts_a_server_is_there(text: str) -> None:
    sent = for_server(text).text
    assert values(sent) == dict(REQUIRED)
    assert trainer_error(compose(sent)) == ""


def test_values_of_the_job_are_never_changed() -> None:
    text = (
        "ajet: {model: {path: m}, backbone: debug, rollout: {agent_madness_reward: -1.0, "
        "user_workflow: mine->Flow}, interchange_server: {num_fastapi_process: 2}}\n"
        "defaults: [mine]\nhydra: {searchpath: [file://mine], run: {dir: x}}\n"
    )
    sent = yaml.safe_load(for_server(text).text)
    assert get(sent, "ajet.backbone") == "debug"
    assert get(sent, "ajet.rollout.agent_madness_reward") == -1.0
    assert get(sent, "ajet.rollout.user_workflow") == "mine->Flow"
    assert get(sent, "ajet.interchange_server.num_fastapi_process") == 2
    assert get(sent, METHOD) == "ipc"
    assert sent["defaults"] == ["mine"]
    assert sent["hydra"] == {"searchpath": ["file://mine"], "run": {"dir": "x"}}


def test_a_complete_tree_is_unchanged() -> None:
    tree = yaml.safe_load(for_server(SHORT).text)
    put(tree, "actor_rollout_ref.model.path", "m")
    text = "# mine\n" + dump_job(tree)
    done = for_server(text)
    assert done.text is text
    assert done.added == ()


def test_several_nodes_use_tcp() -> None:
    text = "ajet: {model: {path: m}, trainer_common: {nnodes: 2}}"
    assert values(for_server(text).text)[METHOD] == "tcp"


@pytest.mark.parametrize("text", ["ajet: {}", "ajet: {model: {path: null}}"])
def test_a_job_without_a_model(text: str) -> None:
    with pytest.raises(JobError) as caught:
        for_server(text)
    assert caught.value.what == "no model is named"
    assert MODEL_VARIABLE in caught.value.todo
    assert get(yaml.safe_load(for_server(text, "m").text), MODEL) == "m"


@pytest.mark.parametrize("model", ["tiny", "smollm2"])
def test_a_model_of_the_embedded_engine_is_refused(model: str) -> None:
    with pytest.raises(JobError, match="a model of the embedded engine"):
        for_server(f"ajet: {{model: {{path: {model}}}}}", "m")


@pytest.mark.parametrize("make", [default_job, hand_job])
def test_a_job_for_the_embedded_engine_is_refused_with_any_model(
    make: Callable[[str], Job],
) -> None:
    job = make("a/real-model")
    put(job, BATCH, 2)
    put(job, LEARNING_RATE, 1e-4)
    with pytest.raises(JobError) as caught:
        for_server(dump_job(job))
    assert "made for the embedded engine (learning rate 0.0001, KL 0.1)" in caught.value.what
    assert "--preset default --set model=PATH" in caught.value.todo
    put(job, KL, 0.002)
    put(job, "ajet.trainer_common.optim.grad_clip", 20.0)
    assert for_server(dump_job(job)).added, "values that somebody has set are theirs"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ajet: {model: {path: m}, task_judge: off}", "`ajet.task_judge` is False"),
        ("ajet: {model: {path: m}}\nhydra: mine\n", "`hydra` is 'mine'"),
        (
            "ajet: {model: {path: m}, interchange_server: {interchange_server_port: auto}}",
            "interchange_server_port` is 'auto'",
        ),
        ("ajet: {model: {path: m}, trainer_common: {nnodes: two}}", "nnodes` is 'two'"),
    ],
)
def test_values_that_no_server_starts_with_are_refused(text: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        for_server(text)
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        (
            "data: {train_batch_size: 1}",
            "4 samples (tasks x repeats: 1 x 4), which 8 GPUs (assumed",
        ),
        ("data: {train_batch_size: 1}, trainer_common: {n_gpus_per_node: 8}", "8 GPUs cannot"),
        ("data: {train_batch_size: 1}, trainer_common: {n_gpus_per_node: 4}", ""),
        ("data: {train_batch_size: 1}, trainer_common: {n_gpus_per_node: 4, nnodes: 2}", "8 GPUs"),
        ("rollout: {num_repeat: 3}, trainer_common: {n_gpus_per_node: 4, nnodes: 8}", ""),
        ("rollout: {num_repeat: 3}", ""),
        ("rollout: {num_repeat: 3}, data: {train_batch_size: 20}", "60 samples"),
        ("trainer_common: {mini_batch_num: 32}", "128 samples in 32 updates"),
        ("trainer_common: {mini_batch_num: 16}", ""),
    ],
)
def test_samples_that_the_gpus_cannot_share_are_refused(keys: str, refused: str) -> None:
    text = f"ajet: {{model: {{path: m}}, {keys}}}"
    if not refused:
        assert trainer_error(compose(for_server(text).text)) == ""
        return
    with pytest.raises(JobError) as caught:
        for_server(text, where="a.yaml")
    assert refused in caught.value.what
    assert caught.value.where.startswith("a.yaml")
    assert "--set gpus=N" in caught.value.todo
    least = int(caught.value.todo.rpartition("batch=")[2].rstrip("`)"))
    corrected = yaml.safe_load(text)
    put(corrected, BATCH, least)
    assert get(yaml.safe_load(for_server(dump_job(corrected)).text), BATCH) == least


def test_an_empty_list_is_filled() -> None:
    sent = for_server(f"{SHORT}\ndefaults: []\nhydra: {{searchpath: []}}\n").text
    assert values(sent) == dict(REQUIRED)


@pytest.mark.slow
def test_the_library_job_lacks_nothing_and_sends_no_default_of_the_server() -> None:
    job = AgentJetJob(model="m", lr=1e-6)
    assert for_server(job.to_yaml()).added == ()
    sent = yaml.safe_load(job.to_yaml())
    assert get(sent, LEARNING_RATE) == 1e-6, "set by the caller, although it is the default"
    assert get(sent, KL) is None
    assert job.config.ajet.trainer_common.kl_loss_coef == 0.002
    job.config.ajet.trainer_common.kl_loss_coef = 0.5
    assert get(yaml.safe_load(job.to_yaml()), KL) == 0.5


async def test_a_client_completes_the_job_for_a_server_and_not_for_the_embedded_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ScriptedSwarm(state="OFFLINE") as server, HttpTransport() as transport:
        client = SwarmWire(server.url, transport, "me")
        assert not await client.is_embedded()
        sent = await client.sync_train_config(SHORT)
        assert server.config == sent == for_server(SHORT).text
        monkeypatch.setenv(MODEL_VARIABLE, "from-the-environment")
        await client.sync_train_config("ajet: {}")
        assert get(yaml.safe_load(server.config), MODEL) == "from-the-environment"
        syncs = server.requests["/sync_train_config"]
        with pytest.raises(JobError, match="embedded engine"):
            await client.sync_train_config(dump_job(default_job()))
        assert server.requests["/sync_train_config"] == syncs

        async def embedded(_: SwarmWire, *, again: bool = False) -> frozenset[str]:
            return frozenset({"/ajetc/info"})

        monkeypatch.setattr(SwarmWire, "features", embedded)
        await client.sync_train_config(SHORT)
        assert server.config == SHORT


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SHORT, "'defaults'"),
        (f"{SHORT}\ndefaults: [ajet_default]\n", "'hydra'"),
        (
            f"{SHORT}\ndefaults: [ajet_default]\nhydra: {{searchpath: [b]}}\n",
            "'interchange_server'",
        ),
    ],
)
async def test_the_scripted_server_is_as_strict_as_a_real_one(text: str, error: str) -> None:
    async with ScriptedSwarm(state="OFFLINE") as server, HttpTransport() as transport:
        client = SwarmWire(server.url, transport, "me")
        server.config = text
        with pytest.raises(SwarmError) as caught:
            await client.start_engine()
        assert caught.value.what.endswith(f": {error}")
        assert (await client.status()).state.value == "BOOTING"
        await client.stop_engine()
        await client.sync_train_config(text)
        await client.start_engine()
        await server.until(lambda: server.state == "ROLLING")
