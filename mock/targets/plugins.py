"""Targets of other packages: each is a kind of target file.

A package provides one by the entry point group `ajet_console.mock_targets`: its name, which a
target file gives as `kind`, and a `TargetKind`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.plugins import MOCK_TARGETS, Plugins

if TYPE_CHECKING:
    from mock.targets.base import ModelEndpoint
    from mock.targets.question import Target
    from mock.targets.spec import PluginSpec

OWN_KINDS = ("fake", "command", "http", "python")
"""Kinds of this program."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target."""

    make: "Callable[[PluginSpec, ModelEndpoint], Target]"
    """Makes the target of a file; raises `UsageError` for options that are wrong. A class that
    extends `mock.targets.base.TargetBase` fits."""
    help: str
    """One line."""


PLUGINS = Plugins(MOCK_TARGETS, TargetKind, OWN_KINDS)
"""The kinds of other packages."""
