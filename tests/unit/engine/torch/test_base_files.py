"""Files of a base model, and the digest of a training on it."""

from pathlib import Path

import pytest

from engine.torch.base_files import ModelLoadError, form_text, locate
from tests.unit.engine.torch.files.model_folders import make_folder

FORM = form_text(16, 32, ())


def folder_of(tmp_path: Path, weights: bytes = b"weights") -> Path:
    folder = make_folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "README.md").write_text("text")
    return folder


def test_a_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    files = locate(str(folder))
    assert (files.place, files.path) == (str(folder), folder)
    assert [path.name for path in files.weights] == ["model.safetensors", "config.json"]
    assert files.tokenizer_arguments() == files.model_arguments() == {}


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "model.GGUF"
    path.write_bytes(b"GGUF")
    files = locate(str(path))
    assert (files.place, files.path, files.weights) == (str(tmp_path), path, (path,))
    assert files.tokenizer_arguments() == {"gguf_file": "model.GGUF"}
    path.unlink()
    with pytest.raises(ModelLoadError, match="does not exist"):
        locate(str(path))


def test_a_missing_folder_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="neither a folder"):
        locate(str(tmp_path / "none"))


def test_the_digest_changes_with_the_weights_and_the_form(tmp_path: Path) -> None:
    first = locate(str(folder_of(tmp_path))).digest(FORM)
    (tmp_path / "model" / "README.md").write_text("another text")
    assert locate(str(tmp_path / "model")).digest(FORM) == first
    forms = (form_text(0, 0, ()), form_text(8, 32, ()), form_text(16, 32, ("q_proj",)))
    digests = {locate(str(tmp_path / "model")).digest(form) for form in forms}
    digests.add(locate(str(folder_of(tmp_path, b"Weights"))).digest(FORM))
    size = 3 << 20
    for weights in (bytes(size), bytes(size - 1) + b"x", b"x" + bytes(size - 1)):
        digests.add(locate(str(folder_of(tmp_path, weights))).digest(FORM))
    assert len({first, *digests}) == 8
