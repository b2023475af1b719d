"""Blind pairs on the screen: votes, their solution, skips, the newest look, hostile answers."""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.screens.progress.pair import PairScreen
from core.state import State
from tests.support.console import (
    FakeLink,
    FakeReply,
    RunningConsole,
    run_console,
    sample_events,
    state_of,
)
from tests.support.hostile import TEXTS
from tests.support.looks import ANSWERS, SERVER, look, looks, pair_data, pair_rated, vote_data

OLD, NEW = ANSWERS["capital"]


class PairLink(FakeLink):
    """A proxy with pairs: the current answer is always on the left."""

    def __init__(self, state: State | None = None, left: str = NEW, right: str = OLD) -> None:
        super().__init__(state)
        self.number = 0
        self.texts = left, right

    async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
        self.commands.append((name, dict(args)))
        if self.refuse is not None:
            raise self.refuse
        if name == "progress.pair":
            data = pair_data(f"pair{self.number}", *self.texts)
            return FakeReply(True, "a pair", data)
        if name != "progress.vote":
            return FakeReply()
        result = {"left": 1.0, "right": 0.0, "tie": 0.5, "skip": None}[args["choice"]]
        self.publish(pair_rated(self.number, result, choice=args["choice"]))
        self.number += 1
        data = vote_data(result, self.number)
        return FakeReply(True, "voted", data)


def in_use(*more: Any) -> State:
    return state_of(*sample_events(), *looks(), *more)


def sent(console: RunningConsole, name: str) -> list[dict[str, Any]]:
    return [args for known, args in console.link.commands if known == name]


async def test_a_pair_is_blind_until_the_vote() -> None:
    async with run_console(
        in_use(), at="progress", link=PairLink(in_use()), rater="anna"
    ) as console:
        await console.press("b")
        assert isinstance(console.app.screen, PairScreen)
        for size in ((160, 48), (80, 24)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            text = console.text()
            for words in (
                "BLIND PAIR",
                "What is the capital of France?",
                NEW,
                OLD,
                "ANSWER 1",
                "ANSWER 2",
            ):
                assert words in text, words
            for words in ("BEFORE", "NOW", "you chose", "0.75"):
                assert words not in text, words
            assert ("│" in text) == (size[0] >= 100)
        await console.press("1")
        text = console.text()
        for words in (
            "▲ you chose the current answer",
            "by its reward: now",
            "automatic 0.75, 1 rating 1.00 (0.09 to 1.00)",
            "ANSWER 1  NOW, step 12",
            "ANSWER 2  BEFORE, step 1",
        ):
            assert words in text, words
        assert sent(console, "progress.vote") == [
            {"pair_id": "pair0", "choice": "left", "server": SERVER, "rater": "anna"}
        ]
        await console.press("space")
        assert "you chose" not in console.text()
        assert len(sent(console, "progress.pair")) == 2
        await console.press("escape")
        assert console.app.current_mode == "progress"
        text = " ".join(console.text().split())
        assert "Win rate of the current policy in blind pairs, step 12 against step 1" in text
        assert "automatic 0.75, 1" in text


async def test_each_key_sends_its_vote() -> None:
    async with run_console(at="progress", link=PairLink(in_use()), rater="anna") as console:
        await console.press("b")
        for key, choice in (("2", "right"), ("0", "tie"), ("space", "skip")):
            console.link.commands.clear()
            await console.press(key)
            assert [vote["choice"] for vote in sent(console, "progress.vote")] == [choice]
            if choice != "skip":
                await console.press("1")
                assert len(sent(console, "progress.vote")) == 1, "it takes no second vote"
                assert console.app.current_mode == "overview", "a digit switches screens again"
                assert not sent(console, "progress.pair")
                await console.press("f8", "space")
            assert len(sent(console, "progress.pair")) == 1, "the next pair"


async def test_a_refusal_is_shown_instead_of_a_pair() -> None:
    link = PairLink(in_use())
    link.refuse = AjetError("both looks have the same answers", SERVER, "Train first")
    async with run_console(at="progress", link=link, rater="anna") as console:
        await console.press("b")
        assert "both looks have the same answers" in console.text()
        await console.press("1", "space")
        assert not sent(console, "progress.vote")


async def test_a_refused_vote_asks_for_another_pair() -> None:
    link = PairLink(in_use())
    async with run_console(at="progress", link=link, rater="anna") as console:
        await console.press("b")
        link.refuse = AjetError("pair pair0 is not open")
        await console.press("1")
        assert "pair pair0 is not open" in console.text()
        assert "you chose" not in console.text()
        assert len(sent(console, "progress.pair")) == 2


async def test_n_goes_to_the_newest_look_once_there_is_a_newer_one() -> None:
    async with run_console(
        at="progress", link=PairLink(in_use(pair_rated(99))), rater="anna"
    ) as console:
        await console.press("b", "n")
        assert [one["newest"] for one in sent(console, "progress.pair")] == [False]
        console.link.publish(look("l5", 14))
        await console.settle()
        await console.press("n")
        assert [one["newest"] for one in sent(console, "progress.pair")] == [False, True]


async def test_without_a_look_after_the_baseline_there_is_no_key() -> None:
    async with run_console(state_of(*sample_events(), *looks()[:2]), at="progress") as console:
        await console.press("b")
        assert not isinstance(console.app.screen, PairScreen)
        assert not sent(console, "progress.pair")


async def test_the_progress_screen_shows_the_win_rate_the_agreement_and_the_bias_of_a_part() -> (
    None
):
    votes = [pair_rated(at, float(at % 4 == 0)) for at in range(40)]
    async with run_console(in_use(*votes), size=(160, 48), at="progress") as console:
        text = " ".join(console.text().split())
        assert "step 12 against step 1: automatic 0.75, 40 ratings 0.25 (0." in text
        assert "), same result 25 % (" in text
        assert "Against the ratings: relevance overrates now by 0.75" in text


async def test_hostile_answers_are_shown_as_text() -> None:
    link = PairLink(in_use())
    async with run_console(at="progress", link=link, rater="anna") as console:
        for kind, text in TEXTS.items():
            if kind == "1 MB line":
                continue
            link.texts = text, f"x {text}"
            for key in ("b", "pagedown", "1", "space"):
                await console.press(key)
                shown = console.text()
                assert not any(
                    ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in shown.replace("\n", "")
                )
                assert "\u202e" not in shown
            assert isinstance(console.app.screen, PairScreen)
            await console.press("escape")


async def test_the_palette_opens_a_pair() -> None:
    async with run_console(at="overview", link=PairLink(in_use()), rater="anna") as console:
        await console.press("ctrl+p", *"rate a pair", "enter")
        assert isinstance(console.app.screen, PairScreen)
        assert sent(console, "progress.pair")[0]["server"] == SERVER


async def test_a_view_only_console_has_no_pairs() -> None:
    async with run_console(in_use(), at="progress", read_only=True) as console:
        await console.press("b")
        assert not isinstance(console.app.screen, PairScreen)
