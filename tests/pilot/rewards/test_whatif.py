"""The What-if screen: other weights on finished groups, re-scoring, applying."""

from typing import Any

from msgspec.structs import replace
from rich.cells import cell_len
from textual.widgets import Input

from ajet_swarm.common.errors import AjetError
from console.screens.dialogs.confirm import AskScreen, ConfirmScreen
from console.screens.group.screen import GroupScreen
from console.screens.rewards.whatif import RewardsWhatIfScreen
from console.widgets.item_list import ItemList
from core.events import (
    Event,
    GroupSealed,
    Part,
    RewardPart,
    RewardsChanged,
    RewardsWatched,
    TrialGroup,
    TrialSummary,
    WatchFigure,
    WhatIfChanged,
)
from tests.support.console import HOSTILE, NOW, RunningConsole, run_console, state_of
from tests.support.proxy.rewards import scored

MODEL = (
    RewardPart(name="open", kind="finished", gate=True),
    RewardPart(name="left", kind="length", weight=0.5),
    RewardPart(name="right", kind="relevance", weight=0.5),
)


def loaded(
    parts: tuple[RewardPart, ...] = MODEL, source: str = "/h/rewards.yaml", version: str = "v1"
) -> Event:
    return RewardsChanged(source=source, ok=True, version=version, parts=parts, at=NOW - 900)


def answer(left: float, right: float) -> list[Part]:
    return [Part("open", 1.0, gate=True), Part("left", left, 0.5), Part("right", right, 0.5)]


def events(*more: Event) -> list[Event]:
    """Six groups that flip when `left` is worth nothing, two that die then, two that stay."""
    result = [loaded()]
    for number in range(1, 7):
        result += scored(number, [answer(0.9, 0.2), answer(0.1, 0.6)])
    for number in range(7, 9):
        result += scored(number, [answer(0.9, 0.5), answer(0.1, 0.5)])
    for number in range(9, 11):
        result += scored(number, [answer(0.9, 0.9), answer(0.1, 0.1)])
    return [*result, *more]


def tried(**more: Any) -> WhatIfChanged:
    """A what-if of one weight on 40 groups."""
    return WhatIfChanged(what="left 0.1", weights=(("left", 0.1),), total=40, began=NOW - 3, **more)


async def opened(console: RunningConsole) -> None:
    await console.press("i")
    assert isinstance(console.app.screen, RewardsWhatIfScreen)


async def typed(console: RunningConsole, text: str) -> None:
    await console.press("enter")
    assert isinstance(console.app.screen, AskScreen)
    console.app.screen.query_one(Input).value = text
    await console.press("enter")


async def test_another_weight_shows_its_effect_at_once_and_enter_opens_a_changed_group() -> None:
    async with run_console(state_of(*events()), at="rewards") as console:
        await opened(console)
        assert "WHAT IF  10 groups, from the stored part values" in console.text()
        assert "mean 0.47 to 0.47" in console.text()
        assert (
            console.app.screen.query_one("#whatif-parts", ItemList).cursor == "left"
        )  # not the gate above it
        await typed(console, "0")
        text = console.text()
        assert "0.5  to 0" in text
        assert "winner flips 6 of 10 groups" in text
        assert "dead groups gained 2" in text
        assert "(0 before, 2 after)" in text
        assert not console.link.commands  # nothing was ordered
        await console.press("backspace")
        assert "to 0 " not in console.text()
        assert "winner flips" not in console.text()
        await typed(console, "0")
        await console.press("tab")
        assert console.app.screen.query_one("#whatif-groups", ItemList).has_focus
        assert getattr(console.app.screen, "target_group", None) == "g0001"
        assert "winner 1 to 2" in console.text()
        await console.press("enter")
        assert isinstance(console.app.screen, GroupScreen)


async def test_a_vote_against_the_rewards_is_no_flip() -> None:
    voted: list[Event] = [loaded()]
    for event in scored(1, [answer(0.9, 0.2), answer(0.1, 0.6)]):
        if isinstance(event, GroupSealed):
            sent = tuple(replace(reward, reward=float(reward.index)) for reward in event.rewards)
            event = replace(event, source="human", rewards=sent)
        voted.append(event)
    async with run_console(state_of(*voted), at="rewards") as console:
        await opened(console)
        assert "mean 0.45 to 0.45" in console.text()
        assert "human-rated: the same winner in 0 of 1" in console.text()
        assert not console.app.screen.query_one("#whatif-groups", ItemList).keys
        await typed(console, "0")
        text = console.text()
        assert "winner flips 1 of 1 group" in text
        assert "human-rated: the same winner in 1 of 1" in text


async def test_weights_are_stepped_typed_and_applied_after_confirmation() -> None:
    async with run_console(state_of(*events()), at="rewards") as console:
        await opened(console)
        await console.press("a")
        assert isinstance(console.app.screen, RewardsWhatIfScreen)  # there is nothing to apply yet
        await console.press("up", "right", "left", "enter")
        assert isinstance(console.app.screen, RewardsWhatIfScreen)  # a gate has no weight
        await console.press("down", "right", "right", "left")
        assert "0.5  to 0.55" in console.text()  # steps are small
        for bad in ("heavy", "nan", "1e999"):
            await typed(console, bad)
            assert "0.5  to 0.55" in console.text()
        await typed(console, "0.1")
        await console.press("a")
        assert isinstance(console.app.screen, ConfirmScreen)
        assert "left=0.1" in console.text()
        await console.press("n")
        assert not console.link.commands
        console.link.refuse = AjetError("the file is held by somebody")
        await console.press("a", "y")
        console.link.refuse = None
        console.link.commands.clear()
        await console.press("a", "y")  # the typed text is not lost
        assert console.link.commands == [("rewards.apply", {"weights": ("left=0.1",)})]


