"""Commands of the reward model's parts, and of trials of other rewards."""

from core.commands.spec import Arg, Command

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
            Arg("last", "int", "Number of groups; 100 by default", False),
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
