"""The Rewards screen: source, parts, part values, a broken save."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from console.screens.group.screen import GroupScreen
from console.screens.rewards.screen import RewardPartScreen
from console.shell.palette import entries
from console.widgets.item_list import ItemList
from core.events import CandidateScore, Event, GroupScored, Part, RewardsChanged, ScoringAbstained
from core.state import State
from proxy.rewards.source import SourceHealth
from tests.support.console import (
    HOSTILE,
    NOW,
    FakeLink,
    RunningConsole,
    group_events,
    run_console,
    sample_events,
    sample_state,
    state_of,
)
from tests.support.proxy.hooks import HookRewards

HOOK = "on_compute_relative_reward.py"
GOOD = """async def on_compute_relative_reward(valid_results, all_answers, question=""):
    return [float(len(one.get("content") or "")) for one in all_answers]
"""
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/h/hook.py", line 12, in on_compute_relative_reward\n'
    "    return retrun\n"
    "NameError: name 'retrun' is not defined\n"
)


def broken(
    cause: str = "NameError: retrun", version: str = "v1", file: str = "/h/hook.py"
) -> Event:
    return RewardsChanged(
        source="/h",
        ok=False,
        version=version,
        cause=cause,
        traceback=TRACE,
        file=file,
        line=12,
        at=NOW - 3,
    )


def loaded(version: str = "v1") -> Event:
    return RewardsChanged(source="/h", ok=True, version=version, at=NOW - 900)


def parted(number: int, reason: str = "") -> list[Event]:
    """A group with two parts, of which the second alone decides."""
    values = [(0.5, 0.9), (0.5, 0.1), (0.5, 0.2), (0.5, 0.4)]
    rewards = [0.5 * one + 0.5 * two for one, two in values]
    events: list[Event] = []
    for event in group_events(number, rewards=rewards, at=NOW - 600 + number, step=number // 5):
        if isinstance(event, GroupScored):
            scores = tuple(
                CandidateScore(
                    index=index,
                    reward=rewards[index],
                    parts=(
                        Part("politeness", one, 0.5, reason=reason or "please, once"),
                        Part("brevity", two, 0.5, reason=reason or f"{index + 7} words"),
                    ),
                )
                for index, (one, two) in enumerate(values)
            )
            event = GroupScored(
                group_id=event.group_id,
                server=event.server,
                scores=scores,
                best=0,
                version="v1",
                seconds=0.1,
                at=event.at,
            )
        events.append(event)
    return events


def in_use(*more: Event, reason: str = "") -> State:
    groups = [event for number in range(1, 21) for event in parted(number, reason)]
    return state_of(*sample_events()[:2], loaded(), *groups, *more)


def parts(console: RunningConsole) -> ItemList:
    return console.app.screen.query_one(ItemList)


# --- going there -----------------------------------------------------------------------------


async def test_key_digit_and_name_open_source_figures_and_every_part() -> None:
    async with run_console(in_use()) as console:
        for keys in (["f6"], ["1", "6"], ["1", "colon", *"rewards", "enter"]):
            await console.press(*keys)
            assert console.app.current_mode == "rewards"
        text = console.text()
        for words in (
            "REWARDS  hooks",
            "version v1",
            "(15m00)",
            "● active",
            "last 20 groups",
            "reward 0.45 ±0.15",
            "dead 0% (0 of 20)",
            "length r",
            "politeness   weighted      0.50   0.50   0.00",
            "0%",
            "brevity      weighted      0.50   0.40   0.31",
            "100%",
            "BREVITY  0.40 ±0.31",
        ):
            assert words in text, words
        assert "LAST FAULT" not in text
        await console.press("home", "down")
        assert parts(console).cursor == "brevity"
        text = console.text()
        assert "BREVITY  0.40 ±0.31 · decided 20 of 20 groups" in text
        assert "step 0" in text


async def test_the_screen_explains_unknown_and_unscored_rewards() -> None:
    async with run_console(State(), at="rewards") as console:
        assert "the rewards are not known yet" in console.text()
    state = state_of(RewardsChanged(source="builtin", ok=True, version="abc", at=NOW - 5))
    async with run_console(state, at="rewards") as console:
        text = console.text()
        assert "REWARDS  built-in" in text
        assert "No group is scored yet" in text
        assert "0.00" not in text
        assert "Edit" not in text.splitlines()[-1]


async def test_a_key_changes_the_number_of_groups() -> None:
    more = [event for number in range(30, 160) for event in parted(number)]
    async with run_console(in_use(*more), at="rewards") as console:
        assert "last 100 groups" in console.text()
        await console.press("w")
        assert "last 150 groups" in console.text()
        await console.press("w")
        assert "last 20 groups" in console.text()
        await console.press("w")
        assert "last 100 groups" in console.text()


async def test_figures_are_repainted_once_a_second_and_not_per_event() -> None:
    async with run_console(in_use(), at="rewards") as console:
        console.link.publish(*parted(40))
        await console.settle()
        assert "last 20 groups" in console.text()
        console.clock.now += 1
        await console.settle()
        assert "last 21 groups" in console.text()


# --- the reasons of a part -------------------------------------------------------------------


async def test_enter_opens_the_part_and_then_the_group() -> None:
    async with run_console(in_use(), at="rewards") as console:
        await console.press("down", "enter")
        assert isinstance(console.app.screen, RewardPartScreen)
        text = console.text()
        assert "PART  brevity  20 groups, newest first" in text
        assert "0.90   reward  0.70 ▲ 7 words" in text
        assert "◆ decided it" in text
        assert console.app.screen.target_group == "g0020"
        await console.press("down", "enter")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0019"
        assert "rewards v1" in console.text()
        await console.press("escape", "escape")
        assert "POLITENESS" in console.text() or "BREVITY" in console.text()


async def test_the_cursor_stays_on_its_group_while_new_ones_arrive() -> None:
    async with run_console(in_use(), at="rewards") as console:
        await console.press("enter", "down", "down")
        assert parts(console).cursor == "g0018"
        console.link.publish(*parted(50))
        console.clock.now += 1
        await console.settle()
        assert parts(console).cursor == "g0018"
        assert parts(console).keys[0] == "g0050"


# --- faults ----------------------------------------------------------------------------------


async def test_a_fault_is_shown_folded_and_copied() -> None:
    async with run_console(in_use(broken()), at="rewards") as console:
        text = console.text()
        for words in (
            "! newest save broken, this version stays active",
            "LAST FAULT  ✖ did not load",
            "NameError: retrun",
            "▸ traceback, 4 lines  hook.py:12  z unfolds",
        ):
            assert words in text, words
        assert "in on_compute_relative_reward" not in text
        await console.press("z")
        assert "in on_compute_relative_reward" in console.text()
        await console.press("z", "y")
        assert console.app.clipboard == f"/h/hook.py:12\nNameError: retrun\n{TRACE.rstrip()}"
        console.link.publish(loaded("v2"))
        await console.settle()
        text = console.text()
        assert "✔ fixed at" in text
        assert "version v2" in text


async def test_a_fault_without_a_version_before_it() -> None:
    state = in_use(broken(version=""))
    state.consoles = 1
    async with run_console(state, at="rewards") as console:
        assert "✖ no version is active: groups wait for you" in console.text()


async def test_the_group_it_failed_on_is_one_key_away() -> None:
    failing = [
        *group_events(30, until="GENERATING"),
        ScoringAbstained(group_id="g0030", part="hook", cause="no", traceback=TRACE, at=NOW),
    ]
    async with run_console(in_use(*failing), at="rewards") as console:
        text = console.text()
        assert "✖ failed on a group, which waits for you" in text
        assert "not scored 5% (1 of 21)" in text
        assert "hook.py:12" in text
        await console.press("f")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0030"


async def test_the_place_of_the_fault_is_opened_in_the_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, result = tmp_path / "hook.py", tmp_path / "told"
    hook.write_text("x\n")
    script = tmp_path / "editor.py"
    script.write_text(f"import sys; open({str(result)!r}, 'w').write(' '.join(sys.argv[1:]))")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    async with run_console(in_use(broken(file=str(hook))), at="rewards") as console:
        back = asyncio.Event()

        @contextmanager
        def away() -> Iterator[None]:
            yield
            back.set()

        monkeypatch.setattr(console.app, "suspend", away)
        await console.press("e")
        async with asyncio.timeout(60):
            await back.wait()
        assert result.read_text() == f"+12 {hook}"


async def test_a_file_of_another_machine_is_not_opened() -> None:
    async with run_console(in_use(broken(file="/nowhere/at/all/hook.py")), at="rewards") as console:
        await console.press("e")
        async with asyncio.timeout(20):
            while not console.messages:
                await console.settle()
        assert "this file is not here" in console.messages[0]
        assert "another machine" in console.messages[0]


async def test_the_palette_offers_reward_entries_from_anywhere() -> None:
    async with run_console(in_use(broken())) as console:
        titles = [title for title, _, _ in entries(console.app)]
        assert "Rewards: Edit the hook" in titles
        assert "Rewards: Copy the last fault" in titles
        assert "Rewards: Open the group that failed" not in titles
        next(run for title, _, run in entries(console.app) if title.endswith("last fault"))()
        assert "NameError" in console.app.clipboard
    async with run_console(in_use(), read_only=True) as console:
        assert not [title for title, _, _ in entries(console.app) if title.startswith("Rewards:")]


async def test_a_read_only_console_opens_no_editor() -> None:
    async with run_console(in_use(broken()), at="rewards", read_only=True) as console:
        assert "Edit" not in console.text().splitlines()[-1]
        await console.press("y")
        assert "Copied" in console.text()


async def test_a_broken_save_is_on_screen(tmp_path: Path) -> None:
    """The real source, its process and its watcher; the proxy's part is one event."""
    hook = tmp_path / HOOK
    hook.write_text(GOOD)
    source = HookRewards(tmp_path)
    link = FakeLink(state_of(*sample_events()[:2]))

    def publish(health: SourceHealth) -> None:
        error = health.error
        link.publish(
            RewardsChanged(
                source=str(tmp_path),
                ok=health.ok,
                version=health.version,
                cause=error.cause if error else "",
                traceback=error.traceback if error else "",
                file=error.file if error else "",
                line=error.line if error else 0,
            )
        )

    source.add_listener(publish)
    await source.start()
    try:
        async with run_console(link=link, at="rewards") as console:
            await _shown(console, "● active")
            hook.write_text(f"{GOOD}\ndef broken(:\n")
            await _shown(console, "SyntaxError")
            text = console.text()
            assert f"{HOOK}:4" in text
            assert "newest save broken" in text
            hook.write_text(f"{GOOD}\n# mended\n")
            await _shown(console, "● active")
            assert "fixed at" in console.text()
    finally:
        await source.close()


