"""The table of all commands: name, title, help, arguments, role.

A row is a command; what several take stands above the table. See `core.commands`.
"""

from collections.abc import Sequence
from typing import Final

from core.commands.spec import Arg, Command

MODES = ("off", "answer_first", "hold")
"""Rating modes."""
PRESETS = ("default", "hand", "last")
"""Jobs shipped with the program, and the one last sent from here to the server."""
RATINGS = ("best", "ranking", "scores", "tie", "bad", "skip")
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
WHAT_IF_GROUPS = 100
"""Default number of groups of a what-if."""

_SERVER = Arg("server", "text", "Name of the swarm server; the first one by default", False)
_GROUP = Arg("group_id", "text", "Id of the group, or its first characters")
_RATER = Arg("rater", "text", "Name of the rater", False)
_REASON = Arg("reason", "text", "Reason", False)
_PART = Arg("part", "text", "Name of the part")
_RUN = Arg("number", "int", "Number of the run, as `ajet-console runs` lists it")
_EACH_SERVER = Arg("server", "text", "Only groups of this swarm server; of all by default", False)
_MODEL = Arg("model", "text", "Model for a job without one, on an AgentJet server", False)
_PRESET = Arg(
    "preset", "text", "A job shipped with the program, or `last`, the one last sent", False, PRESETS
)
_WEIGHTS = Arg("weights", "texts", "PART=WEIGHT,... instead of those in use", False)
_VOTE = (
    Arg("rating", "text", "Kind of rating", choices=RATINGS),
    Arg("order", "ints", "best: one index; ranking: indices, best first", False),
    Arg("scores", "floats", "scores: one number per candidate", False),
    _RATER,
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

TABLE: Final[Sequence[Command]] = (
    # --- group ---
    Command("group.rate", "Group: Rate",
        "Rate the candidates; replaces the automatic reward until the group is finished",
        (
            _GROUP, *_VOTE, Arg("holder", "text", "Console that votes, as in a lease", False),
            Arg("override", "flag", "Replace another rater's vote, or vote despite a lease", False),
        ), role="rater"),
    Command("group.settle", "Group: Settle a disagreement",
        "Decide a group on which raters disagree; if it was sent, the vote is recorded for export",
        (_GROUP, *_VOTE)),
    Command("group.repeat", "Group: Record a second vote",
        "Vote again on a group that was rated and sent; compared with the first vote, never sent",
        (_GROUP, *_VOTE), role="rater"),
    Command("group.lease", "Group: Lease",
        "Reserve the group for one console, so that others do not rate it",
        (
            _GROUP, Arg("holder", "text", "Name of the console"), _RATER,
            Arg("seconds", "float", "Duration of the lease; 0 ends it", False),
            Arg("take", "flag", "Take the lease from the console that has it", False),
            Arg("idle", "float", "Seconds since the rater's last key", False),
            Arg("shared", "flag", "Only report the group on screen: others may vote on it", False),
        ), role="rater"),
    Command("group.edit", "Group: Keep a correction",
        "Keep a better text for one answer, for SFT; it is recorded, never sent",
        (
            _GROUP, Arg("index", "int", "Candidate it corrects, from 0"),
            Arg("edited", "text", "The whole text; empty removes the correction"),
            Arg("rater", "text", "Author of the correction", False),
        ), role="rater"),
    Command("group.unrate", "Group: Undo the rating",
        "Undo a vote before it is sent",
        (
            _GROUP, Arg("rater", "text", "Who rates", False),
            Arg("holder", "text", "Console of the vote, as in a lease", False),
        ), role="rater"),
    Command("group.accept", "Group: Accept the automatic reward",
        "Finish the group now, with its rating if it has one, else with the automatic reward",
        (
            _GROUP, Arg("override", "flag", "Also if votes of different raters are missing", False),
        ), role="rater"),
    Command("group.abort", "Group: Abort",
        "Give all episodes of the group back; none of them is trained on",
        (_GROUP, _REASON), danger=True),
    Command("group.rescore", "Group: Re-score",
        "Score its answers again with the present rewards, if it was not sent yet", (_GROUP,)),
    Command("group.refill", "Group: Refill",
        "Generate its missing candidates and score all again; only while it waits for a rating",
        (_GROUP,)),
    Command("group.rerun", "Group: Ask again",
        "Send its request once more, as a new group; trained on if the first one was", (_GROUP,)),
    Command("group.pin", "Group: Add to the probe set",
        "Hold its prompt out of training and measure the policy with it; a new comparison begins",
        (_GROUP,)),
    Command("group.mark", "Group: Mark",
        "Set or clear the mark",
        (
            _GROUP, Arg("marked", "flag", "True sets it (the default), false clears it", False),
        ), role="rater"),
    Command("group.note", "Group: Note",
        "Write a note on the group",
        (_GROUP, Arg("note", "text", "The note; empty clears it")), role="rater"),
    # --- rating ---
    Command("rating.mode", "Rating: Switch the mode",
        "off, answer_first (the user is answered, you rate later) or hold (the user waits for you)",
        (Arg("mode", "text", "The mode", choices=MODES),)),
    Command("rating.accept_all", "Rating: Accept all open groups",
        "Finish every group that waits for a rating, with its rating, else its automatic reward",
        (_EACH_SERVER,)),
    Command("rating.abort_all", "Rating: Abort all open groups",
        "Abort every waiting group without a rating; none of them is trained on",
        (_EACH_SERVER, _REASON), danger=True),
    # --- engine ---
    Command("engine.start", "Engine: Start",
        "Send the job and start the engine; it must be OFFLINE",
        (
            _SERVER,
            Arg("preset", "text",
                "A job shipped with the program, or `last`, the one last sent; by default the "
                "saved one, else on an AgentJet server the one last sent, else `default`",
                False, PRESETS),
            Arg("job", "text", "The job as YAML; it is also saved for the server", False), _MODEL,
        )),
    Command("engine.stop", "Engine: Stop",
        "Stop the engine; claimed episodes are lost, for every client of the server",
        (_SERVER,), danger=True),
    Command("engine.resume", "Engine: Resume",
        "Start the engine again with its present job, from its saved policy", (_SERVER,)),
    Command("engine.save", "Engine: Save a checkpoint",
        "Save the present policy under a name; an older checkpoint of that name is replaced",
        (_SERVER, Arg("name", "text", "Its name: letters, digits, dot, _ and -"))),
    Command("engine.restore", "Engine: Restore a checkpoint",
        "Continue from a checkpoint; a running engine is stopped and resumed",
        (_SERVER, Arg("name", "text", "Name of the checkpoint, or base")), danger=True),
    Command("engine.prune", "Engine: Prune checkpoints",
        "Delete all but the newest named checkpoints",
        (_SERVER, Arg("keep", "int", "Number of named checkpoints to keep")), danger=True),
    Command("engine.reset", "Engine: Reset to base",
        "Base weights, step 0, a new optimizer; a running engine is stopped and resumed",
        (_SERVER,), danger=True),
    Command("engine.job", "Engine: Save the job",
        "Check a job and save it for the server's next start",
        (_SERVER, Arg("job", "text", "The job as YAML", False), _PRESET)),
    Command("engine.apply", "Engine: Apply the job",
        "Stop, wait for a stable OFFLINE, send the job and start; all claimed episodes are lost",
        (
            _SERVER,
            Arg("job", "text", "The job as YAML, also saved; the saved one by default", False),
            _PRESET, _MODEL,
        ), danger=True),
    Command("engine.cancel", "Engine: Cancel the operation",
        "End a start or an apply at its next safe point; reports the engine's state", (_SERVER,)),
    Command("engine.abort_episode", "Engine: Abort an episode",
        "Take a claimed episode from the client that holds it; in ROLLING it goes back to the pool",
        (
            Arg("episode", "text", "Its uuid, or the beginning of it"), _SERVER, _REASON,
        ), danger=True),
    Command("engine.try", "Engine: Try a prompt",
        "Send one prompt to the policy as an eval episode, which is not trained on",
        (
            Arg("prompt", "text", "The prompt"), _SERVER,
            Arg("try_id", "text", "Name of the try; a new one by default", False),
        )),
    Command("engine.try_stop", "Engine: Cancel a try",
        "Give the episode of a try back; it ends without an answer",
        (Arg("try_id", "text", "Name of the try; the newest running one by default", False),)),
    # --- progress ---
    Command("progress.look", "Progress: Take a look",
        "Measure the present policy on the probe set now", (_SERVER,)),
    Command("progress.trust", "Progress: Trust this step",
        "Take a new baseline at the present step; later verdicts compare with it", (_SERVER,)),
    Command("progress.rewind", "Progress: Rewind",
        "Restore the best verified step; a running engine is stopped and started again",
        (
            _SERVER,
            Arg("path", "text",
                "Folder or model with its weights, as an AgentJet server names it; by default the "
                "checkpoint folder of its job", False),
            Arg("plan_id", "text", "Id of the plan that was shown; another is refused", False),
        ), danger=True),
    Command("progress.pause", "Progress: Pause training",
        "Answer users by eval episodes: nothing is trained until training is resumed", (_SERVER,)),
    Command("progress.resume", "Progress: Resume training",
        "Train on requests again after a pause", (_SERVER,)),
    Command("progress.pair", "Progress: Rate a pair",
        "Show a random answer of the baseline and one of the look, without which is which",
        (
            _SERVER, Arg("rater", "text", "Name of the rater; each has one open pair", False),
            Arg("newest", "flag", "Compare the newest look; the counts begin again", False),
        ), role="rater"),
    Command("progress.vote", "Progress: Vote on a pair",
        "Say which answer of a pair is better; it is never trained on",
        (
            Arg("pair_id", "text", "Id of the pair, from progress.pair"),
            Arg("choice", "text", "The better answer", choices=("left", "right", "tie", "skip")),
            _SERVER, _RATER,
        ), role="rater"),
    # --- rewards ---
    Command("rewards.whatif", "Rewards: What if",
        "Re-score the newest groups with other rewards, in the background; nothing is sent or "
        "changed",
        (
            _WEIGHTS, Arg("file", "text", "File of rewards to try, on the proxy's machine", False),
            Arg("hooks", "text", "Folder of hooks to try, on the proxy's machine", False),
            Arg("last", "int", f"Number of groups; {WHAT_IF_GROUPS} by default", False),
        )),
    Command("rewards.whatif_stop", "Rewards: End the what-if", "Stop scoring; nothing was changed"),
    Command("rewards.apply", "Rewards: Apply the what-if",
        "Write the tried weights to the rewards file, from the next group on", (_WEIGHTS,)),
    Command("rewards.weight", "Rewards: Set a weight",
        "Set the weight of a part, or its share, in the rewards file, from the next group on",
        (_PART, Arg("weight", "float", "The weight; 0 only shows the part"))),
    Command("rewards.gate", "Rewards: Gate on or off",
        "Make a part a gate (a factor of the whole reward), or a weighted part again",
        (_PART, Arg("on", "flag", "on makes it a gate, off a weighted part"))),
    Command("rewards.enable", "Rewards: Part on or off",
        "Switch a part of the reward on or off; the others share its weight",
        (_PART, Arg("on", "flag", "on or off"))),
    # --- journal ---
    Command("journal.prune", "Journal: Prune",
        "Delete the oldest groups now, in the background; rated, open and the newest ones stay",
        (
            Arg("days", "float", "Days to keep; journal.keep_days by default", False),
            Arg("bytes", "int", "Bytes to keep; journal.keep_bytes by default", False),
            Arg("rated", "flag", "Delete older rated groups, too", False),
        ), danger=True),
    # --- run ---
    Command("run.name", "Run: Name",
        "Give the run a name", (_RUN, Arg("name", "text", "The name; empty removes it"))),
    Command("run.note", "Run: Note",
        "Write a note on the run", (_RUN, Arg("note", "text", "The note; empty removes it"))),
    Command("run.pin", "Run: Pin",
        "Keep the requests of the run when the journal is pruned, or no longer",
        (_RUN, Arg("pinned", "flag", "True pins it (the default), false unpins it", False))),
    # --- alert ---
    Command("alert.dismiss", "Alert: Dismiss",
        "Hide an alert", (Arg("key", "text", "Key of the alert"),)),
    # --- mock ---
    Command("mock.start", "Mock user: Start",
        "Replay a dataset through the fake vLLM",
        (
            Arg("dataset", "text", "File or folder; the shipped questions by default", False),
            Arg("columns", "text", "PART=COLUMN,... for columns with unusual names", False),
            Arg("target", "text",
                "Target file or preset, or an address; the fake vLLM by default", False),
            Arg("concurrency", "int", "Requests in flight", False),
            Arg("pace", "float", "Seconds a worker waits between two requests", False),
            Arg("rate", "float", "Requests per second, however many are in flight", False),
            Arg("passes", "int", "How often the dataset is asked", False),
            Arg("seed", "int", "Shuffle each pass by this seed", False),
            Arg("split", "text", "Ask only this side", False, ("train", "held-out")),
            Arg("held_out", "float", "Share that is held out", False),
            Arg("updates", "int", "Stop after this many policy updates", False),
            Arg("pause_sync", "flag", "Ask nothing while no engine accepts work", False),
            Arg("results", "text", "File that receives one JSON line per row", False),
            Arg("restart", "flag", "Start over instead of continuing", False),
            Arg("override", "flag",
                "Also while training is paused: the rows are answered untrained", False),
        ), where="console"),
    Command("mock.pause", "Mock user: Pause", "Send nothing until it is resumed"),
    Command("mock.resume", "Mock user: Resume", "Continue sending"),
    Command("mock.stop", "Mock user: Stop", "End after the requests in flight"),
    # --- proxy ---
    Command("proxy.restart", "Proxy: Restart",
        "Start the fake vLLM again; requests in flight are drained first",
        danger=True, where="console"),
    # --- engine ---
    Command("engine.restart_process", "Engine: Restart the embedded engine's process",
        "Start the embedded engine again from its last update", danger=True, where="console"),
    # --- proxy ---
    Command("proxy.drain", "Proxy: Drain", "Accept no new requests; finish those in flight"),
)  # fmt: skip
