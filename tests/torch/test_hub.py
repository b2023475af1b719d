"""The real package huggingface_hub, without a network: its cache and its errors."""

from pathlib import Path

import pytest

constants = pytest.importorskip("huggingface_hub.constants")
errors = pytest.importorskip("huggingface_hub.errors")

from engine.torch.files.hub import HubError, cached_folder, look_up  # noqa: E402
from tests.unit.engine.torch.files import stub_hub  # noqa: E402
from tests.unit.engine.torch.files.model_folders import make_folder  # noqa: E402


def test_the_names_of_the_stub_exist() -> None:
    assert not [name for name in vars(stub_hub.ERRORS) if not hasattr(errors, name)]


def test_a_model_of_the_cache_is_found_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "a" * 40
    home = tmp_path / "models--org--name"
    folder = make_folder(home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    assert cached_folder("org/name") == folder
    (folder / "model.safetensors").unlink()
    assert cached_folder("org/name") is None
    assert cached_folder("org/other") is None
    assert cached_folder("--") is None


def test_offline_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE forbids"):
        look_up("org/name")