async def _shown(console: RunningConsole, words: str) -> None:
    """Wait until `words` are on screen; the source's process may take its time."""
    async with asyncio.timeout(60):
        while words not in console.text():
            await console.settle()
            await asyncio.sleep(0.02)


# --- safe and in its place -------------------------------------------------------------------


async def test_hostile_text_stays_text() -> None:
    named = CandidateScore(index=0, reward=1.0, parts=(Part(HOSTILE, 1.0, reason=HOSTILE),))
    other = CandidateScore(index=1, reward=0.0, parts=(Part(HOSTILE, 0.0, reason=HOSTILE * 50),))
    scored = GroupScored(
        group_id="g0020", scores=(named, other), best=0, version=HOSTILE, seconds=0.1, at=NOW
    )
    state = in_use(scored, broken(HOSTILE * 20, file=f"/{HOSTILE}"), reason=HOSTILE)
    state.rewards.source = HOSTILE * 5
    async with run_console(state, size=(60, 15), at="rewards") as console:
        for size in ((60, 15), (80, 24), (120, 40), (160, 48)):
            await console.pilot.resize_terminal(*size)
            for keys in ([], ["z"], ["z", "enter"]):
                await console.press(*keys)
                await console.settle()
                text = console.text()
                assert "\x1b" not in text
                assert "\u202e" not in text
                assert "[/b]" in text
                assert all(cell_len(line) <= size[0] for line in text.splitlines())
            assert isinstance(console.app.screen, RewardPartScreen)
            await console.press("escape")


async def test_the_screen_is_painted_in_every_theme_and_after_a_resize() -> None:
    async with run_console(sample_state(), at="rewards") as console:
        for theme, size in (("light", (160, 48)), ("ansi", (60, 15)), ("dark", (80, 24))):
            console.app.theme = theme
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert "REWARDS" in console.text()
