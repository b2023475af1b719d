"""What a client of the control API may do: its role, its own votes and leases."""

import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from ajet_swarm.common.errors import AjetError
from core.commands import COMMANDS
from core.roles import OWNER, AccessRole, Identity
from core.runtime.access import AccessTokens
from core.state import Group
from proxy.admission.registry import find_id

_ARTICLE: Final[Mapping[AccessRole, str]] = {
    "viewer": "a viewer",
    "rater": "a rater",
    "operator": "an operator",
}
_TOKEN_HINT = "Give the file `token` of the home this proxy runs in with --token-file"
_PORT = re.compile(r":[0-9]*\Z")
_LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
_TODO = "Ask an operator of this proxy"


class NotPermitted(AjetError):
    """The role of a client does not suffice."""


class UnknownClient(AjetError):
    """A client has no valid token."""


class Clients:
    """Identifies the clients of the control API by Host, Origin and token.

    Args:
        token: The owner's token.
        hosts: Host names of this proxy, besides those of loopback.
        access: The named tokens; None for none.
    """

    def __init__(self, token: str, hosts: frozenset[str], access: AccessTokens | None) -> None:
        self._token = token.encode()
        self._hosts = _LOCAL | {host.lower() for host in hosts}
        self._access = access

    def identify(self, headers: Mapping[str, str]) -> Identity:
        """Return whose token a request has.

        Raises:
            NotPermitted: It is sent by a web page.
            UnknownClient: It has no valid token.
        """
        if _host(headers.get("host", "")) not in self._hosts:
            raise NotPermitted("this Host is not served here")
        origin = headers.get("origin")
        if origin is not None and _host(origin.split("://")[-1]) not in self._hosts:
            raise NotPermitted("this Origin may not use the control API")
        scheme, _, text = headers.get("authorization", "").partition(" ")
        token = text.strip()
        if scheme.lower() == "bearer":
            if hmac.compare_digest(token.encode(), self._token):
                return OWNER
            identity = self._access.identity(token) if self._access is not None else None
            if identity is not None:
                return identity
        raise UnknownClient(
            "the control token is missing, wrong, revoked or expired", todo=_TOKEN_HINT
        )

    def valid(self, identity: Identity) -> bool:
        """Return whether the token of an identity is still valid."""
        return identity == OWNER or (self._access is not None and self._access.valid(identity))


def require(identity: Identity, role: AccessRole, what: str) -> None:
    """Refuse an identity whose role does not suffice.

    Raises:
        NotPermitted: It does not.
    """
    if not identity.permits(role):
        words = f"{what} needs the role {role}; {identity.name} is {_ARTICLE[identity.role]}"
        raise NotPermitted(words, todo=_TODO)


def restrict(
    identity: Identity, name: str, args: dict[str, Any], groups: Mapping[str, Group], now: float
) -> None:
    """Refuse a command that an identity may not send; enter the name of its token as the rater.

    A rater votes by the name of the token, and changes neither votes nor leases of other raters.

    Args:
        identity: Who sends the command.
        name: Name of the command.
        args: Its checked arguments; `rater` is replaced.
        groups: The groups in memory, by id.
        now: Unix seconds.

    Raises:
        NotPermitted: The command is refused.
    """
    command = COMMANDS[name]
    require(identity, command.role, f"`{name}`")
    if not identity.name:
        return
    if any(arg.name == "rater" for arg in command.args):
        args["rater"] = identity.name
    if identity.permits("operator") or not name.startswith("group."):
        return
    for flag in ("override", "take"):
        if args.get(flag):
            require(identity, "operator", f"`{name}` with `{flag}`")
    group = groups[find_id(args["group_id"], groups)]
    rating, others = group.rating, group.leases_of_other_raters(identity.name, now)
    if len(others) >= group.missing_votes:
        names = " and ".join(one.rater for one in others)
        verb = "is" if len(others) == 1 else "are"
        raise NotPermitted(f"{names} {verb} rating group {group.group_id}", todo="Rate another")
    holder = args.get("holder")
    if any(one.holder == holder for one in others):
        raise NotPermitted(f"console {holder} is that of another rater", todo=_TODO)
    if group.overlap > 1:
        return  # a vote is withdrawn by the name of its rater
    if name == "group.unrate" and rating is not None and rating.rater != identity.name:
        voter = rating.rater or "another rater"
        raise NotPermitted(f"the vote on group {group.group_id} is of {voter}", todo=_TODO)


def _host(text: str) -> str:
    """Return the host of `host:port` in lower case; an IPv6 address keeps its brackets."""
    return _PORT.sub("", text).lower()
