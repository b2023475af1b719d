"""Picks groups for the rater: unsure ones, and those that come back for a second vote."""

import hashlib
from collections.abc import Collection

from core.state import Group, State

BETWEEN = 5
"""Votes of the rater between the first and the second one on a group."""
_TOLD = frozenset({"ended", "recorded"})


def is_unsure(group: Group, margin: float) -> bool:
    """Return whether there is no automatic reward, or the two highest are close together."""
    rewards = sorted(one.auto_reward for one in group.candidates if one.auto_reward is not None)
    return bool(group.abstained) or len(rewards) < 2 or rewards[-1] - rewards[-2] <= margin + 1e-9


def picked(group_id: str, share: float) -> bool:
    """Return whether a group is in the share that comes back; its id decides."""
    digest = hashlib.sha256(f"{group_id}:second".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def due(state: State, rater: str, share: float, but: Collection[str] = ()) -> Group | None:
    """Return the oldest group, not in `but`, that should come back to its rater; None for none."""
    if share <= 0:
        return None
    mine = [
        group
        for group in state.groups.values()
        if group.rating is not None and group.rating.rater == rater and group.source == "human"
    ]
    mine.sort(key=lambda group: group.rating.at if group.rating is not None else 0.0)
    able = (one for one in mine[:-BETWEEN] if one.group_id not in but)
    return next((group for group in able if _comes_back(group, share)), None)


def _comes_back(group: Group, share: float) -> bool:
    rating = group.rating
    if rating is None or not rating.blind or group.repeated or not picked(group.group_id, share):
        return False
    rewarded = [one for one in group.candidates if one.reward is not None]
    return len(rewarded) > 1 and all(one.phase in _TOLD for one in rewarded)
