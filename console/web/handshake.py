"""Who may open a console in a browser: links, cookies, Host and Origin."""

import asyncio
import ipaddress
import re
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from core.roles import Identity
from core.runtime.access import AccessTokens

_PORT = re.compile(r":[0-9]*\Z")
_LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Handshake:
    """Exchanges the key of a link for a cookie, and checks both at each request.

    The key is a named token of the home. The cookie is another random text, in memory only: after
    a restart the link is opened again.

    Args:
        tokens: The named tokens.
    """

    def __init__(self, tokens: AccessTokens) -> None:
        self._tokens = tokens
        self._by_cookie: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def identity(self, token: str) -> Identity | None:
        """Return whose link a token is of; None if it is unknown, revoked or expired."""
        async with self._lock:
            return await asyncio.to_thread(self._tokens.identity, token)

    async def cookie_for(self, token: str) -> str:
        """Return the cookie of a valid token; forget those of tokens that have ended."""
        for cookie, known in list(self._by_cookie.items()):
            if await self.identity(known) is None:
                self._by_cookie.pop(cookie, None)
        for cookie, known in self._by_cookie.items():
            if known == token:
                return cookie
        cookie = secrets.token_urlsafe(32)
        self._by_cookie[cookie] = token
        return cookie

    def token_of(self, cookie: str) -> str:
        """Return the token behind a cookie; empty when it is unknown."""
        return self._by_cookie.get(cookie, "")


class Addresses:
    """The addresses under which the server answers: a web page of another site cannot use it.

    Args:
        host: Address that the server is bound to.
        public_url: Address behind a tunnel or a reverse proxy; empty for none.
        elsewhere: Whether the server is bound to more than loopback.
        machine: Name of this machine, if links have it.
    """

    def __init__(self, host: str, public_url: str, elsewhere: bool, machine: str = "") -> None:
        self._public = _shown(public_url)
        names = {host.lower(), machine.lower(), _PORT.sub("", self._public)} - {""}
        self._hosts = _LOCAL | names
        self._elsewhere = elsewhere

    def served(self, headers: Mapping[str, str]) -> bool:
        """Return whether the Host of a request is one of the server.

        An address in digits cannot be the name of another site: it is accepted where the server is
        reached from elsewhere.
        """
        host = _PORT.sub("", headers.get("Host", "").lower())
        return host in self._hosts or (self._elsewhere and _in_digits(host))

    def same_origin(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request is sent by a page of this server, port included."""
        origin = _shown(headers.get("Origin", ""))
        return bool(origin) and origin in (headers.get("Host", "").lower(), self._public)


def _shown(url: str) -> str:
    """Return host and port as browsers send them: without the port that the scheme implies."""
    parts = urlsplit(url)
    return parts.netloc.lower().removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ""))


def _in_digits(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
