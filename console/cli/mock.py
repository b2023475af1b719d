"""`run mock` and `progress probe-set`: what is done with the rows of a dataset."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import IntRange
from msgspec.structs import replace

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import plural
from ajet_swarm.common.urls import web_address
from console.cli.common import (
    NotRunning,
    cert_of,
    client_key,
    connected,
    effective,
    open_home,
    proxy_url,
    settings_of,
    snapshot,
)
from console.cli.options import COLUMNS, PROXY, Args, Range, argument, flag, option, takes
from console.cli.output import agree, say, say_json, would
from console.models.datasets import find_dataset
from console.text.values import fields_of
from core.events import ProbePrompt
from core.runtime.home import Home
from core.runtime.secrets import env_key
from core.settings import Settings

if TYPE_CHECKING:
    from mock.tally import RunCounters
    from mock.targets.spec import Spec
    from mock.user_requests import MockOptions
    from mock.users.persona import UserOptions


_COUNT = IntRange(1, 1_000_000)
_ROWS = (
    argument(
        "dataset",
        "JSONL, JSON, CSV or Parquet file or Hugging Face folder, given by path or in the home's "
        "datasets folder; the shipped questions when left out",
        required=False,
    ),
    COLUMNS,
    option("--passes N", "number of passes over the dataset", type=_COUNT, default=1),
    option("--seed N", "shuffle each pass with this seed", type=int),
    option("--split", "ask only this part of the dataset", choices=("train", "held-out")),
    option(
        "--held-out SHARE",
        "share of the rows held out, by a hash of the query (0.1)",
        type=Range(0, 1),
    ),
    option(
        "--target FILE",
        "application to ask: a target file, or the name of a shipped target (see "
        "docs/guide/mock-user.md)",
        dest="target_file",
    ),
    flag("--dry", "only test the target with one row, which is not trained on"),
    option("--base-url URL", "any OpenAI-compatible URL; else the proxy that runs in the home"),
    option("--api-key KEY", "API key for that URL"),
    option("--model NAME", "model to request", default="ajet"),
)


_USERS = (
    option("--user-url URL", "its OpenAI-compatible URL"),
    option("--user-model NAME", "its model name"),
    option("--user-key-env NAME", "environment variable with its API key"),
)


_PACE = (
    option("--concurrency N", "number of requests in flight (3)", type=IntRange(1, 10_000)),
    option("--pace SECONDS", "pause of each worker between two requests", type=Range(0, 86_400)),
    option(
        "--rate R",
        "open loop: R requests per second at random times, however many are in flight",
        type=Range(0.001, 1_000),
    ),
    option("--timeout SECONDS", "time limit of an answer", type=Range(0.1, 86_400)),
    flag("--pause-sync", "pause while no engine accepts episodes"),
    option("--updates N", "stop after N policy updates", type=_COUNT),
    option(
        "--results FILE",
        "append one JSON line per row: answer, group, reward, seconds, error",
        type=Path,
    ),
    option(
        "--results-wait SECONDS",
        "time to wait for a row's reward before its line is written (60)",
        type=Range(0, 86_400),
        default=60.0,
    ),
    flag("--restart", "start over instead of continuing"),
)


@takes(
    _ROWS,
    _PACE,
    _USERS,
    PROXY,
    flag("--yes", "start also while training is paused; required then without a terminal"),
    notes=(
        "         ajet-console run mock gsm8k.parquet --split held-out --results held-out.jsonl",
        "         ajet-console run mock chats.csv --columns query=text --rate 0.5 --updates 10",
        "         ajet-console run mock --target opencode --dry",
        "Run again with the same dataset, it continues where it stopped.",
    ),
)
def mock(args: Args) -> int:
    """Run the mock user.

    Raises:
        UsageError: two flags exclude each other, or one is invalid.
        NotRunning: there is nothing to ask.
    """
    from console.backend.mock_process import REMEDY, mock_collision

    if collision := mock_collision():
        sys.stderr.write(f"ajet-console: warning: {collision}. {REMEDY}\n")
    home = open_home(args)
    settings = settings_of(home, mock__dataset=args.dataset)
    if args.rate is not None and (args.pace or args.concurrency):
        what = f"--rate and {'--pace' if args.pace else '--concurrency'} exclude each other"
        todo = "With --rate, a request does not wait for earlier answers"
        raise UsageError(what, "--rate", todo)
    url = proxy_url(args, home)
    if not (url or args.base_url):
        raise NotRunning(
            "there is nothing to ask: no proxy runs in this home",
            str(home.root),
            "Start `ajet-console` or `ajet-console run proxy`, or give --base-url",
        )
    from core.runtime.log_format import setup
    from mock.user_requests import check, run

    setup()
    options = _options(args, home, settings, url)
    if url and not (args.dry or args.yes):
        _ask_while_paused(args, url)
    if args.dry_run:
        rows = asyncio.run(check(options, has_control=bool(url)))
        target = options.target if options.spec else options.endpoint.base_url
        times = plural(options.choice.passes, "time")
        would(f"ask {plural(rows, 'row')} of {options.dataset} through {target}, {times}")
        return 0
    report = _print_counts if args.json else None
    if not url:
        return run(options, report=report)
    return run(options, lambda: _control(args, url), report=report)


def _options(args: Args, home: Home, settings: Settings, url: str) -> "MockOptions":
    """Return what is asked, where, and how fast.

    Args:
        args: The parsed command line.
        home: The home.
        settings: Its settings, with those of the command line.
        url: URL of the proxy; empty without one.
    """
    from mock.dataset.columns import read_columns
    from mock.run.pace import Pace
    from mock.run.row_order import RowSelection
    from mock.targets.base import ModelEndpoint
    from mock.targets.spec import find_target, read_target
    from mock.user_requests import MockOptions

    spec = read_target(find_target(args.target_file)) if args.target_file else None
    if spec is not None and args.timeout:
        spec = replace(spec, timeout=args.timeout)
    return MockOptions(
        home=home,
        dataset=find_dataset(home, settings.mock.dataset),
        endpoint=ModelEndpoint(
            base_url=args.base_url or f"{url}/v1",
            api_key=args.api_key
            or ("" if args.base_url else client_key(effective(args, home), home)),
            model=args.model,
            cert=cert_of(home),
            sessions=not args.base_url,
        ),
        target=f"target:{spec.label}" if spec else args.base_url or "proxy",
        spec=spec,
        user=_user(args, spec),
        timeout=args.timeout or 300.0,
        columns=read_columns(args.columns or ""),
        pace=Pace(
            concurrency=args.concurrency or 3,
            seconds=args.pace or 0.0,
            rate=args.rate or 0.0,
            updates=args.updates or 0,
            pause_sync=args.pause_sync,
        ),
        choice=RowSelection(
            passes=args.passes,
            seed=args.seed,
            split=args.split or ("train" if args.held_out is not None else None),
            held_out=0.1 if args.held_out is None else args.held_out,
        ),
        results=args.results.expanduser() if args.results is not None else None,
        **fields_of(args, "dry restart results_wait"),
    )


def _print_counts(counters: "RunCounters", ended: str) -> None:
    """Print the result of a run for `--json`; its progress is on standard error."""
    say_json(
        {
            **fields_of(counters, "answered failed skipped already unmatched"),
            "ended": ended,
            "asked": counters.done,
            "seconds": round(counters.seconds, 3),
        }
    )


def _user(args: Args, spec: "Spec | None") -> "UserOptions | None":
    """Return the model that plays users; None when none is configured.

    Flags take precedence over the target file. URL, model and key belong together: a key is sent
    only to the URL it was configured with.

    Raises:
        UsageError: the URL or the model is missing, or the key is missing or invalid.
    """
    own = spec.user if spec is not None and not args.user_url else None
    user = own.given() if own is not None else {}
    for name in ("url", "model", "key_env"):
        if (value := getattr(args, f"user_{name}")) is not None:
            user[name] = value
    url, model, key_env = (user.pop(name, "") for name in ("url", "model", "key_env"))
    if not url and not model:
        return None
    if not (url and model):
        flag = "--user-model" if url else "--user-url"
        problem = "the model that plays the user needs both a URL and a name"
        raise UsageError(problem, flag, f"Give {flag}")
    parts = web_address(url)
    if parts is None or parts.username or parts.query:
        raise UsageError(
            "the URL of the model that plays the user cannot be used",
            "--user-url",
            "Give it as https://HOST/v1, its key with --user-key-env",
        )
    from mock.users.persona import UserOptions

    key = env_key(key_env, "the key of the model that plays the user") if key_env else ""
    url = url.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")
    return UserOptions(**{"seed": args.seed, **user}, url=url, model=model, key=key)


def _ask_while_paused(args: Args, url: str) -> None:
    """Ask before rows are answered untrained; without a question if training goes on.

    A proxy that does not answer is left to the run, which waits for it.

    Raises:
        UsageError: training is paused, and standard input is not a terminal.
        Declined: the operator says no.
    """
    from console.screens.progress.model import paused_servers
    from proxy.control.client import ControlLost

    try:
        paused = paused_servers(asyncio.run(snapshot(args, url)))
    except ControlLost:
        return
    if paused:
        agree(
            f"Start the mock user while {paused}",
            ["It loses the training on its rows, which a later start does not repeat."],
            instead="resume it first: `ajet-console progress resume --all`",
            otherwise="nothing was started",
        )


@asynccontextmanager
async def _control(args: Args, url: str) -> AsyncIterator[Any]:
    async with connected(args, url) as client:
        yield _Control(client)


class _Control:
    """The proxy's control API with the errors that the mock user expects, see `mock.control`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any) -> Any:
            with _errors_of_mock():
                return await getattr(self._client, name)(*args)

        return call

    async def events(self, after: int, run_id: str) -> AsyncIterator[object]:
        feed = self._client.events(after, run_id=run_id)
        try:
            with _errors_of_mock():
                async for item in feed:
                    yield item
        finally:
            await feed.aclose()


