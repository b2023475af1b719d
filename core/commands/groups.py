"""Commands of one group, and of all groups that await a rating."""

from core.commands.spec import Arg, Command

GROUP = Arg("group_id", "text", "Id of the group, or its first characters")

_EACH_SERVER = Arg("server", "text", "Only groups of this swarm server; of all by default", False)

RATINGS = ("best", "ranking", "scores", "tie", "bad", "skip")

_VOTE = (
    Arg("rating", "text", "Kind of rating", choices=RATINGS),
    Arg("order", "ints", "best: one index; ranking: indices, best first", False),
    Arg("scores", "floats", "scores: one number per candidate", False),
    Arg("rater", "text", "Name of the rater", False),
    Arg("note", "text", "Reason in words", False),
    Arg("tags", "texts", "Reasons as tags", False),
    Arg("shown", "ints", "Candidate index at each position on the screen", False),
    Arg("seed", "text", "Seed of the order on the screen", False),
    Arg("looked", "float", "Seconds from its display to the vote", False),
    Arg("first_key", "float", "Seconds from its display to the first key", False),
    Arg("blind", "flag", "Rewards and marks were hidden until the vote", False),
    Arg("guidelines", "text", "Version of the rater's guidelines", False),
)
"""A vote, alike in all commands that take one: the fields of `core.events.rating.VoteEvent`."""

OVERRIDE_HINT = "vote again with `override`"
"""Remedy in the refusal of a vote that `override` would allow."""

ABORT_REASONS = (
    "reward miscalculation",
    "external API out of credit",
    "debugging",
    "evaluation",
    "unexpected issue",
)
"""Reasons of an abort to choose from; the operator may write another one."""

RATE = (
    Command(
        "group.rate",
        "Group: Rate",
        "Rate the candidates; replaces the automatic reward until the group is finished",
        args=(
            GROUP,
            *_VOTE,
            Arg("holder", "text", "Console that votes, as in a lease", False),
            Arg("override", "flag", "Replace another rater's vote, or vote despite a lease", False),
        ),
        role="rater",
    ),
    Command(
        "group.settle",
        "Group: Settle a disagreement",
        "Decide a group on which raters disagree; if it was sent, the vote is recorded for export",
        args=(GROUP, *_VOTE),
    ),
    Command(
        "group.repeat",
        "Group: Record a second vote",
        "Vote again on a group that was rated and sent; compared with the first vote, never sent",
        args=(GROUP, *_VOTE),
        role="rater",
    ),
    Command(
        "group.lease",
        "Group: Lease",
        "Reserve the group for one console, so that others do not rate it",
        args=(
            GROUP,
            Arg("holder", "text", "Name of the console"),
            Arg("rater", "text", "Name of the rater", False),
            Arg("seconds", "float", "Duration of the lease; 0 ends it", False),
            Arg("take", "flag", "Take the lease from the console that has it", False),
            Arg("idle", "float", "Seconds since the rater's last key", False),
            Arg("shared", "flag", "Only report the group on screen: others may vote on it", False),
        ),
        role="rater",
    ),
    Command(
        "group.edit",
        "Group: Keep a correction",
        "Keep a better text for one answer, as a preference; it is recorded, never sent",
        args=(
            GROUP,
            Arg("index", "int", "Candidate it corrects, from 0"),
            Arg("edited", "text", "The whole text; empty removes the correction"),
            Arg("rater", "text", "Author of the correction", False),
        ),
        role="rater",
    ),
)
"""Votes, leases and corrections of one group."""

AGAIN = (
    Command(
        "group.rescore",
        "Group: Re-score",
        "Score its answers again with the present rewards, if it was not sent yet",
        args=(GROUP,),
    ),
    Command(
        "group.refill",
        "Group: Refill",
        "Generate its missing candidates and score all again; only while it waits for a rating",
        args=(GROUP,),
    ),
    Command(
        "group.rerun",
        "Group: Ask again",
        "Send its request once more, as a new group; trained on if the first one was",
        args=(GROUP,),
    ),
    Command(
        "group.pin",
        "Group: Add to the probe set",
        "Hold its prompt out of training and measure the policy with it; a new comparison begins",
        args=(GROUP,),
    ),
)

ALL_OPEN = (
    Command(
        "rating.accept_all",
        "Rating: Accept all open groups",
        "Finish every group that waits for a rating, with its rating, else its automatic reward",
        args=(_EACH_SERVER,),
    ),
    Command(
        "rating.abort_all",
        "Rating: Abort all open groups",
        "Abort every waiting group without a rating; none of them is trained on",
        args=(_EACH_SERVER, Arg("reason", "text", "Reason", False)),
        danger=True,
    ),
)
"""Commands that end all open ratings when they block an operation."""
