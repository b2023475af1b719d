"""What an episode was made of, token by token, as servers that keep a token log tell it."""

import msgspec


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a prompt or an answer."""

    id: int
    text: str | None = None
    """None while the server has no policy loaded."""
    mask: int = 0
    """The loss mask: 1 for a token that is trained on, 0 for one that was only read."""
    logprob: float | None = None
    """When it was sampled; None for a token that was not."""
    logprob_now: float | None = None
    """By the policy as it is now; None while none is loaded."""


class TokenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an episode, or one timeline that is trained."""

    prompt_tokens: int
    tokens: tuple[Token, ...]
    """The prompt first."""
    step: int | None = None
    """Policy updates in the policy that sampled it; None when several did."""


class EpisodeTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The token log of one episode."""

    episode_uuid: str
    state: str
    """`live` or `finished`."""
    calls: tuple[TokenCall, ...]
    task_id: str = ""
    reward: float | None = None
    step: int | None = None
    """Policy updates in the policy that the log-probs of now are by."""
