"""What can be ordered to see what other rewards would have made of groups that are over."""

from core.commands.spec import Arg, Command

_WEIGHTS = Arg("weights", "texts", "PART=WEIGHT,... in place of those in use", False)

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
            Arg("last", "int", "How many groups; 100", False),
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
        "Write the weights that were tried to the file of the rewards, from the next group on",
        args=(_WEIGHTS,),
    ),
)
