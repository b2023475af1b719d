"""`checkpoints` and `tokens`: checkpoints and token logs, read from the embedded engine."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import web_address
from console.backend.swarm_report import addresses, choose, no_engine
from console.cli.common import existing_home, of_proxy, settings_of, write_file
from console.cli.engine.target import Aim, Target
from console.cli.options import SERVER, SWARM_URL, YES, Args, argument, flag, one_of, takes
from console.cli.output import output, say, say_json, say_result
from core.events import Checkpoint
from core.runtime.home import Home, running
from core.runtime.sockets import is_loopback
from core.state import Server, State

SAVE_LIMIT = 60.0
"""Seconds an engine may take to write or read a checkpoint."""
EXPORT_LIMIT = 600.0
"""Seconds an engine may take to read the weights of a checkpoint: they may have gigabytes."""
LONGEST_NAME = 64
"""Maximum length of a checkpoint's name."""

_NO_ROUTE = "this server has no checkpoints and tokens: it is not the embedded engine"


class EngineRefused(AjetError):
    """The engine refuses; the message is its own."""


EVERY = one_of(SERVER, flag("--all", "every swarm server, one after the other"))
NAME = argument("name")


@takes(EVERY, SWARM_URL)
def listed(args: Args) -> int:
    """List the checkpoints."""
    return _each(args, lambda engine: _list(engine, args))


@takes(NAME, EVERY, SWARM_URL)
def save(args: Args) -> int:
    """Save the policy."""

    def act(engine: "_Engine") -> None:
        row = engine.request("POST", "/ajetc/checkpoints", json={"name": args.name})
        _report(args, engine, f"saved {row['name']} at step {row['step']}", **row)

    return _each(args, act, f"save {_checked(args)}")


@takes(NAME, EVERY, YES, SWARM_URL)
def restore(args: Args) -> int:
    """Restore a checkpoint after a question."""

    def act(engine: "_Engine") -> None:
        row = engine.request("POST", "/ajetc/restore", json={"name": args.name})
        done = f"restored {row['name']}, step {row['step']}; start the engine to continue from it"
        _report(args, engine, done, **row)

    return _each(args, act, f"restore {_checked(args)}", asks={"name": args.name})


@takes(argument("keep", "number of checkpoints to keep", type=IntRange(0)), EVERY, YES, SWARM_URL)
def prune(args: Args) -> int:
    """Delete checkpoints after a question."""

    def act(engine: "_Engine") -> None:
        deleted = engine.request("POST", "/ajetc/prune", json={"keep": args.keep})["deleted"]
        done = f"deleted: {', '.join(deleted)}" if deleted else "nothing to delete"
        _report(args, engine, done, deleted=deleted)

    return _each(args, act, f"prune, keeping {args.keep},", asks={"keep": args.keep})


@takes(
    argument("name", "a checkpoint, or its global step", metavar="NAME|STEP"),
    argument(
        "file", "new file; a new folder with the torch backend", type=Path, metavar="FILE|DIR"
    ),
    flag("--half", "float16: half the size"),
    flag("--merge", "torch backend: the whole model instead of the adapter; needs its base here"),
    SERVER,
    SWARM_URL,
)
def export(args: Args) -> int:
    """Write a checkpoint to a file or folder."""
    return _each(args, lambda engine: _export(engine, args), f"export {_checked(args)}")


@takes(NAME, argument("file", type=Path), SERVER, SWARM_URL)
def imported(args: Args) -> int:
    """Import a checkpoint."""
    return _each(args, lambda engine: _import(engine, args), f"import {_checked(args)}")


def _each(
    args: Args,
    act: "Callable[[_Engine], None]",
    planned: str = "",
    asks: Mapping[str, Any] | None = None,
) -> int:
    """Act on the engines that the command line chooses, one after the other.

    Args:
        args: The parsed command line.
        act: What is done on each.
        planned: What a dry run says; empty for a verb that only reads.
        asks: Arguments of the command, where the operator is asked first.

    Raises:
        AjetError: the only engine refuses or does not answer.
    """
    engines = _engines(args)
    if asks is not None and not args.yes:
        _ask(args, engines, asks)
    if output().dry_run:
        for engine in engines:
            engine.request("GET", "/ajetc/checkpoints")
            say(output().plan(f"would {planned} on {engine.name} ({engine.url})"))
        return 0
    if not getattr(args, "all", False):
        act(engines[0])
        return 0
    failed = False
    for engine in engines:
        say(f"{one_line(engine.name, 40)}  {engine.url}")
        try:
            act(engine)
        except AjetError as error:
            failed = True
            if args.json:
                say_json({"server": engine.name, "ok": False, "message": str(error)})
            say(f"FAILED  {one_line(str(error), 300)}")
    return int(failed)


def _report(args: Args, engine: "_Engine", line: str, **fields: Any) -> None:
    """Print what was done on an engine."""
    if args.json:
        say_json({"server": engine.name, "url": engine.url, **fields})
    say(line)


