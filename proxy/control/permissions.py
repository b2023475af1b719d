"""What a client of the control API may do: its role, its own votes and leases."""

import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from ajet_swarm.common.errors import AjetError
from core.commands import COMMANDS
from core.roles import OWNER, AccessRole, Identity
from core.runtime.access import AccessTokens
from core.state import Group, State
from proxy.groups.run import find_id

_ARTICLE: Final[Mapping[AccessRole, str]] = {
    "viewer": "a viewer",
    "rater": "a rater",
    "operator": "an operator",
}
_TOKEN_HINT = (
    "Ask for a new token; the owner's is the file `token` of the proxy's home (--token-file)"
)
_PORT = re.compile(r":[0-9]*\Z")
_LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
_ON_VOTES = frozenset({"group.rate", "group.unrate", "group.lease", "group.accept"})
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

    def valid(self, headers: Mapping[str, str], identity: Identity) -> bool:
        """Return whether the token of a request still gives the same identity."""
        try:
            return self.identify(headers) == identity
        except AjetError:
            return False


def require(identity: Identity, role: AccessRole, what: str) -> None:
    """Refuse an identity whose role does not suffice.

    Raises:
        NotPermitted: It does not.
    """
    if not identity.permits(role):
        words = f"{what} needs the role {role}; {identity.name} is {_ARTICLE[identity.role]}"
        raise NotPermitted(words, todo=_TODO)


def require_own_console(identity: Identity, holder: str, state: State, now: float) -> None:
    """Refuse a named client that follows the feed as the console of somebody else.

    The leases of a console end with its feed.

    Raises:
        NotPermitted: Another rater's console or lease has that name.
    """
    console = state.attached.get(holder)
    leases = (one for group in state.waiting() for one in group.leases)
    foreign = console is not None and console.rater != identity.name
    if foreign or any(
        one.holder == holder and now < one.until and one.rater != identity.name for one in leases
    ):
        raise NotPermitted("another console has this name", todo="Start the console again")


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
    if identity.permits("operator"):
        return
    for flag in ("override", "take", "newest"):
        if args.get(flag):
            require(identity, "operator", f"`{name}` with `{flag}`")
    if name in _ON_VOTES:
        group = groups[find_id(args["group_id"], groups)]
        _restrict_to_own(identity.name, name, args.get("holder"), group, now)


def _restrict_to_own(rater: str, name: str, holder: str | None, group: Group, now: float) -> None:
    """Refuse a command that affects the vote or the lease of another rater."""
    others = group.leases_of_other_raters(rater, now)
    own = group.vote_of(rater, "") if group.overlap > 1 else group.rating
    voted = own is not None and own.rater == rater
    if name == "group.unrate":
        if own is not None and not voted:
            voter = own.rater or "another rater"
            raise NotPermitted(f"the vote on group {group.group_id} is of {voter}", todo=_TODO)
    elif name == "group.accept":
        if not voted or (group.overlap > 1 and group.rating is None) or group.is_disputed:
            what = f"group {group.group_id} does not wait for your vote alone"
            raise NotPermitted(what, todo=_TODO)
    elif len(others) >= group.missing_votes and not voted:
        names = " and ".join(one.rater or "another rater" for one in others)
        verb = "is" if len(others) == 1 else "are"
        raise NotPermitted(f"{names} {verb} rating group {group.group_id}", todo="Rate another")
    if holder is not None and any(one.holder == holder for one in others):
        raise NotPermitted(f"console {holder} is that of another rater", todo=_TODO)


def _host(text: str) -> str:
    """Return the host of `host:port` in lower case; an IPv6 address keeps its brackets."""
    return _PORT.sub("", text).lower()
