"""Brief records of a snapshot; a client reads later what they lack.

A brief group is a closed one without texts and reward parts; a brief engine run is an ended one
without its curve.
"""

from collections.abc import Mapping

import msgspec

from core.state.group import Candidate, Group
from core.state.runs import EngineRuns

SHORT_QUERY = 300
"""Maximum characters of the query of a brief group."""


def brief_groups(groups: Mapping[str, Group], whole: int) -> dict[str, Group]:
    """Return the groups, the closed ones brief except for the newest `whole` groups.

    Everything that lists, counts and figures of groups use stays: phases, times, rewards, votes.
    """
    first_whole = len(groups) - whole
    return {
        group_id: group if place >= first_whole or group.open else _brief(group)
        for place, (group_id, group) in enumerate(groups.items())
    }


def _brief(group: Group) -> Group:
    return msgspec.structs.replace(
        group,
        brief=True,
        query=group.query[:SHORT_QUERY],
        traceback="",
        candidates=[_brief_candidate(candidate) for candidate in group.candidates],
    )


def _brief_candidate(candidate: Candidate) -> Candidate:
    return msgspec.structs.replace(
        candidate,
        text="",
        reasoning="",
        tool_calls="",
        cut=True,
        parts=(),
        error=candidate.error[:SHORT_QUERY],
    )


def brief_runs(runs: EngineRuns) -> EngineRuns:
    """Return the engine runs, the ended ones without curves, which no longer change."""
    replace = msgspec.structs.replace
    return replace(runs, runs=[run if run.running else replace(run, curve=[]) for run in runs.runs])


def complete(group: Group, whole: Group) -> None:
    """Fill in what a brief group lacks.

    The texts and parts of a closed group change only by events of the group, which replace them.

    Args:
        group: The brief group; its other fields may be newer than those of `whole`.
        whole: The same group with its texts and parts.
    """
    group.brief = False
    group.query, group.traceback = whole.query, whole.traceback
    for candidate, other in zip(group.candidates, whole.candidates, strict=False):
        for name in ("text", "reasoning", "tool_calls", "cut", "parts", "error"):
            setattr(candidate, name, getattr(other, name))
