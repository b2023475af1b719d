"""What-if on a proxy: in the background, changing nothing, applied on request."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.runtime import Clock, Runtime
from core.events import GroupSealed, WhatIfChanged
from proxy.control import what_if
from proxy.control.dispatch import CommandDispatcher
from proxy.rewards.model.file import load
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment
from tests.support.proxy.world import World, texts, world
from tests.support.scripted.swarm import ScriptedSwarm

ANSWERS = texts("Yes.", "It is a longer answer, with rather more words in it than the others.")
SLOW = "import time\ndef on_compute_relative_reward(results, answers):\n    time.sleep(0.2)\n"


class RunningWhatIf:
    """A proxy with rewards of a file, and its what-ifs."""

    def __init__(self, w: World, source: ComposedSource) -> None:
        self.w = w
        self.source = source
        self._orders = CommandDispatcher(w.context, w.groups)

    async def order(self, name: str, args: Any = None) -> str:
        message, _ = await self._orders.execute(name, args or {})
        return message

    async def ask(self, times: int) -> None:
        for _ in range(times):
            await self.w.reply(await self.w.ask("say something"))
            await self.w.closed()

    async def over(self) -> WhatIfChanged:
        await self.w.until(lambda: self.w.state.what_if is not None and self.w.state.what_if.over)
        changed: WhatIfChanged = self.w.kinds(WhatIfChanged)[-1]
        return changed


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningWhatIf]:
    monkeypatch.setattr(what_if, "PUBLISH_EVERY", 0.0)
    file = tmp_path / "rewards.yaml"
    file.write_text("parts:\n  length: {weight: 0.5}  # short\n  diversity: {weight: 0.5}\n")
    source = ComposedSource(file, PartEnvironment(tmp_path, 5.0))
    async with ScriptedSwarm(repeat=2, answer=ANSWERS) as swarm, world(tmp_path, swarm) as w:
        await source.start()
        w.context.rewards = source
        try:
            yield RunningWhatIf(w, source)
        finally:
            await w.closed()
            await source.close()


@pytest.mark.slow
async def test_other_weights_are_tried_and_nothing_is_sent_or_changed(
    running: RunningWhatIf,
) -> None:
    await running.ask(3)
    before = list(running.w.swarm.reward_log)
    rewards = running.w.kinds(GroupSealed)[-1].rewards
    version, file = running.source.version, running.source.file
    text = file.read_text()
    result = await running.order(
        "rewards.whatif", {"weights": ("length=0", "diversity=1"), "last": 10}
    )
    assert "nothing is sent" in result
    done = await running.over()
    assert (done.phase, done.done, done.total) == ("done", 3, 3)
    assert done.summary.compared == 3
    assert done.summary.version not in ("", version)
    assert done.summary.mean_after != pytest.approx(done.summary.mean_before)
    assert running.w.swarm.reward_log == before
    assert running.w.kinds(GroupSealed)[-1].rewards == rewards
    assert (running.source.version, file.read_text()) == (version, text)
    assert [one.phase for one in running.w.kinds(WhatIfChanged)][:2] == ["doing", "doing"]


async def test_the_tried_rewards_read_the_clock_of_the_proxy(running: RunningWhatIf) -> None:
    """Each reading adds a second: those of the source count in the time of the group."""
    await running.ask(1)
    seconds = itertools.count()
    running.w.context.runtime = Runtime(Clock(monotonic=lambda: float(next(seconds))))
    await running.order("rewards.whatif", {"weights": ("length=0.1",)})
    summary = (await running.over()).summary
    assert summary.seconds > 1.0


@pytest.mark.slow
async def test_the_tried_weights_are_applied_on_request(running: RunningWhatIf) -> None:
    with pytest.raises(AjetError, match="no what-if to apply"):
        await running.order("rewards.apply")
    await running.ask(1)
    await running.order("rewards.whatif", {"weights": ("length=0.1",)})
    await running.over()
    version = running.source.version
    assert "applied length 0.1" in await running.order("rewards.apply")
    part = load(running.source.file).named("length")
    assert part.weight == 0.1
    assert "# short" in running.source.file.read_text()
    assert running.source.version != version
    assert running.w.state.what_if.phase == "applied"
    versions: list[str] = []
    running.source.add_listener(lambda health: versions.append(health.version))
    await running.order("rewards.apply", {"weights": ("diversity=0.2", "length=0.3")})
    assert versions == [running.source.version]  # both at once: no version between
    weights = [one.weight for one in load(running.source.file).parts]
    assert weights == [0.3, 0.2]


async def test_users_are_answered_during_a_what_if_and_it_can_be_cancelled(
    running: RunningWhatIf, tmp_path: Path
) -> None:
    await running.ask(3)
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "on_compute_relative_reward.py").write_text(f"{SLOW}    return [0.1, 0.2]\n")
    await running.order("rewards.whatif", {"hooks": str(folder)})
    await running.ask(1)
    assert running.w.state.what_if.phase == "doing"
    assert "ended" in await running.order("rewards.whatif_stop")
    assert (await running.over()).phase == "cancelled"
    assert "no what-if runs" in await running.order("rewards.whatif_stop")
    with pytest.raises(AjetError, match="no what-if to apply"):
        await running.order("rewards.apply")


async def test_a_new_what_if_cancels_the_previous_one(running: RunningWhatIf) -> None:
    await running.ask(2)
    await running.order("rewards.whatif", {"weights": ("length=0.1",)})
    await running.order("rewards.whatif", {"weights": ("length=0.9",)})
    done = await running.over()
    await running.w.until(lambda: running.w.state.what_if.phase == "done")
    assert running.w.state.what_if.weights == (("length", 0.9),)
    assert done.what in ("length 0.1", "length 0.9")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"weights": ("lenth=1",)}, "no part `lenth`"),
        ({"weights": ("length",)}, "is not a weight"),
        ({"weights": ("length=nan",)}, "is not a weight"),
        ({"last": -1}, "-1 groups"),
        ({"last": 100_000}, "100000 groups"),
        ({"file": "a", "hooks": "b"}, "a file and a hook folder"),
    ],
)
async def test_invalid_choices_are_refused_at_once(
    args: dict[str, object], words: str, running: RunningWhatIf
) -> None:
    with pytest.raises(UsageError, match=words):
        await running.order("rewards.whatif", args)
    assert running.w.state.what_if is None


async def test_rewards_that_do_not_load_fail_with_file_and_line(
    running: RunningWhatIf, tmp_path: Path
) -> None:
    await running.ask(1)
    file = tmp_path / "other.yaml"
    file.write_text("parts:\n  lenght: {}\n")
    await running.order("rewards.whatif", {"file": str(file)})
    done = await running.over()
    assert done.phase == "failed"
    assert f"{file}:2" in done.cause
    await running.order("rewards.whatif", {"file": str(tmp_path / "none.yaml")})
    await asyncio.sleep(0)
    await running.w.until(lambda: "does not exist" in running.w.state.what_if.cause)


async def test_without_groups_there_is_nothing_to_try(running: RunningWhatIf) -> None:
    await running.order("rewards.whatif", {})
    done = await running.over()
    assert (done.phase, "no groups" in done.cause) == ("failed", True)
