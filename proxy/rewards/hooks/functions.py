"""The functions of a hook folder: their import, the check of what they return, their tracebacks.

A traceback has the frames of the operator's code only.
"""

import importlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any

from core.scoring.advantage import REWARD_LIMIT, usable
from proxy.rewards.hooks.protocol import HookFault, Note
from proxy.rewards.hooks.tutorials import reward_caller

REWARD = "on_compute_relative_reward"
SUBMIT = "on_user_submit_new_requests"
TEXT_LIMIT = 2_000
NOTES_LIMIT = 64
CAUSE_LIMIT = 400
TRACE_LIMIT = 16_000
SHIMMED = "ajet.schema.task and ajet.utils.compute_madness"


class HookFunctions:
    """The hook functions of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.submit: Callable[..., Any] | None = None
        self.reward: Callable[..., Any] | None = None
        self.defined_at = (str(folder / f"{REWARD}.py"), 0)
        """File and line of the reward function."""

    def load(self) -> HookFault | None:
        """Import the modules; return the fault, or None."""
        file = self.folder / f"{REWARD}.py"
        if not file.is_file():
            return HookFault(f"there is no {REWARD}.py in {self.folder}", file=str(file))
        try:
            if (self.folder / f"{SUBMIT}.py").is_file():
                self.submit = self._function(SUBMIT)
            function = self._function(REWARD)
            self.reward = reward_caller(function)
            keep_sources(self.folder)
        except BaseException as error:  # noqa: BLE001 - worker's boundary: includes SystemExit
            fault = fault_of_error(error, self.folder)
            return fault if fault.file else HookFault(fault.cause, file=str(file))
        if code := getattr(inspect.unwrap(function), "__code__", None):
            self.defined_at = (code.co_filename, code.co_firstlineno)
        return None

    def _function(self, name: str) -> Callable[..., Any]:
        function = getattr(importlib.import_module(name), name, None)
        if not callable(function):
            raise AttributeError(f"{name}.py has no function {name}")
        return function  # type: ignore[no-any-return]  # callable() tells mypy no signature

    def bad_result(self, cause: str) -> HookFault:
        """Return a fault at the line where the reward function is defined."""
        file, line = self.defined_at
        return HookFault(f"{REWARD} {cause}", file=file, line=line)


class BadResultError(Exception):
    """A hook's return value is unusable; the text gives the value and what was expected."""


def checked_rewards(result: object, n: int) -> list[float]:
    """Return the `n` rewards that a hook returned, as floats.

    Arrays and tensors (objects with `.tolist()`) count as the lists and numbers they hold.

    Raises:
        BadResultError: it is not a list or tuple of `n` finite numbers within `REWARD_LIMIT`.
    """
    expected = f"expected a list of {n} numbers, one for each answer"
    result = _plain(result)
    if not isinstance(result, list | tuple):
        raise BadResultError(f"returned {_shown(result)}, {expected}{_hint(result)}")
    if len(result) != n:
        raise BadResultError(f"returned {len(result)} rewards for {n} answers, {expected}")
    return [_reward(value, index, expected) for index, value in enumerate(result)]


def _reward(value: object, index: int, expected: str) -> float:
    number = _number(value)
    if number is None:
        raise BadResultError(f"reward {index} is {_shown(value)}, {expected}{_hint(value)}")
    if not usable(number):
        limit = f"finite and at most {REWARD_LIMIT:g} in size"
        raise BadResultError(f"reward {index} is {number}, {expected}, {limit}")
    return number


def _plain(value: object) -> object:
    """Return the list or number that an array or tensor holds; any other value unchanged."""
    if isinstance(value, Real | str) or not callable(to_list := getattr(value, "tolist", None)):
        return value
    try:
        return to_list()
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return value  # the error message shows the value itself


def _number(value: object) -> float | None:
    value = _plain(value)
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (TypeError, ValueError):
        return None


def _hint(value: object) -> str:
    """Return a hint at a common mistake; empty if there is none."""
    if not inspect.isawaitable(value):
        return "; write float(...)" if hasattr(type(value), "__float__") else ""
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns later, elsewhere, that it was never awaited
    return "; it was never awaited"


def _shown(value: object) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '...'}"


def notes_of(before: Sequence[Mapping[str, Any]], after: Sequence[dict[str, Any]]) -> list[Note]:
    """Return what a hook added to each answer: finite numbers as values, texts as reasons."""
    return [_note(old, new) for old, new in zip(before, after, strict=True)]


def _note(old: Mapping[str, Any], new: dict[str, Any]) -> Note:
    values: dict[str, float] = {}
    texts: dict[str, str] = {}
    for key, value in list(new.items()):
        if key in old or len(values) + len(texts) >= NOTES_LIMIT:
            continue
        if (number := _number(value)) is not None:
            if usable(number):
                values[str(key)] = number
            else:
                texts[str(key)] = f"{number} (not a usable number)"
        elif isinstance(value, str):
            texts[str(key)] = value[:TEXT_LIMIT]
    return Note(values, texts)


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
