"""What the next run of the proxy takes over from the one before."""

from pathlib import Path

import pytest

from proxy.groups.recovery import KEY, alert_waited, store_waited, unrated
from tests.support.alerts import cause_of
from tests.support.proxy.world import settings, world
from tests.support.scripted.swarm import ScriptedSwarm

OFF, HOLD = settings(), settings(rating={"mode": "hold"})


@pytest.mark.slow
async def test_a_switched_rating_mode_lasts_until_the_setting_changes(
    tmp_path: Path,
) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        async with world(tmp_path, swarm, OFF) as w:
            assert w.state.rating_mode == "off"
            await w.commands.set_mode("answer_first")
            await w.ask()
            await w.open("AWAITING_RATING")
            await w.context.journal.durable(w.state.seq)
            w.kill()
        async with world(tmp_path, swarm, OFF) as w:
            assert w.state.rating_mode == "answer_first"
            assert "1 group was open (1 waiting for a rating)" in cause_of(
                w.state.alerts["recovered:s"]
            )
            await w.commands.set_mode("off")
        for configured, value in ((OFF, "off"), (HOLD, "hold"), (HOLD, "hold"), (OFF, "off")):
            async with world(tmp_path, swarm, configured) as w:
                assert w.state.rating_mode == value


@pytest.mark.slow
async def test_the_next_start_reports_once_what_happened_to_waiting_groups(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        async with world(tmp_path, swarm, HOLD) as w:
            tickets = [await w.ask(text) for text in ("one", "two")]
            await w.until(lambda: len(unrated(w.state)) == 2)
            waited = unrated(w.state)
            await w.commands.rate(tickets[0].group_id, "tie")
            assert len(unrated(w.state)) == 1
            await w.groups.drain(0.0)
            store_waited(w.context, waited)
        async with world(tmp_path, swarm, HOLD) as w:
            alert_waited(w.context)
            assert w.state.alerts[KEY].level == "info"
            assert cause_of(w.state.alerts[KEY]) == (
                "2 groups waited for a rating when the proxy was stopped: "
                "1 rated in time, 1 sent with the automatic reward"
            )
        async with world(tmp_path, swarm, HOLD) as w:
            alert_waited(w.context)
            assert KEY not in w.state.alerts