@contextmanager
def _errors_of_mock() -> Iterator[None]:
    from mock.control import ControlDown, ControlRefused
    from proxy.control.client import ControlError, ControlLost

    try:
        yield
    except (ControlLost, ControlError) as error:
        shown, status = (error.what, error.where, error.todo), getattr(error, "status", 500)
        if not status or status >= 500:
            raise ControlDown(*shown) from error
        raise ControlRefused(*shown, status) from error


# --- probe set -----------------------------------------------------------------------------------

MOST = 64
"""Prompts of the file unless `--most` gives another number."""
HELD_OUT = 0.1
"""Share of the rows on the held-out side, as of `run mock --split`."""
_SHARE, _PROMPTS = Range(0, 1, min_open=True), IntRange(1)


@takes(
    argument("dataset", "file or folder", type=Path),
    option("--out FILE", "file to write", type=Path, required=True),
    COLUMNS,
    option("--held-out SHARE", f"share ({HELD_OUT:g})", type=_SHARE, default=HELD_OUT),
    option("--most N", f"maximum number of prompts ({MOST})", type=_PROMPTS, default=MOST),
    notes=(
        "The held-out side is that of `run mock --split`: train with `run mock DATASET --split "
        "train`, and set `probe.file` to the file. Rows with several user messages, a persona, "
        "tools or images are left out.",
    ),
)
def probe_set(args: Args) -> int:
    """Write the file.

    Raises:
        AjetError: the dataset cannot be read, has no held-out row, or the file exists.
    """
    from proxy.evaluation.probe_set import write_prompts
    from proxy.held_out import key_of

    if args.out.exists():
        raise UsageError("the file exists", str(args.out), "Name another, or delete it")
    prompts: dict[str, ProbePrompt] = {}
    for prompt in _held_out(args):
        prompts.setdefault(key_of(prompt), prompt)
        if len(prompts) == args.most:
            break
    if not prompts:
        todo = "Give a larger share with --held-out"
        raise UsageError("no usable row is held out", str(args.dataset), todo)
    count = plural(len(prompts), "prompt")
    if not would(f"write {count} to {args.out}"):
        write_prompts(args.out, list(prompts.values()))
        say(f"{count} written to {args.out}: set probe.file to it, and train with --split train")
    return 0


def _held_out(args: Args) -> Iterator[ProbePrompt]:
    """Yield the prompts of the rows of the held-out side, in a fixed order."""
    from mock.dataset import open_dataset
    from mock.dataset.columns import read_columns
    from mock.dataset.rows import Row, side_of

    with open_dataset(args.dataset.expanduser(), read_columns(args.columns or "")) as dataset:
        while dataset.records.scan():
            pass
        for position in dataset.order("probe set", seed=0):
            row = dataset.row(position)
            if not isinstance(row, Row) or row.then or row.persona or row.tools:
                continue
            if row.messages[-1] != {"role": "user", "content": row.query}:
                continue  # an image, or a conversation that awaits the answer to a tool's result
            if side_of(row, args.held_out) == "held-out":
                yield ProbePrompt(
                    id=row.row_id,
                    prompt=row.query,
                    before=row.messages[:-1],
                    reference=row.reference or "",
                )
