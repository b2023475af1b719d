"""The mock user: asks the application every row of a dataset, as a user would.

`run` is the whole process: it holds the role `mock` in the home, shows how far it is, obeys the
proxy's directives and signals, and says at the end what became of the rows.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import ended_words
from ajet_swarm.common.urls import web_address
from core.runtime.home import Home, Role
from mock.dataset import Dataset
from mock.dataset.columns import Columns
from mock.run.pace import MOST_IN_FLIGHT
from mock.run.progress import Progress
from mock.run.results import Results
from mock.run.runner import Choice, Control, Outcome, Pace, Runner
from mock.tally import Tally, clock_text
from mock.targets import open_target, try_until_stopped
from mock.targets.base import Setting
from mock.targets.openai import OpenAITarget, Target
from mock.targets.spec import DRY, Spec
from mock.users.persona import UserModel, UserOptions

log = logging.getLogger("mock")

_NAMED = 3
"""Broken rows that are named at the end."""
_TTY_EVERY = 0.5
_LOG_EVERY = 5.0
_QUIET_EVERY = 60.0
"""Seconds between two lines while nothing moves."""
_TERM_WAIT = 1.5
"""Seconds rows in flight get after SIGTERM: its sender kills after five."""
_TERM_SETTLE = 4.0
"""Seconds after SIGTERM in which rewards of answered rows are still written."""

OWN_TARGET = "fake vLLM"
"""What people call the proxy of the home as a target."""

MakeControl = Callable[[], AbstractAsyncContextManager[Control]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """One start of the mock user."""

    home: Home
    dataset: Path
    base_url: str
    """OpenAI-compatible address; `/v1` is added when it has no path."""
    own_proxy: bool = False
    """The address is that of the proxy whose control API is known."""
    target: str = ""
    """What tells this target's progress from another's; the address when empty."""
    api_key: str = ""
    cert: str = ""
    """File with the certificate the address shows, when it is not one that all believe."""
    model: str = "ajet"
    timeout: float = 300.0
    columns: Columns = field(default_factory=Columns)
    """What the dataset's columns are called, where not as usual."""
    pace: Pace = field(default_factory=Pace)
    choice: Choice = field(default_factory=Choice)
    results: Path | None = None
    """File that gets one line a row."""
    results_wait: float = 60.0
    """Seconds to wait for a row's reward before its line is written without it."""
    restart: bool = False
    """Start over even when an earlier start was not done."""
    spec: Spec | None = None
    """The application that is asked, from a target file; the address itself when None."""
    user: UserOptions | None = None
    """The model that plays the user of rows with a persona; None when none does."""
    dry: bool = False
    """Only try the target with one row."""


def run(
    options: MockOptions, make_control: MakeControl | None = None, out: TextIO | None = None
) -> int:
    """Ask all rows; blocks until done, stopped or failed.

    Args:
        options: What to ask whom.
        make_control: Opens the proxy's control API; None when no proxy is known.
        out: Where progress goes; standard error when left out.

    Returns:
        0 done or stopped by order, 1 failed or no row answered, 130 interrupted.

    Raises:
        AjetError: the dataset, the address or the control API cannot be used, or a mock user of
            this home runs.
    """
    with Role(options.home, "mock") as role:
        return asyncio.run(_run(options, make_control, role, out or sys.stderr))


async def _run(
    options: MockOptions, make_control: MakeControl | None, role: Role, out: TextIO
) -> int:
    base_url = _base_url(options.base_url)
    if options.dry:
        return await _dry(options, make_control, base_url, out)
    if make_control is None and (options.pace.pause_sync or options.pace.updates):
        raise UsageError(
            "what the engine does is not known without the proxy's control API",
            "--pause-sync" if options.pace.pause_sync else "--updates",
            "Give --url and --token-file of a proxy, or leave it out",
        )
    async with contextlib.AsyncExitStack() as stack:
        folder = options.home.root / "mock"
        folder.mkdir(parents=True, exist_ok=True)
        dataset = stack.enter_context(
            await asyncio.to_thread(Dataset.open, options.dataset, options.columns, folder)
        )
        progress = stack.enter_context(
            await asyncio.to_thread(_open_progress, options, dataset, base_url)
        )
        control = await stack.enter_async_context(make_control()) if make_control else None
        asker = _target(options, base_url)
        stack.push_async_callback(asker.close)
        user = None
        if options.user is not None:
            user = UserModel(options.user, _connections(options))
            stack.push_async_callback(user.close)
        results = await _open_results(options, progress)
        if results is not None:
            stack.callback(results.close)
        if options.spec is not None and options.spec.dry:
            tried = await try_until_stopped(asker, options.spec, control)
            for line in tried.lines(options.spec.name):
                log.info("%s", line)
        runner = Runner(
            dataset, progress, asker, options.pace, options.choice, control, results, user
        )
        role.publish(
            extra={
                "mock_id": runner.mock_id,
                "dataset": str(options.dataset),
                "target": base_url,
            }
        )
        interrupts = _listen(runner)
        async with Tasks("terminal") as tasks:
            tasks.spawn(_show(runner.tally, out), "progress")
            outcome = await runner.run()
        _sum_up(runner, outcome, out)
        if interrupts:
            return 130
        nothing = runner.tally.done > 0 and not runner.tally.answered
        return 1 if outcome.how == "failed" or nothing else 0