def _engines(args: Args) -> "list[_Engine]":
    """Return the chosen engines: of the flags, the running proxy or the settings."""
    home = existing_home(args)
    reported = None if args.swarm_url else of_proxy(args, home)
    settings = settings_of(home, args.swarm_url) if reported is None else reported.settings
    known = addresses(settings, home)
    chosen = known.items() if getattr(args, "all", False) else [choose(known, args.server)]
    return [_Engine(*server, None if args.swarm_url else home) for server in chosen]


def _checked(args: Args) -> str:
    """Return the name of a checkpoint; refuse an impossible one before the engine is asked."""
    name: str = args.name
    if not name.strip():
        raise UsageError("the name is empty", args.words, "Name the checkpoint")
    if len(name) > LONGEST_NAME:
        what = f"a name has at most {LONGEST_NAME} characters, this one {len(name)}"
        raise UsageError(what, args.words, "Give a shorter one")
    return name


def _ask(args: Args, engines: "Sequence[_Engine]", values: Mapping[str, Any]) -> None:
    """Ask once for all engines, showing what a restore or a prune loses on each.

    Raises:
        AjetError: there is one engine, which does not answer or has no such checkpoint.
    """
    servers: dict[str, Server] = {}
    for engine in engines:
        try:
            rows = engine.request("GET", "/ajetc/checkpoints")
            saved = msgspec.convert(rows, tuple[Checkpoint, ...])
            found = Server(name=engine.name, url=engine.url, state="OFFLINE", checkpoints=saved)
        except AjetError as error:
            if len(engines) == 1:
                raise
            found = Server(name=engine.name, url=engine.url, lost=str(error))
        servers[engine.name] = found
    targets = [Target(engine.name, engine.url) for engine in engines]
    aim = Aim(args, existing_home(args), "", targets, State(servers=servers))
    aim.agree(args.order_name, **values)


def _list(engine: "_Engine", args: Args) -> None:
    rows: list[dict[str, Any]] = engine.request("GET", "/ajetc/checkpoints")
    if args.json:
        say_json({"server": engine.name, "url": engine.url, "checkpoints": rows})
    if not rows:
        say("no checkpoint yet: the first policy update saves the first one")
    for row in rows:
        at = dt.datetime.fromtimestamp(row["at"]).astimezone()
        size = row["bytes"] / 1e6
        name = one_line(str(row["name"]), 64)
        step = "damaged" if row["damaged"] else f"step {row['step']}"
        say(f"{name:<28} {step:<12} {size:6.1f} MB  {at:%Y-%m-%d %H:%M:%S}")


def _export(engine: "_Engine", args: Args) -> None:
    model, name = engine.model(), _name_of(engine, args.name)
    if model is not None:
        _export_folder(engine, model, name, args)
        return
    if args.merge:
        raise UsageError(
            "this engine trains no model of transformers",
            "checkpoints export --merge",
            "Export without --merge",
        )
    data = engine.weights(name, half=args.half)
    write_file(args.file, data)
    say(f"{name} written to {args.file}, {len(data) / 1e6:.1f} MB, safetensors")


def _export_folder(engine: "_Engine", model: Any, name: str, args: Args) -> None:
    """Write a policy of the torch backend as a folder: an adapter, or a whole model.

    Raises:
        AjetError: the engine's description of its model cannot be read, the folder is not new or
            empty or cannot be written, or the base model is not on this machine.
    """
    from engine.torch.description import ModelDescription
    from engine.torch.export import check_free, export_folder

    try:
        description = msgspec.convert(model, ModelDescription)
    except msgspec.ValidationError as error:
        raise AjetError(
            f"the engine's description of the model cannot be read ({error!r})",
            "/ajetc/checkpoints/model",
            "The engine has another version of ajet-console: use the same here",
        ) from error
    folder: Path = args.file
    check_free(folder)
    whole = args.merge or description.kind == "full"
    weights = engine.weights(name, half=args.half and not whole)  # a merge is exact with float32
    dtype = "float16" if args.half else ""
    export_folder(description, weights, folder, merge=whole, dtype=dtype, progress=say)
    what = "a model of transformers" if whole else "a PEFT adapter"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{name} written to {folder}, {size / 1e6:.1f} MB, {what}")


def _name_of(engine: "_Engine", name: str) -> str:
    """Return the checkpoint for a name or a global step; a named one before the engine's own."""
    if not (name.isascii() and name.isdecimal()):
        return name
    rows = engine.request("GET", "/ajetc/checkpoints")
    step_name = f"step-{int(name):06d}"
    names = {str(row["name"]) for row in rows}
    for candidate in (name, step_name):
        if candidate in names:
            return candidate
    same = [row for row in rows if row["step"] == int(name) and not row["damaged"]]
    same.sort(key=lambda row: (bool(row.get("kept")), row["name"] != "latest"))
    return str(same[0]["name"]) if same else step_name


