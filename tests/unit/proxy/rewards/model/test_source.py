"""The source of a model: slow parts, reload, versions, health, commands."""

import asyncio
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from core.plugins import Plugins
from core.settings import edit
from proxy.rewards import part as part_module
from proxy.rewards.model.file import ModelFault, parse
from proxy.rewards.model.source import ComposedSource, RewardCommands, parts_of
from proxy.rewards.part import (
    KINDS,
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartKind,
    PartValue,
    Setting,
)
from proxy.rewards.source import Abstention, SourceHealth
from tests.support.proxy.until import until
from tests.unit.proxy.rewards.conftest import error_of, fault, group

TEXT = "parts:\n  length: {weight: 1}\n"


class Slow:
    """A slow part whose answers the test gives."""

    made: ClassVar[list["Slow"]] = []

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.state = SourceHealth(True, None, "s1")
        self.listeners: list[Any] = []
        self.started = self.closed = self.calls = 0
        self.learns_version = False
        self.go = asyncio.Event()
        self.go.set()
        Slow.made.append(self)

    async def score(self, group: PartInput) -> Sequence[PartValue]:
        self.calls += 1
        await self.go.wait()
        match self.settings["say"]:
            case "abstain":
                raise PartAbstained("not today", "Traceback: x", "f.py", 3)
            case "raise":
                raise ValueError("broken")
            case "short":
                return [PartValue(1.0)]
            case "text":
                return [PartValue("1")] * len(group.readings)  # type: ignore[arg-type]  # bad
            case "nan":
                return [PartValue(float("nan"))] * len(group.readings)
            case "prose":
                return "ten" * 10  # type: ignore[return-value]  # bad
        return [PartValue(0.5, "slow") for _ in group.readings]

    async def start(self) -> None:
        self.started += 1
        if self.settings["say"] == "no start":
            raise AjetError("no such server")
        if self.settings["say"] == "odd start":
            raise ValueError("odd")

    async def close(self) -> None:
        self.closed += 1
        if self.settings["say"] == "no close":
            raise ValueError("odd")

    def health(self) -> SourceHealth:
        return self.state

    def add_listener(self, listener: Any) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def turn(self, ok: bool, version: str) -> None:
        self.state = SourceHealth(ok, None if ok else Abstention("slow", "unwell"), version)
        for listener in tuple(self.listeners):
            listener(self.state)


def _make(name: str, settings: Any, where: Path) -> Slow:
    return Slow(settings)


SLOW = PartKind(_make, "A test's", {"say": Setting("text", "half", "what it says")}, slow=True)


@pytest.fixture(autouse=True)
def slow_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package's kind, by its entry point."""
    module = types.ModuleType("a_package_with_parts")
    module.__dict__.update(SLOW=SLOW, WRONG="no kind")
    monkeypatch.setitem(sys.modules, "a_package_with_parts", module)
    points = [
        EntryPoint("slow", "a_package_with_parts:SLOW", part_module.ENTRY_POINTS),
        EntryPoint("wrong", "a_package_with_parts:WRONG", part_module.ENTRY_POINTS),
        EntryPoint("gone", "a_package_that_is_gone:KIND", part_module.ENTRY_POINTS),
        EntryPoint("length", "a_package_with_parts:SLOW", part_module.ENTRY_POINTS),
    ]
    monkeypatch.setattr(part_module, "KINDS", KINDS)
    plugins = Plugins(
        part_module.ENTRY_POINTS, PartKind, part_module.BUILT_IN, find=lambda group: points
    )
    monkeypatch.setattr(KINDS, "plugins", plugins)
    Slow.made.clear()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[ComposedSource]]]:
    sources = []

    async def open_(text: str | None, seconds: float = 20.0, **more: Any) -> ComposedSource:
        file = tmp_path / "rewards.yaml"
        if text is not None:
            file.write_text(text)
        source = ComposedSource(file, PartEnvironment(tmp_path, seconds), **more)
        sources.append(source)
        await source.start()
        return source

    yield open_
    for source in sources:
        await source.close()


def save(source: ComposedSource, text: str) -> None:
    edit.write(source.file, text, "the rewards")


