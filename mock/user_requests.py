"""The mock user: asks the application every row of a dataset, as a user would.

`run` is the whole process: it holds the role `mock` in the home, shows its progress, obeys the
proxy's directives and signals, and prints a summary at the end.
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

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import ended_words
from ajet_swarm.common.urls import web_address
from core.runtime.home import AlreadyRunning, Home, Role, running
from mock.control import Control
from mock.dataset import Dataset, open_dataset
from mock.dataset.columns import Columns
from mock.run.pace import MAX_IN_FLIGHT, Outcome, Pace
from mock.run.progress import Progress
from mock.run.results import Results, check_writable
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.tally import RunCounters, duration_text, retries_text
from mock.targets.base import ModelEndpoint
from mock.targets.dry_run import open_target, try_until_stopped
from mock.targets.question import Target
from mock.targets.spec import DRY_QUESTION, FakeSpec, Spec
from mock.users.persona import UserModel, UserOptions

log = logging.getLogger("mock")

_MAX_LISTED = 10
"""Reasons of broken rows listed in the summary."""
_TTY_EVERY = 0.5
_LOG_EVERY = 5.0
_QUIET_EVERY = 60.0
"""Seconds between two log lines while nothing changes."""
_TERM_WAIT = 1.5
"""Seconds that rows in flight get after SIGTERM: its sender kills after five."""
_TERM_SETTLE = 4.0
"""Seconds after SIGTERM in which rewards of answered rows are still written."""

OWN_TARGET = "fake vLLM"
"""Display name of the home's own proxy as a target."""

