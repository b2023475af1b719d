"""What is known of people who rate: leases, and how often they agree with what."""

import msgspec


class Lease(msgspec.Struct, kw_only=True):
    """Somebody looks at a group to rate it."""

    holder: str
    """Names one console."""
    rater: str = ""
    until: float = 0.0

    def of_another(self, holder: str, now: float) -> bool:
        """Whether it holds now and is not `holder`'s."""
        return self.holder != holder and now < self.until


class RaterStats(msgspec.Struct, kw_only=True):
    """One rater's votes that were sent, over the whole journal.

    Agreement and place are counted for blind votes alone: who sees the rewards follows them.
    """

    votes: int = 0
    placed: int = 0
    """Blind votes with one answer on top."""
    first: int = 0
    """Those whose answer stood at the first place."""
    first_chance: float = 0.0
    """How many those would be by chance."""
    judged: int = 0
    """Of `placed`, those where the automatic rewards had one answer on top, too."""
    agreed: int = 0
    """Those where it was the same."""
    agreed_chance: float = 0.0
    repeats: int = 0
    """Groups judged once more."""
    repeated: int = 0
    """Those with the same answers on top as before."""
