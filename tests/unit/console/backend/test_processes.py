"""How a process was started, and what it has that was not asked for."""

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from ajet_swarm.common.errors import AjetError
from console.backend.attach import (
    check_may_follow,
    engine_differences,
    may_follow,
    option_differences,
)
from console.backend.options import ConsoleOptions
from console.backend.processes import (
    PROGRAM,
    flag_values,
    launch_of,
    published_argv,
    role_args,
    with_port,
)
from core.runtime.home import Home, RunInfo
from core.runtime.secrets import redacted_argv
from core.settings import load
from tests.support.checks import missing, present


def info(argv: list[str] | None = None, pid: int | None = None, **more: Any) -> RunInfo:
    extra = {} if argv is None else {"argv": json.dumps(argv)}
    pid = os.getpid() if pid is None else pid
    return RunInfo(role="proxy", pid=pid, started_at=0.0, extra=extra, **more)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["proxy", "--port", "0", "--next-port"], ["proxy", "--port", "81", "--next-port"]),
        (["proxy", "--port=0"], ["proxy", "--port=81"]),
        (["proxy", "--hooks", "h"], ["proxy", "--hooks", "h", "--port", "81"]),
    ],
)
def test_a_restart_uses_the_port_the_process_actually_has(
    argv: list[str], expected: list[str]
) -> None:
    assert with_port(argv, 81) == expected
    result = present(launch_of(info(argv, port=81)))
    assert result.command == (*PROGRAM, *expected)
    assert result.folder == os.getcwd()


def test_without_published_arguments_the_command_line_is_read_from_the_system() -> None:
    result = present(launch_of(info()))
    assert list(result.command) == psutil.Process().cmdline()
    assert launch_of(info(["proxy"], pid=2**22 + 1)) is not None
    assert launch_of(info(pid=2**22 + 1)) is None


def test_redacted_arguments_are_not_reused() -> None:
    """A proxy started again without its key would be open to all."""
    argv = json.loads(redacted_argv(["proxy", "--api-key", "sk-1"]))
    result = present(launch_of(info(argv)))
    assert list(result.command) == psutil.Process().cmdline()
    assert launch_of(info(argv, pid=2**22 + 1)) is None


def test_a_child_gets_the_key_file_as_a_flag_and_never_the_key() -> None:
    value = {"proxy.api_key_file": "/etc/key", "proxy.api_key": "sk-1"}
    args = role_args("proxy", load(None, {}, value))
    assert flag_values(args, "--api-key-file") == ["/etc/key"]
    assert "sk-1" not in args


def test_arguments_of_another_process_are_ignored() -> None:
    assert published_argv(info(["-x", "tests"])) == []
    assert published_argv(RunInfo(role="proxy", pid=1, started_at=0.0, extra={"argv": "{"})) == []


def test_the_values_of_a_flag_are_found_in_both_spellings() -> None:
    assert flag_values(["--a", "1", "--a=2", "--b", "3", "--a"], "--a") == ["2", "1"]


def options(tmp_path: Path, flags: dict[str, Any], **more: Any) -> ConsoleOptions:
    return ConsoleOptions(home=Home.open(tmp_path), settings=load(None, {}, flags), **more)


def test_differences_from_a_running_proxy_are_reported(tmp_path: Path) -> None:
    argv = ["proxy", "--port", "8000", "--swarm-url", "embedded", "--hooks", "/theirs"]
    running = info(argv, port=8000, swarm="embedded=http://127.0.0.1:10086")
    flags = {"proxy.port": 8001, "swarm_url": "http://gpu:1", "rewards.hooks": "/mine"}
    value = {"next_port": False, "proxy_flags": frozenset({"--swarm-url", "--hooks"})}
    result = option_differences(running, options(tmp_path, flags, **value))
    assert not missing(
        result, "port 8000, not 8001", "embedded, not http://gpu:1", "hooks /theirs, not /mine"
    )
    assert option_differences(running, options(tmp_path, flags)) == ""


@pytest.mark.parametrize("argv", [["proxy", "--swarm-url", "gpu=http://gpu:1/"], ["proxy"], None])
def test_equal_flags_are_not_reported_as_differences(
    argv: list[str] | None, tmp_path: Path
) -> None:
    flags = {"proxy.port": 8000, "swarm_url": "http://gpu:1"}
    value = options(tmp_path, flags, next_port=False, proxy_flags=frozenset({"--swarm-url"}))
    assert option_differences(info(argv, port=8000, swarm="gpu=http://gpu:1"), value) == ""
    free = options(tmp_path, {"proxy.port": 0}, next_port=False)
    assert option_differences(info(argv, port=8000), free) == ""


