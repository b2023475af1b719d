"""The rewards of the last run are gone at the next start: it is said what trains instead."""

from pathlib import Path

import pytest

from proxy.main import GONE, _note_missing_rewards, _rewards_changed
from proxy.rewards.source import SourceHealth
from tests.support.alerts import cause_of
from tests.support.world import world


async def test_built_in_rewards_in_place_of_a_file_that_is_gone_are_told(tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    async with world(tmp_path) as w:
        w.source.name = "builtin"
        _note_missing_rewards(w.context, str(file))
        assert str(file) in cause_of(w.state.alerts[GONE])
        w.source.name = str(file)  # it was restored
        _rewards_changed(w.context, SourceHealth(True, None, "v2"))
        assert GONE not in w.state.alerts


@pytest.mark.parametrize("before", ["", "builtin", "{home}", "{home}/hooks"])
async def test_nothing_is_told_where_nothing_is_missing(tmp_path: Path, before: str) -> None:
    async with world(tmp_path) as w:
        w.source.name = str(tmp_path / "other.yaml") if "hooks" in before else "builtin"
        _note_missing_rewards(w.context, before.format(home=tmp_path))
        assert GONE not in w.state.alerts
