"""Who a client of the control API is, by its Host, Origin and token."""

import hmac
import re
from collections.abc import Mapping

from ajet_swarm.common.errors import AjetError
from core.roles import OWNER, Identity, NotPermitted
from core.runtime.access import AccessTokens
from core.state import State

_TOKEN_HINT = (
    "Ask for a new token; the owner's is the file `token` of the proxy's home (--token-file)"
)
_PORT = re.compile(r":[0-9]*\Z")
_LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


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


def require_own_console(identity: Identity, holder: str, state: State, now: float) -> None:
    """Refuse a named client that follows the feed as the console of somebody else.

    The leases of a console end with its feed.

    Raises:
        NotPermitted: Another rater's console or lease has that name.
    """
    leases = [lease for group in state.waiting() for lease in group.leases]
    raters = {lease.rater for lease in leases if lease.holder == holder and now < lease.until}
    if (console := state.attached.get(holder)) is not None:
        raters.add(console.rater)
    if raters - {identity.name}:
        raise NotPermitted("another console has this name", todo="Start the console again")


def _host(text: str) -> str:
    """Return the host of `host:port` in lower case; an IPv6 address keeps its brackets."""
    return _PORT.sub("", text).lower()
