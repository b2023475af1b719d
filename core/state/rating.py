"""State of ratings by hand beside the votes of each group: the figures of each rater."""

import msgspec


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
