"""The common parts of the library: lenient JSON, redaction, tasks, texts, addresses."""

import asyncio
import gc
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ajet_swarm.common import tasks as module
from ajet_swarm.common.lenient_json import lenient
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.tasks import Tasks, cancel, keep_running, run_all
from ajet_swarm.common.text import LONGEST_NAME, closest, one_line, plain
from ajet_swarm.common.urls import web_address
from console.cli import main


def by_codec(text: str) -> str:
    """What Unicode's own replacement makes of halves."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.slow
def test_each_mixture_of_halves_is_what_the_codec_makes_of_it() -> None:
    for length in range(1, 6):
        for some in itertools.product("\ud800\udbff\udc00\udfffa\U0001f600", repeat=length):
            text = "".join(some)
            raw = b'"' + text.encode(errors="surrogatepass") + b'"'  # pairs as two characters each
            assert lenient(raw) == by_codec(text)
            escaped = json.dumps(text)
            assert lenient(escaped) == by_codec(json.loads(escaped))


@pytest.mark.slow
def test_names_and_numbers() -> None:
    result = lenient('{"\\ud800k": [NaN, -Infinity, 1.5, "\\u00e4\\udfff"], "b": null}')
    assert result == {"\ufffdk": [None, None, 1.5, "ä\ufffd"], "b": None}
    with pytest.raises(json.JSONDecodeError):
        lenient("{")


KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key sk-ajet-eyJhZ2VudF9uYW1lIjoi done", "key [redacted] done"),
        ("key sk-ajet-eyJhZ2 done", "key [redacted] done"),
        ("key sk-only-letters-here done", "key [redacted] done"),
        ("Bearer abcdefghijkl done", "Bearer [redacted] done"),
        ("Authorization: Basic YWRhOnNlY3JldA== x", "Authorization: Basic [redacted: token] x"),
        ("at http://ada:hunter2@host:1/v1", "at http://ada:[redacted: password]@host:1/v1"),
        ("hf_" + "aB3" * 11 + " done", "[redacted: token] done"),
        (f"a {KEY} b", "a [redacted: private key] b"),
        ("password: hunter2, mail ada@example.com", "password: hunter2, mail ada@example.com"),
    ],
)
def test_logs_have_no_secret_of_a_known_form(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


async def forever() -> None:
    await asyncio.Event().wait()


async def test_cancel_waits_until_the_task_has_ended() -> None:
    over = False

    async def slow_to_end() -> None:
        nonlocal over
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            over = True

    task = asyncio.get_running_loop().create_task(slow_to_end())
    await asyncio.sleep(0)
    await cancel(task)
    assert over
    assert task.cancelled()


async def test_cancel_raises_what_the_task_fails_with() -> None:
    async def fails() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while it was cleaned up")

    task = asyncio.get_running_loop().create_task(fails())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="cleaned up"):
        await cancel(task)


async def test_a_caller_cancelled_during_cancel_is_cancelled() -> None:
    loop, release = asyncio.get_running_loop(), asyncio.Event()

    async def holds_on() -> None:
        try:
            await forever()
        finally:
            await release.wait()

    task = loop.create_task(holds_on())
    await asyncio.sleep(0)
    caller = loop.create_task(cancel(task))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    release.set()
    await asyncio.wait([task])


async def test_a_member_that_is_cancelled_does_not_take_the_others_down() -> None:
    go = asyncio.Event()
    lines: list[str] = []

    async def waits() -> None:
        await go.wait()
        lines.append("it came to its end")

    member = asyncio.get_running_loop().create_task(forever())
    results = asyncio.get_running_loop().create_task(run_all(member, waits()))
    await asyncio.sleep(0)
    member.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await results
    assert lines == ["it came to its end"]


async def test_a_batch_of_tasks_ends_when_its_owner_is_cancelled() -> None:
    members = [asyncio.get_running_loop().create_task(forever()) for _ in range(2)]
    results = asyncio.get_running_loop().create_task(run_all(*members))
    await asyncio.sleep(0)
    results.cancel()
    with pytest.raises(asyncio.CancelledError):
        await results
    assert all(member.cancelled() for member in members)


async def test_the_first_error_in_order_is_raised_after_all_have_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = []

    async def fails(text: str) -> None:
        raise ValueError(text)

    async def late() -> None:
        await asyncio.sleep(0)
        result.append("late")

    with pytest.raises(ValueError, match="one"):
        await run_all(late(), fails("one"), fails("two"))
    assert result == ["late"]
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_tasks_end_with_their_owner(caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def fail() -> None:
        raise ValueError("broken")

    async with Tasks("t") as tasks:
        tasks.spawn(work(), "work")
        tasks.spawn(fail(), "fail")
        await asyncio.sleep(0.01)
        assert len(tasks) == 1
    assert ended.is_set()
    assert "broken" in caplog.text


async def test_a_drain_waits_for_tasks_that_tasks_start() -> None:
    done: list[str] = []

    async def second() -> None:
        done.append("second")

    async def first() -> None:
        tasks.spawn(second(), "second")
        done.append("first")

    async with Tasks("t") as tasks:
        tasks.spawn(first(), "first")
        assert await tasks.drain(20)
        assert done == ["first", "second"]


async def test_a_loop_that_fails_is_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER", 0.0)
    failures: list[str] = []
    faults = ["first", "first", "second"]

    async def loop() -> None:
        await asyncio.sleep(0)
        if faults:
            raise ValueError(faults.pop(0))

    await keep_running(loop, "the loop", lambda error: failures.append(str(error)))
    assert failures == ["first", "first", "second"]
    assert caplog.text.count("the loop failed") == 2, "the same error is logged once"


@pytest.mark.slow
@given(st.text())
def test_plain_text_holds_no_control_and_nothing_invisible(text: str) -> None:
    shown = plain(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not any(0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u200b\u2066\ufeff")


def test_text_keeps_what_is_harmless() -> None:
    assert plain("Grüße 日本 🎉\n\t[b]x[/b]") == "Grüße 日本 🎉\n\t[b]x[/b]"
    assert plain("\x1b[31mred") == "␛[31mred"
    assert one_line("a\nb\n\nc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


def test_a_long_name_is_compared_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def noted(word: str, *_: object) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr("difflib.get_close_matches", noted)
    assert closest("x" * 100_000, ["embedded"]) == []
    assert {len(word) for word in compared} == {LONGEST_NAME}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧", "👩👩👧"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f🌈"),
        ("می\u200cخواهم", "میخواهم"),
        ("USB\u200cها", "USBها"),
        ("क्\u200dष", "क्ष"),
    ],
)
def test_joiners_of_scripts_and_emoji_are_removed(text: str, shown: str) -> None:
    assert plain(text) == one_line(text) == shown
    bare = shown.replace("\ufe0f", "")
    assert cell_len(bare) == sum(map(cell_len, bare))


@pytest.mark.parametrize(
    "text", ["\u200d", "ig\u200dnore", "a\u200c b", "م\u200c\u200c\u200cx", "م\u202ea", "👩\u2066"]
)
def test_joiners_where_nothing_is_joined_and_directions_are_shown(text: str) -> None:
    assert "\ufffd" in plain(text)
    assert not set(plain(text)) & set("\u200c\u200d\u202e\u2066")


NONE = ["", "x", "ftp://h", "http://", "https:///x", "http://[::1", "http://h:x", "http://h:70000"]


@pytest.mark.parametrize("url", NONE)
def test_an_invalid_address_is_none(url: str) -> None:
    assert web_address(url) is None


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("http://h:80/v1", "h", 80), ("https://a.b", "a.b", None), ("http://[::1]:9", "::1", 9)],
)
def test_a_valid_address_is_parsed(url: str, host: str, port: int | None) -> None:
    parts = web_address(url)
    assert parts is not None
    assert (parts.hostname, parts.port) == (host, port)


@pytest.mark.parametrize(
    "line",
    [
        "proxy --swarm-url",
        "proxy --upstream",
        "status --url",
        "doctor --swarm-url",
        "--attach",
        "mock --base-url",
        "mock --dry-run --user-model m --user-url",
    ],
)
def test_a_typo_gets_a_suggestion(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "http://[::1"]) != 0
    captured = capsys.readouterr()
    assert "internal error" not in captured.out + captured.err
