"""`checkpoints` and `tokens`: what the embedded engine keeps, asked of the engine itself."""

import argparse
import datetime as dt
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from ajet_swarm.common.urls import web_address
from console.backend.swarm_report import addresses, choose, no_engine
from console.cli.common import confirm, existing_home, say, settings_of
from console.cli.effective import of_proxy
from console.cli.options import add_home, add_server, add_swarm_url, add_yes
from core.runtime.home import Home, running
from core.runtime.sockets import is_loopback

SAVE_LIMIT = 60.0
"""Seconds an engine may take to write or read a checkpoint."""
LONGEST_NAME = 64
"""Characters of a checkpoint's name."""


class EngineRefused(AjetError):
    """The engine said no; the words are its own."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verbs of `checkpoints` and their arguments."""
    parser.set_defaults(handler=checkpoints, verb="list")
    _add_common(parser)
    verbs = parser.add_subparsers(metavar="VERB", parser_class=type(parser))
    for verb, about in (
        ("list", "all of them, newest first; the same as no verb"),
        ("save", "save the policy under a name, now"),
        ("restore", "go back to one, or to `base`; the engine must be OFFLINE"),
        ("prune", "delete all but the newest named ones"),
        ("export", "write one as a safetensors file"),
        ("import", "import a safetensors file and continue from it; the engine must be OFFLINE"),
    ):
        one = verbs.add_parser(verb, help=about, description=about[0].upper() + about[1:])
        one.set_defaults(verb=verb)
        add_home(one)
        _add_common(one, default=argparse.SUPPRESS)
        if verb in ("save", "restore", "export", "import"):
            one.add_argument("name", metavar="NAME")
        if verb in ("export", "import"):
            one.add_argument("file", type=Path, metavar="FILE")
        if verb == "export":
            one.add_argument("--half", action="store_true", help="float16: half the size")
        if verb == "prune":
            one.add_argument("keep", type=int, metavar="KEEP", help="how many are kept")


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `tokens`."""
    parser.set_defaults(handler=tokens)
    parser.add_argument("episode", metavar="EPISODE", help="uuid of the episode")
    parser.add_argument("--all", action="store_true", help="the prompt's tokens too")
    add_server(parser)
    add_swarm_url(parser)


def _add_common(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add the options of `checkpoints` and of its verbs: they are accepted before and after a verb.

    Args:
        parser: Of the command, or of a verb.
        default: For a verb `default=argparse.SUPPRESS`, else it undoes what stands before it.
    """
    parser.add_argument(
        "--all", action="store_true", help="every swarm server, one after the other", **default
    )
    add_yes(parser, **default)
    add_server(parser, **default)
    add_swarm_url(parser, **default)


def checkpoints(args: argparse.Namespace) -> int:
    """List, save, restore, prune, export or import; `args.verb` names which."""
    _check_name(args)
    home = existing_home(args)
    known = _servers(args, home)
    every = getattr(args, "all", False)
    chosen = known.items() if every else [choose(known, args)]
    engines = [_Engine(*one, None if args.swarm_url else home) for one in chosen]
    verb: str = args.verb
    if every and (args.server or verb in ("export", "import")):
        raise UsageError("not with --all: it is about one server", "checkpoints", "Remove --all")
    if verb in ("restore", "prune"):
        where = f" on {len(engines)} servers" if every else ""
        act, loss = (
            (f"go back to {args.name}", "what was learned since is set aside as before-restore")
            if verb == "restore"
            else (
                f"keep the newest {args.keep} named checkpoints",
                "the others cannot be restored",
            )
        )
        if not every and verb == "restore":
            _check_exists(engines[0], args.name)
        elif not every:
            engines[0].check_home()
        if not confirm(act + where, loss, args.yes):
            say("nothing was changed")
            return 1
    if not every:
        _do(engines[0], verb, args)
        return 0
    return max([_guarded(engine, verb, args) for engine in engines], default=0)


