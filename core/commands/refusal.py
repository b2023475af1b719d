"""Why a command is not carried out."""

from ajet_swarm.common.errors import AjetError


class NotNow(AjetError):
    """A command that cannot be carried out in the present state."""


class NoChange(NotNow):
    """A command that succeeds without changing anything."""
