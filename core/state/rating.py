"""State of ratings by hand: votes, leases and the figures of each rater."""

import msgspec


class Rating(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rating of a group: one person's vote, or the combination of several votes."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    rater: str = ""
    note: str = ""
    at: float = 0.0
    tags: tuple[str, ...] = ()
    blind: bool = False
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen."""
    holder: str = ""
    """Console of the vote, as in a lease; only with `rating.overlap` above 1."""
    raters: tuple[str, ...] = ()
    """Raters whose votes are combined; empty for one person's vote."""

    @property
    def is_skip(self) -> bool:
        """Whether it judges nothing: the group is aborted. A skip does not count as a rating."""
        return self.rating == "skip"

    def by(self, rater: str, holder: str) -> bool:
        """Return whether it is the vote of a rater; of raters without a name, of the console."""
        return self.rater == rater if self.rater or rater else self.holder == holder


class Lease(msgspec.Struct, kw_only=True):
    """Reservation of a group for one console that rates it."""

    holder: str
    """Id of the console."""
    rater: str = ""
    until: float = 0.0
    since: float = 0.0
    """Unix seconds when this console got it; a renewal does not change it."""
    key_at: float = 0.0
    """Unix seconds of the last key of the rater there."""
    shared: bool = False
    """It only tells that the rater has the group on screen: others may vote on it."""

    def of_another(self, holder: str, now: float) -> bool:
        """Return whether it is valid at time `now` and held by a console other than `holder`."""
        return self.holder != holder and now < self.until and not self.shared


class PartAgreement(msgspec.Struct, kw_only=True):
    """How often one reward part put a rater's best answer first."""

    judged: int = 0
    """Votes with a single best answer, on groups where the part has a single best one too."""
    agreed: int = 0
    chance: float = 0.0
    """Expected number of agreements by chance."""


class RaterStats(msgspec.Struct, kw_only=True):
    """Figures of one rater's votes that were sent, over the whole journal.

    Agreement is counted for blind votes and votes by command line, place only for blind votes: a
    rater who sees the rewards tends to follow them.
    """

    votes: int = 0
    placed: int = 0
    """Blind votes with a single best answer."""
    first: int = 0
    """Those of them whose best answer was shown first."""
    first_chance: float = 0.0
    """Expected number of those by chance."""
    judged: int = 0
    """Votes without sight of the rewards, on groups where these have a single best answer too."""
    agreed: int = 0
    """Those of them with the same best answer."""
    agreed_chance: float = 0.0
    parts: dict[str, PartAgreement] = msgspec.field(default_factory=dict)
    """By name of the reward part."""
    repeats: int = 0
    """Groups voted on again."""
    repeated: int = 0
    """Those of them with the same best answers as before."""
    cast: int = 0
    """Votes of this rater, sent or not; several votes on one group count once."""
    newest: tuple[float, ...] = ()
    """Times of the newest of them in Unix seconds."""
    compared: int = 0
    """Pairs of this rater's vote and another rater's on the same group (`rating.overlap`)."""
    same: int = 0
    """Those of them with the same best answers."""
