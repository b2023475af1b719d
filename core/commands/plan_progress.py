"""Rules of the commands on the progress measurement: when each is refused.

What only the running measurement knows (whether a pair is open, whether the samples can be read,
whether weights are where a job saves them) is checked by the proxy afterwards.
"""

from collections.abc import Callable, Mapping
from typing import Any

from core.commands.spec import NoChange, NotNow
from core.state import Progress, Server

Args = Mapping[str, Any]
_NAMED = "name the folder, or the model, as the path of the rewind"


def require_verified(server: str, progress: Progress, path: str, *, by_engine: bool) -> None:
    """Refuse a rewind without a verified step whose weights are known.

    Args:
        server: Name of the server.
        progress: Its progress measurement.
        path: Folder or model with the weights, as the server names it; empty for the saved ones.
        by_engine: The engine restores a checkpoint of its own; else a job with the weights is sent.

    Raises:
        NotNow: There is none.
    """
    if not progress.verified:
        todo = "The first complete look at the probe set is the baseline"
        raise NotNow("there is no verified step", server, todo)
    best = progress.best
    if not by_engine:
        if best is None and not path:
            raise NotNow(
                f"the weights of the verified step {progress.best_step} were not saved, as far as"
                " known here",
                server,
                f"If the server has them nevertheless, {_NAMED}. A save of each look needs"
                " `save_freq` 1 in a job that is sent from here",
            )
        return
    if path:
        what = "the embedded engine restores its own checkpoint"
        raise NotNow(what, server, "Leave the path out")
    if best is None or not best.checkpoint:
        todo = "Each complete look of an engine with checkpoints saves one"
        raise NotNow("there is no verified step with a checkpoint", server, todo)


def _look(server: Server, progress: Progress, args: Args) -> None:
    known = progress.probe_set
    if known is None or not known.prompts:
        raise NotNow("there is no probe set", server.name, known.error if known else "")
    if not known.enabled:
        raise NotNow("looks are disabled", "probe.share", "Set it above 0")


def _rewind(server: Server, progress: Progress, args: Args) -> None:
    by_engine = server.checkpoints is not None
    require_verified(server.name, progress, args.get("path", ""), by_engine=by_engine)


def _pause(server: Server, progress: Progress, args: Args) -> None:
    if progress.paused:
        raise NoChange(f"{server.name}: requests do not train already")


def _resume(server: Server, progress: Progress, args: Args) -> None:
    if not progress.paused:
        raise NoChange(f"{server.name}: training is not paused")


def _pair(server: Server, progress: Progress, args: Args) -> None:
    if progress.current is None:
        todo = "Pairs need a baseline and a complete look after it; `progress.look` takes one"
        raise NotNow("there are no two looks to compare", server.name, todo)


RULES: Mapping[str, Callable[[Server, Progress, Args], None]] = {
    "progress.look": _look,
    "progress.trust": _look,
    "progress.rewind": _rewind,
    "progress.pause": _pause,
    "progress.resume": _resume,
    "progress.pair": _pair,
}
"""Command -> its rule: server, its progress measurement, arguments."""
