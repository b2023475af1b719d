"""The rating screen as lines."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from textual.binding import Binding

from console.app import ConsoleApp
from console.models.alerts import alerts_by_urgency, stall_words
from console.screens.group.card import Card, body, head
from console.screens.rate.ballot import Ballot, Vote
from console.screens.rate.inbox.keys import InboxKeys
from console.screens.rate.model import (
    TAG_LETTERS,
    RatingFigures,
    RatingProgress,
    SentVote,
    session_figures,
    tag_keys,
)
from console.screens.rate.screen import RateScreen
from console.screens.rate.text import (
    answer_head,
    banner_line,
    clock_bar,
    clock_label,
    first_lines,
    header_line,
    last_line,
    progress_words,
    prompt_lines,
    queue_notes,
    rate_cards,
    rows_left,
    vote_rows,
)
from console.screens.rate.tools import AnswerKeys, RaterTools
from console.screens.rate.voting import RateGroupKeys, Voting
from console.screens.rate.widgets import guideline_lines, reference_lines, session_lines
from console.session.app_state import Session
from console.text.lines import Line, bar_pieces, line_width
from core.events import (
    AlertRaised,
    EngineChanged,
    Event,
    GroupClosed,
    GroupLost,
    GroupRated,
    GroupSealed,
    MockFinished,
    MockRetried,
    MockRowDone,
    MockStarted,
    RatingAwaited,
    RatingModeChanged,
    RatingUndone,
    ScoringAbstained,
    UpdateDone,
)
from core.events.mock import WAITS_FOR_VOTES
from core.settings import RatingSettings
from core.state import Candidate, Group, Rating, State, reduce
from tests.support.alerts import two_hold_up
from tests.support.checks import missing
from tests.support.console import HOSTILE, NOW, group_events, state_of
from tests.support.groups import group, text_of
from tests.support.ratings import late, missed, queue_of, rated_state, sent, waiting_state

WIDTH = 60


def group_with_reference(
    number: int, query: str, reference: str | None, *, voted: bool = False
) -> Group:
    """A group with a reference; `voted` rates it."""
    votes = [vote(number)] if voted else []
    state = state_of(*group_events(number, query=query, until="AWAITING_RATING"), *votes)
    (shown,) = state.groups.values()
    shown.reference = reference
    return shown


def vote(number: int, at: float = NOW, rater: str = "anna") -> GroupRated:
    return GroupRated(
        group_id=f"g{number:04}",
        rating="best",
        order=(0,),
        rewards=(1.0, 0.0, 0.0, 0.0),
        rater=rater,
        at=at,
    )


def reference_text(shown: Group | None, ballot: Ballot | None, last: Group | None) -> str:
    lines = reference_lines(shown, ballot, last, "best 2", WIDTH)
    assert all(line_width(line) <= WIDTH for line in lines)
    return text_of(lines)


@pytest.mark.parametrize(("reference", "shown"), [("42", "42"), (None, "")])
def test_a_blind_vote_hides_the_reference_and_an_open_one_shows_it(
    reference: str | None, shown: str
) -> None:
    known = group_with_reference(1, "6 x 7?", reference)
    ballot = Ballot(known)
    blind = reference_text(known, ballot, None)
    assert "42" not in blind
    assert ("appears after your vote" in blind) == (reference is not None)
    ballot.revealed = True
    assert reference_text(known, ballot, None) == shown


def test_after_the_vote_the_reference_is_shown_beside_the_next_question() -> None:
    rated = group_with_reference(1, "6 x 7?", "42", voted=True)
    following = group_with_reference(2, "3 + 4?", "7")
    result = reference_text(following, Ballot(following), rated)
    assert not missing(result, "last vote best 2", "6 x 7?", "42")
    assert "\n7" not in result


def test_the_reference_of_the_same_question_stays_hidden() -> None:
    rated = group_with_reference(1, "6 x 7?", "42", voted=True)
    again = group_with_reference(2, "6 x 7?", "42")
    assert "42" not in reference_text(again, Ballot(again), rated)
    same_answer = group_with_reference(3, "40 + 2?", "42")
    assert "42" not in reference_text(same_answer, Ballot(same_answer), rated)


def test_undoing_a_vote_hides_the_reference_again() -> None:
    open_again = group_with_reference(1, "6 x 7?", "42")
    assert reference_text(None, None, open_again) == ""


def test_guidelines_are_shown_if_the_settings_name_a_file() -> None:
    assert guideline_lines("", False, WIDTH) == []
    assert "g shows why" in text_of(guideline_lines(" ", True, WIDTH))
    assert text_of(guideline_lines("# How\n- right", True, WIDTH)) == "How\n• right"


def test_a_session_shows_votes_and_pace() -> None:
    progress = RatingProgress()
    for number, ago in enumerate((800, 90, 60, 30)):
        progress.record(f"g{number}", NOW - ago)
    progress.record("g9", NOW)
    progress.undone("g9")
    minutes = progress.by_minute(NOW, 15)
    assert minutes[-3:] == (0, 2, 1)
    assert sum(minutes) == 4
    lines = text_of(session_lines(progress.figures(), minutes, 7, 2, "anna", 34))
    rows = "rated     4 by anna", "waiting   2", "counted   7 in all", "pace      1.5 a minute"
    assert not missing(lines, *rows)


def test_a_session_shows_skips_apart_and_no_control_characters_of_a_name() -> None:
    progress = RatingProgress()
    progress.record("a", NOW)
    progress.record("b", NOW, skipped=True)
    progress.record("c", NOW, skipped=True)
    figures, minutes = progress.figures(), progress.by_minute(NOW, 15)
    lines = text_of(session_lines(figures, minutes, 1, 2, "", 34))
    assert "rated     1\nskipped   2\n" in lines
    assert "\x1b" not in text_of(session_lines(figures, minutes, 1, 2, HOSTILE, 34))


def test_blind_cards_show_only_the_answers() -> None:
    rated = group()
    ballot = Ballot(rated)
    shown = rate_cards(rated, ballot)
    result = text_of([head(card, 60, False) for card in shown]) + text_of(
        line for card in shown for line in body(card, 60)
    )
    for secret in ("winner", "returned", "0.9", "reward", "advantage", "length", "ep-"):
        assert secret not in result
    assert [card.label for card in shown] == ["1", "2", "3", "4"]
    ballot.revealed = True
    result = text_of(head(card, 60, False) for card in rate_cards(rated, ballot))
    assert not missing(result, "winner", f"#{ballot.shown[0] + 1}")


def test_rate_lines_fit_their_width() -> None:
    shown = group()
    queue = queue_of(waiting_state(1, 2, 3))
    for width in (40, 60, 80, 120, 160, 240):
        assert line_width(header_line(queue, shown, width)) <= width
        assert line_width(header_line(queue, None, width)) <= width
        assert line_width(clock_bar(shown, NOW, width)) <= width
        assert line_width(bar_pieces(0.333, width, "")) == width


def test_the_header_has_counts_clock_and_what_happens_then() -> None:
    queue, shown = queue_of(waiting_state(1, 2, 3)), group()
    for width, words in (
        (60, ["3 to rate", "0:20", "then the automatic"]),
        (80, ["3 to rate", "0:20", "then the automatic reward is sent", "off"]),
        (120, ["then the automatic reward is sent", "mode off  (o switches)"]),
        (160, ["then the automatic reward is sent", "mode off: no one waits; a scored group"]),
    ):
        assert not missing(text_of([header_line(queue, shown, width)]), *words)
    assert "mode off" in text_of([header_line(queue, None, 80)])


@pytest.mark.parametrize(
    ("left", "cut", "hint", "words"),
    [
        (12, True, False, "▾ 12 lines"),
        (1, True, True, "Space ▾ 1 line"),
        (0, True, True, "end"),
        (0, False, True, ""),
    ],
)
def test_each_answer_says_how_many_lines_are_left(
    left: int, cut: bool, hint: bool, words: str
) -> None:
    assert rows_left(left, cut, hint) == words
    line = answer_head(Card(Candidate(index=1), "2", rank="best"), 40, True, "of 4", words)
    assert line_width(line) == 40
    assert " 2  best of 4" in text_of([line])
    assert words in text_of([line])
    compared = answer_head(Card(Candidate(index=1), "2", base=True), 60, True, "of 4", words)
    assert text_of([compared]).startswith(" 2 of 4  ≡ compared with")


def test_a_folded_answer_begins_where_it_differs() -> None:
    texts = ("In short:\n\n# Title\n\nFirst words", "In short:\n\n# Title\n\nOther words")
    answers = [Candidate(index=at, text=text) for at, text in enumerate(texts)]
    cards = [Card(answer, str(answer.index), blind=True) for answer in answers]
    shown = [text_of(first_lines(card, texts, 40)) for card in cards]
    assert shown == [" First words", " Other words"]
    alike = Card(Candidate(index=0, text="a\nb"), "1", blind=True)
    assert text_of(first_lines(alike, ("a\nb", "a\nb"), 40)) == " a\n b"


@pytest.mark.parametrize(
    ("query", "context", "rows"),
    [
        ("Why?", "", [" Why?                       i shows all"]),
        ("Why?", "turn 3", [" Why?               turn 3  i shows all"]),
        ("Why is the sky of blue", "turn 3", [" Why is the sky of blue     i shows all"]),
        ("Why is the sky so blue at noon here", "", [" Why is the sky so blue at noon here  i"]),
        ("Why is the sky so blue at noon in May?", "", [" Why is the sky so blue at noon in May?"]),
        (
            "Why is the sky so blue at noon, and red in the evening?",
            "",
            [" Why is the sky so blue at noon, and", " red in the evening?        i shows all"],
        ),
        (
            "word " * 30,
            "turn 3",
            [" word word word word word word word", " word word word w…  turn 3  i shows all"],
        ),
        ("", "", [" (no text)                  i shows all"]),
    ],
)
def test_the_question_takes_two_rows_at_most(query: str, context: str, rows: list[str]) -> None:
    lines = prompt_lines(query, 40, context)
    assert text_of(lines).split("\n") == rows
    assert all(line_width(line) <= 40 for line in lines)


def last_vote(state: State, voted: Group) -> Line:
    """The last line after a vote of this console on a group."""
    state.groups[voted.group_id] = voted
    queue = queue_of(state)
    queue.sent[voted.group_id] = SentVote(Ballot(voted), Vote("best", (1,)), NOW)
    return last_line(queue, 80)


def test_the_last_vote_is_shown_as_held_then_sent() -> None:
    def shown(voted: Group) -> str:
        return text_of([last_vote(state_of(), voted)])

    voted = group()
    assert "on its way" in shown(voted)
    voted.rating = Rating(rating="best", order=(1,))
    assert "held, sends in 0:20" in shown(voted)
    done = group(until="DONE")
    assert "too late" in shown(done)
    done.source = "human"
    assert "· sent" in shown(done)
    done.lost = "an engine stop"
    assert "lost by an engine stop" in shown(done)


ROLLING = EngineChanged(server="embedded", state="ROLLING", step=1, at=NOW - 400)
UPDATE = UpdateDone(server="embedded", step=1, stats={"loss": 0.1}, at=NOW)
NEXT = EngineChanged(server="embedded", state="ROLLING", step=2, at=NOW)
LOST = GroupLost(server="embedded", group_id="g0001", cause="an engine stop", at=NOW)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (group_events(1, until="AWAITING_RATING"), ""),
        ([*group_events(1, until="AWAITING_RATING"), vote(1, rater="bob")], ""),
        ([*group_events(1, until="AWAITING_RATING"), vote(1)], "best #1  held, sends in 0:20  “W"),
        (sent(1), "sent, not trained yet  “Why is the sky blue?”"),
        ([*sent(1), UPDATE], "trained by update 1: answer 2 gained 0.93  “Why"),
        ([*sent(1), NEXT], "sent, step 1 is over"),
        ([*sent(1), LOST], "sent, then lost by an engine stop"),
        ([*missed(1, at=NOW - 60), *late(1, 2, "anna")], "late vote, not sent: it trains nothing"),
    ],
)
def test_what_a_vote_did(events: Sequence[Event], words: str) -> None:
    state = state_of(ROLLING, *events)
    voted = state.groups["g0001"]
    if (rating := voted.rating) is not None and rating.shown:
        voted.candidates[rating.shown[1]].advantage = 0.93
        rating.order = (rating.shown[1],)
    rows = vote_rows(queue_of(state, rater="anna"))
    assert [name for name, _ in rows] == (["g0001"] if words else [])
    assert words in text_of(line for _, line in rows)


def test_the_five_newest_votes_are_listed_without_one_that_is_asked_again() -> None:
    queue = queue_of(rated_state(7), rater="anna")
    assert [name for name, _ in vote_rows(queue)] == [f"g{number:04}" for number in (7, 6, 5, 4, 3)]
    queue.show(queue.session.state.groups["g0006"], second=True)
    assert [name for name, _ in vote_rows(queue)] == [f"g{number:04}" for number in (7, 5, 4, 3, 2)]
    queue.session.observing = True
    assert vote_rows(queue) == []


STARTED = MockStarted(mock_id="m", dataset="d", target="t", total=60, done=10)
ROW = MockRowDone(mock_id="m", row_id="r1", query="q", ok=True, seconds=1.0, group_id="g0009")
UNRATED_ROW = replace(ROW, row_id="r2", group_id="g0001")


@pytest.mark.parametrize(
    ("goal", "mode", "events", "words"),
    [
        (0, "hold", [], "2 rated, 6.0/min"),
        (5, "off", [], "2 of 5, 0:30 left at this pace"),
        (2, "off", [], "2 of 2"),
        (0, "hold", [STARTED, ROW], "11 of 60, 8:10 left at this pace"),
        (0, "answer_first", [STARTED, ROW, UNRATED_ROW], "11 of 60, 8:10 left at this pace"),
        (3, "hold", [STARTED, ROW], "2 of 3, 0:10 left at this pace"),
        (0, "off", [STARTED, ROW], "2 rated, 6.0/min"),
        (0, "hold", [replace(STARTED, total=0)], "2 rated, 6.0/min"),
        (0, "hold", [STARTED, ROW, MockFinished(mock_id="m", how="stopped")], "2 rated, 6.0/min"),
    ],
)
def test_the_goal_of_the_rater_or_the_rows_of_the_mock_user(
    goal: int, mode: str, events: Sequence[Event], words: str
) -> None:
    waiting = group_events(1, until="AWAITING_RATING")
    queue = queue_of(state_of(RatingModeChanged(mode=mode), *waiting, *events))
    queue.goal = goal
    for name, ago in (("a", 20), ("b", 10)):
        queue.progress.record(name, NOW - ago)
    figures = session_figures(queue)
    assert progress_words(figures) == words
    lines = text_of(session_lines(figures, (0,) * 15, 0, 0, "", 34))
    assert f"goal      {words.removesuffix(' at this pace')}" in lines or not figures.goal
    assert any(words in note for note in queue_notes(queue))


@pytest.mark.parametrize(
    ("tags", "taken", "keys"),
    [
        (RatingSettings().tags, "", "W wrong O off-topic V verbose F unsafe Y style"),
        ("wrong,wordy", "", "W wrong O wordy"),
        ("wrong,gist", "W,w", "O wrong"),
        ("", "", ""),
    ],
)
def test_a_reason_has_the_first_of_its_letters_that_is_free(
    tags: str, taken: str, keys: str
) -> None:
    session = Session(rating=RatingSettings(tags=tags))
    session.keymap = {"rating.mode": taken}
    assert " ".join(f"{key} {name}" for key, name in tag_keys(session).items()) == keys


def test_the_keys_of_reasons_are_those_of_nothing_else_on_rate() -> None:
    nodes = ConsoleApp, RateScreen, RateGroupKeys, RaterTools, InboxKeys, AnswerKeys, Voting
    bindings = (known for node in nodes for known in Binding.make_bindings(node.BINDINGS))
    keys = [binding.key for binding in bindings]
    assert {letter: keys.count(letter) for letter in TAG_LETTERS} == dict.fromkeys(TAG_LETTERS, 1)


@pytest.mark.parametrize(("sent", "overlap"), [(True, 1), (False, 1), (True, 2)])
def test_a_vote_after_the_end_of_its_group_is_shown_as_late(sent: bool, overlap: int) -> None:
    votes = [replace(vote, at=NOW) for vote in late(1, 0, overlap=overlap)]
    state = state_of(*missed(1, sent=sent, overlap=overlap, at=NOW - 60), *votes)
    line = last_vote(state, state.groups["g0001"])
    words = " last: best ", " · recorded as a late vote, not sent"
    assert not missing(text_of([line]), *words)
    assert "warning" in line[0][1]


def test_the_banner_names_the_stall_and_the_keys_that_end_it() -> None:
    held = AlertRaised(key="hold:embedded", cause="2 open ratings hold up the weight update")
    state = state_of(held, EngineChanged(server="embedded", state="ROLLING_POST", step=1))
    queue, reading = queue_of(state), queue_of(state)
    reading.session.observing = True
    held_up = "2 open ratings hold up the weight update"
    narrow = ""
    for width, words in (
        (160, ["A accepts all automatic rewards  X aborts them  F5 h while the engine"]),
        (120, ["A accepts all automatic rewards  X aborts them  F5 h, if stopped"]),
        (80, [held_up, "A accepts all  F5 h, if stopped"]),
        (60, [f"{held_up}  A accepts all"]),
    ):
        narrow = text_of([banner_line(queue, width)])
        assert not missing(narrow, *words)
    assert narrow in text_of([header_line(queue, None, 60)])
    actual = text_of([banner_line(reading, 80)])
    assert "hold up the weight update" in actual
    assert "aborts" not in actual
    assert banner_line(queue_of(state_of()), 80) == ()


def test_the_rater_sees_that_a_user_waits_and_which_groups_were_sent_unrated() -> None:
    sent = [
        event if not isinstance(event, GroupSealed) else replace(event, unrated=True)
        for event in group_events(1, at=NOW - 9, until="SUBMITTING")
    ]
    awaited = RatingAwaited(
        group_id="g0002", until=NOW + 90, fallback="accept", why="answer_first", spared=NOW + 7
    )
    state = state_of(*sent, *group_events(2, at=NOW, until="SCORING"), awaited)
    queue = queue_of(state)
    line = text_of([clock_label(state.groups["g0002"], NOW)])
    assert "a user waited: this group may be sent unrated in 0:07" in line
    assert "automatic reward" in text_of([clock_bar(state.groups["g0002"], NOW + 7, 80)])
    text = "1 group sent unrated in 1 min  F5 e: larger batch"
    assert text in text_of([banner_line(queue, 80)])
    assert banner_line(queue_of(state, lambda: NOW + 60), 80) == ()
    queue.show(state.groups["g0001"])
    queue.advance()
    assert queue.message == "The group that was here was sent unrated"
    assert queue_notes(queue) == ["1 in the inbox"]
    reduce(state, MockStarted(mock_id="m", dataset="d", target="t", total=2))
    reduce(state, MockRetried(mock_id="m", retries=0, waiting=WAITS_FOR_VOTES))
    assert queue_notes(queue) == ["the mock user waits", "1 in the inbox"]


def test_the_banner_offers_rescoring_if_no_group_has_an_automatic_reward() -> None:
    held = AlertRaised(key="hold:embedded", cause="1 open rating holds up the weight update")
    rolling = EngineChanged(server="embedded", state="ROLLING_POST", step=1)
    unscored = [
        *group_events(1, at=NOW, until="SCORING")[:-1],
        ScoringAbstained(group_id="g0001", part="hook", cause="returned None", at=NOW),
        RatingAwaited(group_id="g0001", until=NOW + 60, fallback="abort", why="abstained", at=NOW),
    ]
    result = text_of([banner_line(queue_of(state_of(*unscored, held, rolling)), 100)])
    assert "S re-scores a group  X aborts them  F5 h, if stopped" in result
    assert "accepts all" not in result


def test_a_vote_ends_a_stall_before_the_proxy_looks_again() -> None:
    events = two_hold_up()

    def shown() -> tuple[str, list[str]]:
        session = Session(clock=lambda: NOW)
        session.state = state_of(*events)
        return stall_words(session.state, NOW), [
            alert.cause for alert in alerts_by_urgency(session)
        ]

    two = "2 open ratings hold up the weight update"
    assert shown() == (two, [two])
    events.append(GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4, rater="anna"))
    single = "1 open rating holds up the weight update"
    assert shown() == (single, [single])
    events.append(GroupRated(group_id="g0002", rating="skip", rater="anna"))
    assert shown() == ("", [])
    events.append(RatingUndone(group_id="g0002"))
    assert shown() == (single, [single])
    events.append(GroupClosed(group_id="g0002", phase="ABORTED", cause="x"))
    assert shown() == ("", [])


def test_a_user_counts_as_stalled_only_after_a_while() -> None:
    waits = group_events(1, at=NOW, until="CLAIMING")
    held = AlertRaised(key="hold:embedded", cause="1 open rating holds up 1 waiting user")
    state = state_of(*waits, held)
    assert banner_line(queue_of(state, lambda: NOW + 1), 80) == ()
    assert "1 waiting user" in text_of([banner_line(queue_of(state, lambda: NOW + 5), 80)])


def test_a_stall_is_reported_for_waiting_answers_and_for_missing_episodes() -> None:
    def waits(number: int, why: str, until: str = "SCORING") -> list[Event]:
        awaited = RatingAwaited(
            group_id=f"g{number:04}", until=NOW + 60, fallback="accept", why=why, at=NOW
        )
        before = group_events(number, at=NOW - 9, until=until)
        stored = before if until != "SCORING" else before[:-1]  # no user was answered yet
        return [*stored, awaited]

    window = state_of(*waits(1, "window"), *waits(2, "answer_first", "AWAITING_RATING"))
    assert stall_words(window, NOW + 30) == ""
    hold = state_of(*waits(1, "hold"), *waits(2, "hold"), *waits(3, "window"))
    assert stall_words(hold, NOW + 30) == "2 requests wait for your rating"
    assert stall_words(hold, NOW - 2) == ""
    cause = "1 open rating holds up 1 waiting user"
    held = AlertRaised(key="hold:embedded", cause=cause)
    claiming = group_events(4, at=NOW, until="CLAIMING")
    assert stall_words(state_of(*waits(1, "hold"), *claiming, held), NOW + 30) == cause


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (RatingFigures(0), ""),
        (RatingFigures(1), "1 rated"),
        (RatingFigures(7, 4.2), "7 rated, 4.2/min"),
        (RatingFigures(0, skipped=1), "0 rated, 1 skipped"),
        (RatingFigures(7, 4.2, 2), "7 rated, 2 skipped, 4.2/min"),
        (RatingFigures(7, 4.25), "7 rated, 4.2/min"),
    ],
)
def test_the_figures_in_words(now: RatingFigures, words: str) -> None:
    assert progress_words(now) == words
