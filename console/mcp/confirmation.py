"""Confirmations of destructive commands: a dry run gives a token for one execution."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from ajet_swarm.common.errors import UsageError
from core.commands.plan import Plan

VALID_SECONDS = 120.0
"""Seconds in which a token can be used."""
_MOST = 64
"""Tokens that are valid at a time; the oldest ones are dropped."""
_TODO = "Call the tool again without `confirm`, check what it would do, and use the new token"


@dataclass(frozen=True, slots=True)
class _Issued:
    command: str
    args: bytes
    targets: tuple[str, ...]
    until: float


CONFIRMED_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "rewards.whatif": frozenset({"hooks"}),
    "mock.start": frozenset({"target", "results"}),
}
"""Arguments that run code or write files: a command with one needs a token, too."""


def needs_confirmation(plan: Plan) -> bool:
    """Return whether a plan runs code, or reads or writes files, of the agent's choice."""
    return plan.confirm or bool(CONFIRMED_ARGUMENTS.get(plan.command, frozenset()) & set(plan.args))


class Confirmations:
    """The tokens of one MCP session.

    A token belongs to one command, its arguments and the state of what it changes. It is valid
    once, and for a limited time.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._issued: dict[str, _Issued] = {}

    def issue(self, plan: Plan) -> str:
        """Return a token for a plan."""
        now = self._clock()
        valid = [(token, old) for token, old in self._issued.items() if old.until > now]
        self._issued = dict(valid[-(_MOST - 1) :])
        token = secrets.token_urlsafe(18)
        self._issued[token] = _Issued(
            plan.command, _canonical(plan), plan.targets, now + VALID_SECONDS
        )
        return token

    def redeem(self, token: object, plan: Plan) -> None:
        """Use a token up for a plan; a token that does not fit is used up, too.

        Raises:
            UsageError: the token is not valid for the plan; gives the reason.
        """
        issued = self._issued.pop(token, None) if isinstance(token, str) else None
        if issued is None:
            raise UsageError("this confirmation token is unknown, or was used already", todo=_TODO)
        if issued.until <= self._clock():
            raise UsageError("this confirmation token has expired", todo=_TODO)
        if (issued.command, issued.args) != (plan.command, _canonical(plan)):
            what = "this confirmation token is for another command or for other arguments"
            raise UsageError(what, todo=_TODO)
        if issued.targets != plan.targets:
            raise UsageError("the state has changed since the dry run", todo=_TODO)


def _canonical(plan: Plan) -> bytes:
    return msgspec.json.encode(plan.args, order="deterministic")
