"""The parts of AgentJet that hooks use: the arguments of hooks, and a stand-in for the package."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

from ajet_swarm.common.repeats import has_repeat
from ajet_swarm.compat_paths import home_of


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
