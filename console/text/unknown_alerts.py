"""Alerts of other versions: kind and parameters of an unknown one, and the kind of an older one."""

from console.text.values import value_words
from core.events import AlertRaised
from core.events import alerts as kinds
from core.state import Alert

KIND_OF_KEY = {
    "rewards:outlier": kinds.RewardOutlier.kind,
    "rewards:scale": kinds.RewardScale.kind,
    "rewards:gone": kinds.RewardsGone.kind,
}
"""Key -> kind, for alerts of earlier versions whose key does not begin with the kind."""


def listed(alert: Alert | AlertRaised) -> str:
    """Return the kind and the parameters: `disk full: path /h, left 3`."""
    head = (alert.alert_kind or alert.key).replace("_", " ")
    pairs = [
        f"{name.replace('_', ' ')} {value_words(value)}" for name, value in alert.params.items()
    ]
    return f"{head}: {', '.join(pairs)}" if pairs else head
