"""Tools of the Rate screen: corrections, reasons, guidelines, second votes, agreement, stalls."""

from pathlib import Path
from typing import Any

import pytest
from textual.app import App

import console.screens.rate.tools as asides
from console.models.ballot import reshuffled
from console.models.screen_registry import SCREENS
from console.screens.rate.dialogs import tag_names
from console.widgets.editor import EditorError, edit_text
from core.events import (
    AlertCleared,
    AlertRaised,
    CandidateAnswered,
    ConsoleAttached,
    EngineChanged,
    GroupEdited,
    GroupLeased,
    RatingRepeated,
)
from core.settings import RatingSettings
from tests.pilot.rate.test_screen import order_of, votes, waiting
from tests.support.console import HOSTILE, NOW, FakeReply, RunningConsole, group_events, run_console
from tests.unit.console.models.test_rate_queue import rated_state

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]
HELD = AlertRaised(key="hold:embedded", cause="3 open ratings hold up the weight update")


def commands(here: RunningConsole, name: str) -> list[dict[str, Any]]:
    """Arguments of each order of that name."""
    return [args for value, args in here.link.commands if value == name]


def editing(monkeypatch: pytest.MonkeyPatch, result: str | Exception) -> list[str]:
    """Texts that were opened in the editor, which makes `result` of them."""
    opened: list[str] = []

    async def edit(app: App[int], text: str) -> str:
        opened.append(text)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(asides, "edit_text", edit)
    return opened


# --- corrections ---------------------------------------------------------------------------------


async def test_an_edited_best_answer_is_stored_beside_the_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = editing(monkeypatch, "a better one")
    async with run_console(waiting(2), places=PLACES, at="rate") as here:
        await here.press("e")
        assert opened == []
        assert "Which one?" in here.text()
        await here.press("3")
        assert "Which one?" not in here.text()
        await here.press("e")
        index = order_of(1)[2]
        assert opened == [f"answer {index} to: Question 1"]
        assert commands(here, "group.edit") == [
            {"group_id": "g0001", "index": index, "edited": "a better one", "rater": "anna"}
        ]
        assert "stored as a preference; reward and user's answer stay" in here.text()
        here.link.publish(
            GroupEdited(server="embedded", group_id="g0001", index=index, edited="a better one")
        )
        await here.settle()
        assert "best  ✎ edited" in here.text()
        await here.press("enter")
        assert votes(here) == [("g0001", "best", (index,))]


async def test_a_selected_answer_is_edited_and_becomes_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editing(monkeypatch, "better")
    async with run_console(waiting(1), places=PLACES, at="rate") as here:
        await here.press("tab", "tab", "e")
        assert commands(here, "group.edit")[0]["index"] == order_of(1)[1]
        await here.press("enter")
        assert votes(here) == [("g0001", "best", (order_of(1)[1],))]


async def test_a_cut_answer_is_edited_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = editing(monkeypatch, "short")
    texts = [f"{index} " + "word " * 1_000 for index in range(4)]
    async with run_console(waiting(1, texts=texts), places=PLACES, at="rate") as here:
        here.link.detail = [
            event
            for event in group_events(1, texts=texts, until="AWAITING_RATING")
            if isinstance(event, CandidateAnswered)
        ]
        await here.press("1", "e")
        assert opened == [texts[order_of(1)[0]]]


@pytest.mark.parametrize(
    ("result", "actual"),
    [
        (EditorError("vi ended with 1: the text is unchanged"), "ended with 1"),
        ("   \n", "nothing was stored"),
    ],
)
async def test_a_failed_edit_stores_nothing(
    monkeypatch: pytest.MonkeyPatch, result: str | Exception, actual: str
) -> None:
    editing(monkeypatch, result)
    async with run_console(waiting(1), places=PLACES, at="rate", size=(120, 30)) as here:
        await here.press("1", "e")
        assert actual in here.text()
        assert commands(here, "group.edit") == []


async def test_a_headless_terminal_cannot_be_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    async with run_console(waiting(1), places=PLACES, at="rate") as here:
        with pytest.raises(EditorError, match="no editor can run"):
            await edit_text(here.app, "text")


# --- reasons, guidelines, name -------------------------------------------------------------------


async def test_reasons_are_sent_with_the_vote() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as here:
        await here.press("w")
        assert "1  · wrong" in here.text()
        await here.press("1", "3", "5", "5", "enter")
        assert "[wrong, verbose]" in here.text()
        await here.press("2", "enter")
        assert commands(here, "group.rate")[0]["tags"] == ("wrong", "verbose")
        await here.press("2", "enter")
        assert "tags" not in commands(here, "group.rate")[1]


