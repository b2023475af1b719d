"""`token`: tokens of the control API for others, each with a name and a role."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import existing_home
from console.cli.options import Args, argument, option, takes
from console.cli.output import say_result, would
from console.text.values import fields_of
from core.roles import ROLES
from core.runtime.access import AccessToken, AccessTokens, lifetime
from core.runtime.home import Home
from core.whole_file import replace_file

NAME = argument("name", "name of its user, as votes show it")


@takes()
def listed(args: Args) -> int:
    """List the tokens."""
    known = AccessTokens(existing_home(args)).read()
    none = "No named tokens: `ajet-console tokens add NAME --role rater` creates one"
    width = max((len(token.name) for token in known), default=0)
    lines = [f"{token.name:{width}}  {token.role:8}  {_end(token)}" for token in known] or [none]
    return say_result(args, {"tokens": [_data(token) for token in known]}, lines)


@takes(NAME)
def revoke(args: Args) -> int:
    """Make a token invalid.

    Raises:
        AjetError: there is no such token.
    """
    revoked = AccessTokens(existing_home(args)).revoke(args.name, dry=args.dry_run)
    token = f"the token of {revoked.name} ({revoked.role})"
    if would(f"revoke {token}"):
        return 0
    data = {"revoked": revoked.name, "role": revoked.role}
    return say_result(args, data, (f"T{token[1:]} is revoked",))


@takes(
    NAME,
    option(
        "--role",
        "viewer sees all, rater also votes, operator may do everything",
        choices=ROLES,
        required=True,
    ),
    option("--expires TIME", "end of its validity: 30m, 8h, 7d"),
    option("--out FILE", "write it to a new file", type=Path),
)
def add(args: Args) -> int:
    """Create a token.

    Raises:
        AjetError: the name is invalid or in use, or the file cannot be written.
    """
    home = existing_home(args)
    tokens = AccessTokens(home if args.dry_run else Home.open(home.root))
    seconds = None if args.expires is None else lifetime(args.expires)
    if args.out is not None and args.out.expanduser().exists():
        raise UsageError("this file exists already", str(args.out), "Name a new one with --out")
    text = tokens.add(args.name, args.role, seconds, dry=args.dry_run)
    if would(f"create a token of {args.name}, {args.role}"):
        return 0
    created = next(candidate for candidate in tokens.read() if candidate.name == args.name)
    lines = [f"Token of {args.name}, {args.role}, {_end(created)}"]
    if args.out is not None:
        try:
            replace_file(args.out.expanduser(), f"{text}\n".encode(), 0o600)
        except OSError as error:
            tokens.revoke(args.name)
            why = error.strerror or error
            raise AjetError(f"the token cannot be written: {why}", str(args.out)) from error
        place = {"file": str(args.out)}
        lines.append(f"Written to {args.out}")
    else:
        place = {"token": text}
        lines.append(f"\n  {text}\n\nIt is not shown again")
    start = f"ajet-console --attach http://HOST:PORT --token-file {args.out or 'FILE'}"
    return say_result(args, {**_data(created), **place}, [*lines, f"Its user starts: {start}"])


def _end(token: AccessToken) -> str:
    if token.expires is None:
        return "valid until it is revoked"
    date = datetime.fromtimestamp(token.expires).strftime("%Y-%m-%d %H:%M")
    return f"expired {date}" if token.expired(time.time()) else f"valid until {date}"


def _data(token: AccessToken) -> dict[str, Any]:
    fields = fields_of(token, "name role created expires")
    return {**fields, "expired": token.expired(time.time())}
