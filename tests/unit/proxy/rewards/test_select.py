"""Which reward source the settings select."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home
from core.settings import Settings, load
from proxy.rewards.model.source import RewardCommands, parts_of
from proxy.rewards.select import display_name, select_source


def wanted(**flags: Any) -> Settings:
    named: Mapping[str, Any] = {key.replace("__", "."): value for key, value in flags.items()}
    return load(None, {}, named)


async def test_without_settings_the_source_is_the_home_file_or_the_built_in_model(
    tmp_path: Path,
) -> None:
    home = Home.open(tmp_path)
    source = select_source(home, wanted())
    assert source.file == home.root / "rewards.yaml"
    await source.start()
    assert display_name(wanted(), source) == "builtin"
    await source.close()


async def test_a_hook_folder_alone_is_the_whole_reward(tmp_path: Path) -> None:
    settings = wanted(rewards__hooks=str(tmp_path), rewards__time_limit=7)
    source = select_source(Home.open(tmp_path / "home"), settings)
    ((_, part),) = source.serving.slow
    assert (part.limits.call_seconds, part.limits.memory_bytes) == (7, 2048 << 20)
    assert [part.kind for part in parts_of(source)] == ["hook"]
    assert display_name(settings, source) == str(tmp_path)
    with pytest.raises(AjetError, match="a hook folder alone"):
        await RewardCommands(source).table["rewards.weight"](part="hook", weight=1)


@pytest.mark.parametrize(
    ("flags", "result"),
    [
        ({"rewards__file": "/nowhere/rewards.yaml"}, "does not exist"),
        ({"rewards__hooks": "/nowhere"}, "does not exist"),
        ({"rewards__hooks": "/nowhere", "rewards__file": "/nowhere"}, "and a file"),
    ],
)
def test_a_missing_file_or_folder_is_reported(
    tmp_path: Path, flags: dict[str, str], result: str
) -> None:
    with pytest.raises(AjetError, match=result):
        select_source(Home.open(tmp_path), wanted(**flags))


def test_a_watch_only_proxy_scores_nothing(tmp_path: Path) -> None:
    settings = wanted(proxy__watch_only=True, rewards__file="/nowhere")
    source = select_source(Home.open(tmp_path), settings)
    assert source.file is None
