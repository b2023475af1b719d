"""Run one episode of a black-box agent's folder and print its trace, for debugging.

    python -m ajet_swarm.debug FOLDER --item 3

The folder has `get_training_dataset_item_list.py` and `run_episode_once.py` with functions of those
names. The episode is not trained on, unless `--train` is given.
"""

import argparse
import importlib
import json
import linecache
import os
import signal
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ajet_swarm.client.episode import Episode, as_output
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line, plain, redact
from ajet_swarm.debug.guard import ChildReport, ReportWriter, run_guarded
from ajet_swarm.debug.trace import RecordedCall, RecordingRelay
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.task import Task, WorkflowOutput

ITEMS = "get_training_dataset_item_list"
RUN = "run_episode_once"
ROLL = "agent_roll"
_LIBRARY = Path(__file__).parents[1]
_LEFT = "{} ended the program (sys.exit({!r})) instead of returning a reward"
WIDTH = 2000
"""Largest number of characters printed of one message."""

RunOnce = Callable[[Task, str, str], WorkflowOutput | float]


@dataclass(slots=True)
class Trace:
    """The trace of one episode."""

    episode: str = ""
    item: str = ""
    server: str = ""
    step: int = 0
    calls: list[RecordedCall] = field(default_factory=list)
    tokens: list[list[str]] = field(default_factory=list)
    """Sampled tokens of each answer; empty unless the server is the embedded engine."""
    output: WorkflowOutput | None = None
    trouble: str = ""
    """Traceback of the agent or of its reward function."""
    seconds: float = 0.0


def run_one(
    client: SwarmClient,
    run_once: RunOnce,
    task: Task,
    *,
    train: bool = False,
    report: ReportWriter | None = None,
) -> Trace:
    """Run one episode and record its trace; end it with its reward, or give it back.

    Args:
        client: Client of a server whose engine rolls.
        run_once: Function of the folder, called with task, base URL and key.
        task: The task.
        train: Claim a train episode, which counts.
        report: Receives the episode's uuid and its calls.
    """
    trace = Trace(item=task.task_id, server=client.server_url, step=client.get_global_step())
    began = time.monotonic()
    kind = "train" if train else "eval"
    with client.episode(task, episode_type=kind, timeout=600) as episode:
        trace.episode = episode.uuid
        if report is not None:
            report.write(episode=episode.uuid, step=trace.step)
        with RecordingRelay(episode.base_url, on_call=_call_listener(report)) as relay:
            trace.calls = relay.calls
            try:
                output = run_once(task, relay.base_url, episode.api_key)
                trace.tokens = _tokens(client.server_url, episode.uuid)
                _end_episode(episode, output, trace)
            except SystemExit as error:  # must not end this program, possibly with exit code 0
                trace.trouble = f"{_traceback()}{_LEFT.format(RUN, error.code)}\n"
            except Exception:  # noqa: BLE001  code of the agent; its error is printed
                trace.trouble = _traceback()
    trace.seconds = time.monotonic() - began
    return trace


def _end_episode(episode: Episode, result: WorkflowOutput | float, trace: Trace) -> None:
    """End the episode with the result of the folder's function; add an error to the trace."""
    output = as_output(result)
    try:
        episode.end(output)
    except SwarmError as error:  # needs no traceback
        trace.trouble = f"{plain(redact(str(error)))}\n"
        return
    sent: Any = output.reward  # may be a numpy number, or text
    output.reward, trace.output = float(sent), output


def _call_listener(report: ReportWriter | None) -> Callable[[int, RecordedCall], None] | None:
    if report is None:
        return None

    def write_call(place: int, call: RecordedCall) -> None:
        report.write(place=place, call=asdict(call))

    return write_call


def load(folder: Path) -> tuple[list[Task], RunOnce, Any]:
    """Return a folder's tasks, its function, and the job of its `agent_roll.py` if any.

    Raises:
        UsageError: a file is missing, or the dataset is empty.
    """
    for name in (ITEMS, RUN):
        if not (folder / f"{name}.py").is_file():
            raise UsageError(
                f"{name}.py is missing", str(folder), "`ajet-console init blackbox DIR` writes one"
            )
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # the next run must not load a stale file
    run_once: RunOnce = getattr(importlib.import_module(RUN), RUN)
    items = getattr(importlib.import_module(ITEMS), ITEMS)()
    tasks = [one if isinstance(one, Task) else Task.from_dict(one) for one in items]
    if not tasks:
        raise UsageError("the dataset has no item", str(folder / f"{ITEMS}.py"))
    has_job = (folder / f"{ROLL}.py").is_file()
    make = getattr(importlib.import_module(ROLL), "job", None) if has_job else None
    return tasks, run_once, make() if make is not None else None


def choose(tasks: Sequence[Task], item: str) -> Task:
    """Return the task of an id, else of a position in the list.

    Raises:
        UsageError: there is no such task.
    """
    for task in tasks:
        if task.task_id == item:
            return task
    if item.isdigit() and int(item) < len(tasks):
        return tasks[int(item)]
    raise UsageError(
        f"no item {item!r}", ITEMS, f"Give 0 to {len(tasks) - 1}, or an id as {tasks[0].task_id!r}"
    )


