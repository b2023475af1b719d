"""What the doctor checks and reports; it changes nothing."""

import asyncio
import os
import socket
from importlib import metadata
from pathlib import Path

import pytest

from console import doctor
from console.doctor import examine, local, remote
from console.doctor.finding import CheckContext, Finding
from core.journal.file import PAGE
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import Settings, load
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.sample import state_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check is given up because the machine is busy."""
    monkeypatch.setattr(doctor, "LIMIT", 60.0)


def _patient(root: Path, settings: Settings | None = None, **more: object) -> CheckContext:
    return CheckContext(home=Home(root), settings=settings or Settings(), **more)  # type: ignore[arg-type]  # fields of several types


def _findings(context: CheckContext) -> dict[tuple[str, str], Finding]:
    return {(found.area, found.name): found for found in asyncio.run(examine(context))}


def test_a_missing_home_is_not_created(tmp_path: Path) -> None:
    root = tmp_path / "none" / "yet"
    result = _findings(_patient(root))
    assert (result["home", "folder"].level, result["keys", "control token"].level) == ("ok", "ok")
    assert (result["python", "version"].level, result["packages", "versions"].level) == ("ok", "ok")
    assert not root.parent.exists()


def test_readable_secrets_are_reported_with_the_chmod_command(home: Home) -> None:
    home.token()
    assert _findings(_patient(home.root))["keys", "control token"].level == "ok"
    home.token_file.chmod(0o644)
    home.root.chmod(0o755)
    result = _findings(_patient(home.root))
    assert result["keys", "control token"].level == "fail"
    assert result["keys", "control token"].todo == f"`chmod 600 {home.token_file}`"
    home.token_file.unlink()
    home.token_file.symlink_to("gone")
    result = _findings(_patient(home.root))
    assert result["keys", "control token"].level == "fail"
    assert "is a link to gone, which does not exist" in result["keys", "control token"].text
    assert result["home", "folder"].level == "warn"
    home.root.chmod(0o700)


def test_settings_of_a_server_that_does_not_exist_are_a_warning(tmp_path: Path) -> None:
    assert ("settings", "servers") not in _findings(_patient(tmp_path))
    result = _findings(_patient(tmp_path, load(None, {}, {"servers.gpux.vision": True})))
    assert result["settings", "servers"].level == "warn"
    assert "`servers.gpux`" in result["settings", "servers"].text


def test_an_open_listener_without_a_key_fails(tmp_path: Path) -> None:
    flags = {"proxy.host": "0.0.0.0", "engine.host": "0.0.0.0"}
    result = _findings(_patient(tmp_path, load(None, {}, flags)))
    assert result["keys", "fake vLLM"].level == "fail"
    assert result["keys", "embedded engine"].level == "fail"
    result = _findings(_patient(tmp_path, load(None, {}, {**flags, "proxy.api_key": "k"})))
    assert result["keys", "fake vLLM"].level == "ok"


def test_a_taken_port_names_its_holder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        actual = _findings(_patient(tmp_path, load(None, {}, {"proxy.port": port})))
    result = actual["ports", "fake vLLM"]
    assert result.level == "warn"
    assert f"pid {os.getpid()}" in result.text
    assert result.todo


def test_a_server_that_is_silent_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        result = _findings(_patient(tmp_path, servers={"gpu": url, "gone": "http://127.0.0.1:9"}))
    assert result["server", "gpu"].level == "fail"
    assert "no answer" in result["server", "gpu"].text
    assert result["server", "gone"].level == "fail"
    assert result["server", "gone"].todo


def test_hooks_are_loaded_in_another_process_and_leave_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    folder.mkdir()
    file = folder / "on_compute_relative_reward.py"
    file.write_text(
        "async def on_compute_relative_reward(valid_results, all_answers):\n    return []\n"
    )
    assert _findings(_patient(tmp_path, hooks=folder))["hooks", "rewards"].level == "ok"
    file.write_text("import no_such_module_of_anyone\n")
    result = _findings(_patient(tmp_path, hooks=folder))["hooks", "rewards"]
    assert result.level == "fail"
    assert "no_such_module_of_anyone" in result.text
    assert [path.name for path in folder.iterdir()] == [file.name]


def test_a_journal_is_checked_without_changing_it(home: Home) -> None:
    Journal(home.journal).close()
    content = home.journal.read_bytes()
    assert _findings(_patient(home.root))["home", "journal"].level == "ok"
    assert home.journal.read_bytes() == content
    for beside in home.root.glob("journal.db-*"):
        beside.unlink()
    with home.journal.open("r+b") as file:
        file.seek(2 * PAGE)
        file.write(b"\xff" * PAGE)
    damaged = _findings(_patient(home.root))["home", "journal"]
    assert damaged.level == "fail"
    assert "damaged" in damaged.text
    assert "Restart the proxy" in damaged.todo
    home.journal.write_bytes(b"nonsense")
    assert _findings(_patient(home.root))["home", "journal"].level == "fail"


def test_the_terminal_is_judged_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMUX", "STY", "NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert _findings(_patient(tmp_path))["terminal", "TERM"].level == "fail"
    monkeypatch.setenv("TERM", "vt100")
    assert _findings(_patient(tmp_path))["terminal", "colours"].level == "warn"
    monkeypatch.setenv("TERM", "xterm-256color")
    assert _findings(_patient(tmp_path))["terminal", "colours"].text == "256"
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("STY", "1")
    result = _findings(_patient(tmp_path))
    assert result["terminal", "colours"].text == "24 bit"
    assert result["terminal", "clipboard"].level == "warn"


def test_the_exit_code_and_the_data_say_whether_something_fails(
    cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    data = cli.json("doctor", "--port", "0")
    assert data["ok"] is True
    assert data["counts"]["fail"] == 0
    assert {"area", "name", "level", "text", "todo"} == set(data["checks"][0])
    home.config.write_text("prxy: 1\n")
    assert not missing(cli.out("doctor", code=1), "`prxy` is unknown", "1 failure\n")
    cli("doctor", "--swarm-url", "nonsense", code=2)
    cli("doctor", "--url", "nonsense", code=2)


def _packages(
    monkeypatch: pytest.MonkeyPatch, wanted: list[str], installed: dict[str, str]
) -> Finding:
    """The finding about packages where the distribution wants `wanted`."""

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    monkeypatch.setattr(metadata, "version", version)
    (packages,) = local.packages(_patient(Path("/none")))
    return packages


def test_only_requirements_of_a_normal_install_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "httpx<1,>=0.28",
        'uvloop>=0.21; sys_platform != "win32" and implementation_name == "cpython"',
        'pyarrow>=17; extra == "data"',
        'aiohttp<4,>=3.12; extra == "dev"',
    ]
    packages = _packages(monkeypatch, wanted, {"httpx": "0.28.1"})
    assert (packages.level, packages.text) == ("ok", "httpx 0.28.1")
    packages = _packages(monkeypatch, wanted, {"httpx": "1.0", "uvloop": "0.20"})
    assert (packages.level, packages.text) == (
        "fail",
        "httpx 1.0 is not < 1, uvloop 0.20 is not >= 0.21",
    )
    assert _packages(monkeypatch, wanted, {}).text == "httpx is missing"


@pytest.mark.parametrize(
    ("prefix", "source", "advice"),
    [
        ("/home/u/.local/share/pipx/venvs/ajet-console", False, "`pipx reinstall ajet-console`"),
        ("/srv/venv", False, "Install ajet-console again into /srv/venv"),
        ("/srv/venv", True, "`make run` in "),
    ],
)
def test_the_advice_depends_on_the_kind_of_installation(
    prefix: str, source: bool, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "console").mkdir()
    if source:
        (tmp_path / "Makefile").touch()
        (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(local, "__file__", str(tmp_path / "console/doctor/local.py"))
    monkeypatch.setattr("sys.prefix", prefix)
    assert advice in _packages(monkeypatch, ["httpx>=0.28"], {}).todo


@pytest.mark.parametrize("votes", [0, 1, 2])
def test_alerts_follow_votes_that_are_not_sent_yet(
    home: Home, monkeypatch: pytest.MonkeyPatch, votes: int
) -> None:
    home.token()
    proxy = FakeControl(state_of(*two_hold_up(votes)))
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: proxy)
    context = _patient(home.root, url="http://proxy")
    findings = {found.name: found.text for found in asyncio.run(remote.proxy(context))}
    assert findings.get("alerts", "") == TWO_HOLD_UP[votes]
