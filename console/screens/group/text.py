"""Head of a group's detail: question, state, verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line, plural
from console.screens.group.card import Card
from console.session import group_facts
from console.text.causes import UNCONFIRMED, cause_words
from console.text.format import UNKNOWN, clock, countdown, difference, duration, number
from console.text.lines import Line, fit, flow
from console.text.wrap import wrapped_lines
from console.views.group import CUT, phase_style, user_fate, user_wait, waited_text
from core.commands.plan_groups import refill_refusal, undo_left
from core.state import Group, Rating

QUERY_ROWS = 3
"""Rows of the query while it is folded."""
_LATENCY = ("queue", "claim", "generate", "score", "rate", "submit")


@dataclass(frozen=True, slots=True)
class DetailOptions:
    """Display options of the detail."""

    unfolded: bool = False
    query: str = ""
    """The whole query when it was fetched."""
    server_color: str = ""
    """Colour of its server when there are several; empty when there is one."""
    read_only: bool = False
    """Whether the console is read-only, so that no key is shown."""
    weights: str = ""
    """Versions of the weights of its candidates; empty if unknown."""
    verdict: group_facts.Verdict | None = None
    """Its verdict by the state; None for that of the group alone."""
    context: str = ""
    """Context of the question, as `turn 3, 5 tools`; empty until it is read."""


def header_lines(group: Group, now: float, width: int, options: DetailOptions) -> list[Line]:
    """Return everything above the candidates."""
    return [
        *flow(_state(group, now, options), width),
        *_context(width, options),
        *_query(group, width, options),
        *flow(_facts(group, now, options), width),
        *_trouble(group, now, width, options),
        *([] if options.read_only else _repair(group, width)),
        *_rating(group, now, width, options),
        *(wrapped_lines(f"note: {group.note}", width, "$accent", 1_000) if group.note else ()),
        *_names(group, width, options),
    ]


def _context(width: int, options: DetailOptions) -> list[Line]:
    if not options.context:
        return []
    key = "  i shows all of it"
    about = fit(options.context, max(0, width - len(key))).rstrip()
    return [((about, "$muted"), (key, "$accent"))]


def _query(group: Group, width: int, options: DetailOptions) -> list[Line]:
    text = options.query or group.query or "(no text)"
    lines = wrapped_lines(("★ " if group.marked else "") + text, width, "bold")
    more = len(lines) - QUERY_ROWS
    if options.unfolded or more <= 0:
        return lines
    fold = f"▸ {plural(more, 'more line')}  (z unfolds)"
    return [*lines[:QUERY_ROWS], ((fold, "$muted"),)]


def _state(group: Group, now: float, options: DetailOptions) -> list[Line]:
    style = phase_style(group)
    outcome = options.verdict or group_facts.verdict(group)
    pieces: list[Line] = [
        ((f"{outcome.sign} {outcome.text}", f"bold {outcome.tone}"),),
        ((f"{style.sign} {style.word}", style.tone),),
    ]
    if group.phase == "AWAITING_RATING" and group.until is not None:
        fates = {"accept": "automatic reward", "abort": "abort", "votes": "votes so far"}
        fate = fates.get(group.fallback, "")
        if group.rating is not None:
            fate = "your rating"
        elif group.user_waits:
            pieces.append(((f"user waits {user_wait(group, now)}", "bold $winner"),))
        left = countdown(group.until - now)
        pieces.append(((left, "bold $winner"), (f" then {fate}" if fate else "", "$muted")))
    if (spread := group_facts.spread_of(group)) is not None:
        pieces.append((("spread ", "$muted"), (difference(spread), "")))
    if group.source:
        by = {"auto": "automatic rewards", "human": "your rewards"}
        sent_by = by.get(group.source, one_line(group.source, 20))
        pieces.append((("sent unrated" if group.unrated else sent_by, "$muted"),))
    return pieces


def _facts(group: Group, now: float, options: DetailOptions) -> list[Line]:
    pieces: list[Line] = [((clock(group.opened_at), "$muted"),)]
    if options.server_color:
        name = one_line(group.server, 20)
        pieces.append((("server ", "$muted"), (name, f"bold {options.server_color}")))
    kind = group.episode_type if group.episode_type != "train" else ""
    pieces += [
        _pair(label, one_line(value, most))
        for label, value, most in (
            ("step", _steps(group), 1_000),
            ("model", group.model, 30),
            ("rewards", group.version, 12),
            ("type", kind, 12),
            ("row", group.dataset_task_id or group.row_id, 30),
        )
        if value
    ]
    if group.reference is not None:
        pieces.append(_pair("reference", one_line(group.reference, 80)))
    if group.returned is not None:
        why = f" ({one_line(group.returned_why, 20)})" if group.returned_why else ""
        pieces.append(_pair("returned", f"#{group.returned + 1}{why}"))
    elif group.waited is not None:
        pieces.append((("the user got an error", "$reward-down"),))
    if group.open or group.waited is not None:
        pieces.append(_pair("waited", waited_text(group, now)))
    pieces += _latency(group, options.unfolded)
    return pieces


def _steps(group: Group) -> str:
    """Return the global steps of its candidates; `7-8` where the step changed meanwhile."""
    steps = [
        str(candidate.step)
        if candidate.later_step is None
        else f"{candidate.step}-{candidate.later_step}"
        for candidate in group.candidates
        if candidate.step is not None
    ]
    return ", ".join(dict.fromkeys(steps)) or (UNKNOWN if group.step is None else str(group.step))


def _pair(label: str, value: str) -> Line:
    return ((f"{label} ", "$muted"), (value, ""))


def _latency(group: Group, unfolded: bool) -> list[Line]:
    """Return the times of its phases while it is unfolded, else the longest one."""
    known = {name: group.latency[name] for name in _LATENCY if name in group.latency}
    if not unfolded:
        longest = max(known, key=lambda name: known[name], default="")
        return [_pair(longest, duration(known[longest]))] if longest else []
    pieces = [_pair(name, duration(seconds)) for name, seconds in known.items()]
    if "first_piece" in group.latency:
        pieces.append(_pair("first piece", duration(group.latency["first_piece"])))
    if keepalives := int(group.latency.get("keepalives", 0)):
        pieces.append(((plural(keepalives, "keep-alive"), "$muted"),))
    slow = max(group.candidates, key=lambda candidate: candidate.seconds, default=None)
    if slow is not None and slow.seconds and len(group.candidates) > 1:
        pieces.append(_pair("slowest", f"#{slow.index + 1} {duration(slow.seconds)}"))
    return pieces


def _trouble(group: Group, now: float, width: int, options: DetailOptions) -> list[Line]:
    lines: list[Line] = []
    if missing := group_facts.unconfirmed(group):
        lines += wrapped_lines(f"≈ {UNCONFIRMED}: {_numbers(missing)}", width, "bold $warning", 600)
    if cut := [candidate.index for candidate in group.candidates if candidate.truncated]:
        which = "" if len(cut) == len(group.candidates) else f" for {_numbers(cut)}"
        text = f"{CUT} the prompt was longer than the window: its middle was dropped{which}"
        lines += wrapped_lines(text, width, "$warning", 600)
    if group.cause and (group.open or group.phase == "DONE"):  # otherwise the verdict shows it
        lines += wrapped_lines(cause_words(group), width, "$warning", 600)
    if not group.abstained:
        return lines
    text = f"? no automatic reward: {group.abstained}"
    lines += wrapped_lines(text, width, "bold $warning", 1_000)
    if group.rateable:
        lines += wrapped_lines(_remedy(group, now, read_only=options.read_only), width, "$muted")
    if group.traceback:
        trace = wrapped_lines(group.traceback, width, "$muted", 20_000, indent="  ")
        fold = "▾ traceback"
        if not options.unfolded:
            fold = f"▸ traceback, {plural(len(trace), 'line')}  (z unfolds)"
        lines += [((fold, "$muted"),), *(trace if options.unfolded else ())]
    return lines


def _numbers(indices: Sequence[int]) -> str:
    return ", ".join(f"#{index + 1}" for index in indices)


def _remedy(group: Group, now: float, *, read_only: bool) -> str:
    fill = "refill it with R, " if not refill_refusal(group) else ""
    todo = f"Rate it by hand with a digit, {fill}score it again with S, or abort it with x. "
    todo = "" if read_only else todo
    if group.until is None:
        return todo.rstrip()
    fate = "aborted" if group.fallback == "abort" else "closed"
    return f"{todo}Otherwise it is {fate} in {countdown(group.until - now)}."


def _rating(group: Group, now: float, width: int, options: DetailOptions) -> list[Line]:
    rating = group.rating
    if rating is None:
        return []
    text = f"✓ rated {rating_words(rating)}{_by(rating)}"
    if rating.rewards:
        text += f": rewards {' '.join(number(value) for value in rating.rewards)}"
    if group.rateable:
        text += f" · {held_words(group, now, read_only=options.read_only)}"
    else:
        text += " · sent" if group.source == "human" else " · not sent"
    lines = wrapped_lines(text, width, "$reward-up")
    return lines + (wrapped_lines(_several_votes(group), width, "$muted") if group.votes else [])


def _by(rating: Rating) -> str:
    return f" by {one_line(rating.rater, 24)}" if rating.rater else ""


def _several_votes(group: Group) -> str:
    """Return the votes of several raters and the decision on them: `votes: ada 2, bob 4; …`."""
    text = f"votes: {group_facts.votes_text(group)}"
    if (settled := group.settled) is None:
        return text + ("; they disagree" if group.is_disputed else "")
    return f"{text}; settled{_by(settled)}: {group_facts.vote_choice(group, settled)}"


def held_words(group: Group, now: float, *, read_only: bool = False) -> str:
    """Return the state of a rating that is not sent yet."""
    if not undo_left(group, now):
        return "being sent"
    verb = "aborts" if group.is_skipped else "sends"
    left = f", {verb} in {countdown(group.until - now)}" if group.until is not None else ""
    return f"held{left}" + ("" if read_only else "; u undoes it")


def rating_words(rating: Rating) -> str:
    """Return `best #2`, `ranking 2 1 4 3`, `tie`."""
    if rating.rating == "best" and rating.order:
        return f"best #{rating.order[0] + 1}"
    if rating.rating == "ranking":
        return "ranking " + " ".join(str(index + 1) for index in rating.order)
    return {"bad": "all bad", "skip": "skip"}.get(rating.rating, one_line(rating.rating, 20))


def _repair(group: Group, width: int) -> list[Line]:
    """Return the keys that repair a group that would not be trained on."""
    kind = group_facts.verdict(group).kind
    short = not refill_refusal(group)
    text = ""
    if kind not in ("dead", "lost", "open") or group.episode_type != "train":
        if short:
            text = f"{len(group.answered)} of {group.n} candidates answered: R requests the others"
    elif not group.open:
        done = group.phase == "DONE" and kind == "open"
        text = "" if done else "A sends it again, as a new group"
    elif group.phase in ("SCORING", "AWAITING_RATING") and not group.abstained:
        fill = "R refill it · " if short else ""
        again = "S score it again" if short else "S score it again with the current rewards"
        text = f"{fill}1-9 rate it · {again} · x abort it"
    return wrapped_lines(f"→ {text}", width, "$accent") if text else []


def _names(group: Group, width: int, options: DetailOptions) -> list[Line]:
    """Return its other ids, while it is unfolded."""
    if not options.unfolded:
        return []
    ids = f"weights {options.weights}   " if options.weights else ""
    ids += f"group {group.group_id}   task {group.task_id}   request {group.request_id}"
    if group.session:
        ids += f"   session {group.session} turn {group.turn}"
    if group.joined or group.replayed:
        ids += f"   the same request again: {group.joined} waited with it"
        ids += f", {group.replayed} later got its answer"
    return wrapped_lines(ids, width, "$muted", 1_000)


def tabs_line(cards: Sequence[Card], selected: int | None, window: Sequence[int]) -> Line:
    """Return number, marks and reward of all candidates, as tabs."""
    pieces: list[tuple[str, str]] = [(" ‹ ", "$muted")]
    for place, card in enumerate(cards):
        marks = "▲" * card.winner + "→" * card.returned + "✓" * card.rated
        reward = "" if card.reward is None else f" {number(card.reward, card.places)}"
        tone = "bold reverse" if place == selected else ("bold" if place in window else "$muted")
        pieces += [(f" {card.label}{marks}{reward} ", tone), (" ", "")]
    pieces.append((" ›", "$muted"))
    return tuple(pieces)


def abort_extra(group: Group) -> str:
    """Return the sentence about the user for the abort dialog."""
    return user_fate(group) if group.waited is not None or group.returned is not None else ""
