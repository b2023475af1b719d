"""Commands of the progress measurement."""

from core.commands.spec import Arg, Command

_SERVER = Arg("server", "text", "Name of the swarm server; the first one by default", False)

PROGRESS = (
    Command(
        "progress.look",
        "Progress: Take a look",
        "Measure the present policy on the probe set now",
        args=(_SERVER,),
    ),
    Command(
        "progress.trust",
        "Progress: Trust this step",
        "Take a new baseline at the present step; later verdicts compare with it",
        args=(_SERVER,),
    ),
    Command(
        "progress.rewind",
        "Progress: Rewind",
        "Restore the best verified step; a running engine is stopped and started again",
        args=(
            _SERVER,
            Arg(
                "path",
                "text",
                "Folder or model with its weights, as an AgentJet server names it; by default the "
                "checkpoint folder of its job",
                False,
            ),
            Arg("plan_id", "text", "Id of the plan that was shown; another is refused", False),
        ),
        danger=True,
    ),
    Command(
        "progress.pause",
        "Progress: Pause training",
        "Answer users by eval episodes: nothing is trained until training is resumed",
        args=(_SERVER,),
    ),
    Command(
        "progress.resume",
        "Progress: Resume training",
        "Train on requests again after a pause",
        args=(_SERVER,),
    ),
    Command(
        "progress.pair",
        "Progress: Rate a pair",
        "Show a random answer of the baseline and one of the look, without which is which",
        args=(
            _SERVER,
            Arg("rater", "text", "Name of the rater; each has one open pair", False),
            Arg("newest", "flag", "Compare the newest look; the counts begin again", False),
        ),
        role="rater",
    ),
    Command(
        "progress.vote",
        "Progress: Vote on a pair",
        "Say which answer of a pair is better; it is never trained on",
        args=(
            Arg("pair_id", "text", "Id of the pair, from progress.pair"),
            Arg("choice", "text", "The better answer", choices=("left", "right", "tie", "skip")),
            _SERVER,
            Arg("rater", "text", "Name of the rater", False),
        ),
        role="rater",
    ),
)
