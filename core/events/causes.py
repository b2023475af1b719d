"""Kinds of cause for which a group ends, as far as code distinguishes them, with parameters.

`GroupClosed` carries the cause as text for logs and scripts; where the cause is of one of these
kinds, also the kind and its parameters. Code must not parse the text for them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from core.events.base import Params, read


class GroupCause(Params, frozen=True):
    """Parameters of one kind of cause."""


class NoEpisodes(GroupCause, frozen=True):
    """The episodes of the group were not free together in time."""

    kind: ClassVar[str] = "no_episodes"
    refusal: str
    """`ajet_swarm.protocol.errors.ClaimTimedOut.cause`."""


class NoAnswers(GroupCause, frozen=True):
    """No candidate gave an answer."""

    kind: ClassVar[str] = "no_answers"
    errors: tuple[str, ...]
    """Values of `ajet_swarm.protocol.errors.ChatErrorKind`, each once."""
    unretried: tuple[str, ...] = ()
    """Why they were not retried, each reason once."""


class NotAllTaken(GroupCause, frozen=True):
    """The server took some rewards only."""

    kind: ClassVar[str] = "not_all_taken"
    taken: int
    of: int
    others: dict[str, int]
    """Outcome -> number of the other rewards."""


class AllExpired(GroupCause, frozen=True):
    """The server had reclaimed every episode before its reward was sent."""

    kind: ClassVar[str] = "all_expired"


class NotScored(GroupCause, frozen=True):
    """The group was aborted because it had no automatic rewards and no rating."""

    kind: ClassVar[str] = "not_scored"


class AbortedByHand(GroupCause, frozen=True):
    """A person aborted the group."""

    kind: ClassVar[str] = "aborted_by_hand"


class TooFewAnswers(GroupCause, frozen=True):
    """Fewer candidates answered than were asked for."""

    kind: ClassVar[str] = "too_few_answers"
    answered: int
    of: int


CAUSES: Mapping[str, type[GroupCause]] = {
    subclass.kind: subclass for subclass in GroupCause.__subclasses__()
}
"""All kinds by name."""


def read_cause(kind: str, params: Mapping[str, Any]) -> GroupCause | None:
    """Return the parameters of a cause; None for an unknown kind or unexpected parameters."""
    return read(CAUSES, kind, params)
