"""Device, memory and speed of the policy on the Engine screen."""

from typing import Any

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError
from console.screens.engine.screen import EngineScreen
from core.control_payloads import HardwareFacts, ServerDetails
from core.events import Checkpoint, CheckpointsListed
from core.state import State
from tests.support.console import HOSTILE, NOW, FakeLink, run_console, sample_events, state_of

CARD = HardwareFacts(
    device="cuda:0 NVIDIA H100 80GB HBM3",
    dtype="bfloat16",
    memory_used=23_400_000_000,
    memory_total=80_000_000_000,
    memory_estimate=21_000_000_000,
    slots=64,
    tokens_per_second=1234.5,
    sampling_seconds=12.34,
    update_seconds=4.1,
    sync_seconds=0.8,
)


def embedded() -> State:
    saved = (Checkpoint(name="latest", step=11, at=NOW - 4, bytes=11_200_000, kept=True),)
    return state_of(*sample_events(), CheckpointsListed(server="embedded", checkpoints=saved))


def link_with(facts: HardwareFacts | None, state: State | None = None) -> FakeLink:
    link = FakeLink(state or embedded())
    link.looks["embedded"] = ServerDetails(server="embedded", at=NOW, hardware=facts)
    return link


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_device_memory_and_speed_have_a_line_each(size: tuple[int, int]) -> None:
    async with run_console(link=link_with(CARD), size=size, at="engine") as console:
        await console.until(lambda: "H100" in console.text())
        lines = console.text().splitlines()
        for words in (
            "device    cuda:0 NVIDIA H100 80GB HBM3  bfloat16",
            "memory    23.4 of 80.0 GB, planned 21.0  64 answers at a time",
            "speed     1,234 tokens/s, sampling 12.3s since the update",
            "update    4.1s, sync 0.8s",
        ):
            assert any(words in line for line in lines), words


async def test_unknown_figures_are_left_out() -> None:
    facts = msgspec.structs.replace(
        CARD, memory_estimate=None, tokens_per_second=None, update_seconds=None, sync_seconds=None
    )
    async with run_console(link=link_with(facts), at="engine") as console:
        await console.until(lambda: "H100" in console.text())
        text = console.text()
        assert "speed     sampling 12.3s since the start" in text
        assert "planned" not in text
        assert "update    " not in text
        assert "tokens/s" not in text


async def test_the_speed_of_a_look_has_a_line_while_there_is_one() -> None:
    link = link_with(msgspec.structs.replace(CARD, look_tokens_per_second=35.2))
    async with run_console(link=link, at="engine") as console:
        await console.until(lambda: "look      35 tokens/s" in console.text())
        assert "speed     1,234 tokens/s, sampling" in console.text()
        link.looks["embedded"] = ServerDetails(server="embedded", at=NOW, hardware=CARD)
        screen: Any = console.app.screen
        screen.read()
        await console.until(lambda: "look  " not in console.text())


async def test_the_lines_are_hidden_where_nothing_is_measured() -> None:
    link = link_with(None)
    async with run_console(link=link, at="engine") as console:
        await console.until(lambda: link.looked)
        assert not any(word in console.text() for word in ("device  ", "memory  ", "speed  "))


async def test_a_server_without_checkpoints_is_not_asked() -> None:
    link = link_with(CARD, state_of(*sample_events()))
    async with run_console(link=link, at="engine") as console:
        assert isinstance(console.app.screen, EngineScreen)
        console.app.screen.read()
        await console.settle()
        assert link.looked == []
        assert "H100" not in console.text()


async def test_new_figures_replace_the_old_ones_and_a_failure_keeps_them() -> None:
    link = link_with(CARD)
    async with run_console(link=link, at="engine") as console:
        await console.until(lambda: "23.4 of" in console.text())
        screen: Any = console.app.screen
        newer = msgspec.structs.replace(CARD, memory_used=30_000_000_000)
        link.looks["embedded"] = ServerDetails(server="embedded", at=NOW, hardware=newer)
        screen.read()
        await console.until(lambda: "30.0 of" in console.text())

        async def refuse(server: str) -> ServerDetails:
            raise AjetError("no answer")

        link.server_details = refuse  # type: ignore[method-assign]  # fails from here on
        screen.read()
        await console.settle()
        assert "30.0 of" in console.text()


async def test_a_hostile_device_name_is_text() -> None:
    facts = msgspec.structs.replace(CARD, device=HOSTILE, dtype=HOSTILE)
    async with run_console(link=link_with(facts), at="engine") as console:
        await console.until(lambda: "answers at a time" in console.text())
        assert "\x1b" not in console.text()