def _servers(args: argparse.Namespace, home: Home) -> dict[str, str]:
    """URL of each server: of the flags, else of the running proxy, else of the settings."""
    if args.swarm_url:
        return addresses(settings_of(home, args.swarm_url), home)
    found = of_proxy(args, home)
    return addresses(settings_of(home) if found is None else found.settings, home)


def _check_name(args: argparse.Namespace) -> None:
    """What no checkpoint is called is not asked of an engine, nor of the operator."""
    name: str | None = getattr(args, "name", None)
    if name is None:
        return
    if not name.strip():
        raise UsageError("the name is empty", f"checkpoints {args.verb}", "Give the checkpoint's")
    if len(name) > LONGEST_NAME:
        what = f"a name has at most {LONGEST_NAME} characters, this one {len(name)}"
        raise UsageError(what, f"checkpoints {args.verb}", "Give a shorter one")


def _check_exists(engine: "_Engine", name: str) -> None:
    """See that there is a checkpoint to go back to, before the operator is asked.

    Raises:
        AjetError: there is none of that name.
    """
    names = ["base", *(str(row["name"]) for row in engine.ask("GET", "/ajetc/checkpoints"))]
    if name not in names:
        todo = did_you_mean(name, names) or "`ajet-console checkpoints` lists them"
        raise AjetError(f"there is no checkpoint `{one_line(name, 64)}`", engine.url, todo)


def _guarded(engine: "_Engine", verb: str, args: argparse.Namespace) -> int:
    """One of several servers: says its name, and goes on with the next when it fails."""
    say(f"{one_line(engine.name, 40)}  {engine.url}")
    try:
        _do(engine, verb, args)
    except AjetError as error:
        say(f"FAILED  {one_line(str(error), 300)}")
        return 1
    return 0


def _do(engine: "_Engine", verb: str, args: argparse.Namespace) -> None:
    if verb == "list":
        _list(engine)
    elif verb == "save":
        told = engine.ask("POST", "/ajetc/checkpoints", json={"name": args.name})
        say(f"saved {told['name']} at step {told['step']}")
    elif verb == "restore":
        told = engine.ask("POST", "/ajetc/restore", json={"name": args.name})
        say(f"back at {told['name']}, step {told['step']}; start the engine to continue from there")
    elif verb == "prune":
        deleted = engine.ask("POST", "/ajetc/prune", json={"keep": args.keep})["deleted"]
        say(f"deleted: {', '.join(deleted)}" if deleted else "nothing to delete")
    elif verb == "export":
        _export(engine, args)
    else:
        _import(engine, args)


def _list(engine: "_Engine") -> None:
    rows = engine.ask("GET", "/ajetc/checkpoints")
    if not rows:
        say("no checkpoint yet: the first is saved with the first update")
    for row in rows:
        at = dt.datetime.fromtimestamp(row["at"]).astimezone()
        size = row["bytes"] / 1e6
        name = one_line(str(row["name"]), 64)
        step = "damaged" if row["damaged"] else f"step {row['step']}"
        say(f"{name:<28} {step:<12} {size:6.1f} MB  {at:%Y-%m-%d %H:%M:%S}")


def _export(engine: "_Engine", args: argparse.Namespace) -> None:
    target: Path = args.file
    half = "true" if args.half else "false"
    data = engine.call("GET", "/ajetc/export", params={"name": args.name, "half": half})
    try:
        target.write_bytes(data)
    except OSError as error:
        raise AjetError(f"the file cannot be written: {error.strerror}", str(target)) from error
    say(f"{args.name} written to {target}, {len(data) / 1e6:.1f} MB, safetensors")


def _import(engine: "_Engine", args: argparse.Namespace) -> None:
    source: Path = args.file
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error.strerror}", str(source)) from error
    told = engine.json(engine.call("POST", "/ajetc/import", params={"name": args.name}, data=data))
    say(f"the policy continues from {source} as {told['name']}; start the engine")


