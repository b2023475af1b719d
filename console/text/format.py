"""Numbers, times and states as short text. An unknown value is a dash, never a zero."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from core.events.server import PoolChanged
from core.state import Group, Server, State

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class StateStyle:
    """How an engine state is shown: sign, word, short word, colour variable."""

    sign: str
    word: str
    short: str
    color: str


STATE_STYLES: dict[str, StateStyle] = {
    "OFFLINE": StateStyle("○", "OFFLINE", "OFF", "$engine-offline"),
    "BOOTING": StateStyle("◌", "BOOTING", "BOOT", "$engine-booting"),
    "ROLLING": StateStyle("●", "ROLLING", "ROLL", "$engine-rolling"),
    "ROLLING_POST": StateStyle("◐", "ROLLING POST", "POST", "$engine-post"),
    "WEIGHT_SYNCING": StateStyle("◆", "WEIGHT SYNCING", "SYNC", "$engine-syncing"),
    "WEIGHT_EXPORTING": StateStyle("◇", "WEIGHT EXPORTING", "EXPORT", "$engine-exporting"),
    "OBSERVING": StateStyle("◉", "OBSERVING", "OBSERVE", "$engine-rolling"),
    "CANNOT_CONNECT": StateStyle("×", "CANNOT CONNECT", "NO LINK", "$engine-lost"),
}


def state_style(state: str, raw: str = "") -> StateStyle:
    """Return the style of an engine state; an unknown state is shown by its own word."""
    known = STATE_STYLES.get(state)
    if known is not None:
        return known
    word = one_line(raw or state or "UNKNOWN", 20)
    return StateStyle("?", word, word[:8], "$engine-unknown")


def duration(seconds: float | None) -> str:
    """Format a duration in at most six characters: 0.4s, 42s, 3m05, 1h02, 5d."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}"
    if whole < 48 * 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}"
    return f"{whole // 86400}d"


def elapsed(seconds: float | None) -> str:
    """Format a duration that counts up on screen, in whole seconds."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    return f"{whole}s" if whole < 60 else duration(whole)


def countdown(seconds: float) -> str:
    """Format the remaining time: 0:12, 3:05."""
    left = max(0, math.ceil(seconds))
    return f"{left // 60}:{left % 60:02}"


def clock(at: float) -> str:
    """Format the local time of day: 14:05:09."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def number(value: float | None, places: int = 2) -> str:
    """Format a number with fixed decimal places; a dash when it is unknown."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:.{places}f}"


def places_of(values: Iterable[float | None]) -> int:
    """Return how many decimals tell values apart: three where different ones tie with two."""
    rounded = {round(value, 3) for value in values if value is not None}
    return 2 if len({round(value, 2) for value in rounded}) == len(rounded) else 3


def numbers(values: Sequence[float | None]) -> str:
    """Format values that are compared, with the decimals that tell them apart."""
    places = places_of(values)
    return " ".join(number(value, places) for value in values)


def difference(value: float | None) -> str:
    """Format a difference that is at least 0: with two decimals, more where these would hide it."""
    return figure(value) if value is not None and 0 < value < 0.005 else number(value)


def figure(value: float | None) -> str:
    """Format a number of any size in at most seven characters: 0.012, 1.25, 318, 2e-05."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.0005:
        return f"{value:.0e}"
    if size < 10:
        return f"{value:.3f}"
    return f"{value:.1f}" if size < 1_000 else f"{value:.0f}" if size < 1e6 else f"{value:.0e}"


def share_text(share: float | None) -> str:
    """Return a share as a percentage."""
    return UNKNOWN if share is None else f"{100 * share:.0f}%"


def percent(part: int, whole: int) -> str:
    """Format a share in percent; a dash when `whole` is 0."""
    return f"{100 * part / whole:.0f}%" if whole else UNKNOWN


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the batch by the server's own stop rule."""

    done: int
    target: int | None
    """None when the rule has no number."""
    unit: str

    @property
    def share(self) -> float | None:
        """The done part, between 0 and 1; None without a target."""
        return min(1.0, self.done / self.target) if self.target else None

    def text(self) -> str:
        """Return the progress as text: `3/4 tasks`."""
        if self.target is None:
            return f"{self.done} {self.unit}"
        return f"{self.done}/{self.target} {self.unit}"


