"""The text beside the answers on a wide rating screen."""

from console.models.ballot import Ballot
from console.models.rating.progress import RatingProgress
from console.text.lines import line_width
from console.views.rate_aside import guideline_lines, reference_lines, session_lines
from core.events import GroupRated
from core.state import Group
from tests.support.console import HOSTILE, NOW, group_events, state_of
from tests.support.groups import group, text_of

WIDTH = 60


def group_with_reference(
    number: int, query: str, reference: str | None, *, voted: bool = False
) -> Group:
    """A group with a reference; `voted` rates it."""
    one = group(number, query=query)
    one.reference = reference
    if voted:
        state = state_of(*group_events(number, query=query, until="AWAITING_RATING"), vote(number))
        one = state.groups[f"g{number:04}"]
        one.reference = reference
    return one


def vote(number: int, at: float = NOW, rater: str = "anna") -> GroupRated:
    return GroupRated(
        group_id=f"g{number:04}",
        rating="best",
        order=(0,),
        rewards=(1.0, 0.0, 0.0, 0.0),
        rater=rater,
        at=at,
    )


def reference_text(one: Group | None, ballot: Ballot | None, last: Group | None) -> str:
    lines = reference_lines(one, ballot, last, "best 2", WIDTH)
    assert all(line_width(line) <= WIDTH for line in lines)
    return text_of(lines)


# --- the reference ---------------------------------------------------------------------------


def test_a_blind_vote_hides_the_reference() -> None:
    one = group_with_reference(1, "6 x 7?", "42")
    ballot = Ballot(one, blind=True)
    assert "42" not in reference_text(one, ballot, None)
    assert "appears after your vote" in reference_text(one, ballot, None)
    ballot.revealed = True
    assert reference_text(one, ballot, None) == "42"


def test_an_open_vote_shows_the_reference() -> None:
    one = group_with_reference(1, "6 x 7?", "42")
    assert reference_text(one, Ballot(one, blind=False), None) == "42"
    none = group_with_reference(2, "Hello", None)
    assert reference_text(none, Ballot(none, blind=False), None) == ""


def test_after_the_vote_the_reference_is_shown_beside_the_next_question() -> None:
    rated = group_with_reference(1, "6 x 7?", "42", voted=True)
    following = group_with_reference(2, "3 + 4?", "7")
    result = reference_text(following, Ballot(following, blind=True), rated)
    assert "last vote best 2" in result
    assert "6 x 7?" in result
    assert "42" in result
    assert "\n7" not in result


def test_the_reference_of_the_same_question_stays_hidden() -> None:
    rated = group_with_reference(1, "6 x 7?", "42", voted=True)
    again = group_with_reference(2, "6 x 7?", "42")
    assert "42" not in reference_text(again, Ballot(again, blind=True), rated)
    same_answer = group_with_reference(3, "40 + 2?", "42")
    assert "42" not in reference_text(same_answer, Ballot(same_answer, blind=True), rated)


def test_undoing_a_vote_hides_the_reference_again() -> None:
    open_again = group_with_reference(1, "6 x 7?", "42")
    assert reference_text(None, None, open_again) == ""


# --- guidelines and session ------------------------------------------------------------------


def test_guidelines_are_shown_if_the_settings_name_a_file() -> None:
    assert guideline_lines("", False, WIDTH) == []
    assert "g shows why" in text_of(guideline_lines(" ", True, WIDTH))
    assert text_of(guideline_lines("# How\n- right", True, WIDTH)) == "How\n• right"


def test_a_session_shows_votes_and_pace() -> None:
    progress = RatingProgress()
    for number, ago in enumerate((800, 90, 60, 30)):
        progress.voted(f"g{number}", NOW - ago)
    progress.voted("g9", NOW)
    progress.undone("g9")
    minutes = progress.by_minute(NOW, 15)
    assert minutes[-3:] == (0, 2, 1)
    assert sum(minutes) == 4
    lines = text_of(session_lines(progress.figures(), minutes, 7, 2, "anna", 34))
    for row in (
        "rated     4 by anna", "waiting   2", "sent      7 in all", "pace      1.5 a minute"
    ):  # fmt: skip
        assert row in lines


def test_a_session_shows_skips_apart() -> None:
    progress = RatingProgress()
    progress.voted("a", NOW)
    progress.skipped("b")
    progress.skipped("c")
    lines = text_of(session_lines(progress.figures(), progress.by_minute(NOW, 15), 1, 2, "", 34))
    assert "rated     1\nskipped   2\n" in lines


def test_the_name_of_a_rater_is_shown_without_control_characters() -> None:
    progress = RatingProgress()
    progress.voted("a", NOW)
    lines = text_of(session_lines(progress.figures(), (0,) * 15, 0, 0, HOSTILE, 34))
    assert "\x1b" not in lines
