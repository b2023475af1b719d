"""Alerts of an unknown kind, such as one of a newer proxy: the kind and its parameters, listed."""

from console.text.values import value_words
from core.events import AlertRaised
from core.state import Alert


def listed(alert: Alert | AlertRaised) -> str:
    """Return the kind and the parameters: `disk full: path /h, left 3`."""
    head = (alert.alert_kind or alert.key).replace("_", " ")
    pairs = [
        f"{name.replace('_', ' ')} {value_words(value)}" for name, value in alert.params.items()
    ]
    return f"{head}: {', '.join(pairs)}" if pairs else head
