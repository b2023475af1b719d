"""The answer that should have been given, after a tie, all bad or a vote; drafts of it."""

from pathlib import Path
from typing import Any

import pytest

import console.widgets.editor as editor
from ajet_swarm.common.errors import AjetError
from core.events import GroupEdited, GroupRated
from tests.pilot.rate.test_screen import PLACES, order_of, votes, waiting
from tests.pilot.rate.test_tools import commands, editing
from tests.support.console import BY_ENTER, RunningConsole, run_console

OFFER = "e writes the right answer"
TEACHES = "the answer that should have been given, which SFT teaches"


def kept(console: RunningConsole) -> list[tuple[str, int, str]]:
    """Group, answer and text of each demonstration that was sent to the proxy."""
    sent = commands(console, "group.edit")
    return [(args["group_id"], args["index"], args["edited"]) for args in sent]


@pytest.mark.parametrize(("key", "rating"), [("t", "tie"), ("b", "bad")])
async def test_after_a_vote_without_a_winner_one_key_asks_for_the_right_answer(
    monkeypatch: pytest.MonkeyPatch, key: str, rating: str
) -> None:
    opened = editing(monkeypatch, "42")
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press(key)
        assert TEACHES in " ".join(console.text().split())
        await console.press("enter")
        assert votes(console) == [("g0001", rating, None)]
        console.link.publish(
            GroupRated(server="embedded", group_id="g0001", rating=rating, rewards=(0.5,) * 4)
        )
        await console.settle()
        assert "Question 2" in console.text()
        assert OFFER in console.text()
        await console.press("e")
        first = order_of(1)[0]
        assert opened == [f"answer {first} to: Question 1"]
        assert kept(console) == [("g0001", first, "42")]
        assert "kept as a demonstration for SFT" in console.text()
        console.link.publish(
            GroupEdited(server="embedded", group_id="g0001", index=first, edited="42")
        )
        await console.press("escape")
        assert OFFER not in console.text()
        assert len(votes(console)) == 1, "the demonstration types nothing on the next group"


async def test_the_right_answer_is_written_before_all_bad_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editing(monkeypatch, "42")
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("b", "e")
        assert kept(console) == [("g0001", order_of(1)[0], "42")]
        assert votes(console) == []
        await console.press("enter")
        assert votes(console) == [("g0001", "bad", None)]


async def test_a_key_corrects_the_best_answer_of_the_last_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editing(monkeypatch, "better")
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("3", "enter")
        assert [name for _, name, _ in votes(console)] == ["best"]
        assert "No group is waiting" in console.text()
        assert OFFER not in console.text()
        await console.press("e")
        assert kept(console) == [("g0001", order_of(1)[2], "better")]


async def test_a_skip_asks_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = editing(monkeypatch, "better")
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("k")
        assert TEACHES not in " ".join(console.text().split())
        await console.press("e")
        assert opened == []
        assert "Which one?" in console.text()


async def test_a_draft_survives_a_failure_and_a_new_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [1, 0, 0]

    async def run(_: Any, command: list[str]) -> int:
        file = Path(command[-1])
        file.write_text(f"{file.read_text()} + words")
        return codes.pop(0)

    monkeypatch.setattr(editor, "_run", run)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    for refused, words in ((False, "the draft is kept"), (True, "Your draft is kept")):
        async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
            console.session.home = tmp_path
            console.link.refuse = AjetError("no room") if refused else None
            await console.press("tab", "e")
            await console.until(lambda: console.messages, "the failure")
            assert words in console.messages[0]
            assert len(list((tmp_path / "drafts").iterdir())) == 1
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.session.home = tmp_path
        await console.press("tab", "e")
        await console.until(lambda: kept(console), "the demonstration")
        first = order_of(1)[0]
        text = f"answer {first} to: Question 1 + words + words + words"
        assert kept(console) == [("g0001", first, text)]
        await console.until(lambda: not list((tmp_path / "drafts").iterdir()), "the draft's end")
