"""Commands about one group, and about all groups that await a rating."""

from core.commands.spec import Arg, Command

GROUP = Arg("group_id", "text", "Id of the group; its first characters will do")

_EACH_SERVER = Arg("server", "text", "Only those of this swarm server; else of all", False)

_LOOK = (
    Arg("shown", "ints", "Candidate index at each place of the screen", False),
    Arg("seed", "text", "What the order shown was shuffled by", False),
    Arg("looked", "float", "Seconds from its display to the vote", False),
)

RATINGS = ("best", "ranking", "scores", "tie", "bad", "skip")

OVERRIDE_HINT = "vote again with `override`"
"""Ends the refusal of a vote that `override` would let through."""

ABORT_REASONS = (
    "reward miscalculation",
    "external API out of credit",
    "debugging",
    "evaluation",
    "unexpected issue",
)
"""Why a group is aborted, where it is none of the operator's own words."""

RATE = (
    Command(
        "group.rate",
        "Group: Rate",
        "Rate the candidates; replaces the automatic reward until the group is finished",
        args=(
            GROUP,
            Arg("rating", "text", "What kind of rating", choices=RATINGS),
            Arg("order", "ints", "best: one index; ranking: indices, best first", False),
            Arg("scores", "floats", "scores: one number a candidate", False),
            Arg("rater", "text", "Who rates", False),
            Arg("note", "text", "Why", False),
            Arg("tags", "texts", "Reasons", False),
            *_LOOK,
            Arg("blind", "flag", "Rewards and marks were hidden until the vote", False),
            Arg("first_key", "float", "Seconds from its display to the first key", False),
            Arg("guidelines", "text", "Version of the guidelines the rater had", False),
            Arg("holder", "text", "Names the console that votes, as in a lease", False),
            Arg("override", "flag", "Replace another rater's vote, or vote despite a lease", False),
        ),
    ),
    Command(
        "group.repeat",
        "Group: Record a second vote",
        "Judge a group again that was rated and sent: compared with the first vote, never sent",
        args=(
            GROUP,
            Arg("rating", "text", "What kind of rating", choices=RATINGS),
            Arg("order", "ints", "best: one index; ranking: indices, best first", False),
            Arg("scores", "floats", "scores: one number a candidate", False),
            Arg("rater", "text", "Who rates", False),
            *_LOOK,
        ),
    ),
    Command(
        "group.lease",
        "Group: Lease",
        "Reserve the group for one console, so that others do not rate it",
        args=(
            GROUP,
            Arg("holder", "text", "Names one console"),
            Arg("rater", "text", "Who looks", False),
            Arg("seconds", "float", "For how long; 0 gives it back", False),
            Arg("take", "flag", "Take it from the console that has it", False),
        ),
    ),
    Command(
        "group.edit",
        "Group: Keep a correction",
        "Keep a better text for one answer, as a preference; it is recorded, never sent",
        args=(
            GROUP,
            Arg("index", "int", "Candidate it corrects, from 0"),
            Arg("edited", "text", "The whole text; empty removes the correction"),
            Arg("rater", "text", "Who wrote it", False),
        ),
    ),
)
"""About one group."""

AGAIN = (
    Command(
        "group.rescore",
        "Group: Re-score",
        "Score its answers again with the rewards as they are now, as long as it is not sent",
        args=(GROUP,),
    ),
    Command(
        "group.refill",
        "Group: Refill",
        "Ask for the candidates it is short of and score all again; only while it waits for you",
        args=(GROUP,),
    ),
    Command(
        "group.rerun",
        "Group: Ask again",
        "Send its request once more, as a new group of its own; trained on if the first one was",
        args=(GROUP,),
    ),
)

ALL_OPEN = (
    Command(
        "rating.accept_all",
        "Rating: Accept all open groups",
        "Finish every group that waits for a rating: with its rating, else its automatic reward",
        args=(_EACH_SERVER,),
    ),
    Command(
        "rating.abort_all",
        "Rating: Abort all open groups",
        "Abort every group that waits and has no rating; nothing of them is trained on",
        args=(_EACH_SERVER, Arg("reason", "text", "Why", False)),
        danger=True,
    ),
)
"""The ways out when open ratings hold something up."""
