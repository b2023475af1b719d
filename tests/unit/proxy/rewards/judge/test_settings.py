"""Settings of a judge, its key and address, and its place in a model."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.events import Event
from core.settings import UpstreamSettings
from proxy.rewards.judge import part
from proxy.rewards.judge import part as judging
from proxy.rewards.judge.settings import MODES, JudgeFault, find_key
from proxy.rewards.model.assembly import Assembly
from proxy.rewards.model.file import ModelFault, load
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment, SettingError
from proxy.rewards.select import own_server
from tests.support.proxy.until import until
from tests.support.scripted.judge import ScriptedJudge, bench, made
from tests.unit.proxy.rewards.conftest import error_of, fault, group

HOST = "https://judge.example/v1"


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"rubric": "missing.md"}, "rubric", "cannot be read: No such file"),
        ({"rubric": "empty.md"}, "rubric", "is empty"),
        ({"rubric": "binary.md"}, "rubric", "not UTF-8 text"),
        ({"rubric": "large.md"}, "rubric", "larger than 64 KiB"),
        ({"rubric": "."}, "rubric", "cannot be read: Is a directory"),
        ({"mode": "listwize"}, "mode", "cannot be 'listwize'"),
        ({"low": 5, "high": 5}, "high", "must be above"),
        ({"timeout": 0}, "timeout", "cannot be 0"),
        ({"retries": True}, "retries", "cannot be True"),
        ({"key_env": "A", "key_file": "k"}, "key_file", "exclude each other"),
        ({"key": "sk-0123456789abcdef"}, "key", "there is no setting `key`"),
        ({"extra": {"stream": True}}, "extra", "cannot set stream"),
        ({"extra": {"at": object()}}, "extra", "cannot be written as JSON"),
        ({"spend_limit": 1}, "spend_limit", "the cost of a call is unknown"),
        ({"url": "judge.example"}, "url", "not the URL"),
        ({"url": "ftp://judge.example"}, "url", "not the URL"),
        ({"url": "http://[::1"}, "url", "not the URL"),
        ({"url": "https://me:secret@judge.example"}, "url", "no key, password"),
        ({"url": "https://judge.example/v1?key=secret"}, "url", "no key, password"),
    ],
)
def test_invalid_settings_are_refused(
    values: dict[str, Any], field: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.md").write_text("x" * 70_000)
    with pytest.raises(SettingError) as fault:
        made(**{"url": HOST, "where": tmp_path, **values})
    assert fault.value.field == field
    assert words in fault.value.what
    assert "secret" not in str(fault.value)


@pytest.mark.parametrize("key", ["sk-0123456789abcdef", "0123456789abcdef" * 3, "a b", "1ABC"])
def test_a_key_in_place_of_a_variable_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(SettingError) as fault:
        made(HOST, key_env=key)
    assert key not in str(fault.value)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://judge.example", "https://judge.example/v1"),
        ("https://judge.example/", "https://judge.example/v1"),
        ("https://judge.example/api/v1/", "https://judge.example/api/v1"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1"),
    ],
)
def test_common_forms_of_addresses_are_accepted(url: str, base: str) -> None:
    assert made(url).options.url == base


@pytest.mark.parametrize(
    "key",
    [
        "sk-xxx", "sk-xxxxxxxxxxxxxxxx", "xxx", "your-key", "YOUR_API_KEY", "your api key",
        "<key>", "<your key here>", "changeme", "change-me", "placeholder", "api_key", "sk-...",
        "OPENAI_API_KEY", "$OPENAI_API_KEY", "${KEY}", "sk-your-key-here", "insert-key-here",
        "replace_me", "TODO", "***", "...", "put-your-key-here", "sk-test",
    ],
)  # fmt: skip
def test_placeholders(key: str) -> None:
    with pytest.raises(JudgeFault) as fault:
        find_key("KEY", None, {"KEY": f" {key}\n"})
    assert "placeholder" in fault.value.text
    assert key not in fault.value.text.replace("placeholder", "")


@pytest.mark.parametrize(
    "key", ["EMPTY", "none", "sk-proj-4fXyourK2m9", "abc", "gsk_9a8b7c6d5e4f", "sk-or-v1-93af"]
)
def test_keys_that_may_be_real(key: str) -> None:
    assert find_key("KEY", None, {"KEY": key}) == key


@pytest.mark.parametrize(
    ("environ", "content", "words"),
    [
        ({}, None, "variable KEY is not set"),
        ({"KEY": "  "}, None, "variable KEY is not set"),
        (None, None, "cannot be read"),
        (None, "\n", "is empty"),
        (None, "one two", "spaces"),
    ],
)
def test_missing_keys(
    environ: dict[str, str] | None, content: str | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(JudgeFault, match=words):
        find_key(None if environ is None else "KEY", file, environ or {})


def test_a_key_in_a_file_and_no_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("real-0123\n")
    assert find_key(None, tmp_path / "key") == "real-0123"
    assert find_key(None, None) == ""


async def test_a_missing_key_is_reported_at_start_and_no_call_is_made(
    judge: ScriptedJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    async with bench(judge.url, start=True, key_env="JUDGE_KEY") as one:
        health = one.part.health()
        assert not health.ok
        assert health.version == ""
        assert health.error.part == "helpful"
        assert "variable JUDGE_KEY is not set" in health.error.cause
        assert "variable JUDGE_KEY is not set" in await one.cause(group("a", "b"))
    assert (judge.calls, judge.listed) == ([], 0)


async def test_the_key_is_sent_and_a_wrong_one_is_reported_at_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "right-0123")
    async with ScriptedJudge(key="right-0123") as judge:
        async with bench(judge.url, start=True, key_env="JUDGE_KEY") as one:
            assert await one.values(group("a q=1", "b q=2")) == [0.1, 0.2]
            assert one.part.health().ok
        (tmp_path / "key").write_text("wrong-4567")
        async with bench(judge.url, start=True, key_file=str(tmp_path / "key")) as one:
            await until(lambda: not one.part.health().ok)
            error = error_of(one.part)
            assert "401" in error.cause
            assert "Check that the key is right" in error.cause
            assert "wrong-4567" not in error.cause
            assert one.part.files == (tmp_path / "key",)
        async with bench(judge.url, start=True) as one:
            await until(lambda: not one.part.health().ok)
            assert "key_env" in str(one.part.health().error)


async def test_an_unreachable_endpoint_is_reported_until_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "PROBE_EVERY", 0.05)
    async with ScriptedJudge() as judge:
        url, port = judge.url, judge.port
    async with bench(url, start=True) as one:
        await until(lambda: not one.part.health().ok)
        assert "no answer from" in str(one.part.health().error)
        assert one.spent.trouble
        back = ScriptedJudge()
        back.port = port
        async with back:
            await until(lambda: one.part.health().ok)
            assert one.spent.trouble == ""
            assert await one.values(group("a q=1")) == [0.1]


@pytest.mark.parametrize("models", [["other"], None])
async def test_a_missing_model_is_reported(models: list[str] | None, judge: ScriptedJudge) -> None:
    judge.models = models
    judge.forever = 404
    async with bench(judge.url, start=True, model="typo") as one:
        await until(lambda: not one.part.health().ok)
        assert "404" in str(one.part.health().error)
        assert "url and model are right" in str(one.part.health().error)


async def test_an_unlisted_model_may_exist(judge: ScriptedJudge) -> None:
    judge.models = None
    async with bench(judge.url, model="unlisted") as one:
        assert await one.part.probe() == f"unlisted at {judge.url}"
    assert len(judge.calls) == 1


async def test_a_probe_needs_no_completion_if_the_model_is_listed(judge: ScriptedJudge) -> None:
    async with bench(judge.url) as one:
        assert await one.part.probe() == f"judge-1 at {judge.url}"
    assert (judge.calls, judge.listed) == ([], 1)
    judge.models = []
    async with bench(judge.url) as one:
        with pytest.raises(JudgeFault) as fault:
            await one.part.probe()
    assert fault.value.todo == "Name one with `model`"


async def test_the_policys_own_server(judge: ScriptedJudge) -> None:
    async with bench("own", start=True) as one:
        assert "observe mode" in str(one.part.health().error)
        assert "observe mode" in await one.cause(group("a"))
    judge.key = "own-0123"
    own = own_server(UpstreamSettings(url=f"{judge.url}/", key="own-0123", model="judge-1"))
    async with bench("own", own=own, start=True) as one:
        assert await one.values(group("a q=4")) == [0.4]


def test_without_an_upstream_there_is_no_own_server() -> None:
    assert own_server(UpstreamSettings()) is None


async def test_the_version_covers_rubric_and_model(judge: ScriptedJudge, tmp_path: Path) -> None:
    rubric = tmp_path / "rubric.md"
    versions = set()
    for text in ("short is good", "long is good"):
        rubric.write_text(text)
        for model in ("judge-1", "judge-2"):
            versions.add(made(judge.url, rubric=str(rubric), model=model).health().version)
    assert len(versions) == 4
    assert made(judge.url).health() == made(judge.url).health()


async def test_listeners_are_notified_of_health(judge: ScriptedJudge) -> None:
    flags: list[bool] = []
    async with bench(judge.url, model="m", key_env="NO_SUCH_KEY") as one:
        remove = one.part.add_listener(lambda health: flags.append(health.ok))
        await one.part.start()
        await asyncio.sleep(0)
        remove()
    assert flags == [False]


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


async def test_a_judge_gives_rewards(tmp_path: Path) -> None:
    events: list[Event] = []
    async with (
        ScriptedJudge() as judge,
        open_source(
            model(tmp_path, judge.url), home=tmp_path / "home", publish=events.append
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
    assert (events[-1].judge, events[-1].groups, events[-1].failures) == ("helpful", 2, 1)


async def test_a_rubric_that_is_saved_is_used(tmp_path: Path) -> None:
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
async def test_a_failing_judge_does_not_replace_working_rewards(wrong: str, tmp_path: Path) -> None:
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


async def test_a_failing_judge_is_used_if_no_rewards_exist_and_is_reported(tmp_path: Path) -> None:
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
async def test_the_guide_lists_the_calls_of_each_mode(mode: str, size: int) -> None:
    row = re.search(rf"^\| `{mode}` \| .+? \| (.+?) \|", PAGE, re.M)
    assert row
    promised = {"N": size, "1": 1, "N (N - 1)": size * (size - 1)}[row[1]]
    async with ScriptedJudge() as judge:
        async with bench(judge.url, mode=mode) as one:
            await one.score(group(*(f"answer {number}" for number in range(size))))
        assert len(judge.calls) == promised
