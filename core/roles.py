"""Roles of the control API's clients: viewer, rater, operator."""

from typing import Final, Literal

import msgspec

from ajet_swarm.common.errors import AjetError

AccessRole = Literal["viewer", "rater", "operator"]
ROLES: Final[tuple[AccessRole, ...]] = ("viewer", "rater", "operator")
"""Each role may do what the ones before it may."""


class Identity(msgspec.Struct, frozen=True):
    """Name and role of a client of the control API."""

    name: str
    """Name of its token; empty for the owner of the home."""
    role: AccessRole

    def permits(self, role: AccessRole) -> bool:
        """Return whether it may do what needs `role`."""
        return ROLES.index(self.role) >= ROLES.index(role)


OWNER: Final = Identity("", "operator")
"""The owner of the home, by the file `token`."""


class NotPermitted(AjetError):
    """The role of a client does not suffice."""


ASK_OPERATOR: Final = "Ask an operator of this proxy"


def require(identity: Identity, role: AccessRole, what: str) -> None:
    """Refuse an identity whose role does not suffice.

    Raises:
        NotPermitted: It does not.
    """
    if not identity.permits(role):
        words = f"{what} needs the role {role}; {identity.name} is a {identity.role}"
        raise NotPermitted(words, todo=ASK_OPERATOR)
