"""Stand-in of the package huggingface_hub, with models in memory and a cache on disk."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class _HttpError(OSError):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response = SimpleNamespace(status_code=status)


class _NotFound(_HttpError):
    pass


class _Gated(_NotFound):
    pass


class _Offline(ConnectionError):
    pass


class _Invalid(ValueError):
    pass


ERRORS = SimpleNamespace(
    HfHubHTTPError=_HttpError,
    RepositoryNotFoundError=_NotFound,
    GatedRepoError=_Gated,
    OfflineModeIsEnabled=_Offline,
    HFValidationError=_Invalid,
)
FILES = {
    "config.json": b'{"architectures": ["Qwen2ForCausalLM"]}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    "model.safetensors": b"weights" * 100,
    "pytorch_model.bin": b"unused",
    "onnx/model.json": b"unused",
    "README.md": b"unused",
}


class StubHub:
    """Hugging Face with one model, `org/name`.

    Args:
        cache: Folder of the local cache.
        files: Name and content of the model's files.
    """

    def __init__(self, cache: Path, files: Mapping[str, bytes] = FILES) -> None:
        self.cache, self.files = cache, dict(files)
        self.fails: dict[str, BaseException] = {}
        """File -> error of its download; "" is that of the question for the list of files."""
        self.gated: str | bool = False
        self.token: str | None = None
        self.asked: list[str] = []
        self.downloaded: list[str] = []

    @property
    def folder(self) -> Path:
        """Folder of the model in the cache."""
        return self.cache / "models--org--name" / "snapshots" / "1"

    def fill(self) -> Path:
        """Put the whole model into the cache; return its folder."""
        for name in self.files:
            self._put(name)
        return self.folder

    def try_to_load_from_cache(self, name: str, file: str) -> str | None:
        path = self.folder / file
        return str(path) if name == "org/name" and path.is_file() else None

    def hf_hub_download(self, name: str, file: str) -> str:
        if error := self.fails.get(file):
            raise error
        self._put(file)
        self.downloaded.append(file)
        return str(self.folder / file)

    def model_info(self, name: str, **_: Any) -> Any:
        self.asked.append(name)
        if error := self.fails.get(""):
            raise error
        if name != "org/name":
            raise _NotFound(401)
        files = [SimpleNamespace(rfilename=one, size=len(body)) for one, body in self.files.items()]
        card = SimpleNamespace(license="apache-2.0")
        return SimpleNamespace(siblings=files, gated=self.gated, card_data=card)

    def _put(self, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.files[name])


def install(monkeypatch: pytest.MonkeyPatch, cache: Path) -> StubHub:
    """Let `import huggingface_hub` return a stub; return the stub."""
    hub = StubHub(cache)
    module: Any = ModuleType("huggingface_hub")
    module.errors, module.constants = ERRORS, SimpleNamespace(HF_HUB_CACHE=str(cache))
    module.HfApi = lambda: hub
    module.get_token = lambda: hub.token
    module.hf_hub_download = hub.hf_hub_download
    module.try_to_load_from_cache = hub.try_to_load_from_cache
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return hub
