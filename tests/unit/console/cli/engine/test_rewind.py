"""`progress rewind`: the plan, the question, and a path of the operator."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.job.schema import MODEL
from ajet_swarm.job.tree import get, load_job
from core.events import Rewound
from core.runtime.home import Home, Role
from tests.support.commands.cli import AsyncCli, missing
from tests.support.engine.model_folder import write_model, write_shards
from tests.support.proxy.trained import Trained, trained

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET", 0.1)


@asynccontextmanager
async def proxied(home: Home, better_at: int = 6) -> AsyncIterator[Trained]:
    """A proxy of the home whose server has a verified step."""
    async with trained(home.root) as made:
        await made.look(better_at, 0.9)
        async with made.served(home.token()) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                yield made


def model_of(made: Trained) -> object:
    return get(load_job(str(made.w.swarm.config)), MODEL)


async def test_shards_are_refused_with_the_merge_command_and_a_path_is_rewound_to(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        actor = write_shards(made.folder(5))
        shown = await async_cli.failed("progress", "rewind", "--yes")
        merge = f"python -m verl.model_merger merge --backend fsdp --local_dir {actor}"
        assert not missing(shown, "holds shards only", merge)
        assert made.w.swarm.stops == 0

        merged = write_model(tmp_path / "merged weights")
        shown = await async_cli.out("progress", "rewind", "--path", merged, "--yes")
        assert "step 6: better by 0." in shown
        assert (made.w.swarm.stops, model_of(made)) == (1, str(merged))
        (rewound,) = made.w.kinds(Rewound)
        assert (rewound.step, rewound.restored) == (6, str(merged))


async def test_without_yes_the_plan_is_shown_and_nothing_changes(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        merged = write_model(tmp_path / "merged")
        shown = await async_cli.refused("progress", "rewind", "--path", merged)
        assert re.search(rf"^step 6 \(\+0\.\d\d against the baseline\): {merged}$", shown, re.M)
        assert not missing(shown, f"/models/base -> {merged}", "The optimizer state", "Add --yes")
        assert (made.w.swarm.stops, model_of(made)) == (0, "/models/base")


async def test_a_path_that_cannot_be_used_is_refused_before_the_question(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        for path, words in (
            ("relative", "relative"),
            ("/data/global_step_9/actor", "which no look verified"),
            (tmp_path / "a\x1b[2Jb", ""),
        ):
            shown = await async_cli.failed("progress", "rewind", "--path", path, "--yes")
            assert words in shown
            assert "\x1b" not in shown
        assert (made.w.swarm.stops, model_of(made)) == (0, "/models/base")