def names(source: ComposedSource) -> list[str]:
    return [part.name for part in source.parts()]


async def test_without_a_file_the_built_in_model_serves(opened: Any) -> None:
    source = await opened(None)
    assert source.name == "builtin"
    assert source.version == ComposedSource().version
    sheet = await source.score(group("Paris is the capital", "no"))
    assert sheet.abstention is None
    assert len(sheet.scores) == 2


async def test_a_save_is_loaded_within_half_a_second(opened: Any) -> None:
    source = await opened(None)
    before = source.version
    healths: list[SourceHealth] = []
    source.add_listener(healths.append)
    save(source, TEXT)
    assert await until(lambda: source.version != before) < 0.6
    assert names(source) == ["length"]
    assert source.name == str(source.file)
    assert healths == [SourceHealth(True, None, source.version)]


async def test_an_invalid_save_keeps_the_old_model(opened: Any) -> None:
    source = await opened(TEXT)
    version = source.version
    save(source, "parts:\n  length: {weight: 1}\n  lenth: {}\n")
    assert await until(lambda: not source.health().ok) < 0.6
    error = error_of(source)
    assert (error.file, error.line) == (str(source.file), 3)
    assert "Did you mean `length`?" in error.cause
    assert source.health().version == source.version == version
    assert (await source.score(group("a", "b c"))).version == version
    save(source, TEXT + "# mended\n")
    await until(lambda: source.health().ok)
    assert source.version == version


async def test_a_broken_file_at_start_abstains(opened: Any) -> None:
    source = await opened("parts: 3\n", required=True)
    sheet = await source.score(group("a", "b"))
    assert (sheet.scores, sheet.version, source.version) == ((), "", "")
    assert (fault(sheet).line, fault(sheet).file) == (1, str(source.file))
    save(source, TEXT)
    await until(lambda: source.health().ok)
    assert (await source.score(group("a", "b"))).abstention is None


async def test_a_broken_link_at_start_abstains(opened: Any, tmp_path: Path) -> None:
    """Its target is on a share that is not mounted: other rewards must not stand in for it."""
    (tmp_path / "rewards.yaml").symlink_to(tmp_path / "gone")
    source = await opened(None)
    assert (await source.score(group("a", "b"))).abstention is not None
    assert source.health().error.file == str(source.file)


async def test_a_deleted_required_file_keeps_the_old_model(opened: Any) -> None:
    source = await opened(TEXT, required=True)
    source.file.unlink()
    await until(lambda: not source.health().ok)
    assert names(source) == ["length"]


async def test_a_deleted_file_keeps_the_last_valid_model_and_reports_it(opened: Any) -> None:
    source = await opened(TEXT)
    source.file.unlink()
    await until(lambda: not source.health().ok)
    error = error_of(source)
    assert "the file is gone" in error.cause
    assert (names(source), source.name) == (["length"], str(source.file))
    save(source, TEXT.replace("length", "relevance"))
    await until(lambda: source.health().ok)
    assert names(source) == ["relevance"]


async def test_the_version_changes_only_with_the_meaning(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "array"}')
    form = TEXT + "  form: {kind: format, schema_file: s.json}\n"
    source = await opened(form)
    versions = [source.version]
    save(source, "# a word\n" + form)
    await source.reload()
    assert source.version == versions[0]
    for text in (form.replace("1}", "2}"), form.replace("length:", "relevance:")):
        save(source, text)
        await source.reload()
        versions.append(source.version)
    (tmp_path / "s.json").write_text('{"type": "object"}')
    assert await until(lambda: source.version != versions[-1]) < 0.6
    versions.append(source.version)
    assert len(set(versions)) == 4


