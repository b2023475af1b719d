"""One episode of a black-box agent's folder, with everything it did: for finding faults.

    python -m ajet_swarm.debug FOLDER --item 3

The folder has `get_training_dataset_item_list.py` and `run_episode_once.py` with functions of those
names. The episode is an eval one unless asked otherwise: nothing is trained on it.
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
from ajet_swarm.client.sync_client import SwarmClient
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
"""Characters of one message that are shown."""

RunOnce = Callable[[Task, str, str], WorkflowOutput | float]


@dataclass(slots=True)
class Trace:
    """What one episode did."""

    episode: str = ""
    item: str = ""
    server: str = ""
    step: int = 0
    calls: list[RecordedCall] = field(default_factory=list)
    tokens: list[list[str]] = field(default_factory=list)
    """Of each answer, where the server tells them: the embedded engine does."""
    output: WorkflowOutput | None = None
    trouble: str = ""
    """The traceback of what the agent or its reward raised."""
    seconds: float = 0.0


def run_one(
    client: SwarmClient,
    run_once: RunOnce,
    task: Task,
    *,
    train: bool = False,
    idle: float = 240,
    receipt: ReportWriter | None = None,
) -> Trace:
    """Run one episode and keep what it did; it is ended with its reward, or given back.

    Args:
        client: Whose server; its engine rolls.
        run_once: Takes task, base URL and key.
        task: What it is about.
        train: Take a train episode, which counts.
        idle: Seconds without a call after which the server takes it back.
        receipt: Told which episode it is, and of its calls.
    """
    trace = Trace(item=task.task_id, server=client.server_url, step=client.get_global_step())
    began = time.monotonic()
    kind = "train" if train else "eval"
    with client.episode(task, idle, kind, timeout=600) as episode:
        trace.episode = episode.uuid
        if receipt is not None:
            receipt.write(episode=episode.uuid, step=trace.step)
        with RecordingRelay(episode.base_url, on_call=_call_told(receipt)) as relay:
            trace.calls = relay.calls
            try:
                given = run_once(task, relay.base_url, episode.api_key)
                trace.tokens = _tokens(client.server_url, episode.uuid)
                _ended(episode, given, trace)
            except SystemExit as error:  # it would end this program, with its code for all is well
                trace.trouble = f"{_traceback()}{_LEFT.format(RUN, error.code)}\n"
            except Exception:  # noqa: BLE001  the agent's own code: what it raised is what is shown
                trace.trouble = _traceback()
    trace.seconds = time.monotonic() - began
    return trace


def _ended(episode: Episode, given: WorkflowOutput | float, trace: Trace) -> None:
    """End it with what the folder's function returned; why it could not be is trouble, too."""
    output = as_output(given)
    try:
        episode.end(output)
    except SwarmError as error:  # says all there is to know
        trace.trouble = f"{plain(redact(str(error)))}\n"
        return
    sent: Any = output.reward  # numpy's, or a text of a number
    output.reward, trace.output = float(sent), output


def _call_told(receipt: ReportWriter | None) -> Callable[[int, RecordedCall], None] | None:
    if receipt is None:
        return None

    def tell(place: int, call: RecordedCall) -> None:
        receipt.write(place=place, call=asdict(call))

    return tell


def load(folder: Path) -> tuple[list[Task], RunOnce, Any]:
    """A folder's tasks, its function, and its job when `agent_roll.py` has one.

    Raises:
        UsageError: it has none of them.
    """
    for name in (ITEMS, RUN):
        if not (folder / f"{name}.py").is_file():
            raise UsageError(
                f"{name}.py is missing", str(folder), "`ajet-console init blackbox DIR` writes one"
            )
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # the next run must not meet a stale file
    run_once: RunOnce = getattr(importlib.import_module(RUN), RUN)
    items = getattr(importlib.import_module(ITEMS), ITEMS)()
    tasks = [one if isinstance(one, Task) else Task.from_dict(one) for one in items]
    if not tasks:
        raise UsageError("the dataset has no item", str(folder / f"{ITEMS}.py"))
    has_job = (folder / f"{ROLL}.py").is_file()
    make = getattr(importlib.import_module(ROLL), "job", None) if has_job else None
    return tasks, run_once, make() if make is not None else None


