"""The sections of the overview, as content built from the session."""

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.cells import cell_len
from textual.content import Content

from ajet_swarm.common.text import one_line, plural
from console.models.advice import context_of, press_words
from console.screens.progress.model import Standing, progress_server, standing
from console.screens.progress.text import SIGNS, running_time
from console.session.app_state import Session
from console.session.mock_facts import rate, rows_done, seconds_left, share
from console.session.server_facts import as_ended, boot_trouble
from console.text.format import (
    UNKNOWN,
    duration,
    elapsed,
    percent,
    progress,
    state_style,
    state_text,
)
from console.text.lines import fit
from console.text.sections import Room, bar, heading, lines, packed
from console.text.wrap import wrapped
from console.ui.plot import sparkline
from console.views.timeline import cells, newest, shares, step_seconds, timeline
from core.state import Group, Server
from core.state.mock import Mock

WIDE = 85
"""Cells from which a section shows more."""
PACE_MINUTES = 10
"""Minutes of the throughput's bars."""
PACE_SECONDS, PACE_LEAST = 180.0, 10.0
"""Seconds of the throughput's figure: at most, and at least."""
NEWEST = 20
"""Closed groups that the latency split is computed from."""
SEALED = 50
"""Sealed groups that the share of dead ones is computed from."""

PARTS = (
    ("queue", "queue", "$muted"),
    ("claim", "claim", "$claiming"),
    ("generate", "generate", "$engine-rolling"),
    ("score", "score", "$engine-post"),
    ("rate", "rating", "$winner"),
    ("submit", "submit", "$engine-exporting"),
)


def _note(text: str) -> Content:
    return Content.styled(text, "$muted")


# --- engine ----------------------------------------------------------------------------------


def engines(session: Session, room: Room) -> Content:
    """Return state timeline, pool and pace of each server."""
    servers = list(session.state.servers.values())
    if not servers:
        return lines(heading("ENGINE"), _note("No swarm server is known yet"))
    alone = len(servers) == 1 and room.width < WIDE
    shown = [content for server in servers for content in _engine(server, session, room, alone)]
    return lines(*shown)


def _engine(server: Server, session: Session, room: Room, alone: bool) -> list[Content]:
    """Return the lines of one server; `alone` leaves out what the status bar shows."""
    now, server, width = session.as_of, as_ended(server, session), room.width
    spans = newest(server, now, width)
    state = state_text(server, now)
    below = _below(server, session, width)
    blocks = [timeline(spans, width)] if spans else []
    if alone:
        head, *rest = heading("ENGINE", *below, width=room.wrap).split("\n")
        return [head, *blocks, *rest]
    head = heading(
        "ENGINE",
        Content.styled(one_line(server.name, 30), "bold"),
        Content.styled(state.forms[0], state.color),
        f"step {UNKNOWN if server.step is None else server.step}",
        " · ".join(
            f"{state_style(kind).word} {100 * part:.0f}%" for kind, part in shares(spans)[:4]
        ),
    )
    return [head, *blocks, packed(below, room.wrap)]


def _below(server: Server, session: Session, width: int) -> list[Content]:
    """Return the parts of the line below the timeline."""
    now = session.as_of
    if server.is_starting(now):
        return [Content.styled("waiting for its first answer", "$engine-booting")]
    if server.lost:
        seen = f", seen {elapsed(now - server.seen_at)} ago" if server.seen_at else ""
        return [Content.styled(f"× {one_line(server.lost, 150)}{seen}", "$engine-lost")]
    if trouble := boot_trouble(server, now, read_only=session.read_only):
        return [Content.styled(f"! {trouble}", "$engine-booting")]
    start = press_words(session, "engine", "engine.start")
    pool = _pool(server, width, f": {start} to start it" if start else "")
    return [pool, _note(one_line(server.detail, width) or _step_times(server))]


def _step_times(server: Server) -> str:
    seconds = list(step_seconds(server.spans).values())[-3:]
    if not seconds:
        return ""
    return "steps " + " ".join(duration(second) for second in seconds)


def _pool(server: Server, width: int, start: str) -> Content:
    done = progress(server.pool)
    pool = server.pool
    if done is None or pool is None:
        if server.state == "OFFLINE":
            return _note(f"OFFLINE{start}")
        return _note(f"pool {UNKNOWN}")
    size = 18 if width < WIDE else 30
    pieces: list[Content | tuple[str, str] | str] = [
        ("pool ", "$muted"),
        bar(done.share, size, "$engine-rolling"),
        " ",
        (done.text(), "bold"),
        (f"  {pool.running} running", "$muted"),
    ]
    if pool.running_others:
        clients = plural(len(pool.other_clients), "other client")
        pieces.append((f", {pool.running_others} of {clients}", "$warning"))
    return Content.assemble(*pieces)


