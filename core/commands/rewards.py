"""Commands of the reward model's parts, and of trials of other rewards."""

from collections.abc import Iterable

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from core.commands.spec import Arg, Command

WHAT_IF_GROUPS = 100
"""Default number of groups of a what-if."""
WHAT_IF_MOST = 500
"""Maximum number of its groups."""

_PART = Arg("part", "text", "Name of the part")

REWARDS = (
    Command(
        "rewards.weight",
        "Rewards: Set a weight",
        "Set the weight of a part, or its share, in the rewards file, from the next group on",
        args=(_PART, Arg("weight", "float", "The weight; 0 only shows the part")),
    ),
    Command(
        "rewards.gate",
        "Rewards: Gate on or off",
        "Make a part a gate (a factor of the whole reward), or a weighted part again",
        args=(_PART, Arg("on", "flag", "on makes it a gate, off a weighted part")),
    ),
    Command(
        "rewards.enable",
        "Rewards: Part on or off",
        "Switch a part of the reward on or off; the others share its weight",
        args=(_PART, Arg("on", "flag", "on or off")),
    ),
)

_WEIGHTS = Arg("weights", "texts", "PART=WEIGHT,... instead of those in use", False)

TRIALS = (
    Command(
        "rewards.whatif",
        "Rewards: What if",
        "Re-score the newest groups with other rewards, in the background; nothing is sent or "
        "changed",
        args=(
            _WEIGHTS,
            Arg("file", "text", "File of rewards to try, on the proxy's machine", False),
            Arg("hooks", "text", "Folder of hooks to try, on the proxy's machine", False),
            Arg("last", "int", f"Number of groups; {WHAT_IF_GROUPS} by default", False),
        ),
    ),
    Command(
        "rewards.whatif_stop",
        "Rewards: End the what-if",
        "Stop scoring; nothing was changed",
    ),
    Command(
        "rewards.apply",
        "Rewards: Apply the what-if",
        "Write the tried weights to the rewards file, from the next group on",
        args=(_WEIGHTS,),
    ),
)


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
