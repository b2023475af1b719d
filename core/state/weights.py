"""Training runs of a swarm server, and the version of the weights that produced an answer."""

from functools import lru_cache
from urllib.parse import quote

import msgspec

UNKNOWN = "-"
"""Stands for an unknown part of a version."""
_PLAIN = ":+@=~"
"""Characters besides letters, digits and `_.-` that need no escape in a version."""


class TrainingRun(msgspec.Struct, kw_only=True):
    """A sequence of policy updates in which every global step stands for one state of the weights.

    A server that reports no id of its run has a new one at each observed start.
    """

    number: int
    name: str
    start: str = ""
    """Checkpoint or model that its first weights came from; empty for the shipped weights of the
    embedded engine, or if unknown."""
    engine_run: int = 0
    """`Server.engine_run` in which it was last observed."""


class WeightVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights that produced an answer: server, training run, global step."""

    server: str
    run: str = ""
    """Name of the training run; empty if unknown."""
    step: int | None = None
    """Global step; None if unknown."""
    later_step: int | None = None
    """Global step when the answer had arrived, if the step changed since the claim and the server
    does not report which of the two weights it used; else None."""
    checkpoint: str = ""
    """Checkpoint or model that the run began with; empty for shipped weights, or if unknown."""

    @property
    def text(self) -> str:
        """`SERVER/RUN/STEP[/CHECKPOINT]` in ASCII without line breaks.

        STEP is `7-8` if it changed between claim and answer; `-` stands for an unknown part.
        """
        return _text(self)


@lru_cache(maxsize=256)
def _text(version: WeightVersion) -> str:
    step = UNKNOWN if version.step is None else str(version.step)
    if version.later_step is not None:
        step = f"{step}-{version.later_step}"
    parts = [_quoted(version.server), _quoted(version.run), step]
    if version.checkpoint:
        parts.append(quote(version.checkpoint, safe=_PLAIN + "/"))
    return "/".join(parts)


def _quoted(name: str) -> str:
    """Return a name without a slash, `-` if it is empty."""
    return quote(name, safe=_PLAIN) or UNKNOWN
