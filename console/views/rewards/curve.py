"""The reward curve and the effect of the last updates, as content built from the session."""

from collections.abc import Sequence

from textual.content import Content

from console.models.reward_trend import reward_trend
from console.session.app_state import Session
from console.session.server_facts import step_reward
from console.text.format import duration, figure, number, share_text
from console.text.sections import Room, heading, lines
from console.ui.curve import Point, curve, latest
from console.ui.plot import sparkline
from core.state import RunPoint, Server


def _note(text: str) -> Content:
    return Content.styled(text, "$muted")


def reward_points(server: Server) -> list[Point]:
    """Return mean and spread of the automatic rewards by global step, else those of the update.

    Human ratings are separate points.
    """
    figures = ((step, *step_reward(step)) for step in server.steps)
    return [
        Point(
            stats.step,
            mean,
            std or 0.0,
            stats.hand_mean if stats.hand else None,
            stats.engine_run,
            stats.version,
            stats.dataset,
            stats.mode,
            server.is_finished(stats),
        )
        for stats, mean, std in figures
        if mean is not None
    ]


def rewards(session: Session, room: Room) -> Content:
    """Return the reward curve of the first server; its height comes from the layout."""
    server = next(iter(session.state.servers.values()), None)
    points = reward_points(server) if server is not None else []
    if server is None or not points:
        what = "No reward was sent yet: the curve starts after the first finished group"
        if server is not None and server.state == "OBSERVING":
            what = "Rewards are recorded and nothing is trained: there is no step to show"
        elif server is not None and any(step.by_hand for step in server.steps):
            what = "Only human ratings so far: the curve shows automatic rewards"
        return lines(heading("REWARD", "by global step"), _note(what))
    last, step = latest(points)
    latest_value = Content.assemble(
        (f"{number(last.mean)}", "bold $curve"),
        (f" ±{number(last.std)}", "$curve"),
        (f" at {step}", "$muted"),
    )
    below = learned(server, room.width) if room.tall else []
    plot = curve(points, room.width, max(3, (room.height or 6) - 1 - len(below)))
    head = heading("REWARD", latest_value, _change(points))
    if not below and (beside := _update(server)):
        head = _with_room(room.width, latest_value, points, beside)
    return lines(head, *plot, *below)


def _with_room(
    width: int, latest_value: Content, points: Sequence[Point], beside: Content
) -> Content:
    """Return the heading with the last update; the change is shortened if there is little room."""
    for change in (_change(points), _change(points, short=True)):
        head = heading("REWARD", latest_value, change, beside)
        if head.cell_length <= width:
            return head
    return heading("REWARD", latest_value, beside)


def _change(points: Sequence[Point], short: bool = False) -> Content:
    """Return the change of the reward over the finished steps with one scale and one source."""
    finished = [point for point in points if point.finished]
    if not finished:
        return _note("" if short else "no update yet")
    points, changed = _comparable(finished)
    trend = reward_trend([RunPoint(point.step, point.mean) for point in points])
    if trend is None:
        return _note("" if short else _too_few(len(points), changed))
    since = "" if short else f" since step {trend.since}"
    if changed and not short:
        since += f", when {changed} changed"
    return Content.assemble((trend.words, trend.tone or "$muted"), (since, "$muted"))


def _too_few(steps: int, changed: str) -> str:
    """Return why no change is shown."""
    if changed:
        return f"{'first step' if steps == 1 else f'{steps} steps'} since {changed} changed"
    return "one step so far" if steps == 1 else f"{steps} steps so far"


def _comparable(points: Sequence[Point]) -> tuple[Sequence[Point], str]:
    """Return the newest points that can be compared, and what changed before them.

    Another version of the rewards has another scale; other questions or another rating mode give
    other rewards without any change of the policy. A step without any group of this console has
    neither.
    """
    newest = next((point for point in reversed(points) if point.version), points[-1])
    known = next((point for point in reversed(points) if point.mode), points[-1])
    for at in range(len(points) - 1, -1, -1):
        point = points[at]
        source = point if point.mode else known
        changes = [
            word
            for word, value, last in (
                ("the rewards", point.version or newest.version, newest.version),
                ("the dataset", source.dataset, known.dataset),
                ("the rating mode", source.mode, known.mode),
            )
            if value != last
        ]
        if changes:
            return points[at + 1 :], " and ".join(changes)
    return points, ""


def _update(server: Server) -> Content:
    """Return `KL 0.012  no signal 25%` of the last update; empty when it reports neither."""
    step = server.last_update
    pieces: list[tuple[str, str]] = []
    if step is not None and "kl" in step.update:
        pieces += [("KL ", "$muted"), (figure(step.update["kl"]), "bold")]
    if step is not None and (share := step.update.get("no_signal_share")) is not None:
        pieces += [("  no signal " if pieces else "no signal ", "$muted")]
        pieces += [(share_text(share), f"bold {_share_tone(share)}")]
    return Content.assemble(*pieces)


def _share_tone(share: float) -> str:
    return "$warning" if share * 3 > 1 else "$foreground"


_LEARNED = (
    ("kl", "KL", figure),
    ("no_signal_share", "no signal", share_text),
    ("step_seconds", "took", duration),
    ("sync_seconds", "sync", duration),
    ("entropy", "entropy", figure),
    ("response_tokens", "length", figure),
    ("clip_fraction", "clip", share_text),
    ("grad_norm", "grad", figure),
)
_SPARKS = 10


def learned(server: Server, width: int) -> list[Content]:
    """Return the last updates in one line: each figure with its trend."""
    last = server.last_update
    if last is None:
        return []
    older = [step.update for step in server.steps if step.update][-_SPARKS:]
    shown = Content.styled(f"update {last.step}", "$muted")
    for key, word, label in _LEARNED:
        if (value := last.update.get(key)) is None:
            continue
        tone = _share_tone(value) if key == "no_signal_share" else "$foreground"
        pieces: list[Content | tuple[str, str]] = [(f"  {word} ", "$muted")]
        if key in ("kl", "no_signal_share"):
            pieces += [sparkline([max(0.0, point.get(key, 0.0)) for point in older]), (" ", "")]
        piece = Content.assemble(*pieces, (label(value), f"bold {tone}"))
        if shown.cell_length + piece.cell_length > width:
            break
        shown = Content.assemble(shown, piece)
    return [shown]
