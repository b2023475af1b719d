"""Target files in a folder, asked with one question."""

import sys
from pathlib import Path
from typing import Any

from mock.tally import RunCounters
from mock.targets.base import ModelEndpoint
from mock.targets.dry_run import open_target
from mock.targets.question import Answer, Patience, Question, Target
from mock.targets.spec import Spec, read_target

APP = Path(__file__).parents[2] / "support" / "small_app.py"
AT = "http://127.0.0.1:9/v1"
"""An address without a listener."""


def write(folder: Path, text: str, name: str = "own.yaml") -> Path:
    """A target file; `APP` in it is the small application, `PY` this Python."""
    path = folder / name
    path.write_text(text.replace("APP", str(APP)).replace("PY", sys.executable))
    return path


def spec_of(folder: Path, text: str) -> Spec:
    return read_target(write(folder, text))


def target_of(folder: Path, text: str, url: str = AT, **setting: Any) -> Target:
    return open_target(spec_of(folder, text), ModelEndpoint(base_url=url, **setting))


def question(query: str = "hi", turn: int = 1, session: str = "s1", **more: Any) -> Question:
    messages = more.pop("messages", [{"role": "user", "content": query}])
    return Question(
        query=query, messages=messages, sent_id="row-1", session=session, turn=turn, **more
    )


async def never(seconds: float) -> bool:
    """A run that is never stopped; no time passes."""
    return False


ONCE = Patience(rest=never, seconds=0.0, counters=RunCounters())
"""No retry."""


async def ask(target: Target, turn: Question | None = None) -> Answer:
    """One question; the target is closed."""
    try:
        answer = await target.ask(turn or question(), ONCE)
    finally:
        await target.close()
    assert answer is not None
    return answer
