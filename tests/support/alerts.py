"""Alerts as the operator reads them: the proxy sends kinds and parameters."""

from console.models.advice import advice_context
from console.text.alerts import alert_text
from core.events import AlertRaised, EngineChanged, Event, GroupRated
from core.events.alerts import params_of
from tests.support.sample import NOW, group_events


def cause_of(alert: AlertRaised | None) -> str:
    """Return the cause of an alert as the console words it."""
    assert alert is not None
    return alert_text(alert, advice_context()).cause


def todo_of(alert: AlertRaised | None) -> str:
    """Return the advice of an alert as the console words it."""
    assert alert is not None
    return alert_text(alert, advice_context()).todo


def ratings_hold_up(*groups: str) -> AlertRaised:
    """Return the alert that these groups, which lack a rating, hold up the weight update."""
    params = params_of("hold", ratings=len(groups), unscored=0)
    return AlertRaised(
        key="hold:embedded",
        alert_kind=params.kind,
        params=params.as_json(),
        groups=groups,
        level="error",
    )


def two_hold_up(rated: int = 0) -> list[Event]:
    """Return events of two groups, of an alert about them, and of votes since then.

    Args:
        rated: Number of votes; they are not sent yet.
    """
    names = ("g0001", "g0002")
    waits = [e for n in (1, 2) for e in group_events(n, at=NOW - 9, until="AWAITING_RATING")]
    rolling = EngineChanged(server="embedded", state="ROLLING_POST", step=1)
    votes = [
        GroupRated(group_id=name, rating="tie", rewards=(0.5,) * 4, rater="anna")
        for name in names[:rated]
    ]
    return [*waits, ratings_hold_up(*names), rolling, *votes]


TWO_HOLD_UP = [
    "2 open ratings hold up the weight update",
    "1 open rating holds up the weight update",
    "",
]
"""Text about `two_hold_up` by the number of votes."""