async def test_slow_parts_score_together_with_the_others(opened: Any) -> None:
    source = await opened(TEXT.replace("length", "slow") + "  length: {}\n  two: {kind: slow}\n")
    sheet = await source.score(group("a b c", "b"))
    assert [part.name for part in sheet.scores[0].parts] == ["slow", "length", "two"]
    assert sheet.scores[0].parts[0].value == 0.5


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        ("abstain", "not today"),
        ("raise", "ValueError: broken"),
        ("short", "1 values for 2 answers"),
        ("text", "TypeError"),
        ("nan", "part slow is nan"),
        ("prose", "30 values"),
    ],
)
async def test_a_part_that_fails_abstains(opened: Any, say: str, cause: str) -> None:
    source = await opened(f"parts:\n  slow: {{say: {say}}}\n  length: {{}}\n")
    sheet = await source.score(group("a", "b"))
    assert cause in fault(sheet).cause
    if say == "abstain":
        assert sheet.abstention == Abstention("slow", "not today", "Traceback: x", "f.py", 3)
    if say == "raise":
        assert fault(sheet).file == __file__
        assert "Traceback" in fault(sheet).traceback


@pytest.mark.parametrize(
    ("learns", "before", "meanwhile", "counts"),
    [
        (True, "s1", "s2", "s2"),
        (True, "s1", "", "s1"),
        (False, "s1", "s2", "s1"),
        (False, "", "s2", "s2"),
    ],
    ids=["learnt", "lost", "renewed", "first"],
)
async def test_a_sheet_has_the_version_that_made_it(
    opened: Any, learns: bool, before: str, meanwhile: str, counts: str
) -> None:
    source = await opened("parts:\n  slow: {}\n")
    part = Slow.made[0]
    part.learns_version = learns
    expected = {}
    for one in ("s1", "s2"):
        part.turn(True, one)
        expected[one] = source.version
    part.turn(True, before)
    part.go.clear()
    async with asyncio.TaskGroup() as tasks:
        scored = tasks.create_task(source.score(group("a", "b")))
        while not part.calls:
            await asyncio.sleep(0)
        part.turn(bool(meanwhile), meanwhile)
        part.go.set()
    assert expected["s1"] != expected["s2"]
    assert scored.result().version == expected[counts]


async def test_a_part_that_exceeds_its_time_limit_abstains(opened: Any) -> None:
    source = await opened("parts:\n  slow: {}\n", seconds=-0.9)
    Slow.made[0].go.clear()
    sheet = await source.score(group("a", "b"))
    assert "no answer within" in fault(sheet).cause


async def test_a_changed_weight_keeps_the_running_part(opened: Any) -> None:
    source = await opened("parts:\n  slow: {weight: 1}\n")
    version = source.version
    save(source, "parts:\n  slow: {weight: 2}\n")
    await source.reload()
    assert source.version != version
    assert [(one.started, one.closed) for one in Slow.made] == [(1, 0)]


async def test_a_removed_part_is_closed_when_idle(opened: Any) -> None:
    source = await opened("parts:\n  slow: {}\n")
    slow = Slow.made[0]
    slow.go.clear()
    async with asyncio.TaskGroup() as tasks:
        scoring = tasks.create_task(source.score(group("a", "b")))
        await asyncio.sleep(0)
        save(source, TEXT)
        await source.reload()
        assert slow.closed == 0
        slow.go.set()
    assert scoring.result().abstention is None
    await until(lambda: slow.closed == 1)
    assert not slow.listeners


