"""What hooks see of AgentJet: the objects passed to them, and a stand-in for the package."""

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
    content: dict[str, dict[str, Any]] = {}
    for thing in (Task, WorkflowOutput, has_repeat):
        home = home_of(thing.__name__)
        content.setdefault(home, {})[thing.__name__] = thing
        if thing.__module__ == __name__:  # pickles refer to the name that hooks import
            thing.__module__ = home
    packages = {name.rpartition(".")[0] for name in content}
    for name in sorted({"ajet", *packages, *content}):  # a package before its modules
        module = ModuleType(name, "Stands in for AgentJet, which is not installed.")
        module.__path__ = []
        vars(module).update(content.get(name, {}))
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
    if _takes(signature, 3):
        return function
    if _takes(signature, 2):
        return lambda results, answers, query: function(results, answers)
    raise TypeError(
        f"on_compute_relative_reward takes {signature}, expected"
        " (valid_results, all_answers) or (valid_results, all_answers, question)"
    )


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
