"""Tracebacks cut to the operator's code."""

import linecache
import sys
import traceback
from pathlib import Path
from types import FrameType

from proxy.rewards.hooks.protocol import HookFault

CAUSE_LIMIT = 400
TRACE_LIMIT = 16_000
SHIMMED = "ajet.schema.task and ajet.utils.compute_madness"


def keep_sources(folder: Path) -> None:
    """Cache the source of the modules loaded from `folder`, for tracebacks.

    Otherwise a traceback would show the lines of the file as saved since, not as they ran.
    """
    for module in tuple(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and name.endswith(".py") and _own(name, folder):
            lines = linecache.getlines(name)
            # `linecache.checkcache` leaves an entry without a modification time as it is.
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def fault_of_error(error: BaseException, folder: Path) -> HookFault:
    """Return the fault that `error` is, with only the frames inside `folder`."""
    trace = traceback.TracebackException.from_exception(error, compact=True)
    _cut(trace, folder, set())
    file, line = _place(trace, folder)
    text = "".join(trace.format())
    if len(text) > TRACE_LIMIT:
        half = TRACE_LIMIT // 2
        text = f"{text[:half]}\n  ...\n{text[-half:]}"
    return HookFault(_cause(error, trace, file, line), text, file, line)


def fault_at(cause: str, frames: list[FrameType], folder: Path) -> HookFault:
    """Return a fault at the innermost of `frames` (outermost first) that is inside `folder`."""
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    summary = _inside(summary, folder)
    if not summary:
        return HookFault(cause)
    text = "Stack (most recent call last):\n" + "".join(summary.format())
    return HookFault(cause, text, summary[-1].filename, summary[-1].lineno or 0)


def _cut(trace: traceback.TracebackException, folder: Path, seen: set[int]) -> None:
    if id(trace) in seen:
        return
    seen.add(id(trace))
    trace.stack = _inside(trace.stack, folder)
    group = getattr(trace, "exceptions", None) or []
    for other in (trace.__cause__, trace.__context__, *group):
        if other is not None:
            _cut(other, folder, seen)


def _inside(stack: traceback.StackSummary, folder: Path) -> traceback.StackSummary:
    return traceback.StackSummary.from_list(
        [frame for frame in stack if _own(frame.filename, folder)]
    )


def _own(name: str, folder: Path) -> bool:
    file = Path(name)
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _place(trace: traceback.TracebackException, folder: Path) -> tuple[str, int]:
    name = getattr(trace, "filename", None)  # set for a syntax error
    if isinstance(name, str) and _own(name, folder):
        return name, int(getattr(trace, "lineno", 0) or 0)
    if trace.stack:
        return trace.stack[-1].filename, trace.stack[-1].lineno or 0
    for other in (trace.__cause__, trace.__context__):
        if other is not None and other.stack:
            return other.stack[-1].filename, other.stack[-1].lineno or 0
    return "", 0


def _cause(error: BaseException, trace: traceback.TracebackException, file: str, line: int) -> str:
    lines = list(trace.format_exception_only())
    first = lines[-1] if isinstance(error, SyntaxError) else lines[0]
    cause = " ".join(first.split())
    if isinstance(error, ModuleNotFoundError) and error.name:
        place = f", imported at {Path(file).name}:{line}" if file else ""
        package = error.name.partition(".")[0]
        if package == "ajet":
            cause += f"{place}: without AgentJet only {SHIMMED} are provided; install AgentJet"
        else:
            cause += f"{place}: install the package {package} where ajet-console is installed"
    return cause if len(cause) <= CAUSE_LIMIT else cause[:CAUSE_LIMIT] + "..."
