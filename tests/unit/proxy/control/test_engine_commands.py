"""Commands about checkpoints and episodes: what is stopped for them, and what is refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.commands import COMMANDS, CommandError, validate
from core.events import AlertRaised, CheckpointsListed
from proxy.control.dispatch import CommandDispatcher
from proxy.servers.extensions import LISTED, refresh_checkpoints, tokens
from tests.support.proxy.world import World, world
from tests.support.scripted.ajetc_transport import AjetcTransport


@asynccontextmanager
async def keeping(home: Path) -> AsyncIterator[tuple[World, AjetcTransport]]:
    """A proxy on a server that keeps checkpoints."""
    async with world(home) as made:
        client = made.server.client
        swarm = AjetcTransport(client.transport, made.swarm)
        client.transport = swarm
        await client.features(again=True)
        yield made, swarm


async def order(made: World, name: str, /, **args: Any) -> str:
    message, _ = await CommandDispatcher(made.context, made.groups).execute(
        name, validate(name, args)
    )
    return message


def listed(made: World) -> list[str] | None:
    checkpoints = made.state.servers["s"].checkpoints
    return None if checkpoints is None else [one.name for one in checkpoints]


async def test_a_saved_checkpoint_reports_its_step_and_is_in_the_state(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, _):
        assert await order(made, "engine.save", name=" mine ") == (
            "s: checkpoint mine saved, step 7"
        )
        assert listed(made) == ["mine", "latest", "step-000005", "previous"]
        assert made.swarm.stops == 0


async def test_a_rolling_engine_is_stopped_for_a_restore_and_resumed(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, value):
        made.swarm.config = "the job it has"
        result = await order(made, "engine.restore", name="step-000005")
        assert result == "s is back at step-000005, step 5; it continues from there"
        assert made.swarm.stops == 1
        assert made.swarm.config == "the job it has"
        assert value.saved["latest"] == 5
        await made.swarm.until(lambda: made.swarm.state == "ROLLING")


async def test_an_offline_engine_stays_offline_after_a_restore(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, _):
        await order(made, "engine.stop")
        assert made.server.watcher.current.state == "OFFLINE"  # without a wait for the next poll
        result = await order(made, "engine.restore", name="base")
        assert result == "s is back at base, step 0; resume it to continue from there"
        assert "resume it" in await order(made, "engine.reset")
        assert (made.swarm.stops, made.swarm.state) == (1, "OFFLINE")


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "there is no checkpoint"), ("previous", "is damaged")]
)
async def test_a_refused_restore_does_not_stop_the_engine(
    tmp_path: Path, name: str, words: str
) -> None:
    async with keeping(tmp_path) as (made, value):
        value.damaged.add("previous")
        with pytest.raises(AjetError, match=words):
            await order(made, "engine.restore", name=name)
        assert (made.swarm.stops, value.orders) == (0, [])


async def test_an_engine_is_resumed_when_a_restore_fails_after_the_stop(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, value):
        made.swarm.config = "the job it has"
        value.refuses = (409, "The checkpoint is damaged: its checksum differs")
        with pytest.raises(AjetError, match="its checksum differs"):
            await order(made, "engine.restore", name="step-000005")
        assert made.swarm.stops == 1
        await made.swarm.until(lambda: made.swarm.state == "ROLLING")


async def test_resume_uses_the_job_of_the_server_else_the_default(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, value):
        made.swarm.config = "the job it has"
        for verb in ("resume", "start"):
            assert "ROLLING already" in await order(made, f"engine.{verb}")
        with pytest.raises(AjetError, match="ROLLING, not OFFLINE"):
            await order(made, "engine.start", preset="hand")
        assert made.swarm.config == "the job it has"
        await order(made, "engine.stop")
        assert await order(made, "engine.resume") == "s continues"
        assert made.swarm.config == "the job it has"
        await order(made, "engine.stop")
        value.job = None
        assert "it had none" in await order(made, "engine.resume")
        assert "ajet" in str(made.swarm.config)


async def test_a_start_that_fails_shows_no_secret_of_the_job(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, value):
        await order(made, "engine.stop")
        job = "ajet: {model: {path: m}, teacher_model: {api_key: hunter2hunter2}}"
        await order(made, "engine.job", job=job)
        value.job, made.swarm.start_error = None, "refused: api_key=hunter2hunter2"
        with pytest.raises(AjetError, match=r"api_key=\*\*\*") as caught:
            await order(made, "engine.resume")
        assert "hunter2" not in f"{caught.value}{made.kinds(AlertRaised)}"


async def test_a_failed_start_raises_an_alert(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, _):
        await order(made, "engine.stop")
        made.swarm.config, made.swarm.start_error = "x", "no GPU is free"
        with pytest.raises(AjetError, match="no GPU is free"):
            await order(made, "engine.resume")
        assert [one.key for one in made.kinds(AlertRaised)] == ["start:s"]


async def test_prune_lists_the_deleted_checkpoints(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, _):
        with pytest.raises(CommandError, match="`keep` cannot be -1"):
            await order(made, "engine.prune", keep=-1)
        assert await order(made, "engine.prune", keep="1") == "s: there is nothing to delete"
        assert await order(made, "engine.prune", keep="0") == "s: deleted step-000005"
        assert listed(made) == ["latest", "previous"]


async def test_a_server_without_checkpoints_refuses_the_commands(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for name, args in (
            ("engine.save", {"name": "x"}),
            ("engine.restore", {"name": "x"}),
            ("engine.reset", {}),
            ("engine.prune", {"keep": 1}),
            ("engine.resume", {}),
        ):
            with pytest.raises(AjetError, match="this server has no checkpoints"):
                await order(made, name, **args)
        with pytest.raises(AjetError, match="this server has no token log"):
            await tokens(made.context, "e1", "s")
        assert made.swarm.stops == 0
        assert listed(made) is None
        await refresh_checkpoints(made.context, made.server)
        assert not made.kinds(CheckpointsListed)


async def test_only_a_changed_list_of_checkpoints_is_published_and_it_is_bounded(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path) as (made, value):
        value.saved = {f"step-{number:06}": number for number in range(LISTED + 4)}
        value._facts = lambda name: {"name": name, "step": value.saved[name], "at": 5.0}  # type: ignore[method-assign] # the same at each look
        for _ in range(3):
            assert len(await refresh_checkpoints(made.context, made.server)) == LISTED + 4
        (event,) = made.kinds(CheckpointsListed)
        assert (len(event.checkpoints), event.more) == (LISTED, 4)
        value.paths = ()
        await made.server.client.features(again=True)
        await refresh_checkpoints(made.context, made.server)
        assert listed(made) is None


async def test_tokens_are_read_from_the_server_of_the_episode(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (made, value):
        row = {"id": 5, "text": "a", "mask": 1, "logprob": -0.5, "logprob_now": None}
        value.tokens["e1"] = {
            "episode_uuid": "e1",
            "state": "finished",
            "task_id": "t",
            "reward": 0.5,
            "step": None,
            "calls": [{"step": 3, "prompt_tokens": 0, "tokens": [row]}],
        }
        result = await tokens(made.context, "e1", "s")
        assert result.calls[0].tokens[0].logprob == -0.5
        assert result.calls[0].tokens[0].logprob_now is None
        with pytest.raises(AjetError, match="has no tokens here"):
            await tokens(made.context, "e2", "s")
        with pytest.raises(AjetError, match="no server `x`"):
            await tokens(made.context, "e1", "x")
        with pytest.raises(AjetError, match="not the id of an episode"):
            await tokens(made.context, "../prune", "s")


def test_destructive_commands_are_marked_as_dangerous() -> None:
    danger = {name for name, command in COMMANDS.items() if command.danger}
    assert {"engine.restore", "engine.reset", "engine.prune"} <= danger
    assert not {"engine.save", "engine.resume"} & danger