def test_the_reasons_come_from_the_settings() -> None:
    assert tag_names(" a, b ,,a") == ["a", "b"]
    assert tag_names([f"tag{number}" for number in range(20)])[-1] == "tag8"
    assert tag_names(()) == []


async def test_guidelines_are_shown_and_their_version_goes_with_the_votes(tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text(f"# How to rate\n\n- Prefer **short** answers\n\n{HOSTILE}\n")
    async with run_console(waiting(3), places=PLACES, at="rate") as here:
        await here.press("g")
        assert "set rating.guidelines" in here.text()
        here.session.rating = RatingSettings(guidelines=str(file))
        await here.press("g")
        await here.settle()
        assert "How to rate" in here.text()
        assert "Prefer short answers" in here.text()
        assert "\x1b" not in here.text()
        await here.press("escape", "1", "enter")
        version = commands(here, "group.rate")[0]["guidelines"]
        assert len(version) == 8
        file.write_text("# Other")
        await here.press("g", "escape", "1", "enter")
        assert commands(here, "group.rate")[1]["guidelines"] != version
        file.unlink()
        await here.press("g")
        messages = [
            one.message for one in here.app._notifications
        ]  # whole: on screen it is wrapped
        assert any("the guidelines cannot be read" in one for one in messages), messages


async def test_a_vote_records_what_was_shown_and_how_long() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate") as here:
        here.clock.now += 4
        await here.press("3")
        here.clock.now += 2.5
        await here.press("enter")
        (args,) = commands(here, "group.rate")
        assert args["shown"] == order_of(1)
        assert args["blind"] is True
        assert (args["first_key"], args["looked"]) == (4.0, 6.5)
        assert args["seed"] in args["note"]


# --- second votes --------------------------------------------------------------------------------


async def test_a_repeated_group_is_blind_and_its_vote_sends_no_rewards() -> None:
    state = rated_state(7)
    async with run_console(state, places=PLACES, at="rate") as here:
        here.session.rating = RatingSettings(repeats=1.0)
        here.app.screen.context.take_settings()  # type: ignore[attr-defined]  # the rating screen's own
        await here.settle()
        await here.press("escape")
        shown = here.text()
        assert "Why is the sky blue?" in shown
        for secret in ("winner", "rated best", "0.90", "sent"):
            assert secret not in shown
        here.link.reply = FakeReply(message="the same as before")
        _, order = reshuffled("g0001", range(4))
        await here.press("2")
        assert "0.00 1.00 0.00 0.00. Enter records it" in here.text()
        await here.press("enter")
        (args,) = commands(here, "group.repeat")
        assert (args["group_id"], args["order"], args["shown"]) == ("g0001", (order[1],), order)
        assert votes(here) == []
        expected = "you have rated this group before: the same as before; nothing is sent"
        assert expected in here.text()
        here.link.publish(
            RatingRepeated(
                server="embedded", group_id="g0001", rating="best", agrees=True, rater="anna"
            )
        )
        await here.press("k")  # the next repeated group is left out
        assert len(commands(here, "group.repeat")) == 1
        assert "No group is waiting for your rating" in here.text()


# --- leases --------------------------------------------------------------------------------------


async def test_a_group_is_leased_only_while_another_console_is_there() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as here:
        assert commands(here, "group.lease") == []
        here.link.publish(ConsoleAttached(consoles=2))
        await here.settle()
        (lease,) = commands(here, "group.lease")
        assert (lease["group_id"], lease["seconds"], lease["rater"]) == ("g0001", 20.0, "anna")
        here.link.publish(
            GroupLeased(server="embedded", group_id="g0001", holder=lease["holder"], until=NOW + 20)
        )
        await here.settle()
        here.clock.now += 5
        await here.settle()
        assert len(commands(here, "group.lease")) == 1
        here.clock.now += 8
        await here.settle()
        assert len(commands(here, "group.lease")) == 2  # renewed
        await here.press("f2")
        assert commands(here, "group.lease")[-1]["seconds"] == 0.0


async def test_a_group_leased_by_another_rater_is_skipped() -> None:
    state = waiting(2)
    async with run_console(state, places=PLACES, at="rate") as here:
        await here.press("1")
        here.link.publish(
            ConsoleAttached(consoles=2),
            GroupLeased(
                server="embedded", group_id="g0001", holder="x", rater="bob", until=NOW + 15
            ),
        )
        await here.settle()
        assert "1 to rate  1 with bob" in here.text()
        assert "Question 2" in here.text()
        await here.press("1", "enter")
        assert votes(here) == []  # the key was meant for the group before
        here.clock.now += 1
        await here.press("1", "enter")
        assert votes(here) == [("g0002", "best", (order_of(2)[0],))]
        assert "bob has 1 open group on another console since 0:01; T takes it" in here.text()


# --- compare, unsure, agreement ------------------------------------------------------------------


async def test_answers_are_compared_by_words_and_stay_blind() -> None:
    texts = [f"all say the same but word{index}" for index in range(4)]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", size=(160, 40)
    ) as here:
        await here.press("2", "d")
        shown = here.text()
        assert "2  best ≡ compared with" in shown
        assert "winner" not in shown
        other, base = order_of(1)[0], order_of(1)[1]
        assert f"word{base}" in shown.replace(f"but word{base}", "", 1)  # struck beside its own
        assert f"word{other}" in shown
        await here.press("d", "enter")
        assert votes(here) == [("g0001", "best", (base,))]


