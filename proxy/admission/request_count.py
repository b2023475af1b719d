"""One request in the limits of its API key and its sessions."""

from proxy.admission.sessions import RequestLimits


class RequestCount:
    """Counts a request once, however many groups it makes: a group for each of its prompts.

    The first group opens it in the limits of an API key or a session, the last one closes it.
    """

    __slots__ = ("_groups", "_turns")

    def __init__(self) -> None:
        self._groups: dict[tuple[RequestLimits, str], int] = {}
        """Open groups by limits and name."""
        self._turns: dict[tuple[RequestLimits, str], int] = {}

    def open(
        self, limits: RequestLimits, name: str, *, helper: bool = False, tools: bool = False
    ) -> int:
        """Count a group of the request.

        Args:
            limits: The limits of API keys, or those of sessions.
            name: Name of the API key or session.
            helper: As of `RequestLimits.open`.
            tools: As of `RequestLimits.open`.

        Returns:
            Number of the request's turn, as of `RequestLimits.open`.

        Raises:
            LimitExceeded: A limit is reached; the group is not counted.
        """
        counted = (limits, name)
        groups = self._groups.get(counted, 0)
        if not groups:
            self._turns[counted] = limits.open(name, helper=helper, tools=tools)
        self._groups[counted] = groups + 1
        return self._turns[counted]

    def close(self, limits: RequestLimits, name: str) -> None:
        """Record that a group of the request has ended."""
        counted = (limits, name)
        self._groups[counted] -= 1
        if not self._groups[counted]:
            limits.close(name)
