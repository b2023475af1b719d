"""What AgentJet's tutorials import: the arguments of hooks, and stand-ins for missing packages.

A stand-in is used where the package is not installed. The loggers write to the error stream of the
hooks' process, which is the hooks' log; the error for any other name names the package to install.
"""

import importlib.util
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any, NoReturn, Self

from ajet_swarm.common.repeats import has_repeat
from ajet_swarm.compat_paths import home_of

LEVELS = ("trace", "debug", "info", "success", "warning", "error", "critical")
CELL = 400
"""Characters shown of one value in a table."""


@dataclass
class Task:
    """AgentJet's task, with the fields that its tutorials' hooks use."""

    main_query: str = ""
    init_messages: list[dict[str, Any]] = field(default_factory=list)
    task_id: str = ""
    env_type: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def model_dump(self) -> dict[str, Any]:
        """Return all fields as a plain dictionary."""
        return asdict(self)


@dataclass
class WorkflowOutput:
    """AgentJet's result of an episode."""

    reward: float | list[float] | None = None
    is_success: bool | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    log_metrics: dict[str, Any] = field(default_factory=dict)

    def model_dump(self) -> dict[str, Any]:
        """Return all fields as a plain dictionary."""
        return asdict(self)


@dataclass
class EpisodeResult:
    """An item of `valid_results`; its fields are attributes, and keys for `get` and indexing."""

    episode_uuid: str
    response: dict[str, Any]
    question: str = ""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field `name`, or `default`."""
        return vars(self).get(name, default)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return name in vars(self)


def install_shim() -> bool:
    """Provide AgentJet's names unless AgentJet is installed; return whether they were provided."""
    if importlib.util.find_spec("ajet") is not None:
        return False
    names_by_module: dict[str, dict[str, Any]] = {}
    for item in (Task, WorkflowOutput, has_repeat):
        module_name = home_of(item.__name__)
        names_by_module.setdefault(module_name, {})[item.__name__] = item
        if item.__module__ == __name__:  # pickles refer to the name that hooks import
            item.__module__ = module_name
    packages = {name.rpartition(".")[0] for name in names_by_module}
    for name in sorted({"ajet", *packages, *names_by_module}):  # a package before its modules
        module = ModuleType(name, "Stands in for AgentJet, which is not installed.")
        module.__path__ = []
        vars(module).update(names_by_module.get(name, {}))
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    return True


def reward_caller(
    function: Callable[..., Any],
) -> Callable[[list[EpisodeResult], list[dict[str, Any]], str], Any]:
    """Return a caller for either published signature of `on_compute_relative_reward`.

    Raises:
        TypeError: the function cannot be called with two or three arguments.
    """
    signature = inspect.signature(function)
    if "question" in signature.parameters:
        signature.bind([], [], question="")
        return lambda results, answers, query: function(results, answers, question=query)
    if _accepts(signature, 3):
        return function
    if _accepts(signature, 2):
        return lambda results, answers, query: function(results, answers)
    raise TypeError(
        f"on_compute_relative_reward takes {signature}, expected"
        " (valid_results, all_answers) or (valid_results, all_answers, question)"
    )


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _write(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - the stream is the log


class Logger:
    """`loguru.logger`, limited to writing lines."""

    def __init__(self, bound: Mapping[str, Any] | None = None, error: object = None) -> None:
        self._bound = dict(bound or {})
        self._error = error

    def log(self, level: str | int, message: object, *args: Any, **kwargs: Any) -> None:
        """Write one line; braces in `message` are filled when there are arguments."""
        text = str(message)
        if args or kwargs:
            try:
                text = text.format(*args, **{**self._bound, **kwargs})
            except (LookupError, ValueError, AttributeError) as error:
                text = f"{text} ({type(error).__name__} in its format: {error})"
        frame = sys._getframe(1)
        while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
            frame = frame.f_back
        place = f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
        _write(f"{time.strftime('%H:%M:%S')} | {str(level).upper():8} | {place} - {text}")
        if self._error:
            exception = self._error if isinstance(self._error, BaseException) else sys.exception()
            if exception is not None:
                _write("".join(traceback.format_exception(exception)).rstrip())

    def exception(self, message: object, *args: Any, **kwargs: Any) -> None:
        """Write a line and the traceback of the current exception."""
        Logger(self._bound, True).log("error", message, *args, **kwargs)

    def bind(self, **values: Any) -> Self:
        """Return a logger whose lines can use `values`."""
        return type(self)({**self._bound, **values}, self._error)

    def opt(self, *, exception: object = None, **_: Any) -> Self:
        """Return a logger that adds a traceback."""
        return type(self)(self._bound, exception)

    def add(self, *_: Any, **__: Any) -> int:
        """Do nothing: lines go to the hooks' log only."""
        return 0

    def remove(self, *_: Any) -> None:
        """Do nothing, as `add`."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in LEVELS:
            _refuse("loguru.logger", name)
        return lambda message, *args, **kwargs: self.log(name, message, *args, **kwargs)


def _refuse(module: str, name: str) -> NoReturn:
    package = module.partition(".")[0]
    raise AttributeError(
        f"{package} is not installed and its stand-in has no {module}.{name}:"
        f" install the package {package} where ajet-console is installed"
    )


def print_dict(d: Mapping[Any, Any], header: str = "", *_: Any, **__: Any) -> None:
    """Write one line for each key."""
    lines = [f"  {key}: {_cell(value)}" for key, value in d.items()]
    _write("\n".join([f"--- {header}".rstrip(), *lines]))


def print_dictofdict(
    dod: Mapping[Any, Mapping[Any, Any]], header: str = "", *_: Any, **__: Any
) -> None:
    """Write one line for each row."""
    rows = (
        f"  {name} " + " | ".join(f"{key}: {_cell(value)}" for key, value in row.items())
        for name, row in dod.items()
    )
    _write("\n".join([f"--- {header}".rstrip(), *rows]))


def print_listofdict(
    arr: Sequence[Mapping[Any, Any]], header: str = "", *_: Any, **__: Any
) -> None:
    """Write one line for each row."""
    print_dictofdict({f"[{index}]": row for index, row in enumerate(arr)}, header)


def print_list(arr: Sequence[Any], header: str = "", *_: Any, **__: Any) -> None:
    """Write one line for each item."""
    print_dict(dict(enumerate(arr)), header)


def register_logger(*_: Any, **__: Any) -> None:
    """Do nothing: lines go to the hooks' log only."""


def _cell(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= CELL else text[:CELL] + "..."


_PRINTERS = (print_dict, print_dictofdict, print_list, print_listofdict, register_logger)
_CONTENT: dict[str, dict[str, Any]] = {
    "loguru": {"logger": Logger()},
    "beast_logger": {printer.__name__: printer for printer in _PRINTERS},
}


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(self.__name__, name)


def install_logs() -> list[str]:
    """Provide `loguru` and `beast_logger` where they are missing; return the names provided."""
    missing = [name for name in _CONTENT if importlib.util.find_spec(name) is None]
    for name in missing:
        module = _StandIn(name, f"Stands in for {name}, which is not installed.")
        vars(module).update(_CONTENT[name])
        sys.modules[name] = module
    return missing