MakeControl = Callable[[], AbstractAsyncContextManager[Control]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Options of one start of the mock user."""

    home: Home
    dataset: Path
    endpoint: ModelEndpoint
    """The address to ask, or that an application calls; `/v1` is added when it has no path."""
    target: str = ""
    """Distinguishes the progress of this target from others; the address when empty."""
    timeout: float = 300.0
    columns: Columns = field(default_factory=Columns)
    """Column names of the dataset, where they differ from the usual ones."""
    pace: Pace = field(default_factory=Pace)
    choice: RowSelection = field(default_factory=RowSelection)
    results: Path | None = None
    """File that receives one line per row."""
    results_wait: float = 60.0
    """Seconds to wait for a row's reward before its line is written without it."""
    restart: bool = False
    """Start over even when an earlier start did not finish."""
    spec: Spec | None = None
    """The application under test, from a target file; None asks the address itself."""
    user: UserOptions | None = None
    """The model that plays the user of rows with a persona, or None."""
    dry: bool = False
    """Only try the target with one row."""


def run(
    options: MockOptions,
    make_control: MakeControl | None = None,
    out: TextIO | None = None,
    report: Callable[[RunCounters, str], None] | None = None,
) -> int:
    """Ask all rows; block until done, stopped or failed.

    Args:
        options: Options of the run.
        make_control: Opens the proxy's control API; None without a proxy.
        out: Output of the progress; stderr by default.
        report: Receives the final counters, and how the run ended.

    Returns:
        0 done or stopped on request, 1 failed or no row answered, 130 interrupted.

    Raises:
        AjetError: the dataset, the address or the control API cannot be used, or another mock user
            of this home is running.
    """
    with Role(options.home, "mock") as role:
        return asyncio.run(_run(options, make_control, role, out or sys.stderr, report))


async def check(options: MockOptions, *, has_control: bool) -> int:
    """Check what `run` refuses before its first row, and write nothing.

    Args:
        options: Options of the run.
        has_control: Whether the run would have the proxy's control API.

    Returns:
        The number of rows of the dataset.

    Raises:
        AjetError: `run` would be refused.
    """
    endpoint = _checked_endpoint(options, has_control)
    if (info := running(options.home, "mock")) is not None:
        raise AlreadyRunning("mock", info)
    if options.results is not None:
        await asyncio.to_thread(check_writable, options.results)
    await _target(options, endpoint).close()
    return await asyncio.to_thread(_row_count, options)


def _row_count(options: MockOptions) -> int:
    with open_dataset(options.dataset, options.columns) as dataset:
        while dataset.records.scan():
            pass
        return dataset.records.count


def _checked_endpoint(options: MockOptions, has_control: bool) -> ModelEndpoint:
    """Return the endpoint, its address with a path.

    Raises:
        UsageError: the address is none, or an option needs something that is missing.
    """
    url = options.endpoint.base_url
    parts = web_address(url)
    if parts is None:
        raise UsageError("not an address", url, "Give it as http://host:port/v1")
    url = url.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")
    if options.dry and options.spec is None:
        raise UsageError("--dry tries a target file", "--dry", "Give --target FILE, too")
    pace = options.pace
    if not options.dry and not has_control and (pace.pause_sync or pace.updates):
        raise UsageError(
            "the state of the engine is unknown without the proxy's control API",
            "--pause-sync" if pace.pause_sync else "--updates",
            "Give --url and --token-file of a proxy, or leave it out",
        )
    return replace(options.endpoint, base_url=url)


async def _run(
    options: MockOptions,
    make_control: MakeControl | None,
    role: Role,
    out: TextIO,
    report: Callable[[RunCounters, str], None] | None,
) -> int:
    endpoint = _checked_endpoint(options, make_control is not None)
    if options.dry and options.spec is not None:
        return await _dry_run(options, options.spec, make_control, endpoint, out)
    async with contextlib.AsyncExitStack() as stack:
        dataset = stack.enter_context(
            await asyncio.to_thread(open_dataset, options.dataset, options.columns)
        )
        progress = stack.enter_context(
            await asyncio.to_thread(_open_progress, options, dataset, endpoint.base_url)
        )
        control = await stack.enter_async_context(make_control()) if make_control else None
        target = _target(options, endpoint)
        stack.push_async_callback(target.close)
        user = None
        if options.user is not None:
            user = UserModel(options.user, _connections(options))
            stack.push_async_callback(user.close)
        results = await _open_results(options)
        if results is not None:
            stack.callback(results.close)
        if options.spec is not None and options.spec.dry:
            dry_run = await try_until_stopped(target, options.spec, control)
            for line in dry_run.lines(options.spec.name):
                log.info("%s", line)
        runner = Runner(
            dataset, progress, target, options.pace, options.choice, control, results, user
        )
        extra = {
            "mock_id": runner.mock_id,
            "dataset": str(options.dataset),
            "target": endpoint.base_url,
        }
        await asyncio.to_thread(role.publish, extra=extra)
        interrupts = _handle_signals(runner)
        async with Tasks("terminal") as tasks:
            tasks.spawn(_show(runner.counters, out), "progress")
            outcome = await runner.run()
        _print_summary(runner, outcome, out)
        if report is not None:
            report(runner.counters, outcome.how)
        if interrupts:
            return 130
        nothing = runner.counters.done > 0 and not runner.counters.answered
        return 1 if outcome.how == "failed" or nothing else 0


def _connections(options: MockOptions) -> int:
    return MAX_IN_FLIGHT if options.pace.rate else options.pace.concurrency


def _target(options: MockOptions, endpoint: ModelEndpoint) -> Target:
    spec = options.spec or FakeSpec(path=Path(OWN_TARGET), timeout=options.timeout)
    target = open_target(spec, endpoint, _connections(options))
    if options.spec is None and options.target != "proxy":
        target.name = endpoint.base_url
    return target


async def _dry_run(
    options: MockOptions,
    spec: Spec,
    make_control: MakeControl | None,
    endpoint: ModelEndpoint,
    out: TextIO,
) -> int:
    """Try the target and print the result."""
    spec = msgspec.structs.replace(spec, dry=spec.dry or DRY_QUESTION)
    async with contextlib.AsyncExitStack() as stack:
        control = await stack.enter_async_context(make_control()) if make_control else None
        target = open_target(spec, endpoint)
        stack.push_async_callback(target.close)
        result = await try_until_stopped(target, spec, control)
    out.write("\n".join(result.lines(spec.name)) + "\n")
    out.flush()
    return 0


def _open_progress(options: MockOptions, dataset: Dataset, base_url: str) -> Progress:
    target = options.target or base_url
    side = f"-{options.choice.split}-{options.choice.held_out:g}" if options.choice.split else ""
    name = f"{dataset.fingerprint()}-{_short(target)}{side}"
    return Progress(options.home.root / "mock", name, options.restart)


async def _open_results(options: MockOptions) -> Results | None:
    if options.results is None:
        return None
    return await asyncio.to_thread(Results, options.results, options.results_wait)


def _short(text: str) -> str:
    text = "".join(letter if letter.isalnum() else "-" for letter in text)
    return "-".join(part for part in text.split("-") if part)[:80]


def _handle_signals(runner: Runner) -> list[int]:
    """Stop gracefully on the first signal, at once on the second; return the interrupts so far."""
    interrupts: list[int] = []
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        interrupts.append(signal.SIGINT)
        log.warning("stopping: rows in flight finish first; interrupt again to end them at once")
        runner.stop("stopped", "interrupted", wait=None if len(interrupts) == 1 else 0.0)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(
        signal.SIGTERM, runner.stop, "stopped", "terminated", _TERM_WAIT, _TERM_SETTLE
    )
    return interrupts


async def _show(counters: RunCounters, out: TextIO) -> None:
    """Update one line of a terminal, or log one from time to time."""
    if not out.isatty():
        shown, quiet = (counters.done, counters.phase, counters.waiting), 0.0
        while True:
            await asyncio.sleep(_LOG_EVERY)
            now, quiet = (counters.done, counters.phase, counters.waiting), quiet + _LOG_EVERY
            if now != shown or quiet >= _QUIET_EVERY:
                log.info("%s", counters.line())
                shown, quiet = now, 0.0
    try:
        while True:
            out.write(f"\r\x1b[2K{counters.line()}")
            out.flush()
            await asyncio.sleep(_TTY_EVERY)
    finally:
        out.write("\r\x1b[2K")
        out.flush()


def _print_summary(runner: Runner, outcome: Outcome, out: TextIO) -> None:
    counters = runner.counters
    retried = f", {retries_text(counters.retries)}" if counters.retries else ""
    lines = [
        ended_words(outcome.how, outcome.cause),
        f"{_rows(counters.done)} asked in {duration_text(counters.seconds)}: "
        f"{counters.answered} answered, {counters.failed} failed{retried}; "
        f"{_rows(counters.skipped)} skipped as broken"
        + (f"; {counters.already} done before" if counters.already else ""),
    ]
    lines += [f"  {count} x {error}" for error, count in counters.errors.most_common(3)]
    lines += [f"  {line}" for line in runner.bad_rows.lines(_MAX_LISTED)]
    if (more := len(runner.bad_rows.firsts) - _MAX_LISTED) > 0:
        lines.append(f"  and {more} other reason{'' if more == 1 else 's'}")
    if counters.unmatched:
        lines.append(
            f"{_rows(counters.unmatched)} answered, but unmatched: no request at the proxy "
            "matched them, so rewards could not use their references"
        )
    if lost := len(runner.progress.lost):
        lines.append(f"{_rows(lost)} lost in flight when a start was killed; not asked again")
    lines.append(f"results: {runner.results_path}")
    if counters.left and outcome.how != "finished":
        lines.append(f"{_rows(counters.left)} left: run the same command to continue")
    out.write("\n".join(lines) + "\n")
    out.flush()


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"
