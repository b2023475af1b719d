"""The rewards of the last run are gone at the next start: a warning names their replacement."""

from pathlib import Path

import pytest

from proxy.main import MISSING_REWARDS, _note_missing_rewards, _rewards_changed
from proxy.rewards.source import Abstention, SourceHealth
from tests.support.alerts import cause_of
from tests.support.proxy.world import world


async def test_built_in_rewards_that_replace_a_missing_file_raise_an_alert(tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    async with world(tmp_path) as w:
        w.source.name = "builtin"
        _note_missing_rewards(w.context, str(file))
        assert str(file) in cause_of(w.state.alerts[MISSING_REWARDS])
        w.source.name = str(file)  # it was restored
        _rewards_changed(w.context, SourceHealth(True, None, "v2"))
        assert MISSING_REWARDS not in w.state.alerts


@pytest.mark.parametrize(
    ("version", "meanwhile"), [("", "groups get no automatic reward"), ("v1", "the last good")]
)
async def test_the_log_has_what_follows_and_what_to_do(
    version: str, meanwhile: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that runs without a console reports a broken file nowhere else."""
    fault = Abstention("model", "parts: it is no list", file="/h/rewards.yaml", line=2)
    async with world(tmp_path) as w:
        _rewards_changed(w.context, SourceHealth(False, fault, version))
    (logged,) = [one.getMessage() for one in caplog.records if "rewards" in one.getMessage()]
    assert logged.startswith("the rewards did not load: /h/rewards.yaml:2: parts: it is no list; ")
    assert meanwhile in logged
    assert logged.endswith("Correct the file and save it")


@pytest.mark.parametrize("before", ["", "builtin", "{home}", "{home}/hooks"])
async def test_no_alert_if_nothing_is_missing(tmp_path: Path, before: str) -> None:
    async with world(tmp_path) as w:
        w.source.name = str(tmp_path / "other.yaml") if "hooks" in before else "builtin"
        _note_missing_rewards(w.context, before.format(home=tmp_path))
        assert MISSING_REWARDS not in w.state.alerts
