"""`token`: tokens of the control API for others, each with a name and a role."""

import argparse
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import existing_home, say, say_json
from console.cli.options import add_json, add_verbs
from console.cli.output import output
from core.roles import ROLES
from core.runtime.access import AccessToken, AccessTokens, lifetime
from core.runtime.home import Home

_VERBS = (
    ("add", "create a token and show it once"),
    ("list", "list the tokens with role and end; the default verb"),
    ("revoke", "make a token invalid at once"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments."""
    parser.set_defaults(handler=token, verb="list")
    add_json(parser)
    for verb, subparser in add_verbs(parser, _VERBS):
        add_json(subparser, default=argparse.SUPPRESS)
        if verb != "list":
            subparser.add_argument(
                "name", metavar="NAME", help="name of its user, as votes show it"
            )
        if verb == "add":
            subparser.add_argument(
                "--role",
                choices=ROLES,
                required=True,
                help="viewer sees all, rater also votes, operator may do everything",
            )
            subparser.add_argument(
                "--expires", metavar="TIME", help="end of its validity: 30m, 8h, 7d"
            )
            subparser.add_argument(
                "--out", type=Path, metavar="FILE", help="write it to a new file"
            )


def token(args: argparse.Namespace) -> int:
    """Run the verb of `args.verb`.

    Raises:
        AjetError: the name is invalid, in use or unknown, or a file cannot be written.
    """
    home = existing_home(args)
    if args.verb == "add":
        return _add(args, AccessTokens(home if output().dry_run else Home.open(home.root)))
    tokens = AccessTokens(home)
    if args.verb == "revoke":
        revoked = tokens.revoke(args.name, dry=output().dry_run)
        if output().dry_run:
            say(output().plan(f"would revoke the token of {revoked.name} ({revoked.role})"))
        elif args.json:
            say_json({"revoked": revoked.name, "role": revoked.role})
        else:
            say(f"The token of {revoked.name} ({revoked.role}) is revoked")
        return 0
    known = tokens.read()
    if args.json:
        say_json({"tokens": [_data(other) for other in known]})
    elif not known:
        say("No named tokens: `ajet-console token add NAME --role rater` creates one")
    else:
        width = max(len(other.name) for other in known)
        for candidate in known:
            say(f"{candidate.name:{width}}  {candidate.role:8}  {_end(candidate)}")
    return 0


def _add(args: argparse.Namespace, tokens: AccessTokens) -> int:
    seconds = None if args.expires is None else lifetime(args.expires)
    if args.out is not None and args.out.expanduser().exists():
        raise UsageError("this file exists already", str(args.out), "Name a new one with --out")
    text = tokens.add(args.name, args.role, seconds, dry=output().dry_run)
    if output().dry_run:
        say(output().plan(f"would create a token of {args.name}, {args.role}"))
        return 0
    created = next(candidate for candidate in tokens.read() if candidate.name == args.name)
    if args.out is not None:
        try:
            _write(args.out.expanduser(), text)
        except OSError as error:
            tokens.revoke(args.name)
            why = error.strerror or error
            raise AjetError(f"the token cannot be written: {why}", str(args.out)) from error
    place = {"file": str(args.out)} if args.out is not None else {"token": text}
    if args.json:
        say_json({**_data(created), **place})
        return 0
    say(f"Token of {args.name}, {args.role}, {_end(created)}")
    if args.out is not None:
        say(f"Written to {args.out}")
    else:
        say(f"\n  {text}\n\nIt is not shown again")
    file = args.out or "FILE"
    say(f"Its user starts: ajet-console --attach http://HOST:PORT --token-file {file}")
    return 0


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _end(one: AccessToken) -> str:
    if one.expires is None:
        return "valid until it is revoked"
    date = datetime.fromtimestamp(one.expires).strftime("%Y-%m-%d %H:%M")
    return f"expired {date}" if one.expired(time.time()) else f"valid until {date}"


def _data(one: AccessToken) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role,
        "created": one.created,
        "expires": one.expires,
        "expired": one.expired(time.time()),
    }
