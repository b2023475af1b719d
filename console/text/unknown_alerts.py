"""Alerts of an unknown kind, such as one of a newer proxy: the kind and its parameters, listed."""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import one_line
from core.events import AlertRaised
from core.state import Alert

_LISTED = 6
"""Maximum number of list values that are shown."""


def listed(alert: Alert | AlertRaised) -> str:
    """Return the kind and the parameters: `disk full: path /h, left 3`."""
    head = (alert.alert_kind or alert.key).replace("_", " ")
    pairs = [f"{name.replace('_', ' ')} {_value(value)}" for name, value in alert.params.items()]
    return f"{head}: {', '.join(pairs)}" if pairs else head


def _value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case None:
            return "none"
        case list() | tuple():
            more = f" and {len(value) - _LISTED} more" if len(value) > _LISTED else ""
            return " ".join(map(_value, value[:_LISTED])) + more
        case Mapping():
            return " ".join(f"{name} {_value(one)}" for name, one in value.items())
        case _:
            return one_line(str(value), 120)
