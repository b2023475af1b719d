"""What a judge (a language model that scores answers) was asked, and what that cost."""

from core.events.base import Event


class JudgeSpent(Event, frozen=True, kw_only=True):
    """The counts of one judge since the proxy started; at most one event a second and judge."""

    judge: str
    """Name of the reward part."""
    model: str = ""
    mode: str = ""
    """pointwise, listwise or pairwise."""
    calls: int = 0
    """Requests that were sent, retries and repairs among them."""
    groups: int = 0
    """Groups that were judged, with success or without."""
    failures: int = 0
    """Groups it abstained from."""
    hits: int = 0
    """Questions answered from the cache: no call, no cost."""
    retries: int = 0
    repairs: int = 0
    """Calls that asked once more because the reply could not be used."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    untold: int = 0
    """Answered calls whose tokens the endpoint did not tell; they are not in the cost."""
    cost: float = 0.0
    """By the prices of the settings; without `priced` it means nothing."""
    priced: bool = False
    limit: float = 0.0
    """Cost after which nothing more is asked; 0 for none."""
    pairs: int = 0
    """Pairs of answers that were compared in both orders."""
    split: int = 0
    """Of these, those where the order decided: they count as ties."""
    seconds: float = 0.0
    """Time of all answered calls together."""
    trouble: str = ""
    """Why it is not asked just now; empty while it is."""
