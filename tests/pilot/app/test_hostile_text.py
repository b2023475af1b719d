"""Text from models, servers and files stays plain text on every screen and in every dialog."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from textual.content import Content
from textual.widgets import Input

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.screen_registry import SCREENS
from console.shell.palette import as_text, entries
from core.control_payloads import (
    EpisodeDetails,
    EpisodeTokens,
    LogLine,
    ServerDetails,
    TaskDetails,
    Token,
    TokenCall,
)
from core.events import ClientSeen
from core.settings import RatingSettings
from tests.support.console import (
    FakeChild,
    FakeProcessManager,
    FakeReply,
    RunningConsole,
    run_console,
    screen_text,
)
from tests.support.hostile import TEXTS, HostileLink, harm, hostile_events, hostile_state
from tests.support.looks import pair_data, vote_data
from tests.support.sample import NOW

TYPED = ("palette", "field")
"""Views of Textual's own, for which the guard is all there is: its palette, a line of text."""


def link_of(text: str) -> HostileLink:
    link = HostileLink(hostile_state(text))
    link.detail = hostile_events(text)
    link.reply = FakeReply(False, text)
    rows = tuple(Token(id=at, text=text[:2000], mask=at % 2) for at in range(4))
    call = TokenCall(prompt_tokens=2, tokens=rows)
    link.token_log = EpisodeTokens(episode_uuid=text, state="live", calls=(call,), task_id=text)
    link.looks["embedded"] = ServerDetails(
        server="embedded",
        at=NOW,
        clients=(ClientSeen(name=text, running=2),),
        episodes=(EpisodeDetails(uuid=text, client=text, task=text, idle=3.0),),
        tasks=(TaskDetails(task=text, clients=(text,)),),
        folder=text,
        log=(LogLine(at=NOW, tag=text, text=text),),
        asked=text,
    )
    return link


def processes_of(text: str) -> FakeProcessManager:
    child = FakeChild("engine", "exited", None, text, 1, text, tail=(text, text))
    return FakeProcessManager({"engine": child, "proxy": FakeChild("proxy", url=text, detail=text)})


async def screens(console: RunningConsole, text: str) -> AsyncIterator[str]:
    press = console.press
    for place in SCREENS:
        await press(f"f{place.digit}")
        yield place.name
    for key, name in (("question_mark", "help"), ("ctrl+o", "jump"), ("colon", "line")):
        await press(key)
        yield name
        await press("escape")


async def in_a_group(console: RunningConsole, text: str) -> AsyncIterator[str]:
    press = console.press
    await press("f2", "home", "down", "down", "enter")
    yield "group"
    for keys in ("d", "r", "r", "z", "p"):
        await press(keys)
        yield f"group, {keys}"
    await press("escape", "n")
    yield "note"
    await press("escape", "x")
    yield "abort"
    await press("escape", "escape")
    console.app.clear_notifications()


