"""PyYAML, imported when the first job is read or written.

Episodes need no YAML, so PyYAML is only an extra (`yaml`) of the distribution `ajet-swarm`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import UsageError


class LazyYaml(ModuleType):
    """Stand-in for the module `yaml`, which it imports at the first use of an attribute."""

    def __getattr__(self, name: str) -> Any:
        """Import PyYAML and return one of its names.

        Raises:
            UsageError: PyYAML is not installed.
        """
        try:
            module = importlib.import_module("yaml")
        except ImportError as error:
            raise UsageError(
                "PyYAML is not installed", "job", "Install it: pip install 'ajet-swarm[yaml]'"
            ) from error
        self.__dict__.update({key: value for key, value in vars(module).items() if key[0] != "_"})
        return getattr(module, name)


if TYPE_CHECKING:
    import yaml as yaml
else:
    yaml = LazyYaml("yaml")
