"""The earlier name of `ajet_swarm`. Scripts that import it run, with a DeprecationWarning."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import ajet_swarm

_MODULES = {
    "agentjet_job": "protocol.agentjet_job",
    "asynchronous": "client.asynchronous",
    "claim_models": "protocol.claim_models",
    "claims": "claims.claimer",
    "client": "api.engine",
    "compat": "compat",
    "compat_paths": "compat_paths",
    "debug": "debug",
    "episode": "client.episode",
    "errors": "protocol.errors",
    "executors": "runs.executors",
    "job": "protocol.job",
    "joint": "client.multi_server",
    "readers": "data.readers",
    "repeats": "common.repeats",
    "retry": "runs.retry",
    "run": "runs.episodes",
    "run_record": "runs.record",
    "schemas": "protocol.schemas",
    "sync": "client.synchronous",
    "task": "protocol.task",
    "throttle": "client.throttle",
    "trace": "debug.trace",
    "watcher": "api.watcher",
}
"""Earlier module -> module of `ajet_swarm`, of those that the documentation named."""

__all__ = ajet_swarm.__all__


def __getattr__(name: str) -> Any:
    return getattr(ajet_swarm, name)


class _Alias(MetaPathFinder, Loader):
    """Import `swarm.X` as the module of `ajet_swarm` that has its names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package != __name__ or module not in _MODULES:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        new = f"ajet_swarm.{_MODULES[module.__name__.partition('.')[2]]}"
        sys.modules[module.__name__] = importlib.import_module(new)


sys.meta_path.append(_Alias())
warnings.warn("`swarm` is now `ajet_swarm`: change the import", DeprecationWarning, stacklevel=2)