# --- pace ------------------------------------------------------------------------------------


def pace(session: Session, room: Room) -> Content:
    """Return throughput, share of dead groups and the latency split."""
    groups = list(session.state.groups.values())
    closed = [group for group in groups if group.closed_at is not None]
    if not closed:
        return lines(heading("PACE"), _note("No group is finished yet"))
    return lines(
        heading(
            "PACE",
            _throughput(closed, session.now(), room.width),
            _dead(groups),
            width=room.wrap,
        ),
        *_latency(closed, room),
    )


def _throughput(closed: Sequence[Group], now: float, width: int) -> Content:
    count = 12 if width < WIDE else 40
    seconds = PACE_MINUTES * 60 / count
    buckets = [0.0] * count
    known = now - min(group.opened_at for group in closed)  # older groups are not in memory
    window = min(PACE_SECONDS, known)
    recent = 0
    for group in closed:
        age = now - (group.closed_at or 0.0)
        if 0 <= age < PACE_MINUTES * 60:
            buckets[count - 1 - int(age / seconds)] += 1
            recent += age < window
    figure = f"{recent * 60 / window:.1f}" if window >= PACE_LEAST else UNKNOWN
    return Content.assemble(
        (figure, "bold"),
        (f"/min in {elapsed(window)}  ", "$muted"),
        sparkline(buckets),
        (f" {PACE_MINUTES} min", "$muted"),
    )


def _dead(groups: Sequence[Group]) -> Content:
    ended = [
        group for group in groups if group.phase not in ("ABORTED", "FAILED") and not group.lost
    ]
    sealed = [group for group in ended if group.sealed_at is not None][-SEALED:]
    if not sealed:
        return Content("")
    causes = Counter(group.dead for group in sealed if group.dead)
    dead = causes.total()
    why = f": {one_line(causes.most_common(1)[0][0], 40)}" if causes else ""
    color = "$warning" if dead * 3 > len(sealed) else "$foreground"
    return Content.assemble(
        ("○ dead ", "$muted"),
        (percent(dead, len(sealed)), f"bold {color}"),
        (f" of {len(sealed)}{why}", "$muted"),
    )


def _latency(closed: Sequence[Group], room: Room) -> list[Content]:
    done = [group for group in closed if group.latency][-NEWEST:]
    if not done:
        return []
    middle = {key: median([group.latency.get(key, 0.0) for group in done]) for key, _, _ in PARTS}
    total = sum(middle.values())
    waits = [group.waited for group in closed[-NEWEST:] if group.waited is not None]
    answer = duration(median(waits)) if waits else UNKNOWN
    parts = [Content.assemble(("answer ", "$muted"), (answer, "bold"))]
    for key, word, color in PARTS:
        if middle[key] < max(0.05, 0.02 * total):
            continue
        seconds = duration(middle[key])
        part = Content.assemble(("■ ", color), (f"{word} ", "$muted"), (seconds, ""))
        if room.tall or packed((*parts, part), None).cell_length <= room.width:
            parts.append(part)
    latency_lines = [packed(parts, room.width)]
    if room.tall and total:
        counts = cells([middle[key] for key, _, _ in PARTS], room.width, least=0)
        blocks = [("▄" * count, color) for count, (_, _, color) in zip(counts, PARTS, strict=True)]
        latency_lines.append(Content.assemble(*blocks))
    return latency_lines


# --- mock user -------------------------------------------------------------------------------


def mock(session: Session, room: Room) -> Content:
    """Return the progress of the mock user, one line."""
    run = session.state.mock
    if run is None:
        start = press_words(session, "mock", "mock.start")
        return heading("MOCK USER", f"not started: {start}" if start else "not started")
    now = session.now()
    size = 12 if room.width < WIDE else 20
    counts = f"{rows_done(run)}/{run.total or UNKNOWN}"
    speed, left = rate(run, now), seconds_left(run, now)
    more = []
    if left is not None:
        more.append(f"{duration(left)} left")
    if run.ended_at is None and speed:
        more.append(f"{speed * 60:.1f}/min")
    failed = Content.styled(f"{run.failed} failed", "$reward-down") if run.failed else ""
    return heading(
        "MOCK USER",
        Content.assemble(bar(share(run), size), " ", (counts, "bold")),
        one_line(run.phase, 12),
        failed,
        " · ".join(more),
        _after_mock(session, run),
        width=room.wrap,
    )


