"""The jobs that the program offers for the embedded engine, by its backend."""

import pytest

from ajet_swarm.protocol.job import BATCH, MODEL, default_job, dump_job, get, hand_job
from ajet_swarm.protocol.server_job import check_recipe, for_server
from core.settings import EngineSettings
from core.settings.presets import PRESETS, embedded_job
from engine.server.job import parse_job
from engine.torch.recipe import recipe


def test_numpy_has_the_jobs_of_the_shipped_policy() -> None:
    assert embedded_job(EngineSettings(), "default") == default_job()
    assert embedded_job(EngineSettings(), "hand") == hand_job()


@pytest.mark.parametrize(("preset", "tasks"), zip(PRESETS, (4, 1), strict=True))
def test_the_jobs_of_torch_start_an_agentjet_server_as_well(preset: str, tasks: int) -> None:
    job = embedded_job(EngineSettings(backend="torch", model="org/name"), preset)
    check_recipe(job)
    assert get(job, BATCH) == tasks
    assert "org/name" in for_server(dump_job(job)).text
    read = parse_job(dump_job(job), recipe=recipe(full=False))
    assert read.hyper == recipe(full=False)
    assert (read.model_path, read.batch_size, read.num_repeat) == ("org/name", tasks, 4)


def test_without_a_model_the_job_names_none() -> None:
    job = embedded_job(EngineSettings(backend="torch"), "default")
    assert get(job, MODEL) is None
    assert parse_job(dump_job(job)).model_path == ""
