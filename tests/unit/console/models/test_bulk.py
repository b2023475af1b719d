"""Questions before an action on several groups."""

from console.screens.requests.marked import BULK, abort_cost
from core.events import GroupRated
from tests.support.console import NOW, group_events, state_of

ACCEPT = next(verb for verb in BULK if verb.action == "accept")


def test_a_skipped_group_is_not_counted_as_rated() -> None:
    events = [e for n in (1, 2, 3) for e in group_events(n, at=NOW - 5, until="AWAITING_RATING")]
    rated = GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4, rater="anna")
    skip = GroupRated(group_id="g0002", rating="skip", rater="anna")
    state = state_of(*events, rated, skip)
    groups = list(state.groups.values())
    assert ACCEPT.question is not None
    question = ACCEPT.question(state, groups)
    assert "1 with the rating, 1 with the automatic reward, 1 skipped." in question
    assert "skipped" not in ACCEPT.question(state, groups[:1])
    assert "1 rating of yours dropped." in abort_cost(state, groups)
    assert "of yours" not in abort_cost(state, groups[1:])