async def test_a_key_shows_only_unsure_groups() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as here:
        here.link.publish(
            *group_events(
                3, query="Hard", rewards=(0.4, 0.41, 0.4, 0.4), at=NOW, until="AWAITING_RATING"
            )
        )
        await here.settle()
        await here.press("f")
        here.clock.now += 1
        await here.settle()
        assert "Hard" in here.text()
        assert "1 to rate  unsure only, 2 left out" in here.text()
        await here.press("1", "enter")
        assert votes(here) == [("g0003", "best", (order_of(3)[0],))]
        assert "The automatic rewards are sure about 2 open groups; f shows them." in here.text()
        await here.press("f")
        assert "Question 1" in here.text()


async def test_a_key_shows_agreement_and_disagreements() -> None:
    async with run_console(rated_state(3), places=PLACES, at="rate") as here:
        await here.press("j")
        shown = here.text()
        assert "anna and the automatic rewards" in shown
        assert "0 of 3, 0 % (0-56 %)" in shown
        assert "3 groups on which you disagree" in shown
        assert "you #1  rewards #2 (0.90)" in shown
        await here.press("enter")
        assert "rated best #1 by anna" in here.text()
        await here.press("escape")
        assert "No group is waiting for your rating" in here.text()


# --- ways out ------------------------------------------------------------------------------------


async def test_each_remedy_for_ratings_that_stall_the_weight_update() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate") as here:
        await here.press("A", "X")
        assert here.link.commands == []
        assert "No open rating causes" in here.text()
        here.link.publish(HELD)
        await here.settle()
        assert "hold up" not in here.text()  # a user waits for a moment, as always
        here.link.publish(EngineChanged(server="embedded", state="ROLLING_POST", step=2))
        await here.settle()
        assert "! 3 open ratings hold up the weight update" in here.text()
        await here.press("A")
        assert "Accept all automatic rewards?" in here.text()
        await here.press("n")
        assert here.link.commands == []
        await here.press("A", "y")
        assert here.link.commands.pop() == ("rating.accept_all", {"server": "embedded"})
        await here.press("X")
        assert "3 groups without a rating, 12 episodes" in here.text()
        await here.press("n")
        assert here.link.commands == []
        await here.press("X", "y")
        assert here.link.commands.pop() == ("rating.abort_all", {"server": "embedded"})
        await here.press("X", "3", "y")
        assert here.link.commands.pop()[1] == {"server": "embedded", "reason": "debugging"}
        await here.press("2", "enter")  # or continue rating
        assert votes(here) == [("g0001", "best", (order_of(1)[1],))]
        here.link.publish(AlertCleared(key="hold:embedded"))
        await here.settle()
        assert "hold up" not in here.text()


async def test_a_read_only_console_has_no_rating_tools() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", read_only=True) as here:
        here.link.publish(
            HELD,
            ConsoleAttached(consoles=2),
            EngineChanged(server="embedded", state="ROLLING_POST", step=2),
        )
        await here.settle()
        await here.press("A", "X", "e", "w", "1", "enter")
        assert here.link.commands == []


async def test_the_dialogs_fit_80_by_24(tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text("# Rules\n\n" + "\n".join(f"- rule {number}" for number in range(80)))
    async with run_console(rated_state(40), places=PLACES, at="rate") as here:
        here.session.rating = RatingSettings(guidelines=str(file), repeats=0.0)
        await here.press("j")
        assert "Esc closes" in here.text()
        await here.press("escape", "g")
        await here.settle()
        assert "Esc closes" in here.text()