def _import(engine: "_Engine", args: Args) -> None:
    source: Path = args.file
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error.strerror}", str(source)) from error
    row = engine.request("POST", "/ajetc/import", params={"name": args.name}, content=data)
    say(f"the policy continues from {source} as {row['name']}; start the engine")


@takes(
    argument("episode", "uuid of the episode"),
    flag("--all", "show the prompt's tokens as well", dest="prompt_too"),
    SERVER,
    SWARM_URL,
)
def tokens(args: Args) -> int:
    """Print each token of an episode."""
    (engine,) = _engines(args)
    log = engine.request("GET", f"/ajetc/tokens/{args.episode}")
    reward = "–" if log["reward"] is None else f"{log['reward']:.3f}"
    step = "–" if log["step"] is None else log["step"]
    task = one_line(log["task_id"])
    lines = [f"episode {log['episode_uuid']}  {log['state']}  task {task}"]
    lines.append(f"reward {reward}  log-probs now at step {step}")
    for number, call in enumerate(log["calls"], 1):
        prompt, step = call["prompt_tokens"], call["step"]
        lines.append(f"\ncall {number}: {prompt} prompt tokens, sampled at step {step}")
        lines.append(f"{'id':>6}  {'loss':>4}  {'sampled':>8}  {'now':>8}  text")
        rows = (row for row in call["tokens"] if args.prompt_too or row["mask"])
        lines += map(_token, rows)
    return say_result(args, log, lines)


def _token(row: dict[str, Any]) -> str:
    text = "(no policy is loaded)" if row["text"] is None else one_line(repr(row["text"]), 40)
    numbers = "  ".join(
        f"{'–':>8}" if row[key] is None else f"{row[key]:8.3f}"
        for key in ("logprob", "logprob_now")
    )
    return f"{row['id']:>6}  {row['mask']:>4}  {numbers}  {text}"


class _Engine:
    """Client of the embedded engine's own routes on one server.

    Args:
        name: Name of the server.
        url: Empty for an embedded engine that does not run.
        home: An engine of this machine must belong to this home; None for any.
    """

    def __init__(self, name: str, url: str, home: Home | None) -> None:
        self.name, self.url, self._home = name, url, home

    def check_home(self) -> None:
        """Refuse the engine of another home on this machine.

        Raises:
            AjetError: the engine belongs to another home, or no engine runs.
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
        other = self.request("GET", "/ajetc/info").get("home")
        if other and Path(other) != home.root:
            raise EngineRefused(
                f"this engine belongs to the home {one_line(str(other), 200)}",
                self.url,
                "Give that home with --home, or confirm this URL with --swarm-url",
            )

    def request(self, method: str, path: str, **more: Any) -> Any:
        """Send a request and return the decoded JSON of the response.

        Raises:
            EngineRefused: the engine refuses, or the response is not JSON.
        """
        try:
            return msgspec.json.decode(self.call(method, path, **more))
        except msgspec.DecodeError as error:
            raise EngineRefused("its response is not JSON", self.url) from error

    def call(self, method: str, path: str, *, timeout: float = SAVE_LIMIT, **more: Any) -> bytes:
        """Send a request and return the body of the response.

        Args:
            method: Of HTTP.
            path: The route.
            timeout: Maximum seconds.
            more: Arguments of `httpx.request`, such as `json` or `params`.

        Raises:
            EngineRefused: the engine refuses or does not answer; the error contains the reason.
        """
        self.check_home()
        import httpx

        try:
            answer = httpx.request(
                method, self.url + path, timeout=timeout, trust_env=False, **more
            )
        except httpx.HTTPError as error:
            raise EngineRefused(
                f"{self.name} does not answer ({type(error).__name__})",
                self.url,
                "Start it with `ajet-console run engine`, or name another server with --swarm-url",
            ) from error
        if answer.status_code != 200:
            raise EngineRefused(_why(answer.status_code, answer.content), self.url)
        return answer.content

    def model(self) -> Any:
        """Return the description of a model of the torch backend; None of another policy."""
        try:
            return self.request("GET", "/ajetc/checkpoints/model")
        except EngineRefused as error:
            if error.what == _NO_ROUTE:
                return None
            raise

    def weights(self, name: str, *, half: bool) -> bytes:
        """Return the weights of a checkpoint as a safetensors file."""
        params = {"name": name, "half": "true" if half else "false"}
        return self.call("GET", "/ajetc/export", params=params, timeout=EXPORT_LIMIT)


def _why(status: int, body: bytes) -> str:
    """Return the reason of a refusal."""
    from ajet_swarm.api.chat import violations

    try:
        detail = msgspec.json.decode(body)["detail"]
        detail = violations(detail) or detail
    except (msgspec.MsgspecError, KeyError, TypeError):
        detail = None
    if status == 404 and detail in (None, "Not Found"):
        return _NO_ROUTE
    return one_line(str(detail or f"it answered {status}"), 300)