def text_of(trace: Trace) -> str:
    """Return a trace as readable text."""
    lines = [f"episode {trace.episode}  item {trace.item}  step {trace.step}  {trace.server}"]
    for number, call in enumerate(trace.calls, 1):
        tokens = trace.tokens[number - 1] if number <= len(trace.tokens) else []
        lines += ["", *_call_lines(number, call, tokens)]
    lines.append("")
    if trace.trouble:
        lines += [trace.trouble.rstrip(), "", "no reward; the episode is given back"]
    elif trace.output is not None:
        lines.append(f"reward {trace.output.reward:g}  success {trace.output.is_success}")
        lines += [
            f"  {name}: {one_line(str(value), WIDTH)}"
            for name, value in {**trace.output.metadata, **trace.output.log_metrics}.items()
            if name != "task_id"
        ]
    lines.append(f"{len(trace.calls)} calls, {trace.seconds:.1f} s")
    return "\n".join(lines) + "\n"


def _call_lines(number: int, call: RecordedCall, tokens: Sequence[str]) -> list[str]:
    used = call.usage
    read = used.get("prompt_tokens", used.get("input_tokens", "?"))
    drawn = used.get("completion_tokens", used.get("output_tokens", "?"))
    lines = [
        f"call {number}  {one_line(call.path, 80)}  HTTP {call.status}  {call.seconds:.2f} s  "
        f"{read} + {drawn} tokens  {one_line(str(call.finish), 40)}".rstrip()
    ]
    for one in call.messages:
        lines.append(
            f"  {one_line(str(one.get('role')), 9):<10}{_shown(one.get('content') or one)}"
        )
    if call.error or call.status >= 400:
        lines.append(f"  error     {_shown(call.error or call.answer)}")
    else:
        lines.append(f"  answer    {_shown(call.text or call.answer)}")
    if tokens:
        lines.append(f"  tokens    {one_line('|'.join(tokens), WIDTH)}")
    return lines


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, WIDTH)


def _tokens(server: str, episode: str) -> list[list[str]]:
    """Return the sampled tokens of each answer; none if the server does not report them."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server}/ajetc/tokens/{episode}", timeout=10) as answer:
            log = json.load(answer)
        return [
            [str(token["text"]) for token in one["tokens"] if token["mask"]] for one in log["calls"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _traceback() -> str:
    """Return the current traceback from the first frame outside of this library."""
    linecache.checkcache()
    error = sys.exception()
    assert error is not None
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        if not Path(frame.tb_frame.f_code.co_filename).is_relative_to(_LIBRARY):
            break
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame))
    return "\n".join(map(plain, redact(text).splitlines())) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one episode of a folder in a child process; return 0 if it has a reward."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parse_args(words)
    if args.receipt is not None:
        return run_here(args)
    return run_guarded(words, lambda left: _write(_trace_of_report(left), as_json=args.json))


def parse_args(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m ajet_swarm.debug")
    parser.add_argument("folder", nargs="?", type=Path, default=Path.cwd())
    parser.add_argument("--item", default="0", help="place in the dataset, or id")
    parser.add_argument("--swarm-url", default="", help="else AJET_SWARM_URL")
    parser.add_argument("--train", action="store_true", help="a train episode, which counts")
    parser.add_argument("--json", action="store_true", help="the trace as JSON")
    parser.add_argument("--receipt", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def run_here(args: argparse.Namespace) -> int:
    """Run the episode in this process, the child, which the folder's code may end in any way."""
    report = ReportWriter(args.receipt)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)  # gives the episode back
    code = _run_here(args, report)
    sys.stdout.flush()
    report.write(finished=True, code=code)
    return code


def _run_here(args: argparse.Namespace, report: ReportWriter) -> int:
    try:
        trace = _debug(args, report)
    except AjetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit):  # noqa: BLE001  the folder does not load: print its traceback
        sys.stdout.write(_traceback())
        return 1
    _write(trace, as_json=args.json)
    return 0 if trace.output is not None else 1


def _write(trace: Trace, *, as_json: bool) -> None:
    sys.stdout.write(json.dumps(asdict(trace), default=str) + "\n" if as_json else text_of(trace))


def _trace_of_report(left: ChildReport) -> Trace:
    """Return the trace of an episode whose process ended unexpectedly."""
    how = f"was ended by {left.how}" if left.killed else f"ended itself ({left.how})"
    when = (
        f"instead of returning a reward from {RUN}" if left.episode else "before an episode began"
    )
    trace = Trace(left.episode, left.item, left.server, left.step, seconds=left.seconds)
    trace.calls = [RecordedCall(**left.calls[place]) for place in sorted(left.calls)]
    trace.trouble = f"the program {how} {when}\n"
    return trace


def _debug(args: argparse.Namespace, report: ReportWriter) -> Trace:
    folder = args.folder.resolve()
    if args.swarm_url:
        os.environ["AJET_SWARM_URL"] = args.swarm_url
    tasks, run_once, job = load(folder)
    task = choose(tasks, args.item)
    roll = sys.modules.get(ROLL)
    named = args.swarm_url or os.environ.get("AJET_SWARM_URL")
    url = str(named or getattr(roll, "SERVER", ""))
    with SwarmClient(url, patience=5, name="debug") as client:
        report.write(server=client.server_url, client=client.client_uuid, item=task.task_id[:200])
        state, more = client.get_engine_status()
        if state == "ENGINE.CANNOT_CONNECT":
            raise SwarmError("no swarm server answers", client.server_url, more.get("error", ""))
        if job is not None:
            client.auto_sync_train_config_and_start_engine(job, timeout=600)
        return run_one(client, run_once, task, train=args.train, report=report)


def _end(*_: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise KeyboardInterrupt
