"""The proxy's own refusals, in the form and wording of a real vLLM."""

from core.dialects.errors import ApiError

BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
_SILENT_AGENTS = ("codex", "claude-cli/", "opencode/", "QwenCode/")
"""Beginnings of the `User-Agent` of agents that show nothing for minutes while they retry a 503."""


class ProxyStopping(ApiError):
    """The proxy is stopping; unlike at an overload, a new one may start at once."""

    is_overload = False

    def __init__(self) -> None:
        super().__init__(503, 5, "The server is shutting down. Please try again later.")


class AnswerTimedOut(ApiError):
    """The candidates take too long: the same request would take as long again."""

    def __init__(self) -> None:
        text = "No candidate answered in time. Stream the answer, or ask for fewer tokens."
        super().__init__(504, None, text, repeatable=False)


class EngineOffline(ApiError):
    """The engine is off until the operator starts it, so an immediate retry is pointless."""

    is_overload = False

    def __init__(self, engine: str, *, settled: bool = False) -> None:
        """Args:
        engine: Name of the engine, for the client.
        settled: It has been off for a while: no restart or other client turns it on again.
        """
        text = (
            f"{engine} is OFFLINE: it answers no request until the operator of this server starts "
            "it (`ajet-console engine start`). This is no overload."
        )
        self.settled = settled
        super().__init__(503, 60, text, repeatable=False)

    def for_client(self, user_agent: str) -> ApiError:
        """Return the error for a client: agents that retry a 503 in silence get a 400."""
        if not (self.settled and user_agent.startswith(_SILENT_AGENTS)):
            return self
        return ApiError(400, None, self.message)


def overloaded(retry_after: int, message: str = BUSY) -> ApiError:
    """Return the 503 for an overload, a pause or a stop."""
    return ApiError(503, retry_after, message)
