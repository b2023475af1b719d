"""Models of Hugging Face: the cache, the list of files, the download and its failures."""

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ajet_swarm.common.errors import AjetError
from engine.torch.base_files import locate
from engine.torch.files.check import ModelLoadError
from engine.torch.files.hub import HubError, cached_folder, download, is_hub_name, look_up
from tests.unit.engine.torch.files import stub_hub
from tests.unit.engine.torch.files.stub_hub import ERRORS, StubHub

NAME = "org/name"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StubHub:
    """Hugging Face with an empty cache."""
    return stub_hub.install(monkeypatch, tmp_path / "cache")


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("Qwen/Qwen3-0.6B", True),
        ("gpt2", True),
        ("./model", False),
        ("/m/model", False),
        ("~/model", False),
        ("a/b/c", False),
        ("org/model.gguf", False),
        ("", False),
    ],
)
def test_names(model: str, named: bool) -> None:
    assert is_hub_name(model) == named


def test_a_folder_on_this_disk_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert not is_hub_name(NAME)


def test_a_model_in_the_cache_is_used_without_a_question_to_the_hub(hub: StubHub) -> None:
    folder = hub.fill()
    assert cached_folder(NAME) == folder
    assert locate(NAME).path == folder
    assert not hub.asked


def test_only_the_needed_files_are_listed_and_the_weights_come_last(hub: StubHub) -> None:
    found = look_up(NAME)
    names = [name for name, _ in found.files]
    assert names == ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
    assert found.size == sum(len(hub.files[name]) for name in names)
    assert found.license == "apache-2.0"


def test_a_download(hub: StubHub) -> None:
    files: list[tuple[str, int]] = []
    folder = download(look_up(NAME), lambda name, size: files.append((name, size)))
    assert folder == hub.folder == cached_folder(NAME)
    assert files[-1] == ("model.safetensors", 700)
    assert hub.downloaded == [name for name, _ in files]


@pytest.mark.parametrize("at", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_interrupted_download_is_no_model(hub: StubHub, at: str) -> None:
    hub.fails[at] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        download(look_up(NAME), lambda name, size: None)
    assert cached_folder(NAME) is None
    with pytest.raises(ModelLoadError, match="neither a folder nor in the cache"):
        locate(NAME)
    hub.fails.clear()
    assert download(look_up(NAME), lambda name, size: None) == cached_folder(NAME)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            ERRORS.GatedRepoError(403),
            ModelLoadError,
            "accepted its terms. Accept them on the model",
        ),
        (
            ERRORS.RepositoryNotFoundError(401),
            ModelLoadError,
            "has no such model, or it is private",
        ),
        (ERRORS.HfHubHTTPError(403), ModelLoadError, "refuses access (HTTP 403). Check that HF_TO"),
        (ERRORS.HfHubHTTPError(503), HubError, "answered HTTP 503. Try again later"),
        (ERRORS.OfflineModeIsEnabled(), HubError, "HF_HUB_OFFLINE forbids to ask"),
        (ERRORS.HFValidationError("--"), ModelLoadError, "This is no name of a model"),
        (RuntimeError("no route"), HubError, "cannot be reached (no route). Check the network, or"),
    ],
)
def test_a_failure_is_one_sentence_with_a_way_out(
    hub: StubHub, error: BaseException, kind: type[AjetError], text: str
) -> None:
    hub.fails[""] = error
    with pytest.raises(kind) as failed:
        look_up(NAME)
    assert text in str(failed.value)
    assert str(failed.value).startswith(f"{NAME}: ")


def test_a_full_disk_is_reported_as_such(hub: StubHub) -> None:
    hub.fails["model.safetensors"] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(HubError, match="The download stopped: No space left on device"):
        download(look_up(NAME), lambda name, size: None)


def test_a_disk_that_is_too_small_is_known_before(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5))
    with pytest.raises(HubError, match=r"0\.0 GB are free"):
        download(look_up(NAME), lambda name, size: None)
    assert not hub.downloaded


def test_a_gated_model_needs_a_token_before_the_download(hub: StubHub) -> None:
    hub.gated = "manual"
    with pytest.raises(ModelLoadError, match="gated"):
        look_up(NAME)
    hub.token = "hf_x"
    assert look_up(NAME).size


@pytest.mark.parametrize(
    ("lacking", "text"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights as safetensors")],
)
def test_a_repository_that_is_no_model(hub: StubHub, lacking: str, text: str) -> None:
    del hub.files[lacking]
    with pytest.raises(ModelLoadError, match=text):
        look_up(NAME)


def test_split_weights_are_preferred_to_a_second_copy(hub: StubHub) -> None:
    for name in ("model-1-of-2", "model-2-of-2", "consolidated"):
        hub.files[f"{name}.safetensors"] = b"weights"
    hub.files["model.safetensors.index.json"] = (
        b'{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}'
    )
    names = [name for name, _ in look_up(NAME).files]
    assert names[-2:] == ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]
    assert "model.safetensors" not in names
    download(look_up(NAME), lambda name, size: None)
    assert cached_folder(NAME) == hub.folder
