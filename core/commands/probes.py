"""Commands about prompts that are tried."""

from core.commands.spec import Arg, Command

TRY = (
    Command(
        "engine.try",
        "Engine: Try a prompt",
        "Ask the policy once, as an eval episode: nothing is trained on it, the answer is kept",
        args=(
            Arg("prompt", "text", "What to ask"),
            Arg("server", "text", "Name of the swarm server; the first one when left out", False),
            Arg("try_id", "text", "How to call the try; a new name when left out", False),
        ),
        key="ctrl+t",
    ),
    Command(
        "engine.try_stop",
        "Engine: Cancel a try",
        "Give the episode of a try back; it ends without an answer",
        args=(Arg("try_id", "text", "Which one; the newest that runs when left out", False),),
    ),
)