async def test_the_old_model_scores_until_the_parts_of_the_new_one_are_ready(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await opened(TEXT)
    version = source.version
    start = Slow.start

    async def unwell(self: Slow) -> None:
        await start(self)
        self.turn(False, "")

    monkeypatch.setattr(Slow, "start", unwell)
    save(source, "parts:\n  slow: {}\n")
    await source.reload()
    assert (names(source), source.version) == (["length"], version)
    health = source.health()
    assert (health.ok, health.version) == (False, version)
    assert health.error is not None
    Slow.made[0].turn(True, "s2")
    assert names(source) == ["slow"]
    assert source.health().ok
    Slow.made[0].turn(False, "s2")  # a newer save of its own is broken
    assert source.health().version == source.version != ""


@pytest.mark.parametrize(
    ("say", "result"), [("no start", "no such server"), ("odd start", "ValueError: odd")]
)
async def test_a_part_that_does_not_start_leaves_no_other_running(
    opened: Any, say: str, result: str
) -> None:
    source = await opened(f"parts:\n  one: {{kind: slow}}\n  two: {{kind: slow, say: {say}}}\n")
    fault = error_of(source)
    assert fault.cause == result
    assert [(part.started, part.closed) for part in Slow.made] == [(1, 1), (1, 1)]


async def test_a_part_that_does_not_close_leaves_no_other_open(
    opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = await opened("parts:\n  one: {kind: slow, say: no close}\n  two: {kind: slow}\n")
    await source.close()
    assert [part.closed for part in Slow.made] == [1, 1]
    assert "a part could not be closed" in caplog.text


async def test_a_source_that_scored_without_a_start_closes_its_parts() -> None:
    source = ComposedSource(model=parse("parts:\n  one: {kind: slow}\n", None))
    await source.score(group("a"))
    await source.close()
    assert [(part.started, part.calls, part.closed) for part in Slow.made] == [(0, 1, 1)]


async def test_kinds_of_other_packages(opened: Any) -> None:
    assert list(KINDS)[-3:] == ["slow", "wrong", "gone"]
    assert KINDS["length"].make is not _make
    with pytest.raises(UsageError, match="is a str"):
        KINDS["wrong"]
    with pytest.raises(ModelFault, match="does not load: ModuleNotFoundError") as caught:
        parse("parts:\n  gone: {}\n", None)
    assert caught.value.line == 2


async def test_history_is_of_other_groups(opened: Any) -> None:
    source = await opened("parts:\n  diversity: {against: recent}\n  length: {}\nrecent: 1\n")
    first = group("one two three four five", "no")

    async def share(ctx: Any) -> float:
        sheet = await source.score(ctx)
        return float(sheet.scores[0].parts[0].value)

    assert await share(first) == 1.0
    assert await share(first) == 1.0  # scored again
    other = type(first)("g2", "r", "t", "q", [], {}, None, first.answers)
    assert await share(other) == 0.0
    assert await share(other) == 1.0  # one winner is kept, its own


@pytest.mark.slow
async def test_reward_commands_write_the_file_and_take_effect(opened: Any) -> None:
    source = await opened(None)
    orders = RewardCommands(source).table
    before = source.version
    result = await orders["rewards.weight"](part="length", weight=0.9)
    assert "length has weight 0.9" in result
    assert source.version in result
    assert source.version != before
    await orders["rewards.gate"](part="relevance", on=True)
    await orders["rewards.enable"](part="diversity", on=False)
    for name, why in (("relevance", "while it is a gate"), ("diversity", "while it is off")):
        result = await orders["rewards.weight"](part=name, weight=0.3)
        assert f"{name} has weight 0.3 (ignored {why})" in result
    parts = {part.name: part for part in parts_of(source)}
    assert (parts["length"].weight, parts["relevance"].gate) == (0.9, True)
    assert not parts["diversity"].enabled
    scored = (await source.score(group("Paris is the capital of France", "no"))).scores[0]
    assert "diversity" not in [part.name for part in scored.parts]
    assert "# A share is taken first" in source.file.read_text()
    with pytest.raises(AjetError, match="no part `nobody`"):
        await orders["rewards.weight"](part="nobody", weight=1)


@pytest.mark.slow
async def test_a_hook_folder_is_a_part(opened: Any, hooks: Any) -> None:
    hooks.reward(
        """
        async def on_compute_relative_reward(valid_results, all_answers):
            for one in all_answers:
                one["words"] = len(one["content"].split())
            return [0.25, 0.75]
        """
    )
    source = await opened(f"parts:\n  mine: {{kind: hook, folder: {hooks.path}}}\n  length: {{}}\n")
    sheet = await source.score(group("one two", "three"))
    assert sheet.abstention is None
    parts = sheet.scores[0].parts
    assert [(part.name, part.value) for part in parts[:2]] == [("mine", 0.25), ("words", 2.0)]
    assert parts[1].weight == 0
    hooks.reward("raise ValueError('later')")
    version = source.version
    assert source.health().ok
    async with asyncio.timeout(60):
        while source.health().ok:
            await asyncio.sleep(0.01)
    error = error_of(source)
    assert "later" in error.cause
    assert source.version == version