async def requests(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f2", "m", "semicolon")
    yield "marked"
    await console.press("escape", "slash", *"text~x", "enter")
    yield "filter"
    await console.press("escape")


async def rating(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f3", "1")
    for keys in ("e", "v", "d", "g", "escape", "w", "escape", "j", "escape", "o", "escape", "X"):
        await console.press(keys)
        yield f"rate, {keys}"
    await console.press("escape")


async def rewards_and_log(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f6", "enter")
    yield "rewards, enter"
    await console.press("escape", "f7", "t", "end")
    yield "log, unfolded"
    await console.press("slash", *"a", "enter")
    yield "log, searched"
    await console.press("escape")


async def engine(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f5")
    for title, _, run in list(entries(console.app)):
        if title.startswith(("Engine: Stop", "Engine: Re", "Engine: Save", "Proxy: Re")):
            run()
            await console.settle()
            yield title
            await console.press("escape")


async def questions(console: RunningConsole, text: str) -> AsyncIterator[str]:
    app = console.app
    for question in (
        app.confirm(text[:5000], text[:5000], "Do it"),
        app.ask(text[:5000], text[:5000], text[:5000]),
    ):
        app.run_worker(question, exit_on_error=False)
        await console.settle()
        yield "question"
        await console.press("escape")
    app.say(text, "error")
    await console.settle()
    yield "toast"
    await console.press("ctrl+q")
    yield "quit"
    await console.press("escape", "ctrl+p")
    await console.pilot.pause(0.1)
    yield "palette"
    await console.press("escape")


async def tries(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f2", "ctrl+t")
    yield "tries, the line"
    await console.press("escape")
    for keys in ("down", "up", "pagedown", "enter"):
        await console.press(keys)
        yield f"tries, {keys}"
    await console.press("escape", "escape")


async def what_if(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f6", "i")
    for keys in ("right", "left", "enter", "escape", "tab", "enter", "escape", "r"):
        await console.press(keys)
        yield f"what-if, {keys}"
    await console.press("escape")
    console.app.clear_notifications()


async def progress(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f8", "down")
    yield "progress, down"
    for keys in ("enter", "down", "right_square_bracket"):
        await console.press(keys)
        yield f"probe prompt, {keys}"
    await console.press("escape", "t")
    yield "progress, t"
    console.link.reply = FakeReply(True, text, {**pair_data("p1", text, text), "prompt": text})
    await console.press("escape", "b")
    yield "blind pair"
    console.link.reply = FakeReply(True, text, vote_data(0.5))
    await console.press("0")
    yield "blind pair, 0"
    console.link.reply = FakeReply(False, text)
    await console.press("space", "escape")


async def edited(console: RunningConsole, text: str) -> AsyncIterator[str]:
    for screen in ("f4", "f5", "f6"):
        await console.press(screen, "e")
        yield f"edit on {screen}"
        await console.press("escape", "escape")
        console.app.clear_notifications()


async def picked(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f4", "escape", "o")
    await console.pilot.pause(0.1)
    yield "picker"
    for keys in ("down", "down", "pagedown"):
        await console.press(keys)
        await console.pilot.pause(0.05)
        yield f"picker, {keys}"
    await console.press(*"[red]", "enter")
    await console.pilot.pause(0.1)
    yield "picked, in its field"
    await console.press("escape", "escape")


async def completed(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.press("f2", "slash", *"model:")
    for keys in ("tab", "tab", "shift+tab", "space", "enter"):
        await console.press(keys)
        yield f"completion, {keys}"
    await console.press("escape")


async def wide(console: RunningConsole, text: str) -> AsyncIterator[str]:
    await console.pilot.resize_terminal(160, 48)
    async for name in screens(console, text):
        yield f"wide {name}"
    await console.press("f6", "down")
    yield "wide rewards, second part"
    await console.press("f3", "v")
    yield "wide rate, shown"
    await console.press("f2", "home", "down", "enter")
    yield "wide group"
    await console.press("escape")


View = Callable[[RunningConsole, str], AsyncIterator[str]]
VIEWS: tuple[View, ...] = (
    screens,
    in_a_group,
    requests,
    rating,
    rewards_and_log,
    engine,
    questions,
    tries,
    what_if,
    progress,
    edited,
    picked,
    completed,
    wide,
)
"""Every screen and every question; yields the names of the open ones."""


def _datasets(folder: Path, text: str) -> Path:
    """A working folder whose files attack by their names, columns and rows."""
    working_folder = folder / "here"
    working_folder.mkdir()
    row = {"query": text[:5000], text[:200]: text[:500]}
    for name in ("rows", "[red]\x1b[31m\u202ea\u200b\r$x[]"):
        (working_folder / f"{name}.jsonl").write_text(json.dumps(row) + "\nbroken\n")
    return working_folder


def _hand(text: str) -> Callable[..., Awaitable[str]]:
    """An editor that makes the text of everything."""

    async def edit(*_: object, **__: object) -> str:
        return text[:5000]

    return edit


ALL_AT_ONCE = "".join(text[:20_000] for text in TEXTS.values())
"""Its long line is cut: to wrap all of it on every screen is for the long forms, and Requests, Rate
and Group show lines of 1 MB in tests of their own."""


@pytest.mark.timeout(400)  # 11 s alone: every screen and dialog at two sizes
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ALL_AT_ONCE, id="all"),
        *(pytest.param(text, marks=pytest.mark.soak, id=kind) for kind, text in TEXTS.items()),
    ],
)
async def test_every_screen_and_dialog_shows_hostile_text_safely(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text(text, "utf-8", "surrogatepass")
    monkeypatch.chdir(_datasets(tmp_path, text))
    monkeypatch.setattr("console.screens.rate.tools.edit_text", _hand(text))
    async with run_console(link=link_of(text), processes=processes_of(text)) as console:
        session = console.session
        value = {"tags": (text[:100], "b"), "guidelines": str(guide)}
        session.rating = RatingSettings(**value)  # type: ignore[arg-type]  # as settings give it
        for line in ("ERROR x", "Traceback (most recent call last):", f"  {text}", text, text):
            session.note("proxy", line)
        session.trouble = text
        for view in VIEWS:
            async for name in view(console, text):
                assert not harm(console.app), name
                assert console.app.is_running, name
                if name.rpartition(" ")[2] not in TYPED:
                    assert not console.app.sanitizer.caught, f"{name} leaves it to the sanitizer"
                console.app.sanitizer.caught = 0
        texts = [line.text for line in session.logs("console") if "Traceback" in line.text]
        assert not texts


async def test_a_failed_start_shows_hostile_output_safely() -> None:
    link = HostileLink()
    link.broken = AjetError(ALL_AT_ONCE)
    async with run_console(link=link, processes=processes_of(ALL_AT_ONCE)) as console:
        assert not console.session.seen
        for text in TEXTS.values():
            console.session.step("engine", "failed", text, (text, text), title=text)
            console.session.trouble = text
            await console.settle()
            assert "FAILED" in screen_text(console.app)
            assert not harm(console.app)
            assert not console.app.sanitizer.caught


def test_the_palette_does_not_interpret_markup_of_a_group() -> None:
    for text in TEXTS.values():
        for end in range(40, 61, 5):
            words = one_line(text, end)
            assert Content.from_markup(as_text(words)).plain == words


async def test_pasted_control_characters_do_not_reach_the_terminal() -> None:
    async with run_console(at="log") as console:
        await console.press("slash")
        for text in TEXTS.values():
            console.app.screen.query_one(Input).value = text[:3000]
            await console.settle()
            assert not harm(console.app)
        assert console.app.sanitizer.caught
