"""Text that attacks a terminal, put wherever a model, a server or a file can put text."""

import copy
import unicodedata
from typing import Any

import msgspec

from console.app import ConsoleApp
from core.events import (
    CandidateFailed,
    Checkpoint,
    CheckpointsListed,
    EngineChanged,
    EngineLost,
    Event,
    GroupEdited,
    GroupNoted,
    GroupRated,
    RewardPart,
    RewardsChanged,
    ScoringAbstained,
    TrialGroup,
    TrialSummary,
    TryAnswered,
    TryAsked,
    WhatIfChanged,
)
from core.state import State
from tests.support.console import NOW, FakeLink, group_events, state_of
from tests.support.looks import broken_look, looks
from tests.support.sample import sample_events

TEXTS = {
    "markup": "[/b][red]red[/] [@click=app.hostile]q[/] [link=evil://x]y[/link] $error [",
    "controls": "\x1b[31m\x00\x9b\x07\r\x85\x7f\x1b[2J\x1b]0;title\x07"
    "\x1b]52;c;cHduZWQ=\x07 \x90q\x9c\x0b\x0c\tb\nline two\x1f",
    "unicode": "\u202eg\u2066a\u061c\u200b\u200d\ufeff\u00ad\u2028\u3164你好👩‍👩‍👧 "
    "\u202c\u200f\u2060\u180e\u034f\u115f\U000e0041 "
    "🏳️‍🌈👍🏽 e\u0301\u0301 ☝️ 1️⃣ \u2029 世界，長い質問です。",
    "1 MB line": "x" * 1_000_000,
    "lone surrogates": "a\ud800b\udfffc",
}
"""By what they try; each begins with its worst."""
SERVER = "embedded"
_KEEP = frozenset(
    {
        "phase",
        "state",
        "rating_mode",
        "mode",
        "level",
        "rating",
        "fallback",
        "awaiting",
        "server",
        "group_id",
        "mock_id",
        "key",
        "episode_type",
        "kind",
        "role",
        "how",
        "outcome",
    }
)
"""Fields whose values are the program's own words or ids."""

TRIAL = TrialSummary(
    groups=3,
    compared=2,
    flips=1,
    died=1,
    abstained=1,
    abstentions=(("x", 1),),
    notes=(("x", 2),),
    version="x",
    most=(TrialGroup(group_id="g0001", query="x", before=(0.0, 1.0), after=(1.0, 0.0), change=1),),
)
"""The result of a trial of other rewards."""


def events() -> list[Event]:
    """A console with one group of every kind, and something in every field that takes text."""
    result = [event for event in sample_events() if not hasattr(event, "group_id")]
    result += group_events(1, at=NOW - 60, step=11)
    result += group_events(2, at=NOW - 50, rewards=(0.5,) * 4, step=11)
    result += group_events(3, at=NOW - 8, until="AWAITING_RATING", row_id="row", step=12)
    result += group_events(4, at=NOW - 7, until="AWAITING_RATING", step=12)
    result += group_events(5, at=NOW - 40, until="ABORTED", step=11)
    result += [
        CandidateFailed(group_id="g0003", server=SERVER, index=2, episode_uuid="ep-3-2", cause="x"),
        ScoringAbstained(group_id="g0004", server=SERVER, part="p", cause="x", traceback="x"),
        GroupNoted(group_id="g0003", server=SERVER, note="x"),
        GroupEdited(group_id="g0003", server=SERVER, index=1, edited="x", rater="x"),
        GroupRated(
            group_id="g0004",
            server=SERVER,
            rating="best",
            order=(1,),
            rewards=(0.0, 1.0, 0.0, 0.0),
            rater="x",
            note="x",
            tags=("x",),
        ),
        CheckpointsListed(
            server=SERVER, checkpoints=(Checkpoint(name="x", step=1, at=NOW - 9, bytes=9),)
        ),
        RewardsChanged(
            source="x",
            ok=True,
            version="x",
            parts=tuple(RewardPart(name="x", kind="x", weight=at) for at in (0.5, 1.0)),
        ),
        RewardsChanged(source="x", ok=False, cause="x", traceback="x", file="x", line=3),
        WhatIfChanged(what="x", phase="done", weights=(), began=NOW - 9, summary=TRIAL),
        TryAsked(try_id="t1", group_id="g0001", prompt="x", step=11, at=NOW - 30),
        TryAnswered(try_id="t1", text="x", reasoning="x", tool_calls="x", step=11, at=NOW - 29),
        TryAsked(try_id="t2", group_id="g0002", prompt="x", step=12, at=NOW - 20),
        TryAnswered(try_id="t2", error="x", at=NOW - 19),
        EngineChanged(server="other", state="UNKNOWN", raw="x", detail="x", url="x", step=3),
        EngineLost(server="other", error="x", seen_at=NOW - 30),
        *looks(),
        broken_look("x", 13, "failed", "x"),
    ]
    return result


def hostile_state(text: str) -> State:
    """The state those events make, with `text` in every field that is not the program's own."""
    plain = msgspec.to_builtins(state_of(*events()))
    return msgspec.convert(_poisoned(plain, text), State)


def hostile_events(text: str) -> list[Event]:
    """The journal's events of one group with hostile texts: messages, tool calls, tracebacks."""
    calls = [{"id": text, "function": {"name": text, "arguments": text}}]
    result = []
    for event in group_events(3, at=NOW - 8, until="AWAITING_RATING"):
        raw = _poisoned(msgspec.to_builtins(event), text)
        if "message" in raw:
            raw["message"] |= {"role": "assistant", "tool_calls": calls, "reasoning": text}
        result.append(msgspec.convert(raw, type(event)))
    return result


def _poisoned(value: Any, text: str, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _KEEP else text
    if isinstance(value, dict):
        return {name: _poisoned(one, text, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_poisoned(item, text, key) for item in value]
    return value


class HostileLink(FakeLink):
    """Returns the state unchanged: also values that JSON refuses."""

    async def snapshot(self, *, whole: int | None = None) -> State:
        if self.broken is not None:
            raise self.broken
        self.snapshots += 1
        return copy.deepcopy(self.state)


def harm(app: ConsoleApp) -> list[str]:
    """What on the screen could change the terminal, mislead a reader, or act when clicked."""
    result = []
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        for segment in strip:
            text, style = segment.text, segment.style
            bad = sorted({f"U+{ord(one):04X}" for one in text if _harmful(one)})
            if bad and not segment.control:
                result.append(f"row {y}: {', '.join(bad)} in {text[:60]!r}")
            actual = f"{style.link or ''} {style.meta}" if style is not None else ""
            if "hostile" in actual or "evil" in actual:
                result.append(f"row {y}: {actual} on {text[:60]!r}")
        if strip.cell_length > app.size.width:
            result.append(f"row {y}: {strip.cell_length} cells in {app.size.width}")
    return result


def _harmful(one: str) -> bool:
    """Controls, line and paragraph ends, formats (direction, zero width), halves of pairs."""
    invisible = one in "\u034f\u115f\u1160\u3164\uffa0"
    return unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") or invisible
