"""Missing and old packages of the torch backend are named, with the commands."""

import os
import sys
import warnings
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from engine.torch import packages
from engine.torch.packages import missing, quiet, require, todo

FITTING = {
    "torch": "2.11.0+cu128",
    "transformers": "5.20.1",
    "peft": "0.21.0",
    "safetensors": "0.8",
    "gguf": "0.20",
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of the packages that are installed; change it in place."""
    versions = dict(FITTING)
    monkeypatch.setattr(packages, "_version", versions.get)
    return versions


def test_all_there_is_no_error(installed: dict[str, str]) -> None:
    require(gguf=True)


def test_missing_packages_are_one_sentence_with_both_commands(installed: dict[str, str]) -> None:
    del installed["torch"], installed["peft"]
    with pytest.raises(AjetError) as refused:
        require()
    text = str(refused.value)
    assert "torch is missing, peft is missing" in text
    assert text.index("pytorch.org") < text.index("pip install 'ajet-console[torch]'")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("executable", "typed"),
    [
        ("{cwd}/.venv/bin/python", "`.venv/bin/python -m pip install 'ajet-console[torch]'`"),
        ("/opt/my env/python", "`'/opt/my env/python' -m pip install 'ajet-console[torch]'`"),
    ],
)
def test_the_command_names_the_environment_of_the_program(
    executable: str, typed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", executable.format(cwd=Path.cwd()))
    assert typed in todo()


def test_gguf_is_needed_for_a_gguf_file_only(installed: dict[str, str]) -> None:
    del installed["gguf"]
    assert missing() == []
    assert missing(gguf=True) == ["gguf is missing"]


@pytest.mark.parametrize(
    ("name", "version", "problem"),
    [
        ("torch", "2.10.1", "torch 2.10.1 is not >= 2.11"),
        ("transformers", "4.57", "transformers 4.57 is not >= 5.17"),
        ("transformers", "6.0", "transformers 6.0 is not < 6"),
        ("peft", "0.1", "peft 0.1 is not >= 0.21"),
    ],
)
def test_a_version_out_of_bounds_is_named(
    installed: dict[str, str], name: str, version: str, problem: str
) -> None:
    installed[name] = version
    assert missing() == [problem]


def test_the_bounds_are_those_of_the_extra() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["torch"]
    assert sorted(extra) == [
        name + ",".join(map("".join, bounds)) for name, bounds in sorted(packages._BOUNDS.items())
    ]


def test_a_package_that_cannot_be_imported_is_missing() -> None:
    assert packages._version("no_such_package") is None
    assert packages._version("numpy")


@pytest.mark.parametrize(
    ("module", "kind", "shown"),
    [
        ("transformers.modeling_utils", FutureWarning, 0),
        ("torch.nn.modules.module", DeprecationWarning, 0),
        ("torch.nn.modules.module", UserWarning, 1),
        ("engine.torch.sampling.batch", FutureWarning, 1),
    ],
)
def test_announcements_of_the_packages_are_not_shown(
    module: str, kind: type[Warning], shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet()
        warnings.warn_explicit("renamed", kind, "file.py", 1, module=module)
    assert len(caught) == shown
    assert os.environ["TQDM_DISABLE"] == "1"
    monkeypatch.delenv("TQDM_DISABLE")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS")
