"""The systemd unit: its command, the quoting of arguments, arguments that the process refuses."""

from configparser import ConfigParser
from pathlib import Path

import pytest

from console.cli import main
from console.cli.system.service import quoted
from tests.support.commands.cli import Cli


def unit(text: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_process_with_its_arguments_and_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--home", str(tmp_path), "run", "service", "proxy", "--port", "8001"])
    assert code == 0
    service = unit(capsys.readouterr().out)
    program, *arguments = service["Service"]["ExecStart"].split()
    assert Path(program).is_absolute()
    assert arguments[-6:] == ["run", "proxy", "--home", str(tmp_path), "--port", "8001"]
    assert service["Service"]["Restart"] == "on-failure"
    assert service["Install"]["WantedBy"] == "default.target"


def test_a_home_among_the_arguments_replaces_the_default(cli: Cli, tmp_path: Path) -> None:
    command = unit(cli.out("run", "service", "engine", "--home", tmp_path / "own"))["Service"][
        "ExecStart"
    ]
    assert command.count("--home") == 1
    assert command.endswith(f"engine --yes --home {tmp_path / 'own'}")


def test_a_unit_waits_for_no_answer(cli: Cli) -> None:
    shown = cli.out("run", "service", "engine", "--backend", "torch", "--model", "smollm2")
    assert " engine --yes " in unit(shown)["Service"]["ExecStart"]
    assert (
        unit(cli.out("run", "service", "engine", "--yes"))["Service"]["ExecStart"].count("--yes")
        == 1
    )


@pytest.mark.parametrize("flag", ["--dry-run", "--read-only"])
@pytest.mark.parametrize("process", ["proxy", "engine"])
def test_an_option_that_starts_nothing_is_refused(cli: Cli, process: str, flag: str) -> None:
    output = cli.run("run", "service", process, flag, code=2)
    assert f"{flag}" in output.err
    assert not output.out


def test_arguments_that_the_process_does_not_take_are_refused(cli: Cli) -> None:
    output = cli.run("run", "service", "proxy", "--prot", "1", code=2)
    assert "--prot" in output.err
    assert not output.out


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("plain", "plain"),
        ("a b", '"a b"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("", '""'),
        (";", '";"'),
    ],
)
def test_an_argument_is_quoted_for_systemd(argument: str, text: str) -> None:
    assert quoted(argument) == text


def test_a_line_break_is_refused(cli: Cli) -> None:
    assert "line break" in cli.refused("run", "service", "proxy", "--swarm-url", "http://a\nb")