def progress(pool: PoolChanged | None) -> Progress | None:
    """Return the pool's progress by its stop rule; None when the server has not reported it."""
    if pool is None or not pool.method:
        return None
    if pool.method.endswith("agree_sync_weight"):
        return Progress(pool.completed_tasks, None, "tasks")
    if pool.method.endswith("enough_episodes"):
        return Progress(pool.completed_episodes, pool.episode_target or None, "episodes")
    if pool.method.endswith("enough_non_dummy_tasks"):
        return Progress(pool.non_dummy_tasks, pool.task_target or None, "non-dummy tasks")
    return Progress(pool.completed_tasks, pool.task_target or None, "tasks")


def rule(method: str) -> str:
    """Return a stop rule in words."""
    words = {
        "rollout_until_finish_enough_episodes": "enough episodes",
        "rollout_until_finish_enough_tasks": "enough tasks",
        "rollout_until_finish_enough_non_dummy_tasks": "enough non-dummy tasks",
        "rollout_until_any_client_agree_sync_weight": "any client agrees to sync",
        "rollout_until_all_clients_agree_sync_weight": "all clients agree to sync",
    }
    return words.get(method, one_line(method, 50) or UNKNOWN)


def filled(share: float, width: int) -> str:
    """Return the filled part of a bar of `width` cells; at least an eighth of a cell above 0."""
    eighths = max(round(min(1.0, share) * width * 8), 1 if share > 0 else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def state_for(server: Server, now: float) -> float | None:
    """Return the seconds since the server entered its state; None when unknown."""
    return now - server.since if server.since else None


@dataclass(frozen=True, slots=True)
class StateText:
    """A server's state and its duration, as shown on screen."""

    forms: tuple[str, ...]
    """The text from the longest form to the shortest: `× GONE 36s (was ROLLING)`, `× GONE 36s`."""
    color: str


def state_text(server: Server, now: float) -> StateText:
    """Return a server's state and how long it has lasted.

    For a server that does not answer: since when, and its last known state.
    """
    shape = state_style(server.state, server.raw)
    if not server.lost:
        time_in = elapsed(state_for(server, now))
        long, short = (f"{shape.sign} {word} {time_in}" for word in (shape.word, shape.short))
        return StateText((long, short), shape.color)
    why = lost_word(server)
    if server.is_starting(now):
        return StateText(("◌ STARTING", "◌ START"), "$engine-booting")
    if not server.seen_at:
        return StateText((f"× {why} · NOT REACHED", "× NOT REACHED", "× NO LINK"), "$engine-lost")
    head = f"× {why} {elapsed(now - server.seen_at)}"
    forms = (f"{head} (was {shape.word})", f"{head} (was {shape.short})", head)
    return StateText(forms, "$engine-lost")


def state_word(server: Server, now: float) -> tuple[str, str]:
    """Return a server's state and its colour: `● ROLLING`, `× GONE 36s (was ROLLING)`."""
    shape = state_style(server.state, server.raw)
    if not server.lost:
        return f"{shape.sign} {shape.word}", shape.color
    shown = state_text(server, now)
    return shown.forms[0], shown.color


LOST = frozenset({"gone", "frozen", "silent", "unrecognized"})
"""Words before the colon of a lost server's cause."""


def address_of(server: Server) -> str:
    """Return the URL of a server; empty until its engine has a port.

    The proxy gives an engine port 0 until then if another process has the port of the settings.
    """
    return "" if server.url.endswith(":0") else server.url


def lost_word(server: Server) -> str:
    """Return the trouble of a lost server in one word: GONE, SILENT."""
    why = server.lost.partition(":")[0]
    return why.upper() if why in LOST else "LOST"


def lost_text(server: Server, now: float) -> str:
    """Return the state of a server without contact: `GONE 36s (was ROLLING)`, `STARTING`."""
    if server.is_starting(now):
        return "STARTING"
    if not server.seen_at:
        return "NOT REACHED"
    state = server.state.replace("_", " ")
    return f"{lost_word(server)} {max(0, int(now - server.seen_at))}s (was {state})"


COLORS = ("$server-1", "$server-2", "$server-3", "$server-4")


def server_color(state: State, name: str) -> str:
    """Return the server's colour variable; it depends on the order of the servers."""
    names = list(state.servers)
    return COLORS[names.index(name) % len(COLORS)] if name in state.servers else "$muted"


def server_colors(state: State) -> dict[str, str]:
    """Return the colour of each server by name; empty when there is only one."""
    return {name: server_color(state, name) for name in state.servers if len(state.servers) > 1}


def group_color(state: State, group: Group) -> str:
    """Return the colour of a group's server; empty when there is only one server."""
    return server_color(state, group.server) if len(state.servers) > 1 else ""
