"""Values of the commands on the rewards."""

from collections.abc import Iterable

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line

WHAT_IF_MOST = 500
"""Maximum number of groups of a what-if."""


def weights_of(assignments: Iterable[str]) -> dict[str, float]:
    """Return the weights of `PART=NUMBER` texts, by part.

    Raises:
        UsageError: A text has another form.
    """
    weights: dict[str, float] = {}
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not sign or not name.strip() or not abs(value) <= 1e6:
            what = f"`{one_line(assignment, 40)}` is not a weight"
            raise UsageError(what, todo="A weight is PART=NUMBER, such as length=0.5")
        weights[name.strip()] = value
    return weights
