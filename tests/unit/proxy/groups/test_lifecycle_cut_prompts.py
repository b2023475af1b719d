"""Prompts that the engine cut to its window: answered, marked, and not trained on by default."""

from pathlib import Path
from typing import Any

import pytest

import proxy.groups.lifecycle
from console.session.filters import parse
from console.views.events import event_line
from core.control_payloads import EngineInfo
from core.events import AlertCleared, AlertRaised, GroupClosed, GroupSealed
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.world import settings, texts, world
from tests.support.scripted.chat import completion

KEY = "cut:s"


def answered(text: str, truncated: bool) -> dict[str, Any]:
    """A completion of the embedded engine."""
    return {**completion(text), "ajetc": {"truncated": truncated, "step": 0}}


async def test_a_cut_prompt_is_answered_and_not_trained_on(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.server.info = EngineInfo(context=512)
        w.swarm.answer = texts(answered("whole", False), answered("cut", True))
        ticket = await w.ask()
        reply = await w.reply(ticket)
        await w.closed()
        assert (reply.why, reply.index) == ("winner", 3)
        group = w.group(ticket)
        assert (group.phase, group.cause) == (
            "ABORTED",
            "prompt cut to 512 tokens: not trained on",
        )
        assert not w.swarm.ends
        assert len(w.swarm.aborts) == 4
        assert not w.kinds(GroupSealed)
        assert parse("truncated:yes").matches(group)
        line = event_line(w.kinds(GroupClosed)[0])
        assert line is not None
        assert "prompt cut to 512 tokens: not trained on" in line.text
        alert = w.state.alerts[KEY]
        assert cause_of(alert) == (
            "prompts are cut to 512 tokens: answers will be poor, and these groups are not "
            "trained on"
        )
        assert "smollm2" in todo_of(alert)
        assert "a GPU server" in todo_of(alert)
        assert "--strict-context" in todo_of(alert)


@pytest.mark.parametrize("mode", ["answer_first", "hold"])
async def test_a_group_with_a_cut_prompt_is_not_open_for_rating(tmp_path: Path, mode: str) -> None:
    async with world(tmp_path, configured=settings(rating={"mode": mode})) as w:
        w.console()
        w.swarm.answer = texts(answered("cut", True))
        ticket = await w.ask()
        assert (await w.reply(ticket)).answer is not None
        await w.closed()
        assert w.group(ticket).cause == "prompt cut to the engine's window: not trained on"


async def test_the_alert_is_cleared_when_its_cause_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.groups.lifecycle, "RECENT", 2)
    async with world(tmp_path) as w:
        for at, truncated in enumerate((True, True, False, False)):
            assert bool(w.state.alerts) is (at > 0)
            w.swarm.answer = texts(answered("text", truncated))
            await w.reply(await w.ask(f"question {at}"))
            await w.closed()
        assert not w.state.alerts
        assert [len(w.kinds(kind)) for kind in (AlertRaised, AlertCleared)] == [2, 1]
        assert [len(kind.groups) for kind in w.kinds(AlertRaised)] == [1, 2]