def tokens(args: argparse.Namespace) -> int:
    """Print each token of an episode."""
    home = existing_home(args)
    chosen = choose(_servers(args, home), args)
    engine = _Engine(*chosen, None if args.swarm_url else home)
    found = engine.ask("GET", f"/ajetc/tokens/{args.episode}")
    reward = "–" if found["reward"] is None else f"{found['reward']:.3f}"
    step = "–" if found["step"] is None else found["step"]
    say(f"episode {found['episode_uuid']}  {found['state']}  task {one_line(found['task_id'])}")
    say(f"reward {reward}  log-probs now at step {step}")
    for number, call in enumerate(found["calls"], 1):
        prompt, step = call["prompt_tokens"], call["step"]
        say(f"\ncall {number}: {prompt} prompt tokens, sampled at step {step}")
        say(f"{'id':>6}  {'loss':>4}  {'sampled':>8}  {'now':>8}  text")
        for row in call["tokens"]:
            if args.all or row["mask"]:
                say(_token(row))
    return 0


def _token(row: dict[str, Any]) -> str:
    text = "(no policy is loaded)" if row["text"] is None else one_line(repr(row["text"]), 40)
    numbers = "  ".join(
        f"{'–':>8}" if row[key] is None else f"{row[key]:8.3f}"
        for key in ("logprob", "logprob_now")
    )
    return f"{row['id']:>6}  {row['mask']:>4}  {numbers}  {text}"


class _Engine:
    """One server's own routes.

    Args:
        name: Of the server.
        url: Empty for an embedded engine that does not run.
        home: Whose engine it must be, if it is one of this machine; None for any.
    """

    def __init__(self, name: str, url: str, home: Home | None) -> None:
        self.name, self.url, self._home = name, url, home

    def check_home(self) -> None:
        """See that this is not the engine of another home on this machine.

        Raises:
            AjetError: it is, or no engine runs.
        """
        if not self.url:
            raise no_engine(self.name)
        home, self._home = self._home, None
        parts = web_address(self.url)
        if home is None or parts is None or not is_loopback(parts.hostname or ""):
            return
        own = running(home, "engine")
        if own is not None and own.url == self.url:
            return
        other = self.json(self.call("GET", "/ajetc/info")).get("home")
        if other and Path(other) != home.root:
            raise EngineRefused(
                f"this engine belongs to the home {one_line(str(other), 200)}",
                self.url,
                "Name that home with --home, or this address with --swarm-url if it is meant",
            )

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """The answer as data."""
        return self.json(self.call(method, path, **more))

    def json(self, data: bytes) -> Any:
        """JSON of an answer."""
        import msgspec

        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise EngineRefused("the answer cannot be read", self.url) from error

    def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> bytes:
        """The body of an answer.

        Raises:
            EngineRefused: it is not possible now; says why.
        """
        self.check_home()
        import httpx

        try:
            answer = httpx.request(
                method,
                self.url + path,
                json=json,
                params=params,
                content=data,
                timeout=SAVE_LIMIT,
                trust_env=False,
            )
        except httpx.HTTPError as error:
            raise EngineRefused(
                f"{self.name} does not answer ({type(error).__name__})",
                self.url,
                "Start it with `ajet-console engine`, or name another with --swarm-url",
            ) from error
        if answer.status_code == 200:
            return answer.content
        raise EngineRefused(self._why(answer.status_code, answer.content), self.url)

    def _why(self, status: int, body: bytes) -> str:
        import msgspec

        from ajet_swarm.api.outcomes import violations

        try:
            detail = msgspec.json.decode(body)["detail"]
            detail = violations(detail) or detail
        except (msgspec.MsgspecError, KeyError, TypeError):
            detail = None
        if status == 404 and detail in (None, "Not Found"):
            return "this server keeps neither checkpoints nor tokens: it is not the embedded engine"
        return one_line(str(detail or f"it answered {status}"), 300)
