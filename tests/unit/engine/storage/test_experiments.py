"""Each experiment has weights, optimizer, step and checkpoints of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.schema import EXPERIMENT
from ajet_swarm.job.tree import get
from ajet_swarm.protocol.errors import TrainingFinished
from core.jobs import default_job, hand_job
from core.runtime.home import Home
from engine.app import create_app
from engine.main import EngineOptions, make_engine, tiny_policy
from engine.policy.checkpoint_manager import TinyCheckpoints
from engine.routes import extensions
from engine.storage.experiments import FOLDER, Experiments, experiment_folder
from tests.support.engine.client import Driver, driving
from tests.support.served import served

pytestmark = pytest.mark.slow

ROOT = Path("/r")
BATCH = {"batch": 1, "repeat": 2}


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    experiments = Experiments(tmp_path, TinyCheckpoints)
    async with driving(tiny_policy(experiments), experiments=experiments) as made:
        yield made


async def _trained(driver: Driver, name: str | None, updates: int) -> int:
    """Start under a name, train, stop; the global step it began with."""
    await driver.roll(**BATCH, **({} if name is None else {"experiment_name": name}))
    _, first = await driver.status()
    assert first is not None
    for step in range(first, first + updates):
        await driver.group(f"t{step}")
        await driver.until("ROLLING", step + 1)
    await driver.post("/stop_engine")
    await driver.until("OFFLINE")
    return first


async def _listed(driver: Driver) -> dict[str, int]:
    return {facts["name"]: facts["step"] for facts in await driver.get("/ajetc/checkpoints")}


async def test_a_new_name_begins_at_the_base_and_each_name_is_resumed(driver: Driver) -> None:
    assert await _trained(driver, None, 2) == 1
    before = (await driver.http.get("/ajetc/export")).content
    assert await _trained(driver, "x", 1) == 1
    assert (await driver.get("/ajetc/info"))["step"] == 1
    assert await _listed(driver) == {"latest": 1}
    assert [update["step"] for update in await driver.get("/ajetc/updates")] == [1]
    assert await _trained(driver, "ajet-console", 0) == 3
    assert (await driver.http.get("/ajetc/export")).content == before
    assert await _trained(driver, "x", 1) == 2
    assert await _listed(driver) == {"latest": 2, "previous": 1}


async def test_a_reset_and_a_restore_concern_the_experiment_of_the_job(driver: Driver) -> None:
    await _trained(driver, None, 2)
    await _trained(driver, "x", 2)
    assert (await driver.http.post("/ajetc/reset")).json() == {"success": True, "step": 0}
    assert await _listed(driver) == {"before-reset": 2}
    back = await driver.post("/ajetc/restore", name="before-reset")
    assert back.json()["step"] == 2
    await driver.sync(**BATCH)
    assert await _listed(driver) == {"latest": 2, "previous": 1}
    assert (await driver.get("/ajetc/info"))["step"] is None
    assert await _trained(driver, None, 0) == 3


async def test_a_job_is_checked_against_the_saved_step_of_its_experiment(driver: Driver) -> None:
    await _trained(driver, "x", 2)
    await driver.roll(**BATCH, experiment_name="y")
    for name, steps, error in (
        ("x", 2, "2 steps are asked for and the policy has 2 already"),
        ("x", 3, ""),
        ("y", 1, ""),
    ):
        job = (
            f"ajet: {{experiment_name: {name}, trainer_common: {{total_training_steps: {steps}}}}}"
        )
        answer = (await driver.post("/ajetc/check_job", yaml_as_string=job)).json()
        assert (answer["success"], error in answer.get("error", "")) == (not error, True)
    assert await driver.status() == ("ROLLING", 1)


async def test_a_reset_at_the_next_start_leaves_all_steps_to_train(tmp_path: Path) -> None:
    experiments = Experiments(tmp_path, TinyCheckpoints)
    async with driving(tiny_policy(experiments), experiments=experiments) as driver:
        await _trained(driver, "x", 1)
    async with driving(tiny_policy(experiments), experiments=experiments, reset=True) as driver:
        job = "ajet: {experiment_name: x, trainer_common: {total_training_steps: 1}}"
        answer = await driver.post("/ajetc/check_job", yaml_as_string=job)
        assert answer.json() == {"success": True}


@pytest.mark.parametrize("checks", [True, False], ids=["checked before", "refused at the start"])
async def test_a_finished_job_stops_nothing_and_is_training_finished(
    driver: Driver, checks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _trained(driver, "x", 1)
    if not checks:
        monkeypatch.setattr(extensions, "check_trainable", lambda *_: None)
    await driver.roll(**BATCH, experiment_name="y")
    job = AgentJetJob(experiment_name="x", total_training_steps=1, batch_size=1, num_repeat=2)
    text = "training complete: 1 steps are asked for and the policy has 1 already"
    async with served(create_app(driver.engine)) as url, AsyncSwarm(url) as swarm:
        with pytest.raises(TrainingFinished, match=text):
            await swarm.auto_sync_train_config_and_start_engine(job, force_restart=True)
    assert await driver.status() == (("ROLLING", 1) if checks else ("OFFLINE", 0))


async def test_the_same_job_again_keeps_what_is_known(driver: Driver) -> None:
    await _trained(driver, "x", 1)
    await driver.sync(**BATCH, experiment_name="x")
    assert (await driver.get("/ajetc/info"))["step"] == 1
    assert len(await driver.get("/ajetc/updates")) == 1


async def test_a_job_is_not_taken_while_checkpoints_are_changed(driver: Driver) -> None:
    driver.engine.policy_holder.resetting = True
    answer = await driver.post("/sync_train_config", yaml_as_string="{}")
    assert (answer.status_code, driver.engine.job) == (400, None)
    assert "being reset or replaced" in answer.json()["detail"]


async def test_a_faithful_engine_chooses_the_experiment_at_the_start(tmp_path: Path) -> None:
    experiments = Experiments(tmp_path, TinyCheckpoints)
    async with driving(tiny_policy(experiments), experiments=experiments, faithful=True) as driver:
        await driver.start(**BATCH, experiment_name="x")
        await driver.until("ROLLING", 1)
        assert experiments.folder == tmp_path / FOLDER / "x"


async def test_the_folder_is_that_of_the_options(home: Home) -> None:
    made = make_engine(EngineOptions(home=home)).experiments
    assert made is not None
    made.choose("x")
    assert made.folder == home.engine / FOLDER / "x"


def test_the_default_experiment_is_kept_at_the_root() -> None:
    jobs = (default_job(), hand_job())
    assert [experiment_folder(ROOT, get(job, EXPERIMENT)) for job in jobs] == [ROOT, ROOT]
    assert AgentJetJob().experiment_name == "read_yaml_name"  # read as none
    assert experiment_folder(ROOT, "") == ROOT


@pytest.mark.parametrize(
    "name", ["..", ".", "/etc/passwd", "a/b", "x" * 500, "", "x\0y", "con.", "Ü", "\ud800", "-a"]
)
def test_a_folder_stays_below_the_root(name: str) -> None:
    folder = experiment_folder(ROOT, name)
    assert folder == ROOT or folder.parent == ROOT / FOLDER
    assert folder.name not in (".", "..")
    assert len(folder.name) <= 64
    assert folder.name.isascii()


def test_no_two_names_share_a_folder() -> None:
    names = ["x", "X", "a/b", "a-b", "a b", "Ä", "Ö", "x" * 60, "x" * 61, "a.", "a"]
    folders = {str(experiment_folder(ROOT, name)).lower() for name in names}
    assert len(folders) == len(names)
