"""Rules of the commands on groups: when each is refused, and what is lost.

A rule returns nothing where its command may run. It raises `NotNow` where it may not, and
`NoChange` where it would succeed without an effect. Texts name no user's or model's words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean, one_line, plural
from core.commands.spec import NoChange, NotNow
from core.commands.table import OVERRIDE_HINT
from core.roles import ASK_OPERATOR, NotPermitted
from core.state import Group, Lease, Rating, State

Args = Mapping[str, Any]
LEASE_SECONDS = 20.0
"""Default duration of a lease; a console renews it while it shows the group."""
_ON_VOTES = frozenset({"group.rate", "group.unrate", "group.lease", "group.accept"})
_NEXT = "Rate another one"


def find_group(state: State, group_id: str) -> Group:
    """Return the group of that id, or the only one whose id begins with it.

    Raises:
        NotNow: There is none, or there are several.
    """
    if group_id in state.groups:
        return state.groups[group_id]
    matches = [group for known, group in state.groups.items() if known.startswith(group_id)]
    if len(matches) == 1:
        return matches[0]
    shown = one_line(group_id, 60)
    if not matches and any(known.startswith(group_id) for known in state.inbox):
        todo = "It was deleted from the journal; nothing can be rated there"
        raise NotNow(f"the answers of group {shown} are no longer stored", todo=todo)
    if matches:
        what = f"the ids of {len(matches)} groups begin with `{shown}`"
        raise NotNow(what, todo="Give more of the group's id")
    hint = did_you_mean(group_id, state.groups) or "Give the whole id of an old one"
    raise NotNow(f"there is no group `{shown}`", todo=hint)


def names_of(votes: Iterable[Rating | Lease]) -> str:
    """Return the raters of some votes or leases in words: `ada and bob`."""
    names = [one_line(vote.rater, 40) or "another console" for vote in votes]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def missing_votes(state: State, group: Group) -> str:
    """Return `1 of 2 votes, by ada` of a group that waits for votes; empty for any other one."""
    if not group.lacks_votes or not group.rateable or state.rating_mode == "off":
        return ""
    names = names_of(group.votes)
    return f"{len(group.votes)} of {group.overlap} votes" + (f", by {names}" if names else "")


def vote_refusal(group: Group) -> str:
    """Return why a vote would have no effect; empty when it would have one."""
    if group.episode_type == "eval":
        return "This request is not trained on; there is nothing to rate"
    if group.phase in ("ABORTED", "FAILED"):
        phase = "lost" if group.discarded else group.phase.lower()
        return f"Already {phase}: a vote has no effect"
    if not group.rateable:
        return "Already finished: its rewards are fixed"
    if group.phase not in ("SCORING", "AWAITING_RATING"):
        return "Its candidates are not complete yet"
    return ""


def undo_left(group: Group, now: float) -> bool:
    """Return whether a rating can still be undone."""
    return group.rateable and (group.until is None or now < group.until)


def refill_refusal(group: Group) -> str:
    """Return why a group takes no fresh candidates; empty when it does."""
    if group.episode_type == "eval":
        return "This request is not trained on; it needs no more candidates"
    if not group.rateable:
        return "It is closed: it cannot be refilled; A sends it again as a new group"
    if group.phase != "AWAITING_RATING":
        return "Only a group that waits for you can be refilled"
    if len(group.answered) >= group.n:
        return f"It is complete: all {group.n} candidates answered"
    if any(candidate.phase == "claimed" for candidate in group.candidates):
        return "New candidates are already requested"
    is_rated = group.rating is not None or group.votes
    return "It is rated: undo it with u, then refill it with R" if is_rated else ""


# --- rules ---------------------------------------------------------------------------------------


def _require_vote(group: Group) -> None:
    if why := vote_refusal(group):
        raise NotNow(why, group.group_id)
    if not group.answered:
        raise NotNow("There is no answer to rate", group.group_id)


def _rate(state: State, group: Group, args: Args, now: float) -> None:
    item = state.inbox.get(group.group_id)
    if item is None:
        _require_vote(group)
    elif args["rating"] == "skip":
        raise NotNow("a skip judges nothing, and the group has ended", todo=_NEXT)
    elif not group.answered:
        raise NotNow(f"the answers of group {group.group_id} are no longer stored", todo=_NEXT)
    _require_fit(group, args)
    if (shown := args.get("shown")) and sorted(shown) != group.answered:
        what = f"group {group.group_id} has other answers now than those that were shown"
        raise NotNow(what, todo="Read them, and vote again")
    if group.settled is not None:
        raise NotNow(f"{names_of([group.settled])} has settled group {group.group_id}", todo=_NEXT)
    holder, rater = args.get("holder", ""), args.get("rater", "")
    voted = item or group
    if group.overlap > 1 and voted.vote_of(rater, holder) is not None:
        return
    if group.overlap > 1 and len(voted.votes) >= group.overlap:
        raise NotNow(
            f"group {group.group_id} has its {group.overlap} votes, by {names_of(voted.votes)}",
            todo=f"{_NEXT}; `settle` decides a disagreement",
        )
    if args.get("override") or (group.overlap == 1 and group.rating is not None):
        return
    leases = group.leases_of_others(holder, now)
    own = any(lease.rater and lease.rater == rater for lease in leases)
    if own or len(leases) < group.missing_votes:
        return
    left = min(lease.until for lease in leases) - now
    lacks = f"; it lacks {plural(group.missing_votes, 'vote')}" if group.overlap > 1 else ""
    what = f"{_rating(leases, group)}, for {left:.0f} s more at least{lacks}"
    raise NotNow(what, todo=f"{_NEXT}, or {OVERRIDE_HINT}")


def _rating(leases: Sequence[Lease], group: Group) -> str:
    """Return `ada and bob are rating group g1`."""
    return f"{names_of(leases)} {'is' if len(leases) == 1 else 'are'} rating group {group.group_id}"


def _require_fit(group: Group, args: Args) -> None:
    """Refuse a vote that does not fit the number of candidates; the proxy checks its scores."""
    order, kind = args.get("order", ()), args["rating"]
    if (kind == "best" and len(order) != 1) or (kind == "ranking" and not order):
        raise UsageError(f"a rating `{kind}` needs `order`", todo="Give candidate indices, from 0")
    if any(not 0 <= index < group.n for index in order) or len(set(order)) < len(order):
        todo = f"Its candidates have the indices 0 to {group.n - 1}, each once"
        raise UsageError("a candidate's index is impossible", group.group_id, todo)
    answers = {
        len(group.answered),
        len([candidate for candidate in group.candidates if candidate.reward is not None]),
    }
    if kind == "scores" and len(args.get("scores", ())) not in {group.n, *answers}:
        raise UsageError("`scores` needs one number per candidate", group.group_id)


def _unrate(state: State, group: Group, args: Args, now: float) -> None:
    if (item := state.inbox.get(group.group_id)) is not None:
        if item.vote_to_undo(args.get("rater", ""), args.get("holder", "")) is None:
            raise NoChange("You have no vote to undo", group.group_id)
        return
    if why := vote_refusal(group):
        raise NotNow(why, group.group_id)
    if group.rating is None and not group.votes:
        raise NoChange("There is no vote to undo", group.group_id)
    if not undo_left(group, now):
        raise NotNow("It is being sent: too late to undo it", group.group_id)
    if group.overlap == 1:
        return
    rater, holder = args.get("rater", ""), args.get("holder", "")
    only = not rater and not holder and len(group.votes) == 1
    if group.settled is not None or not (only or group.vote_of(rater, holder)):
        who = f"{one_line(rater, 40)} has" if rater else "you have"
        votes = f"Votes: {names_of(group.votes)}" if group.votes else ""
        raise NotNow(f"{who} no vote on group {group.group_id} to undo", todo=votes)


def _accept(state: State, group: Group, args: Args, now: float) -> None:
    if group.phase in ("SUBMITTING", "DONE") and group.episode_type != "eval":
        raise NoChange("Already finished: its rewards are fixed", group.group_id)
    _require_vote(group)
    if not args.get("override") and (votes := missing_votes(state, group)):
        todo = (
            "Wait for the others, or accept it with `override`: the votes so far count, without "
            "one the automatic reward"
        )
        raise NotNow(f"it has {votes}", group.group_id, todo)
    scored = any(candidate.auto_reward is not None for candidate in group.candidates)
    if group.rating is not None or group.votes or scored:
        return
    if group.abstained:
        what = "There is no automatic reward to accept; rate it by hand"
        raise NotNow(what, group.group_id)
    raise NotNow("There is no automatic reward to accept yet", group.group_id)


def _abort(state: State, group: Group, args: Args, now: float) -> None:
    why = "It is finished: there is nothing left to abort"
    if group.phase == "ABORTED":
        raise NoChange(why, group.group_id)
    if not group.open or group.phase == "SUBMITTING":
        raise NotNow(why, group.group_id)


def _rescore(state: State, group: Group, args: Args, now: float) -> None:
    if group.episode_type == "eval":
        what = "This request is not trained on; it is not scored again"
        raise NotNow(what, group.group_id)
    if not group.rateable:
        raise NotNow("Already finished: its rewards are fixed", group.group_id)
    if group.phase not in ("SCORING", "AWAITING_RATING"):
        raise NotNow("Its candidates are not complete yet", group.group_id)
    if group.scored_at is None:
        raise NotNow("It was not scored yet", group.group_id)


def _refill(state: State, group: Group, args: Args, now: float) -> None:
    if why := refill_refusal(group):
        raise NotNow(why, group.group_id)
    server = state.servers.get(group.server)
    if server is not None and (server.lost or server.state != "ROLLING"):
        fault = "does not answer" if server.lost else f"is {server.state}"
        what = f"{one_line(server.name, 24)} {fault}: it gives no fresh episodes"
        raise NotNow(what, group.group_id)


def _rerun(state: State, group: Group, args: Args, now: float) -> None:
    if not group.request_id:
        raise NotNow("Its request is no longer stored", group.group_id)


def _repeat(state: State, group: Group, args: Args, now: float) -> None:
    if group.source != "human" or all(candidate.reward is None for candidate in group.candidates):
        raise NotNow(f"group {group.group_id} has no rating that was sent")
    if args["rating"] == "skip":
        raise NotNow("a skip judges nothing", todo="Leave the second vote out")
    votes = group.votes or ([] if group.rating is None else [group.rating])
    judges = [vote.rater for vote in votes if vote.rewards]
    if args.get("rater", "") not in judges:
        names = " and ".join(one_line(judge, 40) or "a rater without a name" for judge in judges)
        what = f"the vote on group {group.group_id} that was sent is of {names}"
        raise NotNow(what, todo="A second vote is compared with one's own first vote")
    if group.repeated:
        raise NotNow(f"group {group.group_id} has had its second vote", todo=_NEXT)
    _require_fit(group, args)


def _settle(state: State, group: Group, args: Args, now: float) -> None:
    name = f"group {group.group_id}"
    if not group.is_disputed:
        raise NotNow(
            f"the raters of {name} do not disagree", todo="`rating raters` lists disagreements"
        )
    if group.phase == "SUBMITTING":
        raise NotNow(f"{name} is being sent", todo="Settle it again in a moment")
    if group.open:
        _require_vote(group)
    elif args["rating"] == "skip":
        raise NotNow("a skip judges nothing, and the group was sent", todo="Rate the answers")
    elif all(candidate.reward is None for candidate in group.candidates):
        raise NotNow(f"{name} was not sent: there is nothing to settle")
    _require_fit(group, args)


def _lease(state: State, group: Group, args: Args, now: float) -> None:
    name, holder, rater = f"group {group.group_id}", args["holder"], args.get("rater", "")
    takes = args.get("seconds", LEASE_SECONDS) > 0
    if takes and group.overlap > 1:
        if group.vote_of(rater, holder) is not None:
            raise NotNow(f"{rater or 'you'} voted on {name} before", todo=_NEXT)
        if group.rating is not None:
            raise NotNow(f"{name} has its votes, by {names_of(group.votes)}", todo=_NEXT)
    if not args.get("take") and not group.is_free(holder, now):
        others = group.leases_of_others(holder, now)
        raise NotNow(_rating(others, group), todo=f"{_NEXT}, or take it over with `take`")
    if takes and group.phase != "AWAITING_RATING" and group.group_id not in state.inbox:
        raise NotNow(f"{name} does not wait for a rating")
    if not takes and group.lease is None:
        raise NoChange(f"{name} was free")


def _edit(state: State, group: Group, args: Args, now: float) -> None:
    if not 0 <= args["index"] < len(group.candidates):
        raise NotNow(f"group {group.group_id} has no candidate {args['index'] + 1}")


RULES: Mapping[str, Callable[[State, Group, Args, float], None]] = {
    "group.rate": _rate,
    "group.unrate": _unrate,
    "group.accept": _accept,
    "group.abort": _abort,
    "group.rescore": _rescore,
    "group.refill": _refill,
    "group.rerun": _rerun,
    "group.pin": _rerun,
    "group.repeat": _repeat,
    "group.settle": _settle,
    "group.lease": _lease,
    "group.edit": _edit,
}
"""Command -> its rule: state, group, arguments, Unix seconds."""


def require_own(rater: str, name: str, holder: str | None, group: Group, now: float) -> None:
    """Refuse a rater's command that affects the vote or the lease of another rater.

    Raises:
        NotPermitted: It does.
    """
    if name not in _ON_VOTES:
        return
    others = group.leases_of_other_raters(rater, now)
    own = group.vote_of(rater, "") if group.overlap > 1 else group.rating
    voted = own is not None and own.rater == rater
    if name == "group.unrate":
        if own is not None and not voted:
            voter = own.rater or "another rater"
            what = f"the vote on group {group.group_id} is of {voter}"
            raise NotPermitted(what, todo=ASK_OPERATOR)
    elif name == "group.accept":
        if not voted or (group.overlap > 1 and group.rating is None) or group.is_disputed:
            what = f"group {group.group_id} does not wait for your vote alone"
            raise NotPermitted(what, todo=ASK_OPERATOR)
    elif len(others) >= group.missing_votes and not voted:
        names = " and ".join(lease.rater or "another rater" for lease in others)
        verb = "is" if len(others) == 1 else "are"
        raise NotPermitted(f"{names} {verb} rating group {group.group_id}", todo=_NEXT)
    if holder is not None and any(lease.holder == holder for lease in others):
        raise NotPermitted(f"console {holder} is that of another rater", todo=ASK_OPERATOR)


# --- what is lost --------------------------------------------------------------------------------


def unrated(state: State, server: str | None = None) -> list[Group]:
    """Return the groups that `rating.abort_all` aborts: they wait, and nobody has voted on them."""
    return [
        group
        for group in state.waiting()
        if group.rating is None and not group.votes and server in (None, group.server)
    ]


def episodes(groups: Iterable[Group]) -> int:
    """Return the number of episodes that groups hold."""
    return sum(
        bool(candidate.episode_uuid) and candidate.phase in ("claimed", "answered")
        for group in groups
        for candidate in group.candidates
    )


def abort_consequences(state: State, groups: Sequence[Group], head: str = "") -> list[str]:
    """Return the cost of aborting groups.

    Args:
        state: The state of the proxy.
        groups: The groups.
        head: What the first sentence begins with; the number of episodes by default.
    """
    held = episodes(groups)
    engines = {
        state.servers[group.server].state for group in groups if group.server in state.servers
    }
    fate = "are given back"
    if engines == {"ROLLING"}:
        fate = "go back to the pool"
    elif engines == {"ROLLING_POST"}:
        fate = "are deleted: the engine is finishing this step"
    elif "ROLLING_POST" in engines:
        fate = "are deleted where the engine is finishing its step, else they go back to the pool"
    count = "" if len(groups) == 1 and not head else plural(len(groups), "group")
    lines = [f"{plural(held, 'episode')}{count and ' of '}{count}: they {fate}."]
    if head:
        lines = [f"{head}, {plural(held, 'episode')}: they {fate}."]
    elif not held:
        lines = [f"{count}: no episode is claimed for them now."]
        lines = lines if count else ["No episode is claimed."]
    if scored := sum(
        candidate.auto_reward is not None for group in groups for candidate in group.candidates
    ):
        lines.append(f"{plural(scored, 'scored answer')} will not be trained on.")
    if rated := sum(group.is_rated for group in groups):
        own = f"{plural(rated, 'rating')} of yours dropped."
        lines.append(own if count else "Its rating is dropped.")
    waiting = sum(group.returned is None and group.waited is None for group in groups)
    if waiting:
        users = f"{plural(waiting, 'user')} without an answer yet."
        lines.append(users if count else "The user has no answer yet.")
    return lines


def abort_all_consequences(state: State, servers: Iterable[str | None]) -> list[str]:
    """Return the cost of `rating.abort_all` on some servers; None stands for all of them."""
    groups = [group for server in servers for group in unrated(state, server)]
    head = f"{plural(len(groups), 'group')} without a rating"
    lines = abort_consequences(state, groups, head)
    return [*lines, "Groups you have rated are sent."]
