"""Named tokens of the control API, each with a role, in the file `tokens.json` of the home.

The file has the hash of each token, never the token. A proxy reads it again when it changes, so
that a new token works and a revoked one is refused without a restart.
"""

import contextlib
import fcntl
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from core.roles import ROLES, AccessRole, Identity
from core.runtime.home import Home
from core.whole_file import read_small, replace_file

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_UNITS = {"m": 60.0, "h": 3_600.0, "d": 86_400.0}
MOST_BYTES = 1 << 20
"""Maximum size of the file."""
_UNREAD = (-1, -1, -1)
"""Stamp of a file that was not read."""


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """One token, without its text."""

    name: str
    role: AccessRole
    hash: str
    """SHA-256 of the token, hexadecimal. A token is 32 random bytes, so it needs no salt."""
    created: float
    """Unix seconds."""
    expires: float | None = None
    """Unix seconds; None for never."""

    def expired(self, now: float) -> bool:
        """Return whether it is not valid any more."""
        return self.expires is not None and now >= self.expires


class _File(msgspec.Struct):
    tokens: list[AccessToken]


def lifetime(text: str) -> float:
    """Return the seconds of a duration: `30m`, `8h`, `7d`.

    Raises:
        UsageError: It is no duration.
    """
    found = re.fullmatch("([1-9][0-9]{0,3})([mhd])", text)
    if found is None:
        todo = "Give it as 30m, 8h or 7d, with a number up to 9999"
        raise UsageError(f"`{text}` is not a duration", "--expires", todo)
    return int(found[1]) * _UNITS[found[2]]


class AccessTokens:
    """The named tokens of one home.

    Args:
        home: The home, which exists.
        clock: Returns Unix seconds.
    """

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self.path = home.root / "tokens.json"
        """The file."""
        self._lock = home.run / "tokens.lock"
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = _UNREAD
        self._by_hash: dict[str, AccessToken] = {}

    def read(self) -> Sequence[AccessToken]:
        """Return all tokens, also those that have expired.

        Raises:
            AjetError: The file cannot be read.
        """
        try:
            data = read_small(self.path, MOST_BYTES)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._damaged(error.strerror or str(error)) from error
        try:
            return msgspec.json.decode(data, type=_File).tokens
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from error

    def identity(self, token: str) -> Identity | None:
        """Return name and role of a token; None if it is unknown, revoked or expired."""
        self._refresh()
        digest = _hash(token)
        for known, access in self._by_hash.items():  # few: compare all, each in constant time
            if hmac.compare_digest(known, digest):
                return None if access.expired(self._clock()) else Identity(access.name, access.role)
        return None

    def add(
        self, name: str, role: AccessRole, seconds: float | None = None, *, dry: bool = False
    ) -> str:
        """Create a token, store its hash and return its text, which is stored nowhere.

        Args:
            name: Name of its user: letters, digits, dot, _ and -, at most 40.
            role: Role of its user.
            seconds: Duration of its validity; None for ever.
            dry: Check only, and store nothing.

        Raises:
            UsageError: The name is invalid or in use, or the role is unknown.
            AjetError: The file cannot be read or written.
        """
        if not _NAME.fullmatch(name):
            todo = "At most 40 letters, digits, dots, _ and -; a letter or digit first"
            raise UsageError("this is not a name for a token", "NAME", todo)
        if role not in ROLES:
            raise UsageError(f"there is no role `{role}`", "--role", f"Known: {', '.join(ROLES)}")
        text = secrets.token_urlsafe(32)
        with self._locked():
            now = self._clock()
            tokens = list(self.read())
            same = next((token for token in tokens if token.name.lower() == name.lower()), None)
            if same is not None and not same.expired(now):
                todo = f"Choose another name, or `ajet-console tokens revoke {same.name}` first"
                raise UsageError(f"there is a token named {same.name} already", "NAME", todo)
            new = AccessToken(
                name=name,
                role=role,
                hash=_hash(text),
                created=now,
                expires=None if seconds is None else now + seconds,
            )
            if not dry:
                self._write([*(token for token in tokens if token is not same), new])
        return text

    def revoke(self, name: str, *, dry: bool = False) -> AccessToken:
        """Remove a token and return it.

        Args:
            name: Its name.
            dry: Check only, and remove nothing.

        Raises:
            UsageError: There is no token of that name.
            AjetError: The file cannot be read or written.
        """
        with self._locked():
            tokens = list(self.read())
            token = next((token for token in tokens if token.name == name), None)
            if token is None:
                known = ", ".join(token.name for token in tokens) or "none"
                raise UsageError(f"there is no token named {name}", "NAME", f"Known: {known}")
            if not dry:
                self._write([access_token for access_token in tokens if access_token is not token])
        return token

    def _refresh(self) -> None:
        """Read the file if it has changed. A damaged one permits nobody."""
        try:
            facts = self.path.stat()
            stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return
        try:
            tokens = self.read()
        except AjetError as error:  # read again at the next request: the fault may pass
            log.error("no named token is valid: %s", error)
            tokens, stamp = (), _UNREAD
        self._stamp = stamp
        self._by_hash = {token.hash: token for token in tokens}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other writers of the file."""
        if not self._lock.parent.is_dir():
            yield  # there is no home, and no token
            return
        try:
            with self._lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise AjetError(
                f"the tokens cannot be stored: {error.strerror or error}", str(self.path)
            ) from error

    def _write(self, tokens: list[AccessToken]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_File(tokens)), indent=1) + b"\n"
        replace_file(self.path, text, 0o600)

    def _damaged(self, why: str) -> AjetError:
        return AjetError(
            f"the file of the tokens cannot be read: {why}",
            str(self.path),
            "Delete it and add the tokens again; until then only the owner's token is valid",
        )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
