"""Events of rating by hand that change no reward: leases, corrections, repeats."""

from core.events.group import GroupEvent


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
