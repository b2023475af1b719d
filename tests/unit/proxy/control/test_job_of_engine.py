"""The jobs offered for an engine follow the backend and the model that it reports."""

from pathlib import Path

import pytest

from ajet_swarm.job.schema import LEARNING_RATE, MODEL
from ajet_swarm.job.tree import get
from core.settings import EngineSettings
from proxy.control.job_commands import engine_of, presets
from tests.support.proxy.world import world
from tests.support.scripted.ajetc_transport import AjetcTransport

TINY = EngineSettings()
LARGE = EngineSettings(backend="torch", model="org/name")


@pytest.mark.parametrize(
    ("reported", "settings", "expected"),
    [
        ({"backend": "torch", "model": "org/other"}, TINY, ("torch", "org/other")),
        ({"backend": "torch", "model": ""}, LARGE, ("torch", "tiny")),
        ({"backend": "numpy", "model": ""}, LARGE, ("numpy", "tiny")),
        ({}, LARGE, ("torch", "org/name")),
        ({"backend": "later"}, TINY, ("numpy", "tiny")),
    ],
    ids=["other model", "of the job", "tiny", "not reported", "unknown"],
)
async def test_the_engine_that_runs_wins_over_the_settings(
    tmp_path: Path,
    reported: dict[str, str],
    settings: EngineSettings,
    expected: tuple[str, str],
) -> None:
    async with world(tmp_path) as made:
        client = made.server.client
        swarm = AjetcTransport(client.transport, made.swarm)
        client.transport = swarm  # type: ignore[assignment]  # it streams nothing here
        await client.features(again=True)
        swarm.backend = reported
        engine = await engine_of(client, settings)
        assert (engine.backend, engine.model) == expected


async def test_a_server_without_the_route_or_without_an_answer_changes_nothing(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made:
        client = made.server.client
        assert await engine_of(client, LARGE) == LARGE
        swarm = AjetcTransport(client.transport, made.swarm)
        client.transport = swarm  # type: ignore[assignment]  # it streams nothing here
        await client.features(again=True)
        swarm.backend = {"backend": ["odd"]}  # type: ignore[dict-item]  # of a faulty server
        assert await engine_of(client, LARGE) == LARGE


async def test_a_large_model_never_gets_the_learning_rate_of_the_tiny_policy(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made:
        client = made.server.client
        swarm = AjetcTransport(client.transport, made.swarm)
        client.transport = swarm  # type: ignore[assignment]  # it streams nothing here
        await client.features(again=True)
        swarm.backend = {"backend": "torch", "model": "org/name"}
        jobs = await presets(made.context, made.server, embedded=True)
        for job in jobs.values():
            assert get(job, MODEL) == "org/name"
            assert get(job, LEARNING_RATE) is None
