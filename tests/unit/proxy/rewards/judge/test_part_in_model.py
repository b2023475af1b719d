"""A judge as a part of a model, and the page that documents it."""

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from core.events import Event, JudgeSpent
from proxy.rewards.judge import part
from proxy.rewards.judge.settings import MODES
from proxy.rewards.model.assembly import Assembly
from proxy.rewards.model.file import ModelFault, load
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment
from tests.support.scripted.judge import ScriptedJudge, bench
from tests.unit.proxy.rewards.conftest import Group, error_of, fault

PAGE = (Path(__file__).parents[5] / "docs" / "guide" / "judge.md").read_text()


@contextlib.asynccontextmanager
async def open_source(file: Path, **environment: Any) -> AsyncIterator[ComposedSource]:
    source = ComposedSource(file, PartEnvironment(**environment), required=True)
    await source.start()
    try:
        yield source
    finally:
        await source.close()


def model(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "rewards.yaml"
    file.write_text(
        f"parts:\n  finished: {{gate: true}}\n"
        f"  helpful: {{kind: judge, weight: 1, url: '{url}', rubric: rubric.md{more}}}\n"
    )
    (folder / "rubric.md").write_text("Be kind.")
    return file


async def test_a_judge_gives_rewards(tmp_path: Path, group: Group) -> None:
    events: list[Event] = []
    async with (
        ScriptedJudge() as judge,
        open_source(
            model(tmp_path, judge.url),
            home=tmp_path / "home",
            publish=events.append,
        ) as source,
    ):
        sheet = await source.score(group("a q=2", "b q=9"))
        assert sheet.abstention is None
        assert [score.reward for score in sheet.scores] == pytest.approx([0.2, 0.9])
        part = next(one for one in sheet.scores[1].parts if one.name == "helpful")
        assert part.reason.startswith("9 of 10: because")
        assert sheet.version
        judge.forever = "prose"
        sheet = await source.score(group("a q=2", "c"))
        assert fault(sheet).part == "helpful"
        assert "could not be used" in fault(sheet).cause
    assert (tmp_path / "home" / "judge.db").exists()
    assert isinstance(events[-1], JudgeSpent)
    assert (events[-1].judge, events[-1].groups, events[-1].failures) == ("helpful", 2, 1)


async def test_a_rubric_that_is_saved_is_used(
    tmp_path: Path, group: Group, until: Callable[..., Any]
) -> None:
    async with ScriptedJudge() as judge, open_source(model(tmp_path, judge.url)) as source:
        await source.score(group("a", "b"))
        before = source.version
        (tmp_path / "rubric.md").write_text("Be brief, and nothing else.")
        await until(lambda: source.version != before)
        await source.score(group("a", "b"))
    rubrics = [call["messages"][0]["content"] for call in judge.calls]
    assert "Be kind." in rubrics[0]
    assert "Be brief, and nothing else." in rubrics[-1]


@pytest.mark.slow
async def test_a_model_whose_judge_has_no_key_does_not_replace_one_that_works(
    tmp_path: Path, group: Group, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "PROBE_EVERY", 0.05)
    async with ScriptedJudge() as judge:
        file = model(tmp_path, judge.url)
        events: list[Any] = []
        async with open_source(file, publish=events.append) as source:
            model(tmp_path, judge.url, ", key_env: NO_SUCH_KEY_IS_SET")
            await until(lambda: not source.health().ok)
            error = error_of(source)
            assert "NO_SUCH_KEY_IS_SET is not set" in error.cause
            assert error.cause.startswith("parts.helpful.key_env: ")
            assert (error.part, error.file, error.line) == ("helpful", str(file), 3)
            sheet = await source.score(group("a q=2", "b q=9"))
            assert [score.reward for score in sheet.scores] == pytest.approx([0.2, 0.9])
            await until(lambda: "NO_SUCH_KEY" in events[-1].trouble)
            model(tmp_path, judge.url)  # as before: the trouble ends with its judge
            await until(lambda: source.health().ok and not events[-1].trouble)


@pytest.mark.parametrize("wrong", ["dead port", "key refused", "wrong model"])
async def test_a_failing_judge_does_not_replace_working_rewards(
    wrong: str, tmp_path: Path, group: Group, until: Callable[..., Any]
) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text("parts:\n  length: {}\n")
    async with ScriptedJudge(key="right" if wrong == "key refused" else "") as judge:
        url = "http://127.0.0.1:1/v1" if wrong == "dead port" else judge.url
        async with open_source(file) as source:
            before, versions = source.version, set[str]()
            source.add_listener(lambda health: versions.add(health.version))
            model(tmp_path, url, ", model: other" if wrong == "wrong model" else "")
            await until(lambda: source.health().error is not None)
            assert [part.name for part in source.parts()] == ["length"]
            assert (versions, source.health().ok) == ({before}, False)
            level = "warning" if wrong == "dead port" else "error"
            assert (source.health().level, source.health().waiting_for) == (level, "helpful")
            assert source.kind_of("helpful") == "judge"
            assert (await source.score(group("a", "b"))).scores
            judge.key = ""
            model(tmp_path, judge.url, ", breaker_after: 4")  # mended: it takes over
            await until(lambda: source.health().ok and len(source.parts()) == 2)


async def test_a_failing_judge_is_used_if_no_rewards_exist_and_is_reported(
    tmp_path: Path, until: Callable[..., Any]
) -> None:
    async with open_source(model(tmp_path, "http://127.0.0.1:1/v1")) as source:
        assert [part.name for part in source.parts()] == ["finished", "helpful"]
        await until(lambda: source.health().error is not None)
        text = (tmp_path / "rewards.yaml").read_text().replace("weight: 1", "weight: 2")
        (tmp_path / "rewards.yaml").write_text(text)
        await until(lambda: source.parts()[1].weight == 2)


def test_a_missing_rubric_names_file_line_and_field(tmp_path: Path) -> None:
    file = model(tmp_path, "http://127.0.0.1:1")
    (tmp_path / "rubric.md").unlink()
    with pytest.raises(ModelFault) as fault:
        Assembly(load(file), tmp_path, PartEnvironment())
    assert (fault.value.line, fault.value.file) == (3, str(file))
    assert "rubric" in fault.value.field
    assert "cannot be read: No such file" in str(fault.value)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("mode", MODES)
async def test_the_guide_lists_the_calls_of_each_mode(mode: str, size: int, group: Group) -> None:
    row = re.search(rf"^\| `{mode}` \| .+? \| (.+?) \|", PAGE, re.M)
    assert row
    promised = {"N": size, "1": 1, "N (N - 1)": size * (size - 1)}[row[1]]
    async with ScriptedJudge() as judge:
        async with bench(judge.url, mode=mode) as one:
            await one.score(group(*(f"answer {number}" for number in range(size))))
        assert len(judge.calls) == promised
