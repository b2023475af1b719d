"""`mock`: the mock user as a process of its own."""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from console.cli.common import (
    NotRunning,
    cert_of,
    open_home,
    proxy_url,
    settings_of,
    token_of,
    warn_of_other_mock,
)
from console.cli.effective import client_key, effective
from console.cli.options import add_note, add_proxy_access
from console.models.datasets import find_dataset
from core.events import Event
from core.runtime.home import Home
from core.runtime.secrets import env_key
from core.settings import MockSettings
from core.state import State

if TYPE_CHECKING:
    from mock.targets.spec import Spec
    from mock.users.persona import UserOptions


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=mock)
    add_note(
        parser,
        "         ajet-console mock gsm8k.parquet --split held-out --results held-out.jsonl",
        "         ajet-console mock chats.csv --columns query=text --rate 0.5 --updates 10",
        "         ajet-console mock --target opencode --dry",
        "Started again with the same dataset, it continues where it stopped.",
    )
    _add_rows(parser)
    _add_pace(parser)
    _add_users(parser)
    add_proxy_access(parser)


def _add_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        nargs="?",
        metavar="DATASET",
        help="JSONL, JSON, CSV or Parquet file or Hugging Face folder, here or in the home's "
        "datasets folder; the shipped questions when left out",
    )
    parser.add_argument(
        "--columns",
        metavar="PART=COLUMN,...",
        help="columns with other names than usual: query=text,reference=label; parts are query, "
        "reference, id, system, messages, turns, persona, goal, opening, weight, metadata",
    )
    parser.add_argument("--passes", type=int, metavar="N", help="how often each row is asked")
    parser.add_argument("--seed", type=int, metavar="N", help="shuffle each pass by this seed")
    parser.add_argument(
        "--split", choices=("train", "held-out"), help="ask only this side of the dataset"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="how much is held out, by a hash of the query (0.1)",
    )
    parser.add_argument(
        "--target",
        dest="target_file",
        metavar="FILE",
        help="the application to ask: a target file, or the name of one that comes with the "
        "program (see docs/guide/mock-user.md)",
    )
    parser.add_argument(
        "--dry",
        action="store_true",
        help="only try the target with one row that is not trained on",
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="any OpenAI-compatible address; else the proxy that runs in the home",
    )
    parser.add_argument("--api-key", metavar="KEY", help="key for that address")
    parser.add_argument("--model", default="ajet", metavar="NAME", help="model to ask for")


def _add_users(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "users", "a language model that plays the user of rows with a persona"
    )
    group.add_argument("--user-url", metavar="URL", help="OpenAI-compatible address of it")
    group.add_argument("--user-model", metavar="NAME", help="its name there")
    group.add_argument(
        "--user-key-env", metavar="NAME", help="environment variable that holds its key"
    )
    group.add_argument("--user-temperature", type=float, metavar="T", help="0 to 2 (1)")
    group.add_argument(
        "--user-turns", type=int, metavar="N", help="messages of the user at most (6)"
    )
    group.add_argument(
        "--user-stop", metavar="TEXT", help="what it writes when the user is done ([END])"
    )
    group.add_argument(
        "--user-seed", type=int, metavar="N", help="seed of its messages; that of --seed if given"
    )


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--concurrency", type=int, metavar="N", help="requests in flight")
    parser.add_argument(
        "--pace", type=float, metavar="SECONDS", help="wait of one worker between two requests"
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="open loop: R requests a second at random times, however many are in flight",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long one answer may take"
    )
    parser.add_argument(
        "--pause-sync", action="store_true", help="ask nothing while no engine takes work"
    )
    parser.add_argument(
        "--updates", type=int, metavar="N", help="stop after so many policy updates"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="add one JSON line a row: answer, group, reward, seconds, error",
    )
    parser.add_argument(
        "--results-wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long a row's line waits for its reward (60)",
    )
    parser.add_argument("--restart", action="store_true", help="start over instead of continuing")


def mock(given: argparse.Namespace) -> int:
    """The mock user."""
    warn_of_other_mock()
    home = open_home(given)
    settings = settings_of(
        home,
        mock__dataset=given.dataset,
        mock__concurrency=given.concurrency,
        mock__pace=given.pace,
        mock__passes=given.passes,
        mock__timeout=given.timeout,
        mock__user_url=given.user_url,
        mock__user_model=given.user_model,
        mock__user_key_env=given.user_key_env,
        mock__user_temperature=given.user_temperature,
        mock__user_turns=given.user_turns,
        mock__user_stop=given.user_stop,
    )
    _check(given)
    url = proxy_url(given, home)
    if not (url or given.base_url):
        raise NotRunning(
            "there is nothing to ask: no proxy runs in this home",
            str(home.root),
            "Start `ajet-console` or `ajet-console proxy`, or give --base-url",
        )
    from core.runtime.log_format import setup
    from mock.dataset.columns import read_columns
    from mock.run.pace import Pace
    from mock.run.row_order import RowSelection
    from mock.targets.spec import find_target, read_target
    from mock.user_requests import MockOptions, run

    setup()
    spec = read_target(find_target(given.target_file)) if given.target_file else None
    if spec is not None and given.timeout:
        spec = replace(spec, timeout=given.timeout)
    own = settings.mock
    user = _user(given, own, spec)
    cert = cert_of(home)
    options = MockOptions(
        home=home,
        dataset=find_dataset(home, own.dataset),
        base_url=given.base_url or f"{url}/v1",
        own_proxy=not given.base_url,
        target=f"target:{spec.label}" if spec else given.base_url or "proxy",
        spec=spec,
        dry=given.dry,
        user=user,
        api_key=given.api_key or ("" if given.base_url else _proxy_key(given, home)),
        cert=cert,
        model=given.model,
        timeout=own.timeout,
        columns=read_columns(given.columns or ""),
        pace=Pace(
            concurrency=own.concurrency,
            seconds=own.pace,
            rate=given.rate or 0.0,
            updates=given.updates or 0,
            pause_sync=given.pause_sync,
        ),
        choice=RowSelection(
            passes=own.passes,
            seed=given.seed,
            split=given.split or ("train" if given.held_out is not None else None),
            held_out=0.1 if given.held_out is None else given.held_out,
        ),
        restart=given.restart,
        results=given.results.expanduser() if given.results is not None else None,
        results_wait=given.results_wait,
    )
    if not url:
        return run(options)
    token = token_of(given, home)
    return run(options, lambda: _control(url, token, cert))


