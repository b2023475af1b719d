"""The doctor checks judges: key, address, model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from console.doctor.finding import CheckContext, Finding
from console.doctor.judge import judges
from console.doctor.remote import hooks
from core.runtime.home import Home
from core.settings import load
from tests.support.scripted.judge import ScriptedJudge

Write = Callable[..., CheckContext]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(*lines: str, **flags: str) -> CheckContext:
        (tmp_path / "rewards.yaml").write_text("\n".join(("parts:", *lines)) + "\n")
        dotted = {name.replace("__", "."): value for name, value in flags.items()}
        return CheckContext(home=Home(tmp_path), settings=load(None, {}, dotted))

    return made


async def only(context: CheckContext) -> Finding:
    (result,) = await judges(context)
    return result


async def test_a_working_judge_passes(write: Write) -> None:
    async with ScriptedJudge() as judge:
        result = await only(
            write(f"  helpful: {{kind: judge, url: '{judge.url}', model: judge-1}}")
        )
        assert (result.area, result.name, result.level) == ("judges", "helpful", "ok")
        assert "judge-1 at" in result.text
        assert (judge.listed, judge.calls) == (1, [])


async def test_only_active_judges_are_checked(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-xxx")
    async with ScriptedJudge(key="right") as judge:
        start = f"kind: judge, url: '{judge.url}'"
        result = await judges(
            write(
                "  length: {}",
                f"  refused: {{{start}, model: judge-1}}",
                f"  placeholder: {{{start}, key_env: A_KEY}}",
                f"  off: {{{start}, enabled: false}}",
            )
        )
    assert [(one.name, one.level) for one in result] == [
        ("refused", "fail"),
        ("placeholder", "fail"),
    ]
    assert "401" in result[0].text
    assert "placeholder" in result[1].text
    assert result[1].todo
    assert "sk-xxx" not in result[1].text


async def test_a_missing_and_a_hanging_judge_fail(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedJudge() as judge:
        url = judge.url
    result = await only(write(f"  helpful: {{kind: judge, url: '{url}', model: x}}"))
    assert result.level == "fail"
    assert "no answer from" in result.text
    monkeypatch.setattr("console.doctor.judge.PATIENCE", 0.1)
    async with ScriptedJudge() as judge:
        judge.models, judge.forever = None, "hang"
        result = await only(write(f"  helpful: {{kind: judge, url: '{judge.url}', model: x}}"))
    assert (result.level, result.text) == ("fail", f"{judge.url}: no answer in 0.1 s")


async def test_a_judge_on_the_policys_own_server_is_reported(write: Write) -> None:
    line = "  helpful: {kind: judge, url: own}"
    result = await only(write(line))
    assert result.level == "fail"
    assert "own" in result.text
    async with ScriptedJudge() as judge:
        result = await only(write(line, upstream__url=judge.url))
    assert result.level == "ok"


async def test_a_damaged_or_missing_file_fails(write: Write, tmp_path: Path) -> None:
    result = await only(write("  helpful: {kind: judge}"))
    assert result.level == "fail"
    assert "rewards.yaml:2" in result.text
    missing = write("  length: {}", rewards__file=str(tmp_path / "none.yaml"))
    assert "there is no file" in (await only(missing)).text


async def test_without_a_judge_there_is_no_finding(write: Write, tmp_path: Path) -> None:
    assert not await judges(write("  length: {}"))
    assert not await judges(CheckContext(home=Home(tmp_path / "x"), settings=load(None, {}, {})))
    assert not await judges(CheckContext(home=Home(tmp_path), settings=None))


@pytest.mark.slow
async def test_hooks_of_the_model_file_are_checked(write: Write, tmp_path: Path) -> None:
    broken = tmp_path / "mine"
    broken.mkdir()
    (broken / "on_compute_relative_reward.py").write_text("def broken(:\n")
    (result,) = await hooks(write("  mine: {kind: hook, folder: mine}", "  length: {}"))
    assert (result.area, result.level) == ("hooks", "fail")
    assert str(broken) in result.text
    (result,) = await hooks(write("  length: {}"))
    assert (result.level, "rewards.yaml has no hooks" in result.text) == ("ok", True)
