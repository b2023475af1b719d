"""What open ratings hold up, as of the present votes."""

from console.session.open_ratings import current_alerts
from core.events import AlertRaised, GroupClosed, GroupRated, RatingUndone
from tests.support.alerts import TWO_HOLD_UP, cause_of, ratings_hold_up, two_hold_up
from tests.support.sample import state_of


def test_votes_and_ends_are_taken_off_the_alert_and_undone_votes_are_not() -> None:
    skip = GroupRated(group_id="g0002", rating="skip", rater="anna")
    for votes, words in enumerate(TWO_HOLD_UP):
        alerts = current_alerts(state_of(*two_hold_up(votes)))
        assert [cause_of(one) for one in alerts.values()] == ([words] if words else [])
    for more, groups in (
        ([skip], ("g0001",)),
        ([skip, RatingUndone(group_id="g0002")], ("g0001", "g0002")),
        ([GroupClosed(group_id="g0001", phase="ABORTED", cause="x")], ("g0002",)),
    ):
        assert current_alerts(state_of(*two_hold_up(), *more))["hold:embedded"].groups == groups


def test_other_alerts_and_those_of_earlier_versions_stay() -> None:
    older = AlertRaised(key="hold:gpu", cause="2 open ratings hold up the weight update")
    other = AlertRaised(key="hook", cause="it failed", groups=("g0001",))
    state = state_of(*two_hold_up(2), older, other)
    assert list(current_alerts(state)) == ["hold:gpu", "hook"]
    assert "hold:embedded" in state.alerts
    unknown = state_of(ratings_hold_up("gone"))
    assert current_alerts(unknown) == {}