def _proxy_key(given: argparse.Namespace, home: Home) -> str:
    """The key that `/v1` of the proxy requires; empty for none."""
    return client_key(effective(given, home), home)


def _user(
    given: argparse.Namespace, own: MockSettings, spec: "Spec | None"
) -> "UserOptions | None":
    """The model that plays users; None when none is named.

    What the flags name goes first, then the target file, then the settings. Address, model and key
    belong together: a key is sent to no other address than the one it stands beside.

    Raises:
        UsageError: it is named by half, or its key is missing or none.
    """
    named = dict(spec.user) if spec is not None and not given.user_url else {}
    seed = named.pop("seed", None) if given.user_seed is None else given.user_seed
    flags = vars(given)
    taken = {
        f"user_{name}": value for name, value in named.items() if flags.get(f"user_{name}") is None
    }
    own = msgspec.structs.replace(own, **taken)
    if not own.user_url and not own.user_model:
        return None
    if not (own.user_url and own.user_model):
        lacks = "--user-model" if own.user_url else "--user-url"
        raise UsageError("the model that plays the user is named by half", lacks, f"Give {lacks}")
    parts = web_address(own.user_url)
    if parts is None or parts.username or parts.query:
        raise UsageError(
            "the address of the model that plays the user cannot be used",
            "--user-url",
            "Give it as https://HOST/v1, its key with --user-key-env",
        )
    from mock.users.persona import UserOptions

    what = "the key of the model that plays the user"
    return UserOptions(
        url=own.user_url.rstrip("/") + ("/v1" if parts.path in ("", "/") else ""),
        model=own.user_model,
        key=env_key(own.user_key_env, what) if own.user_key_env else "",
        temperature=own.user_temperature,
        turns=own.user_turns,
        stop=own.user_stop,
        tokens=own.user_tokens,
        seed=given.seed if seed is None else seed,
    )


def _check(given: argparse.Namespace) -> None:
    """Raises UsageError: a flag is out of its range; names it."""
    ranges = (
        ("rate", 0.001, 1_000.0),
        ("updates", 1, 1_000_000),
        ("held_out", 0.0, 1.0),
        ("results_wait", 0.0, 86_400.0),
    )
    for name, least, most in ranges:
        value = getattr(given, name)
        if value is not None and not least <= value <= most:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} cannot be {value:g}", flag, f"From {least:g} to {most:g}")
    if given.rate is not None and (given.pace or given.concurrency):
        other = "--pace" if given.pace else "--concurrency"
        raise UsageError(
            f"--rate and {other} exclude each other",
            "--rate",
            "At a rate nothing waits for the answers before it",
        )


@asynccontextmanager
async def _control(url: str, token: str, cert: str) -> AsyncIterator["_Control"]:
    from proxy.control.client import ControlClient

    async with ControlClient(url, token, cert=cert) as client:
        yield _Control(client)


class _Control:
    """The proxy's control API as the mock user wants it: with its own errors."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def register_row(self, row: Mapping[str, Any]) -> str:
        return str(await self._ask("register_row", row))

    async def release_row(self, row_id: str) -> None:
        await self._ask("release_row", row_id)

    async def directive(self, mock_id: str) -> str:
        return str(await self._ask("directive", mock_id))

    async def post_fact(self, fact_id: str, event: Event) -> None:
        await self._ask("post_fact", fact_id, event)

    async def snapshot(self) -> State:
        found: State = await self._ask("snapshot")
        return found

    async def events(self, after: int, run_id: str) -> AsyncIterator[object]:
        from proxy.control.client import ControlError, ControlLost

        feed = self._client.events(after, run_id=run_id)
        try:
            async for item in feed:
                yield item
        except (ControlLost, ControlError) as error:
            raise _as_ours(error) from error
        finally:
            await feed.aclose()

    async def _ask(self, name: str, *args: Any) -> Any:
        from proxy.control.client import ControlError, ControlLost

        try:
            return await getattr(self._client, name)(*args)
        except (ControlLost, ControlError) as error:
            raise _as_ours(error) from error


def _as_ours(error: Any) -> Exception:
    from mock.control import ControlDown, ControlRefused

    status = getattr(error, "status", 500)
    if not status or status >= 500:
        return ControlDown(error.what, error.where, error.todo)
    return ControlRefused(error.what, error.where, error.todo, status)
