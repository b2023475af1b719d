"""Commands use the settings of the running proxy, not those of the home's file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from console.cli import main
from console.clients.catalog import ANY_KEY, OWN_KEY
from core.runtime.home import Home, Role, running
from core.settings import Settings, load
from core.settings.effective import HIDDEN
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandDispatcher
from tests.support.checks import present
from tests.support.commands.cli import AsyncCli
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served

pytestmark = pytest.mark.slow


@asynccontextmanager
async def proxy_of(home: Home, settings: Settings) -> AsyncIterator[World]:
    """A proxy of `home` that was started with `settings`."""
    async with ScriptedSwarm(state="ROLLING") as swarm, world(home.root, swarm) as made:
        made.context.settings = settings
        control = ControlApi(
            made.context, CommandDispatcher(made.context, made.groups), home.token(), frozenset()
        )
        async with served(below("/control", control.app())) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                yield made
                control.close()


async def run(*argv: str) -> int:
    return await asyncio.to_thread(main, list(argv))


async def test_a_proxy_reports_its_settings_without_keys(home: Home) -> None:
    flags = {"proxy.api_key": "v1-secret", "upstream.url": "http://far:1", "upstream.key": "k-far"}
    settings = load(None, {}, flags)
    key_read = {"proxy.api_key": "v1-secret", "proxy.api_key_file": "/keys/v1"}
    async with (
        proxy_of(home, settings) as made,
        ControlClient(address(home), home.token()) as client,
    ):
        result = await client.settings()
        made.context.settings = load(None, {}, key_read)
        by_file = await client.settings()
    assert result.settings.proxy.api_key == result.settings.upstream.key == HIDDEN
    assert (by_file.settings.proxy.api_key, by_file.settings.proxy.api_key_file) == ("", "/keys/v1")
    assert b"secret" not in msgspec.json.encode([result, by_file])


def address(home: Home) -> str:
    info = present(running(home, "proxy"))
    return info.url


async def test_clients_shows_key_and_model_of_the_running_proxy(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "key.txt"
    file.write_text("from-the-file\n")
    flags = {"proxy.api_key_file": str(file), "proxy.served_model_name": "my-policy"}
    async with proxy_of(home, load(None, {}, flags)):
        output = await async_cli.out("clients", "pi")
        assert OWN_KEY in output
        assert ANY_KEY not in output
        assert "from-the-file" not in output
        assert "--model my-policy" in output
        assert "from-the-file" in await async_cli.out("clients", "pi", "--show-key")


async def test_a_key_that_only_the_proxy_has_is_an_error(async_cli: AsyncCli, home: Home) -> None:
    async with proxy_of(home, load(None, {}, {"proxy.api_key": "v1-secret"})):
        assert "--api-key-file" in await async_cli.refused("clients", "pi", "--show-key")


async def test_an_unreachable_proxy_is_reported(async_cli: AsyncCli, home: Home) -> None:
    shown = await async_cli.err("clients", "pi", "--url", "http://127.0.0.1:9")
    assert "the proxy's are unknown" in shown


async def test_doctor_checks_hooks_and_servers_of_the_running_proxy(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "on_compute_relative_reward.py").write_text(
        "async def on_compute_relative_reward(valid_results, all_answers):\n    return []\n"
    )
    async with ScriptedSwarm(state="ROLLING") as other:
        flags = {"rewards.hooks": str(folder), "swarm_url": {"a": other.url, "b": other.url}}
        async with proxy_of(home, load(None, {}, flags)):
            await run("doctor")
            output = capsys.readouterr().out
    assert f"{folder} loads" in output
    assert "the built-in rewards" not in output
    servers = [line.split()[2] for line in output.splitlines() if line.split()[1:2] == ["server"]]
    assert servers == ["a", "b"]
