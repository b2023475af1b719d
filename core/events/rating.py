"""Events of ratings by hand: votes, leases, corrections, repeats."""

from core.events.base import GroupEvent


class VoteEvent(GroupEvent, frozen=True, kw_only=True):
    """Fields of every event of one person's vote on a group."""

    rating: str
    """best, ranking, scores, tie, bad or skip."""
    order: tuple[int, ...] = ()
    """Candidate indices, best first."""
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    """Reward of each candidate that answered, by this rating, in the order of their indices; empty
    for a skip."""
    rater: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    """Reasons, from the list in the settings."""
    blind: bool = False
    """Rewards and marks were hidden and the order was shuffled until the vote."""
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen; empty if they were not shown in an order."""
    seed: str = ""
    """Seed of the shuffled order."""
    looked: float = 0.0
    """Seconds from the display of the group to the vote."""
    first_key: float = 0.0
    """Seconds from the display of the group to the first key."""
    guidelines: str = ""
    """Version of the guidelines that the rater had; empty for none."""

    @property
    def is_skip(self) -> bool:
        """Whether it judges nothing; a skip does not count as a rating."""
        return self.rating == "skip"


class GroupRated(VoteEvent, frozen=True, kw_only=True):
    """The group is rated; replaces the automatic reward when it is sealed.

    With `rating.overlap` above 1 it follows the votes of several raters and has their mean.
    """

    raters: tuple[str, ...] = ()
    """Raters whose votes are combined, in order of their votes; empty for one person's vote."""


class VoteCast(VoteEvent, frozen=True, kw_only=True):
    """One of several raters voted on the group; it replaces this rater's earlier vote on it.

    Used with `rating.overlap` above 1. `GroupRated` follows when the votes are complete.
    """

    holder: str = ""
    """Id of the console, as in a lease; identifies a rater without a name."""


class VoteWithdrawn(GroupEvent, frozen=True, kw_only=True):
    """One of several raters withdrew his vote before the group was sent."""

    rater: str = ""
    holder: str = ""


class DisagreementSettled(VoteEvent, frozen=True, kw_only=True):
    """A person decided a group on which several raters disagreed.

    Before the group is sealed `GroupRated` follows with this vote. Afterwards nothing is sent: the
    vote replaces the sent one in exports.
    """

    sent: bool = False
    """The group was sealed before."""


class RatingUndone(GroupEvent, frozen=True, kw_only=True):
    """The operator withdrew the rating before it was sent."""

    rater: str = ""


class GroupLeased(GroupEvent, frozen=True, kw_only=True):
    """A console reserved the group for rating until `until`."""

    holder: str
    """Id of the console, not of a person."""
    rater: str = ""
    until: float = 0.0
    """Unix seconds; 0 releases the lease."""
    key_at: float = 0.0
    """Unix seconds of the rater's last key."""
    shared: bool = False
    """Others may vote on the group all the same."""


class GroupEdited(GroupEvent, frozen=True, kw_only=True):
    """The operator wrote `edited` as a better text than candidate `index`.

    It is stored for export. It never becomes a reward and is never sent to the user.
    """

    index: int
    edited: str
    """The whole text; empty removes the correction."""
    rater: str = ""


class RatingRepeated(VoteEvent, frozen=True, kw_only=True):
    """The rater voted again on a group that was rated and sent before; nothing is sent."""

    agrees: bool
    """Both votes put the same answers first."""
