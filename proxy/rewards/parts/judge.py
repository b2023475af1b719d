"""A language model that scores the answers by a rubric."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.judge.part import Judge
from proxy.rewards.judge.settings import SETTINGS, options
from proxy.rewards.part import PartKind


def make(name: str, settings: Mapping[str, Any], where: Path) -> Judge:
    """Return the part.

    Raises:
        SettingError: a setting is invalid, or the rubric cannot be read.
    """
    return Judge(options(name, settings))


KIND = PartKind(
    make,
    "Score of a language model by a rubric",
    SETTINGS,
    slow=True,
    relative="a judge costs calls, and may compare the answers of a group",
)