@pytest.mark.parametrize(
    ("flag", "setting", "theirs", "mine", "expected"),
    [
        ("--rewards", "rewards.file", "/theirs", "/mine", "--rewards /theirs, not /mine"),
        ("--rewards", "rewards.file", "", "/mine", "--rewards from its settings, not /mine"),
        ("--rewards", "rewards.file", "/mine", "/mine", ""),
        ("--host", "proxy.host", "127.0.0.1", "0.0.0.0", "--host 127.0.0.1, not 0.0.0.0"),
        ("--api-key-file", "proxy.api_key_file", "/a", "/b", "--api-key-file /a, not /b"),
        ("--tls-cert", "proxy.tls_cert", "/a", "/b", "--tls-cert /a, not /b"),
        ("--tls-key", "proxy.tls_key", "/a", "/b", "--tls-key /a, not /b"),
    ],
)
def test_each_file_of_a_running_proxy_is_compared(
    flag: str, setting: str, theirs: str, mine: str, expected: str, tmp_path: Path
) -> None:
    running = info(["proxy", *([flag, theirs] if theirs else [])])
    given = options(tmp_path, {setting: mine}, proxy_flags=frozenset({flag}))
    assert option_differences(running, given) == expected
    assert option_differences(running, options(tmp_path, {setting: mine})) == ""


@pytest.mark.parametrize("flag", ["--upstream-model", "--upstream-key-file"])
def test_the_upstream_of_a_running_proxy_is_compared(flag: str, tmp_path: Path) -> None:
    running = info(["proxy", "--upstream", "http://x:1", flag, "/theirs"])
    settings = {"upstream.url": "http://x:1", flag[2:].replace("-", ".", 1): "/mine"}
    settings = {name.replace("-", "_"): value for name, value in settings.items()}
    given = options(tmp_path, settings, proxy_flags=frozenset({flag}))
    assert option_differences(running, given).endswith(" /theirs, not /mine")


def test_a_watch_only_console_follows_only_a_watch_only_proxy(tmp_path: Path) -> None:
    result = {"proxy.watch_only": True, "swarm_url": {"gpu": "http://gpu:1"}}
    settings = load(None, {}, result)
    assert "--watch-only" in role_args("proxy", settings)
    assert "--watch-only" not in role_args("proxy", load(None, {}))
    options = ConsoleOptions(home=Home.open(tmp_path), settings=settings)
    serving = info(["proxy"], url="http://127.0.0.1:8000")
    assert not may_follow(serving, options)
    with pytest.raises(AjetError, match="needs its own home"):
        check_may_follow(serving, options)
    watcher = RunInfo(role="proxy", pid=1, started_at=0.0, extra={"watch_only": "yes"})
    check_may_follow(watcher, options)
    plain = ConsoleOptions(home=Home.open(tmp_path), settings=load(None, {}))
    assert may_follow(serving, plain)
    assert "answers no requests" in option_differences(watcher, plain)


def test_backend_and_model_reach_the_engine() -> None:
    flags = {"engine.backend": "torch", "engine.model": "org/name"}
    settings = load(None, {}, flags)
    args = role_args("engine", settings)
    assert flag_values(args, "--backend") == ["torch"]
    assert flag_values(args, "--model") == ["org/name"]
    of_job = role_args("engine", load(None, {}, {"engine.backend": "torch"}))
    assert "--model" not in of_job


def test_a_running_engine_of_another_model_is_described(tmp_path: Path) -> None:
    settings = load(None, {}, {"engine.backend": "torch", "engine.model": "org/name"})
    options = ConsoleOptions(home=Home.open(tmp_path), settings=settings)

    def running(*argv: str) -> RunInfo:
        extra = {"argv": json.dumps(["engine", *argv])}
        return RunInfo(role="engine", pid=1, started_at=0.0, extra=extra)

    assert engine_differences(running("--backend", "torch", "--model", "org/name"), options) == ""
    assert engine_differences(running(), options) == ""
    text = engine_differences(running("--backend", "numpy", "--model", "tiny"), options)
    assert text == "--backend numpy, not torch; --model tiny, not org/name"