async def test_groups_are_rescored_on_the_proxy_with_progress() -> None:
    async with run_console(state_of(*events()), at="rewards") as console:
        await opened(console)
        await typed(console, "0.1")
        await console.press("r")
        assert console.link.commands[-1] == (
            "rewards.whatif",
            {"weights": ("left=0.1",), "last": 100},
        )
        console.link.publish(tried(done=12))
        await console.settle()
        assert "12 of 40 groups re-scored" in console.text()
        await console.press("c")
        assert console.link.commands[-1] == ("rewards.whatif_stop", {})
        summary = TrialSummary(groups=40, compared=39, flips=7, died=1, abstained=1)
        console.link.publish(tried(done=40, phase="done", summary=summary))
        await console.settle()
        assert "40 groups re-scored" in console.text()
        assert "winner flips 7 of 39 groups" in console.text()
        console.link.publish(tried(phase="failed", cause="rewards.yaml:3: no"))
        await console.settle()
        assert "rewards.yaml:3: no" in console.text()


async def test_the_screen_shows_the_traits_that_the_rewards_follow() -> None:
    figures = (
        WatchFigure(trait="length", r=0.1, low=-0.1, high=0.3, n=80),
        WatchFigure(trait="repetition", r=0.7, low=0.6, high=0.8, n=80, alert=True),
        WatchFigure(trait="refusal"),
    )
    watched = RewardsWatched(figures=figures, groups=20, outliers=((HOSTILE, 3, 12.0, 50.2),))
    async with run_console(state_of(*events(), watched), at="rewards", size=(120, 40)) as console:
        text = console.text()
        assert "rewards follow   length +0.10   ! repetition +0.70 (+0.60 to +0.80, n 80)" in text
        assert "newest outlier: 12, 50 deviations off, candidate 4" in text
        assert "refusal" not in text


async def test_a_hook_folder_has_no_weights() -> None:
    lone = loaded((RewardPart(name="hook", kind="hook"),), "/h")
    async with run_console(state_of(*events(), lone), at="rewards") as console:
        await opened(console)
        assert "there are no weights to try" in console.text()
        await console.press("left", "a")
        assert not console.link.commands
        await console.press("r")
        assert console.link.commands == [("rewards.whatif", {"weights": (), "last": 100})]


async def test_groups_of_an_older_model_are_left_out_with_a_note() -> None:
    newer = loaded((*MODEL, RewardPart(name="fresh", kind="diversity", weight=1.0)), version="v2")
    async with run_console(state_of(*events(), newer), at="rewards") as console:
        await opened(console)
        assert "No group in view can be compared" in console.text()


async def test_a_part_that_does_not_apply_to_a_group_leaves_it_in() -> None:
    same = loaded((*MODEL, RewardPart(name="fresh", kind="diversity", weight=1.0)))
    async with run_console(state_of(*events(), same), at="rewards") as console:
        await opened(console)
        assert "WHAT IF  10 groups" in console.text()
        assert "older rewards" not in console.text()


async def test_a_part_of_the_older_model_that_does_not_apply_leaves_the_group_in() -> None:
    """A new weight makes a new version: the groups of the one before stay comparable."""
    fresh = RewardPart(name="fresh", kind="diversity", weight=1.0)
    applies = scored(11, [[*answer(0.9, 0.2), Part("fresh", 0.4, 1.0)] for _ in range(2)])
    newer = loaded((*MODEL, fresh), version="v2")
    async with run_console(state_of(*events(*applies), newer), at="rewards") as console:
        await opened(console)
        assert "WHAT IF  11 groups" in console.text()
        assert "older rewards" not in console.text()


async def test_a_read_only_console_sends_no_commands() -> None:
    async with run_console(state_of(*events()), at="rewards", read_only=True) as console:
        await opened(console)
        await typed(console, "0.1")
        assert "winner flips" in console.text()
        await console.press("r", "a", "c")
        assert isinstance(console.app.screen, RewardsWhatIfScreen)
        assert not console.link.commands


async def test_hostile_text_stays_text() -> None:
    parts = (*MODEL, RewardPart(name=HOSTILE, kind="x"))
    group = TrialGroup(group_id=HOSTILE, query=HOSTILE * 3, before=(0.1, 0.2), after=(0.3, 0.1))
    summary = TrialSummary(
        groups=2, compared=1, abstained=1, abstentions=((HOSTILE, 1),), most=(group,)
    )
    done = WhatIfChanged(what=HOSTILE, phase="done", summary=summary)
    async with run_console(state_of(*events(), loaded(parts), done), at="rewards") as console:
        await opened(console)
        for size in ((60, 15), (80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            text = console.text()
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert all(cell_len(line) <= size[0] for line in text.splitlines())
