"""The process of the agent: it loads a folder's code, runs it on one task, and reports the output.

Messages to and from the parent are lines of JSON: first the task and the job of the folder, then
from the parent the address of the episode, then the output. An `error` or a `trouble`, which is a
traceback, ends it.
"""

import importlib
import json
import linecache
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.client.engine_control import job_text
from ajet_swarm.client.episode import as_output, wire_output
from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import plain
from ajet_swarm.protocol.models import Task, WorkflowOutput

ITEMS = "get_training_dataset_item_list"
RUN = "run_episode_once"
ROLL = "agent_roll"
_LIBRARY = Path(__file__).parents[1]

RunOnce = Callable[[Task, str, str], WorkflowOutput | float]


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
    tasks = [item if isinstance(item, Task) else Task.from_dict(item) for item in items]
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


def run_folder(folder: Path, item: str, swarm_url: str, channel: int) -> int:
    """Run a folder's function on one of its tasks; the process does nothing else.

    Args:
        folder: The folder.
        item: Id or position of the task.
        swarm_url: Address of the server for the folder's code; empty for its own choice.
        channel: Descriptor of the socket to the parent.
    """
    with socket.socket(fileno=channel) as connection, connection.makefile("rw") as parent:

        def send(**message: object) -> None:
            parent.write(json.dumps(message) + "\n")
            parent.flush()

        if swarm_url:
            os.environ["AJET_SWARM_URL"] = swarm_url
        called = False
        try:
            tasks, run_once, job = load(folder.resolve())
            task = choose(tasks, item)
            server = str(getattr(sys.modules.get(ROLL), "SERVER", ""))
            send(item=task.task_id, job=job and job_text(job), server=server)
            if not (line := parent.readline()):
                return 1
            called, episode = True, json.loads(line)
            output = as_output(run_once(task, episode["base_url"], episode["api_key"]))
            _, checked = wire_output(task, episode["uuid"], output)
            send(output=msgspec.to_builtins(checked))
        except KeyboardInterrupt:
            return 130
        except AjetError as error:  # needs no traceback
            text = plain(redact(str(error)))
            send(trouble=f"{text}\n") if called else send(error=text, code=error.exit_code)
        except (Exception, SystemExit) as error:  # noqa: BLE001  code of the folder
            left = f"{RUN} ended the program (sys.exit({{!r}})) instead of returning a reward\n"
            ended = called and isinstance(error, SystemExit)
            send(trouble=_traceback() + (left.format(getattr(error, "code", 0)) if ended else ""))
    return 0


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
