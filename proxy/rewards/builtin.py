"""The reward that needs no set-up: cheap, deterministic parts on the text of the answers."""

import hashlib
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.base import (
    Abstention,
    GroupContext,
    Listener,
    Part,
    RequestReport,
    Score,
    ScoreSheet,
    SourceHealth,
)
from proxy.rewards.health import HealthBoard
from proxy.rewards.math import combine
from proxy.rewards.part_gates import degeneration, finished
from proxy.rewards.part_reference import reference
from proxy.rewards.part_style import diversity, length, relevance, shared_most
from proxy.rewards.part_tools import tools
from proxy.rewards.text import Reading, content_stems, read

log = logging.getLogger(__name__)

TEXT = {"length": 0.3, "relevance": 0.3, "diversity": 0.4}
"""Weights of the parts of an answer in words."""
CALLS = {"tools": 0.7, "diversity": 0.3}
"""Weights of the parts of an answer that calls tools."""
REFERENCE = 0.6
"""Share of the reference part where a reference is known; the others share the rest."""

_MADE_OF = (
    "builtin.py",
    "math.py",
    "part_gates.py",
    "part_reference.py",
    "part_style.py",
    "part_tools.py",
    "text.py",
)


def score_group(ctx: GroupContext) -> tuple[Score, ...]:
    """Scores of a group, each reward in [0, 1]; the same answers get the same rewards always."""
    readings = [read(answer) for answer in ctx.answers]
    stems = content_stems(ctx.query)
    most = shared_most(readings)
    scores = []
    for position, answer in enumerate(ctx.answers):
        parts = _parts(readings[position], most[position], stems, ctx.reference)
        reward = min(1.0, max(0.0, combine(parts)))
        scores.append(Score(answer.index, reward, parts))
    return tuple(scores)


def _parts(
    reading: Reading, most: tuple[int, int], stems: tuple[str, ...], wanted: str | None
) -> tuple[Part, ...]:
    weights = CALLS if reading.tool_calls else TEXT
    rest = 1.0 if wanted is None else 1.0 - REFERENCE
    if "relevance" in weights and not stems:
        rest /= 1.0 - weights["relevance"]  # nothing to take up: the others share its weight
    parts = [degeneration(reading), finished(reading.finish_reason)]
    if wanted is not None:
        parts.append(reference(reading.text, wanted, REFERENCE))
    if reading.tool_calls:
        parts.append(tools(reading.tool_calls, rest * weights["tools"]))
    else:
        parts.append(length(reading.count, rest * weights["length"]))
        if stems:
            parts.append(relevance(stems, reading.line, rest * weights["relevance"]))
    parts.append(diversity(reading.grams, most, rest * weights["diversity"]))
    return tuple(parts)


class BuiltinSource:
    """The default source of rewards."""

    name = "builtin"

    def __init__(self) -> None:
        digest = hashlib.sha256()
        for file in _MADE_OF:
            digest.update(Path(__file__).with_name(file).read_bytes())
        self._version = digest.hexdigest()[:12]
        self._board = HealthBoard(SourceHealth(True, None, self._version))

    @property
    def version(self) -> str:
        """Hash of the code of the parts and their weights."""
        return self._version

    async def start(self) -> None:
        """Nothing to do: always ready."""

    async def close(self) -> None:
        """Nothing to give back."""

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Takes note of nothing."""
        return RequestReport(metadata)

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Score one group on the loop: well under a millisecond for short answers."""
        started = time.perf_counter()
        scores: tuple[Score, ...] = ()
        abstention = None
        try:
            scores = score_group(ctx)
            if not scores:
                abstention = Abstention("builtin", "the group has no answers to score")
        except Exception as error:  # an odd answer must cost its group's rewards, not the proxy
            log.exception("the built-in reward failed on group %s", ctx.group_id)
            cause = f"{type(error).__name__}: {error}"
            abstention = Abstention("builtin", cause, traceback.format_exc())
        return ScoreSheet(scores, abstention, self._version, time.perf_counter() - started)

    def health(self) -> SourceHealth:
        """Always well."""
        return self._board.now

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Accepted; the health of this source never changes."""
        return self._board.add(listener)
