"""Another package `mock` in the environment is noticed before it does harm."""

import asyncio
import sys
from pathlib import Path

import pytest

from console.backend.mock_process import REMEDY, mock_collision
from console.cli import main
from console.doctor import examine
from console.doctor.finding import CheckContext, Finding
from core.runtime.home import Home
from core.settings import Settings


def _install_pypi_mock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "mock-5.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mock\nVersion: 5.2.0\n")
    monkeypatch.syspath_prepend(str(folder))


def _findings(root: Path) -> dict[tuple[str, str], Finding]:
    result = asyncio.run(examine(CheckContext(home=Home(root), settings=Settings())))
    return {(one.area, one.name): one for one in result}


def test_without_another_package_mock_there_is_no_collision(tmp_path: Path) -> None:
    assert mock_collision() == ""
    assert ("packages", "mock") not in _findings(tmp_path)


def test_the_doctor_warns_of_pypis_mock_and_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_pypi_mock(tmp_path, monkeypatch)
    warning = _findings(tmp_path / "home")["packages", "mock"]
    assert warning.level == "warn"
    assert "`mock` 5.2.0" in warning.text
    assert warning.todo == REMEDY


def test_another_package_mock_that_hides_ours_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "mock" / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mock", raising=False)
    assert str(foreign) in mock_collision()


def test_the_mock_command_first_warns_in_one_line(
    tmp_path: Path,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _install_pypi_mock(tmp_path, monkeypatch)
    assert main(["run", "mock"]) == 1  # there is no proxy to ask
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("ajet-console: warning: PyPI's package `mock` 5.2.0")
    assert REMEDY in first
