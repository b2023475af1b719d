"""`checkpoints` and `tokens` act on the engine of their home, or on one that was named."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from console.cli import main, parse
from core.runtime.home import Home, Role
from core.settings import load
from engine.storage.safetensors import Tensor, pack, unpack
from tests.support.served import served
from tests.unit.console.cli.test_effective import proxy_of, run
from tests.unit.engine.torch.descriptions import LORA, described

pytestmark = pytest.mark.slow


INTERNAL = ("latest", "previous")


class Engine:
    """An embedded engine as far as these commands ask it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = ""
        self.saved: list[str] = []
        self.restored: list[str] = []
        self.steps: dict[str, int] = {}
        self.model: dict[str, Any] | None = None
        """Description of a torch engine's model."""
        self.exported: list[tuple[str, str]] = []
        """Name and `half` of each export."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/ajetc/info", self._info),
                Route("/ajetc/checkpoints", self._list, methods=["GET"]),
                Route("/ajetc/checkpoints", self._save, methods=["POST"]),
                Route("/ajetc/restore", self._restore, methods=["POST"]),
                Route("/ajetc/export", self._export),
                *([Route("/ajetc/checkpoints/model", self._model)] if self.model else []),
            ]
        )

    async def _info(self, request: Request) -> Response:
        return JSONResponse({"home": str(self.home)})

    async def _list(self, request: Request) -> Response:
        more = {"at": 0.0, "bytes": 0, "damaged": False}
        return JSONResponse(
            [
                {"name": name, "step": self.steps.get(name, 1), "kept": name in INTERNAL, **more}
                for name in self.saved
            ]
        )

    async def _model(self, request: Request) -> Response:
        return JSONResponse(self.model)

    async def _export(self, request: Request) -> Response:
        name, half = request.query_params["name"], request.query_params["half"]
        self.exported.append((name, half))
        metadata = {"base": "a" * 64, "step": "12", "run": "4f2a"}
        return Response(pack({"a": Tensor("F32", (1,), bytes(4))}, metadata))

    async def _save(self, request: Request) -> Response:
        self.saved.append((await request.json())["name"])
        return JSONResponse({"name": self.saved[-1], "step": 1})

    async def _restore(self, request: Request) -> Response:
        self.restored.append((await request.json())["name"])
        return JSONResponse({"name": self.restored[-1], "step": 1})


@asynccontextmanager
async def engine_of(home: Home, model: dict[str, Any] | None = None) -> AsyncIterator[Engine]:
    """The engine of `home`, running; of the torch backend with the description of a model."""
    engine = Engine(home.root)
    engine.model = model
    async with served(engine.app()) as url:
        engine.url = url
        with Role(home, "engine") as role:
            role.publish(url=url)
            yield engine


async def test_the_engine_of_another_home_on_the_default_port_is_not_used(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Home.open(tmp_path / "other")
    async with engine_of(home) as engine:
        port = engine.url.rpartition(":")[2]
        other.config.write_text(f"engine: {{port: {port}}}\n")
        place = ("--home", str(other.root))
        assert await run("checkpoints", "save", "mine", *place) == 1
        assert "no engine runs in this home" in capsys.readouterr().err
        assert await run("checkpoints", "restore", "mine", "--yes", *place) == 1
        assert await run("tokens", "e-1", *place) == 1
        assert await run("status", "--json", *place) == 0
        (server,) = json.loads(capsys.readouterr().out)["servers"]
        assert server["state"] == "CANNOT_CONNECT"
        assert (engine.saved, engine.restored) == ([], [])
        assert await run("checkpoints", "save", "mine", "--home", str(home.root)) == 0
        assert engine.saved == ["mine"]


async def test_another_homes_engine_is_refused_unless_its_url_is_given(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Home.open(tmp_path / "other")
    async with engine_of(home) as engine:
        other.config.write_text(f"swarm_url: {engine.url}\n")
        assert await run("checkpoints", "save", "mine", "--home", str(other.root)) == 1
        assert f"this engine belongs to the home {home.root}" in capsys.readouterr().err
        assert engine.saved == []
        named = ("--swarm-url", engine.url)
        assert await run("checkpoints", "save", "mine", "--home", str(other.root), *named) == 0
        assert engine.saved == ["mine"]


async def test_the_servers_come_from_the_running_proxy(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = Engine(home.root), Engine(home.root)
    async with served(a.app()) as a.url, served(b.app()) as b.url:
        flags = {"swarm_url": {"a": a.url, "b": b.url}}
        async with proxy_of(home, load(None, {}, flags)):
            assert await run("checkpoints", "--server", "b", "save", "mine") == 0
            assert await run("checkpoints", "save", "first") == 0
            assert await run("checkpoints", "list", "--all") == 0
    assert (a.saved, b.saved) == (["first"], ["mine"])
    listed = capsys.readouterr().out
    assert a.url in listed
    assert b.url in listed


async def test_a_missing_checkpoint_is_refused_before_the_confirmation(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine_of(home) as engine:
        engine.saved = ["before-lunch"]
        assert await run("checkpoints", "restore", "before-lunhc") == 1
        error_output = capsys.readouterr().err
        assert "there is no checkpoint `before-lunhc`. Did you mean `before-lunch`?" in error_output
        assert "Add --yes" not in error_output
        assert await run("checkpoints", "restore", "before-lunch") == 2
        error_output = capsys.readouterr().err
        assert "The present policy is kept as before-restore" in error_output
        assert "Add --yes" in error_output
        assert await run("checkpoints", "restore", "base", "--yes") == 0
        assert engine.restored == ["base"]


async def test_a_numpy_policy_is_exported_as_a_file(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine.safetensors"
    async with engine_of(home) as engine:
        assert await run("checkpoints", "export", "mine", str(target), "--half") == 0
        assert engine.exported == [("mine", "true")]
        assert unpack(target.read_bytes())[1]["step"] == "12"
        assert await run("checkpoints", "export", "mine", str(target), "--merge") == 2
        assert "trains no model of transformers" in capsys.readouterr().err
        assert len(engine.exported) == 1


async def test_a_torch_policy_is_exported_as_an_adapter(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine"
    async with engine_of(home, asdict(LORA)) as engine:
        assert await run("checkpoints", "export", "mine", str(target)) == 0
        assert {path.name for path in target.iterdir()} == {
            "adapter_config.json", "adapter_model.safetensors", "README.md",
        }  # fmt: skip
        assert "global step 12" in (target / "README.md").read_text()
        assert "4f2a" in (target / "README.md").read_text()
        assert f"mine written to {target}" in capsys.readouterr().out
        assert await run("checkpoints", "export", "mine", str(target)) == 2
        assert "exists already" in capsys.readouterr().err
        assert engine.exported == [("mine", "false")], "it is refused before the download"
        half = tmp_path / "half"
        assert await run("checkpoints", "export", "mine", str(half), "--half") == 0
        assert engine.exported[1:] == [("mine", "true")]


async def test_a_merge_without_the_base_model_leaves_nothing(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.torch.export.require", lambda gguf: None)
    files = "/elsewhere/mine"
    async with engine_of(home, asdict(described(base_model=files, base_files=files))) as engine:
        target = str(tmp_path / "mine")
        assert await run("checkpoints", "export", "mine", target, "--merge", "--half") == 1
        assert engine.exported == [("mine", "false")], "a merge is exact with float32"
    assert "the files of the base model are not on this machine" in capsys.readouterr().err
    assert not Path(target).exists()


async def test_an_unknown_description_is_refused(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine_of(home, {"kind": "other"}) as engine:
        assert await run("checkpoints", "export", "mine", str(tmp_path / "x")) == 1
        assert "another version of ajet-console" in capsys.readouterr().err
        assert engine.exported == []


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ({"7": 1, "latest": 7}, "7"),
        ({"latest": 7, "mine": 7, "step-000007": 7}, "step-000007"),
        ({"previous": 7, "latest": 7, "mine": 7}, "mine"),
        ({"previous": 7, "latest": 7}, "latest"),
        ({"previous": 7, "latest": 8}, "previous"),
        ({"latest": 8}, "step-000007"),  # the engine may have its adapter
    ],
)
async def test_a_global_step_names_a_checkpoint(
    home: Home, tmp_path: Path, steps: dict[str, int], wanted: str
) -> None:
    async with engine_of(home) as engine:
        engine.steps, engine.saved = steps, list(steps)
        assert await run("checkpoints", "export", "7", str(tmp_path / "x")) == 0
        assert engine.exported == [(wanted, "false")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--server", "b"], ["save", "mine"]),
        (["--swarm-url", "http://a:1"], ["export", "mine", "file"]),
        (["--all", "--yes"], ["prune", "3"]),
        (["--home", "elsewhere"], ["restore", "base"]),
    ],
)
def test_flags_are_accepted_before_and_after_the_verb(before: list[str], after: list[str]) -> None:
    first = parse(["checkpoints", *before, *after])
    assert vars(first) == vars(parse(["checkpoints", *after, *before]))
    assert vars(first) != vars(parse(["checkpoints", *after]))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["list"], {"--all"}),
        (["save", "x"], {"--all"}),
        (["restore", "x"], {"--all", "--yes"}),
        (["prune", "3"], {"--all", "--yes"}),
        (["export", "x", "file"], set()),
        (["import", "x", "file"], set()),
    ],
)
def test_the_help_of_a_verb_has_only_what_it_uses(
    words: list[str], shown: set[str], home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoints", *words, "--help"]) == 0
    listed = capsys.readouterr().out
    assert {flag for flag in ("--all", "--yes") if f"\n  {flag} " in listed} == shown
    refused = main(["checkpoints", *words, "--all", "--yes"]) == 2
    assert refused == ("--all" not in shown)


def test_without_a_verb_the_checkpoints_are_listed(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoints"]) == 1
    assert "Start it with `ajet-console engine`" in capsys.readouterr().err
    assert asyncio.run(run("checkpoints", "--server", "nosuch")) == 2
