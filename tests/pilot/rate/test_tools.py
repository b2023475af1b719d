"""Tools of the Rate screen: corrections, reasons, guidelines, second votes, agreement, stalls."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.app import App

import console.screens.rate.tools as asides
from console.models.screen_registry import SCREENS
from console.screens.rate.ballot import reshuffled
from console.screens.rate.model import tag_names
from console.widgets.editor import EditorError, edit_text
from core.events import (
    AlertCleared,
    AlertRaised,
    CandidatesAnswered,
    ConsoleAttached,
    EngineChanged,
    GroupEdited,
    GroupLeased,
    RatingRepeated,
)
from core.settings import RatingSettings
from tests.pilot.rate.test_screen import order_of, sent_vote, votes, waiting
from tests.support.console import (
    BY_ENTER,
    HOSTILE,
    NOW,
    FakeReply,
    RunningConsole,
    group_events,
    run_console,
)
from tests.support.ratings import rated_state

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]
HELD = AlertRaised(key="hold:embedded", cause="3 open ratings hold up the weight update")


def commands(console: RunningConsole, name: str) -> list[dict[str, Any]]:
    """Arguments of each order of that name."""
    return [args for value, args in console.link.commands if value == name]


def editing(monkeypatch: pytest.MonkeyPatch, result: str | Exception) -> list[str]:
    """Texts that were opened in the editor, which makes `result` of them."""
    opened: list[str] = []

    async def edit(app: App[int], text: str, **_: object) -> str:
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
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("e")
        assert opened == []
        assert "Which one?" in console.text()
        await console.press("3")
        assert "Which one?" not in console.text()
        await console.press("e")
        index = order_of(1)[2]
        assert opened == [f"answer {index} to: Question 1"]
        assert commands(console, "group.edit") == [
            {"group_id": "g0001", "index": index, "edited": "a better one", "rater": "anna"}
        ]
        assert "kept as a demonstration for SFT; reward and user's answer stay" in console.text()
        console.link.publish(
            GroupEdited(server="embedded", group_id="g0001", index=index, edited="a better one")
        )
        await console.settle()
        assert "best  ✎ edited" in console.text()
        await console.press("enter")
        assert votes(console) == [("g0001", "best", (index,))]


async def test_a_selected_answer_is_edited_and_becomes_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editing(monkeypatch, "better")
    async with run_console(waiting(1), places=PLACES, at="rate") as console:
        console.clock.now += 1
        await console.press("tab", "tab", "e")
        assert commands(console, "group.edit")[0]["index"] == order_of(1)[1]
        await console.press("enter")
        assert votes(console) == [("g0001", "best", (order_of(1)[1],))]


async def test_a_cut_answer_is_edited_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = editing(monkeypatch, "short")
    texts = [f"{index} " + "word " * 1_000 for index in range(4)]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", rating=BY_ENTER
    ) as console:
        console.link.detail = [
            event
            for event in group_events(1, texts=texts, until="AWAITING_RATING")
            if isinstance(event, CandidatesAnswered)
        ]
        await console.press("1", "e")
        assert opened == [texts[order_of(1)[0]]]


async def test_a_failed_edit_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    async with run_console(
        waiting(1), places=PLACES, at="rate", rating=BY_ENTER, size=(120, 30)
    ) as console:
        with pytest.raises(EditorError, match="no editor can run"):  # there is no terminal
            await edit_text(console.app, "text")
        await console.press("1")
        for result, words in (
            (EditorError("vi ended with 1: the text is unchanged"), "ended with 1"),
            ("   \n", "nothing was stored"),
        ):
            editing(monkeypatch, result)
            await console.press("e")
            assert words in console.text()
        assert commands(console, "group.edit") == []


# --- reasons, guidelines, name -------------------------------------------------------------------


async def test_reasons_are_sent_with_the_vote() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("w")
        assert "1  · wrong" in console.text()
        assert f"“{console.app.session.state.groups['g0001'].query}”" in console.text()
        await console.press("1", "3", "5", "5", "enter")
        assert "[wrong, verbose]" in console.text()
        await console.press("2", "enter")
        assert commands(console, "group.rate")[0]["tags"] == ("wrong", "verbose")
        await console.press("2", "enter")
        assert "tags" not in commands(console, "group.rate")[1]


async def test_a_reason_is_one_key_for_a_vote_that_is_typed_or_held() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate", size=(120, 36)) as console:
        await console.press("V")
        assert "V is the reason verbose of a vote that is typed or held" in console.text()
        await console.press("t", "W", "V", "W")
        assert "[verbose] tie" in console.text()
        console.clock.now += 1
        await console.press("enter")
        console.link.publish(replace(sent_vote(1), rater="anna"))
        await console.settle()
        assert "W wrong  O off-topic  V verbose  F unsafe  Y style" in console.text()
        await console.press("F")
        await console.press("V")
        first, *more = commands(console, "group.rate")
        assert [tuple(args["tags"]) for args in (first, *more)] == [
            ("verbose",),
            ("verbose", "unsafe"),
            ("unsafe",),
        ]
        assert all({**args, "tags": first["tags"]} == first for args in more)
        console.link.publish(replace(sent_vote(1), rater="anna", tags=("unsafe",)))
        await console.settle()
        assert "[unsafe]" in console.text()
        console.clock.now += 60
        await console.press("F")
        assert len(commands(console, "group.rate")) == 3
        await console.press("w")
        assert "4  · unsafe  F" in console.text()


def test_the_reasons_come_from_the_settings() -> None:
    assert tag_names(" a, b ,,a") == ["a", "b"]
    assert tag_names([f"tag{number}" for number in range(20)])[-1] == "tag8"
    assert tag_names(()) == []


async def test_guidelines_are_shown_and_their_version_goes_with_the_votes(tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text(f"# How to rate\n\n- Prefer **short** answers\n\n{HOSTILE}\n")
    async with run_console(waiting(3), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("g")
        assert "set rating.guidelines" in console.text()
        console.session.rating = RatingSettings(guidelines=str(file), confirm="enter")
        await console.press("g")
        await console.settle()
        assert "How to rate" in console.text()
        assert "Prefer short answers" in console.text()
        assert "\x1b" not in console.text()
        await console.press("escape", "1", "enter")
        version = commands(console, "group.rate")[0]["guidelines"]
        assert len(version) == 8
        file.write_text("# Other")
        await console.press("g", "escape", "1", "enter")
        assert commands(console, "group.rate")[1]["guidelines"] != version
        file.unlink()
        await console.press("g")
        assert any("the guidelines cannot be read" in message for message in console.messages)


async def test_a_vote_records_what_was_shown_and_how_long() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.clock.now += 4
        await console.press("3")
        console.clock.now += 2.5
        await console.press("enter")
        (args,) = commands(console, "group.rate")
        assert args["shown"] == order_of(1)
        assert args["blind"] is True
        assert (args["first_key"], args["looked"]) == (4.0, 6.5)
        assert args["seed"] in args["note"]


# --- second votes --------------------------------------------------------------------------------


async def test_a_repeated_group_is_blind_and_its_vote_sends_no_rewards() -> None:
    state = rated_state(7)
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.session.rating = RatingSettings(repeats=1.0, confirm="enter")
        await console.settle()
        await console.press("escape")
        shown = console.text()
        assert "Why is the sky blue?" in shown
        for secret in ("winner", "rated best", "0.90", "sent"):
            assert secret not in shown
        console.link.reply = FakeReply(message="the same as before")
        _, order = reshuffled("g0001", range(4))
        await console.press("2")
        assert "0.00 1.00 0.00 0.00. Enter records it" in console.text()
        await console.press("enter")
        (args,) = commands(console, "group.repeat")
        assert (args["group_id"], args["order"], args["shown"]) == ("g0001", (order[1],), order)
        assert votes(console) == []
        expected = "you have rated this group before: the same as before; nothing is sent"
        assert expected in console.text()
        console.link.publish(
            RatingRepeated(
                server="embedded", group_id="g0001", rating="best", agrees=True, rater="anna"
            )
        )
        await console.press("k")  # the next repeated group is left out
        assert len(commands(console, "group.repeat")) == 1
        assert "No group is waiting for your rating" in console.text()


# --- leases --------------------------------------------------------------------------------------


async def test_a_group_is_leased_only_while_another_console_is_there() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as console:
        assert commands(console, "group.lease") == []
        (report,) = console.link.on_screen
        assert (report["group_id"], report["idle"], report["shared"]) == ("g0001", 0.0, True)
        console.link.publish(ConsoleAttached(consoles=2))
        await console.settle()
        (lease,) = commands(console, "group.lease")
        assert (lease["group_id"], lease["seconds"], lease["rater"]) == ("g0001", 20.0, "anna")
        console.link.publish(
            GroupLeased(server="embedded", group_id="g0001", holder=lease["holder"], until=NOW + 20)
        )
        await console.settle()
        console.clock.now += 5
        await console.settle()
        assert len(commands(console, "group.lease")) == 1
        console.clock.now += 8
        await console.settle()
        assert len(commands(console, "group.lease")) == 2  # renewed
        await console.press("f2")
        assert commands(console, "group.lease")[-1]["seconds"] == 0.0


async def test_a_group_leased_by_another_rater_is_skipped() -> None:
    state = waiting(2)
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1")
        console.link.publish(
            ConsoleAttached(consoles=2),
            GroupLeased(
                server="embedded", group_id="g0001", holder="x", rater="bob", until=NOW + 15
            ),
        )
        await console.settle()
        assert "1 to rate  1 with bob" in console.text()
        assert "Question 2" in console.text()
        await console.press("1", "enter")
        assert votes(console) == []  # the key was meant for the group before
        console.clock.now += 1
        await console.press("1", "enter")
        assert votes(console) == [("g0002", "best", (order_of(2)[0],))]
        assert "bob has 1 open group on another console since 0:01; T takes it" in console.text()


# --- compare, unsure, agreement ------------------------------------------------------------------


async def test_answers_are_compared_by_words_and_stay_blind() -> None:
    texts = [f"all say the same but word{index}" for index in range(4)]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", rating=BY_ENTER, size=(160, 40)
    ) as console:
        await console.press("2", "d")
        shown = console.text()
        assert "2  best ≡ compared with" in shown
        assert "winner" not in shown
        other, base = order_of(1)[0], order_of(1)[1]
        assert f"word{base}" in shown.replace(f"but word{base}", "", 1)  # struck beside its own
        assert f"word{other}" in shown
        await console.press("d", "enter")
        assert votes(console) == [("g0001", "best", (base,))]


async def test_a_key_shows_only_unsure_groups() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.publish(
            *group_events(
                3, query="Hard", rewards=(0.4, 0.41, 0.4, 0.4), at=NOW, until="AWAITING_RATING"
            )
        )
        await console.settle()
        await console.press("f")
        console.clock.now += 1
        await console.settle()
        assert "Hard" in console.text()
        assert "1 to rate  unsure only, 2 left out" in console.text()
        await console.press("1", "enter")
        assert votes(console) == [("g0003", "best", (order_of(3)[0],))]
        assert "The automatic rewards are sure about 2 open groups; f shows them." in console.text()
        await console.press("f")
        assert "Question 1" in console.text()


async def test_a_key_shows_agreement_and_disagreements() -> None:
    async with run_console(rated_state(3), places=PLACES, at="rate") as console:
        await console.press("j")
        shown = console.text()
        assert "anna and the automatic rewards" in shown
        assert "0 of 3, 0 % (0-56 %)" in shown
        assert "3 groups on which you disagree" in shown
        assert "you #1  rewards #2 (0.90)" in shown
        await console.press("enter")
        assert "rated best #1 by anna" in console.text()
        await console.press("escape")
        assert "No group is waiting for your rating" in console.text()


# --- ways out ------------------------------------------------------------------------------------


async def test_each_remedy_for_ratings_that_stall_the_weight_update() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("A", "X")
        assert console.link.commands == []
        assert "No open rating causes" in console.text()
        console.link.publish(HELD)
        await console.settle()
        assert "hold up" not in console.text()  # a user waits for a moment, as always
        console.link.publish(EngineChanged(server="embedded", state="ROLLING_POST", step=2))
        await console.settle()
        assert "! 3 open ratings hold up the weight update" in console.text()
        await console.press("A")
        assert "Accept all automatic rewards?" in console.text()
        await console.press("n")
        assert console.link.commands == []
        await console.press("A", "y")
        assert console.link.commands.pop() == ("rating.accept_all", {"server": "embedded"})
        await console.press("X")
        assert "3 groups without a rating, 12 episodes" in console.text()
        await console.press("n")
        assert console.link.commands == []
        await console.press("X", "y")
        assert console.link.commands.pop() == ("rating.abort_all", {"server": "embedded"})
        await console.press("X", "3", "y")
        assert console.link.commands.pop()[1] == {"server": "embedded", "reason": "debugging"}
        await console.press("2", "enter")  # or continue rating
        assert votes(console) == [("g0001", "best", (order_of(1)[1],))]
        console.link.publish(AlertCleared(key="hold:embedded"))
        await console.settle()
        assert "hold up" not in console.text()


async def test_the_dialogs_fit_80_by_24(tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text("# Rules\n\n" + "\n".join(f"- rule {number}" for number in range(30)))
    async with run_console(rated_state(40), places=PLACES, at="rate") as console:
        console.session.rating = RatingSettings(guidelines=str(file), repeats=0.0)
        await console.press("j")
        assert "Esc closes" in console.text()
        await console.press("escape", "g")
        await console.settle()
        assert "Esc closes" in console.text()
