"""What can be ordered to be done once more."""

from core.commands.rating import GROUP
from core.commands.spec import Command

ABORT_REASONS = (
    "reward miscalculation",
    "external API out of credit",
    "debugging",
    "evaluation",
    "unexpected issue",
)
"""Why a group is aborted, where it is none of the operator's own words."""

AGAIN = (
    Command(
        "group.rescore",
        "Group: Re-score",
        "Score its answers again with the rewards as they are now, as long as it is not sent",
        args=(GROUP,),
        key="S",
    ),
    Command(
        "group.refill",
        "Group: Refill",
        "Ask for the candidates it is short of and score all again; only while it waits for you",
        args=(GROUP,),
        key="R",
    ),
    Command(
        "group.rerun",
        "Group: Ask again",
        "Send its request once more, as a new group of its own; trained on if the first one was",
        args=(GROUP,),
        key="A",
    ),
)
