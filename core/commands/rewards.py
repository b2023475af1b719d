"""What can be ordered about the parts of a reward."""

from core.commands.spec import Arg, Command

_PART = Arg("part", "text", "Name of the part")

REWARDS = (
    Command(
        "rewards.weight",
        "Rewards: Set a weight",
        "Set the weight of a part, or its share, in the file of the rewards, from the next "
        "group on",
        args=(_PART, Arg("weight", "float", "The weight; 0 only shows the part")),
        key="W",
    ),
    Command(
        "rewards.gate",
        "Rewards: Gate on or off",
        "Make a part a gate, a factor of the whole reward, or a weighted part again",
        args=(_PART, Arg("on", "flag", "on makes it a gate, off a weighted part")),
        key="M",
    ),
    Command(
        "rewards.enable",
        "Rewards: Part on or off",
        "Switch a part of the reward on or off; the others share its weight",
        args=(_PART, Arg("on", "flag", "on or off")),
        key="O",
    ),
)
