"""An alert of an unknown kind, as of a newer version: its kind and parameters."""

from console.text.values import value_words
from core.events import AlertRaised


def listed(alert: AlertRaised) -> str:
    """Return the kind and the parameters: `disk full: path /h, left 3`."""
    head = alert.alert_kind.replace("_", " ")
    pairs = [
        f"{name.replace('_', ' ')} {value_words(value)}" for name, value in alert.params.items()
    ]
    return f"{head}: {', '.join(pairs)}" if pairs else head
