"""Events of ratings by hand: votes, leases, corrections, repeats."""

from core.events.base import GroupEvent


class GroupRated(GroupEvent, frozen=True, kw_only=True):
    """The operator rated the group; replaces the automatic reward when it is sealed."""

    rating: str
    """best, ranking, scores, tie, bad or skip."""
    order: tuple[int, ...] = ()
    """Candidate indices, best first."""
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    """What the rating means in rewards; empty for a skip."""
    rater: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    """Reasons, of those in the settings."""
    blind: bool = False
    """Rewards and marks were hidden and the order shuffled until the vote."""
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen; empty when nobody saw them in an order."""
    seed: str = ""
    """What the order shown was shuffled by."""
    looked: float = 0.0
    """Seconds from the group's coming on screen to the vote."""
    first_key: float = 0.0
    """Seconds from its display to the first key."""
    guidelines: str = ""
    """Version of the guidelines the rater had; empty for none."""


class RatingUndone(GroupEvent, frozen=True, kw_only=True):
    """The operator took the rating back before it was sent."""

    rater: str = ""


class GroupLeased(GroupEvent, frozen=True, kw_only=True):
    """Somebody looks at the group to rate it; others leave it alone until `until`."""

    holder: str
    """Names one console, not a person."""
    rater: str = ""
    until: float = 0.0
    """0 gives it back."""


class GroupEdited(GroupEvent, frozen=True, kw_only=True):
    """The operator rewrote an answer: `edited` is preferred to what candidate `index` said.

    It is kept for export. It never becomes a reward and the user never gets it.
    """

    index: int
    edited: str
    """The whole text; empty removes the correction."""
    rater: str = ""


class RatingRepeated(GroupEvent, frozen=True, kw_only=True):
    """The rater judged a group once more that was rated and sent before; nothing is sent."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    """What the rating would have meant."""
    agrees: bool
    """Whether the same answers came out on top."""
    rater: str = ""
    shown: tuple[int, ...] = ()
    seed: str = ""
    looked: float = 0.0
