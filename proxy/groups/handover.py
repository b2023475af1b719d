"""What one run of the proxy stores for the next: the rating mode, and the end of waiting groups.

The mode that the operator switched to survives restarts and kills. The setting `rating.mode` (file
or environment) applies to the first start, and to each start at which its value has changed.
"""

import logging
from collections.abc import Sequence

import msgspec

from core.commands import MODES
from core.events.alerts import WaitedAtStop
from core.state import Group, State
from proxy.alerts import show_alert
from proxy.context import ProxyContext

log = logging.getLogger(__name__)

KEY = "recovered"
"""Key of the alert about groups that were waiting."""
_SETTING = "rating_mode_setting"
_WAITED = "waited_at_stop"
_WAITED_GROUPS = "groups_waited_at_stop"


def mode_at_start(context: ProxyContext) -> str:
    """Return the initial rating mode; called once, before the start is announced."""
    setting, mode = context.settings.rating.mode, context.bus.state.rating_mode
    if context.journal.meta(_SETTING) != setting:
        context.journal.put_meta(_SETTING, setting)
        return setting
    if mode not in MODES or mode == setting:
        return setting
    log.info("the rating mode stays %s, which the operator chose; the setting is %s", mode, setting)
    return mode


def unrated(state: State) -> list[Group]:
    """Return the unrated groups that wait for the operator, without those in a window of mode
    off."""
    return [one for one in state.waiting() if is_unrated(one)]


def is_unrated(group: Group) -> bool:
    """Return whether a group waits for the operator and is not rated."""
    waits = group.phase == "AWAITING_RATING" and group.awaiting != "window"
    return waits and group.rating is None and not group.votes


def store_waited(context: ProxyContext, waited: Sequence[Group]) -> None:
    """Store for the next start what happened to the groups that waited when the proxy was
    stopped."""
    if not waited:
        return
    sealed = [group for group in waited if group.sealed_at is not None]
    rated = sum(group.source == "human" for group in sealed)
    outcome = WaitedAtStop(
        rated=rated, automatic=len(sealed) - rated, dropped=len(waited) - len(sealed)
    )
    context.journal.put_meta(_WAITED_GROUPS, " ".join(group.group_id for group in waited))
    context.journal.put_meta(_WAITED, msgspec.json.encode(outcome).decode())


def alert_waited(context: ProxyContext) -> None:
    """Raise the alert that `store_waited` stored, once."""
    stored = context.journal.meta(_WAITED)
    if not stored:
        return
    context.journal.put_meta(_WAITED, "")
    outcome = msgspec.json.decode(stored, type=WaitedAtStop)
    groups = (context.journal.meta(_WAITED_GROUPS) or "").split()
    show_alert(context.bus, KEY, outcome, level="info", groups=groups)