def _after_mock(session: Session, run: Mock) -> str:
    """Return what to do once the mock user has ended."""
    if run.ended_at is None:
        return ""
    again = press_words(session, "mock", "mock.start")
    learned = f"press {context_of(session).screens['progress']}: what it taught"
    return f"{learned} · {again}: once more" if again else learned


# --- the start -----------------------------------------------------------------------------------

_STEPS = {
    "waiting": ("·", "$muted"),
    "doing": ("▸", "$engine-booting"),
    "done": ("✔", "$engine-rolling"),
    "failed": ("✖", "$engine-lost"),
}


def starting(session: Session, room: Room) -> Content:
    """Return what is starting, and its progress."""
    shown = [heading("STARTING"), Content("")]
    for step in session.steps.values():
        sign, color = _STEPS[step.phase]
        took = (
            UNKNOWN if step.began is None else elapsed((step.ended or session.now()) - step.began)
        )
        shown.append(
            Content.assemble(
                (f"{sign} ", f"bold {color}"),
                (f"{one_line(step.title, 60):<28}", "" if step.phase != "waiting" else "$muted"),
                (f"{'' if step.phase == 'waiting' else took:>6}  ", "$muted"),
                (one_line(step.detail, 200), "$muted") if step.phase != "failed" else "",
            )
        )
        if step.phase == "failed":
            shown += _indented(step.detail, color, room.width)
        for line in step.lines:
            shown += _indented(line, "$muted", room.width)
    if session.trouble:
        shown.append(Content(""))
        shown += [
            Content.styled(line, "$engine-booting") for line in _wrapped(session.trouble, room)
        ]
    if session.failed_steps:
        shown.append(Content(""))
        shown += [Content(line) for line in _wrapped(recovery_hint(session), room)]
    return lines(*shown)


def recovery_hint(session: Session) -> str:
    """Return what the operator can do after a failed start."""
    keys = {"engine": "r", "proxy": "p"}
    restarts = [
        f"{key} starts the {role} again"
        for role, key in keys.items()
        if role in session.children and session.steps.get(role) in session.failed_steps
    ]
    first = f"Press 5, there {', '.join(restarts)}. " if restarts and not session.read_only else ""
    return f"{first}Press 7 for the whole log, Ctrl+Q to leave and start with other flags"


def _indented(text: str, color: str, width: int) -> list[Content]:
    return [
        Content.styled(f"    {line}", color) for line in wrapped(one_line(text, 400), width - 4)[:6]
    ]


def _wrapped(text: str, room: Room) -> list[str]:
    return wrapped(one_line(text, 400), room.width)


_INTERVAL = re.compile(r" \([^)]*\)")


def overview_line(session: Session, room: Room) -> Content:
    """Return the sentence about the first measured server in one line, and the key of the screen.

    The first look, about which the sentence is, has its time. Where there is room, a note or the
    running look follows.
    """
    present = standing(session.state, progress_server(session.state))
    sign, tone = SIGNS[present.tone]
    title, key = heading("PROGRESS"), ("  8 ", "bold $accent")
    width = max(10, room.width - title.cell_length - 8)
    sentence = present.sentence
    known = session.state.progress.get(progress_server(session.state))
    first = known.running if known is not None and known.baseline is None else None
    if first is not None and (time := running_time(first, session.as_of)):
        sentence = f"{sentence}, {time}"
    more = next(iter([*present.notes, present.running]), "")
    if more and cell_len(f"{sentence}. {more}") <= width:
        sentence = f"{sentence}. {more}"
    elif present.look is not None and (_note_is_missing(present) or cell_len(sentence) > width):
        sentence = _shortened(present)
    shown = fit(sentence, min(width, cell_len(sentence)))
    words = (shown, f"bold {tone}" if present.tone != "unknown" else "")
    return heading("PROGRESS", Content.assemble((f"{sign} ", f"bold {tone}"), words, key))


def _shortened(present: Standing) -> str:
    """Return the sentence without what a narrow line leaves out; a policy below its best step is
    still said to be: `Better by 0.11 (0.07 to 0.15) than at step 1, 0.07 below step 86`."""
    if present.worse_parts:
        return f"{present.sentence.partition(' (')[0]}; worse: {present.worse_parts}"
    sentence = present.sentence.partition("; than ")[0]
    below = present.below_best
    if below is None or not _note_is_missing(present):
        return sentence if present.outcome == "unknown" else _INTERVAL.sub("", sentence)
    sentence = sentence.partition(", on ")[0]
    best = "its best step" if below.step is None else f"step {below.step}"
    return f"{sentence}, {-below.effect:.2f} below {best}"


def _note_is_missing(present: Standing) -> bool:
    """Return whether the sentence without a note does not say that the policy is below its best."""
    return present.below_best is not None and present.outcome != "unknown"