def choose(tasks: Sequence[Task], item: str) -> Task:
    """The task of this id, else of this place in the list.

    Raises:
        UsageError: there is none.
    """
    for task in tasks:
        if task.task_id == item:
            return task
    if item.isdigit() and int(item) < len(tasks):
        return tasks[int(item)]
    raise UsageError(
        f"no item {item!r}", ITEMS, f"Give 0 to {len(tasks) - 1}, or an id as {tasks[0].task_id!r}"
    )


def told(trace: Trace) -> str:
    """The trace for people."""
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


def _shown(given: object) -> str:
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return one_line(text, WIDTH)


def _tokens(server: str, episode: str) -> list[list[str]]:
    """The sampled tokens of each answer; empty for a server that does not tell."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server}/ajetc/tokens/{episode}", timeout=10) as answer:
            found = json.load(answer)
        return [
            [str(token["text"]) for token in one["tokens"] if token["mask"]]
            for one in found["calls"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _traceback() -> str:
    """The current traceback, from the first frame that is not of this library on."""
    linecache.checkcache()
    error = sys.exception()
    assert error is not None
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        if not Path(frame.tb_frame.f_code.co_filename).is_relative_to(_LIBRARY):
            break
        frame = frame.tb_next
    told = "".join(traceback.format_exception(type(error), error, frame))
    return "\n".join(map(plain, redact(told).splitlines())) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one episode of a folder, in a process of its own; 0 when it has a reward."""
    words = list(sys.argv[1:] if argv is None else argv)
    given = parsed(words)
    if given.receipt is not None:
        return inside(given)
    return run_guarded(words, lambda left: _write(_died(left), as_json=given.json))


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What stands in the arguments."""
    parser = argparse.ArgumentParser(prog="python -m ajet_swarm.debug")
    parser.add_argument("folder", nargs="?", type=Path, default=Path.cwd())
    parser.add_argument("--item", default="0", help="place in the dataset, or id")
    parser.add_argument("--swarm-url", default="", help="else AJET_SWARM_URL")
    parser.add_argument("--train", action="store_true", help="a train episode, which counts")
    parser.add_argument("--json", action="store_true", help="the trace as JSON")
    parser.add_argument("--receipt", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def inside(given: argparse.Namespace) -> int:
    """What `main` does, in this process, which the folder's code may end as it likes."""
    receipt = ReportWriter(given.receipt)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)  # what is held is given back
    code = _told(given, receipt)
    sys.stdout.flush()
    receipt.write(over=True, code=code)
    return code


def _told(given: argparse.Namespace, receipt: ReportWriter) -> int:
    try:
        trace = _debug(given, receipt)
    except AjetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit):  # noqa: BLE001  a folder that does not load: its traceback is the answer
        sys.stdout.write(_traceback())
        return 1
    _write(trace, as_json=given.json)
    return 0 if trace.output is not None else 1


def _write(trace: Trace, *, as_json: bool) -> None:
    sys.stdout.write(json.dumps(asdict(trace), default=str) + "\n" if as_json else told(trace))


def _died(left: ChildReport) -> Trace:
    """The trace of an episode whose program is gone."""
    how = f"was ended by {left.how}" if left.killed else f"ended itself ({left.how})"
    when = (
        f"instead of returning a reward from {RUN}" if left.episode else "before an episode began"
    )
    trace = Trace(left.episode, left.item, left.server, left.step, seconds=left.seconds)
    trace.calls = [RecordedCall(**left.calls[place]) for place in sorted(left.calls)]
    trace.trouble = f"the program {how} {when}\n"
    return trace


def _debug(given: argparse.Namespace, receipt: ReportWriter) -> Trace:
    folder = given.folder.resolve()
    if given.swarm_url:
        os.environ["AJET_SWARM_URL"] = given.swarm_url
    tasks, run_once, job = load(folder)
    task = choose(tasks, given.item)
    roll = sys.modules.get(ROLL)
    told = given.swarm_url or os.environ.get("AJET_SWARM_URL")
    url = str(told or getattr(roll, "SERVER", ""))
    with SwarmClient(url, patience=5, name="debug") as client:
        receipt.write(server=client.server_url, client=client.client_uuid, item=task.task_id[:200])
        state, more = client.get_engine_status()
        if state == "ENGINE.CANNOT_CONNECT":
            raise SwarmError("no swarm server answers", client.server_url, more.get("error", ""))
        if job is not None:
            client.auto_sync_train_config_and_start_engine(job, timeout=600)
        return run_one(client, run_once, task, train=given.train, receipt=receipt)


def _end(*_: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _heard)  # a second one must not disturb the giving back
    raise KeyboardInterrupt


def _heard(*_: object) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
