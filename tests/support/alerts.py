"""Alerts as the operator reads them: the proxy sends kinds and parameters."""

from console.models.advice import advice_context
from console.text.alerts import alert_text
from core.events import AlertRaised
from core.state import Alert


def cause_of(alert: Alert | AlertRaised | None) -> str:
    """Return the cause of an alert as the console words it."""
    assert alert is not None
    return alert_text(alert, advice_context()).cause


def todo_of(alert: Alert | AlertRaised | None) -> str:
    """Return the advice of an alert as the console words it."""
    assert alert is not None
    return alert_text(alert, advice_context()).todo
