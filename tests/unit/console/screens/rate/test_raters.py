"""Several raters: presence, pace, agreement, disagreements, from the events of the proxy."""

import random
from typing import Any

import pytest

from ajet_swarm.common.errors import UsageError
from console.screens.rate.raters.model import (
    agreement,
    disagreements,
    rater_rows,
    reward_disagreements,
    typed_vote,
)
from console.screens.rate.raters.text import (
    disagreement_row,
    rater_lines,
    row_text,
    second_words,
    share_words,
    summary_lines,
)
from console.screens.rate.text import present_names
from console.session.group_facts import vote_choice
from core.events import (
    ConsoleAttached,
    ConsoleDetached,
    DisagreementSettled,
    GroupLeased,
    GroupRated,
    RatingUndone,
    VoteWithdrawn,
)
from core.state import AttachedConsole, RaterStats, State
from tests.support.groups import text_of
from tests.support.ratings import best, sent, voted
from tests.support.sample import NOW, group_events, state_of


def test_a_hundred_groups_with_overlap_two_give_an_agreement_with_an_interval() -> None:
    draw, events = random.Random(5), []
    for number in range(100):
        first = draw.randrange(4)
        second = first if draw.random() < 0.6 else draw.randrange(4)
        events += voted(number, {"ada": first, "bob": second})
    state = state_of(*events)
    result = agreement(state)
    for share in (result.best, result.order):
        assert share is not None
        assert share.compared == 100
        assert share.chance < share.low < share.share < share.high < 0.92
    assert result.best is not None
    assert result.best.chance == pytest.approx(0.25)
    differ = len(disagreements(state))
    assert 15 < differ < 50
    ada = state.raters["ada"]
    assert (ada.cast, ada.votes, ada.compared, ada.same) == (100, 100, 100, 100 - differ)
    rows = rater_rows(state, NOW + 10_000)
    assert [row.name for row in rows] == ["ada", "bob"]
    assert rows[0].per_minute == pytest.approx(1.0)  # a break counts as one minute
    text = "\n".join("".join(piece for piece, _ in line) for line in rater_lines(rows, result, 3))
    assert f"{100 - differ} of 100" in text
    assert "over 100 groups" in text
    assert f"Same best answers  {100 - differ} % (" in text
    assert "by chance 25 %" in text


def test_presence_follows_consoles_names_and_leases() -> None:
    lease = GroupLeased(
        group_id="g0001", server="embedded", holder="h1", rater="ann", until=NOW + 20
    )
    first = ConsoleAttached(consoles=1, holder="h1")
    second = ConsoleAttached(consoles=2, holder="h2", rater="bob")
    waits = group_events(1, until="AWAITING_RATING")
    state = state_of(*waits, first, second, lease)
    ann, bob = rater_rows(state, NOW)
    assert (ann.name, ann.consoles, ann.open) == ("ann", 1, ("g0001",))
    assert (bob.name, bob.open) == ("bob", ())
    assert present_names(state, "h1") == "also here: bob"
    assert rater_rows(state, NOW + 30)[0].open == ()  # the lease has expired
    # A console that connects again attaches before its old connection ends.
    again = [
        ConsoleAttached(consoles=3, holder="h1", rater="ann"),
        ConsoleDetached(consoles=2, holder="h1"),
    ]
    state = state_of(*waits, first, second, lease, *again)
    assert state.attached["h1"].rater == "ann"
    assert state.groups["g0001"].leases
    state = state_of(*waits, first, second, lease, *again, ConsoleDetached(consoles=1, holder="h1"))
    assert list(state.attached) == ["h2"]
    assert not state.groups["g0001"].leases


def test_disagreements_are_listed_until_they_are_settled() -> None:
    state = state_of(
        *voted(1, {"ada": 1, "bob": 2}),
        *voted(2, {"ada": 1, "bob": 1}),
        *voted(3, {"ada": 0}, sent=False),
        *voted(4, {"ada": 3, "bob": 2}, sent=False),
    )
    assert [group.group_id for group in disagreements(state)] == ["g0004", "g0001"]
    row = disagreement_row(state.groups["g0004"], 80)
    assert row.startswith("g0004 not sent  ada 4, bob 3")
    settled = DisagreementSettled(
        group_id="g0001", server="embedded", rating="best", order=(1,), rewards=best(1), sent=True
    )
    again = voted(1, {"ada": 1, "bob": 2})
    assert disagreements(state_of(*again, settled)) == []


def test_what_a_vote_says() -> None:
    state: State = state_of(*voted(1, {"ada": 1}, sent=False))
    group = state.groups["g0001"]
    (vote,) = group.votes
    assert vote_choice(group, vote) == "2"
    assert typed_vote("3", 4) == {"rating": "best", "order": [2]}
    assert typed_vote("2, 1 4 3", 4) == {"rating": "ranking", "order": [1, 0, 3, 2]}
    assert typed_vote("bad", 4) == {"rating": "bad"}
    for wrong in ("", "5", "1 1", "best", "²"):
        with pytest.raises(UsageError):
            typed_vote(wrong, 4)


def test_an_undone_vote_does_not_count() -> None:
    about: dict[str, Any] = {"group_id": "g0001", "server": "embedded"}
    undone = VoteWithdrawn(**about, rater="bob", holder="c-bob")
    state = state_of(*voted(1, {"ada": 1, "bob": 2}, sent=False), undone, undone)
    assert [one.rater for one in state.groups["g0001"].votes] == ["ada"]
    assert [(one.name, one.cast) for one in rater_rows(state, NOW)] == [("ada", 1)]
    state.attached["c-bob"] = AttachedConsole(rater="bob")
    assert [(one.name, one.cast) for one in rater_rows(state, NOW)] == [("bob", 0), ("ada", 1)]
    single = [
        *group_events(2, until="AWAITING_RATING"),
        GroupRated(group_id="g0002", server="embedded", rating="tie", rater="cid"),
        RatingUndone(group_id="g0002", server="embedded", rater="cid"),
    ]
    assert state_of(*single).raters["cid"].cast == 0


def test_agreement_is_shown_with_number_and_interval() -> None:
    assert share_words(31, 42) == "31 of 42, 74 % (59-85 %)"
    stats = RaterStats(
        votes=50, placed=44, first=14, first_chance=11.0, judged=42, agreed=31, agreed_chance=10.5
    )
    result = text_of(summary_lines(stats))
    assert "31 of 42, 74 % (59-85 %)" in result
    assert "by chance 25 %" in result
    assert "no second vote yet" in result
    assert "no vote on a complete group" in text_of(summary_lines(None))
    stats.repeats, stats.repeated = 5, 4
    assert "4 of 5, 80 %" in second_words("the same as before", stats)


def test_disagreements_are_the_raters_own_newest_first() -> None:
    state = state_of(
        *sent(1, best=0), *sent(2, best=1), *sent(3, best=3), *sent(4, best=0, rater="bob")
    )
    result = reward_disagreements(state, "anna")
    assert [item.group_id for item in result] == ["g0003", "g0001"]
    row = row_text(result[0], 100)
    assert "you #4  rewards #2 (0.90)" in row
    assert row.endswith("[style]")
