"""State of ratings by hand: votes, leases, and what is known of each rater."""

import msgspec


class Rating(msgspec.Struct, kw_only=True):
    """What the operator said about a group."""

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
    looked: float = 0.0
    """Seconds from its display to the vote."""


class Lease(msgspec.Struct, kw_only=True):
    """Somebody looks at a group to rate it."""

    holder: str
    """Names one console."""
    rater: str = ""
    until: float = 0.0
    since: float = 0.0
    """When this console got it; a renewal leaves it as it is."""

    def of_another(self, holder: str, now: float) -> bool:
        """Whether it holds now and is not `holder`'s."""
        return self.holder != holder and now < self.until


class PartAgreement(msgspec.Struct, kw_only=True):
    """How often one part of the rewards put a rater's best answer first."""

    judged: int = 0
    """Votes with one answer on top, of groups in which the part has one answer on top."""
    agreed: int = 0
    chance: float = 0.0
    """How often it would have been so by chance."""


class RaterStats(msgspec.Struct, kw_only=True):
    """One rater's votes that were sent, over the whole journal.

    Agreement is counted for blind votes and those of the command line, place for blind votes: who
    sees the rewards beside the answers follows them.
    """

    votes: int = 0
    placed: int = 0
    """Blind votes with one answer on top."""
    first: int = 0
    """Those whose answer stood at the first place."""
    first_chance: float = 0.0
    """How many those would be by chance."""
    judged: int = 0
    """Votes without sight of the rewards, of groups where these had one answer on top, too."""
    agreed: int = 0
    """Those where it was the same."""
    agreed_chance: float = 0.0
    parts: dict[str, PartAgreement] = msgspec.field(default_factory=dict)
    """By the name of the part."""
    repeats: int = 0
    """Groups judged once more."""
    repeated: int = 0
    """Those with the same answers on top as before."""