def _connections(options: MockOptions) -> int:
    return MOST_IN_FLIGHT if options.pace.rate else options.pace.concurrency


def _target(options: MockOptions, base_url: str) -> Target:
    connections = _connections(options)
    if options.spec is not None:
        return open_target(options.spec, _setting(options, base_url), connections)
    return OpenAITarget(
        base_url,
        model=options.model,
        api_key=options.api_key,
        cert=options.cert,
        timeout=options.timeout,
        name=OWN_TARGET if options.target == "proxy" else base_url,
        connections=connections,
    )


def _setting(options: MockOptions, base_url: str) -> Setting:
    return Setting(
        base_url=base_url,
        api_key=options.api_key,
        model=options.model,
        cert=options.cert,
        sessions=options.own_proxy,
    )


async def _dry(
    options: MockOptions, make_control: MakeControl | None, base_url: str, out: TextIO
) -> int:
    """Try the target and say what came of it."""
    spec = options.spec
    if spec is None:
        raise UsageError("--dry tries a target file", "--dry", "Give --target FILE, too")
    spec = replace(spec, dry=spec.dry or DRY)
    async with contextlib.AsyncExitStack() as stack:
        control = await stack.enter_async_context(make_control()) if make_control else None
        target = open_target(spec, _setting(options, base_url))
        stack.push_async_callback(target.close)
        tried = await try_until_stopped(target, spec, control)
    out.write("\n".join(tried.lines(spec.name)) + "\n")
    out.flush()
    return 0


def _open_progress(options: MockOptions, dataset: Dataset, base_url: str) -> Progress:
    target = options.target or base_url
    side = f"-{options.choice.split}-{options.choice.held_out:g}" if options.choice.split else ""
    name = f"{dataset.fingerprint()}-{_short(target)}{side}"
    return Progress(options.home.root / "mock", name, options.restart)


async def _open_results(options: MockOptions, progress: Progress) -> Results | None:
    if options.results is None:
        return None
    return await asyncio.to_thread(Results, options.results, progress.run, options.results_wait)


def _short(text: str) -> str:
    kept = "".join(letter if letter.isalnum() else "-" for letter in text)
    return "-".join(part for part in kept.split("-") if part)[:80]


def _base_url(url: str) -> str:
    parts = web_address(url)
    if parts is None:
        raise UsageError("not an address", url, "Give it as http://host:port/v1")
    return url.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")


def _listen(runner: Runner) -> list[int]:
    """Stop in order on the first signal, at once on the second; returns the interrupts so far."""
    interrupts: list[int] = []
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        interrupts.append(signal.SIGINT)
        log.warning("stopping: what is in flight ends first; once more ends it at once")
        runner.stop("stopped", "interrupted", wait=None if len(interrupts) == 1 else 0.0)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(
        signal.SIGTERM, runner.stop, "stopped", "terminated", _TERM_WAIT, _TERM_SETTLE
    )
    return interrupts


async def _show(tally: Tally, out: TextIO) -> None:
    """Keep one line of a terminal up to date, or log one now and then."""
    if not out.isatty():
        told, quiet = (tally.done, tally.phase, tally.waiting), 0.0
        while True:
            await asyncio.sleep(_LOG_EVERY)
            now, quiet = (tally.done, tally.phase, tally.waiting), quiet + _LOG_EVERY
            if now != told or quiet >= _QUIET_EVERY:
                log.info("%s", tally.line())
                told, quiet = now, 0.0
    try:
        while True:
            out.write(f"\r\x1b[2K{tally.line()}")
            out.flush()
            await asyncio.sleep(_TTY_EVERY)
    finally:
        out.write("\r\x1b[2K")
        out.flush()


def _sum_up(runner: Runner, outcome: Outcome, out: TextIO) -> None:
    tally = runner.tally
    lines = [
        ended_words(outcome.how, outcome.cause),
        f"{_rows(tally.done)} asked in {clock_text(tally.seconds)}: {tally.answered} answered, "
        f"{tally.failed} failed; {_rows(tally.skipped)} skipped as broken"
        + (f"; {tally.already} done before" if tally.already else ""),
    ]
    lines += [f"  {count} x {error}" for error, count in tally.errors.most_common(3)]
    place = runner.dataset.reader.place
    lines += [f"  {place} {one.line}: {one.cause}" for one in runner.problems[:_NAMED]]
    if (more := tally.skipped - _NAMED) > 0:
        lines.append(f"  and {_rows(more)} more")
    if tally.unmatched:
        lines.append(
            f"{_rows(tally.unmatched)} answered, but unmatched: no request that reached the proxy "
            "could be told as theirs, so no reward knew their reference"
        )
    if lost := len(runner.progress.lost):
        lines.append(f"{_rows(lost)} in flight at a kill: asked, so not asked again")
    lines.append(f"results: {runner.results_path}")
    if tally.left and outcome.how != "finished":
        lines.append(f"{_rows(tally.left)} left: the same command goes on there")
    out.write("\n".join(lines) + "\n")
    out.flush()


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"
