"""`checkpoints` and `tokens` act on the engine of their home, or on one that was named."""

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

from console.cli import main
from console.cli.tree import parse
from core.runtime.home import Home, Role
from core.settings import load
from engine.storage.safetensors import Tensor, pack, unpack
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.served import served
from tests.unit.console.cli.test_effective import proxy_of
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


@pytest.fixture
async def engine(home: Home) -> AsyncIterator[Engine]:
    """The engine of the home, of the numpy backend."""
    async with engine_of(home) as made:
        yield made


async def test_the_engine_of_another_home_on_the_default_port_is_not_used(
    async_cli: AsyncCli, engine: Engine, home: Home, tmp_path: Path
) -> None:
    other = Home.open(tmp_path / "other")
    port = engine.url.rpartition(":")[2]
    other.config.write_text(f"engine: {{port: {port}}}\n")
    place = ("--home", str(other.root))
    shown = await async_cli.failed("checkpoints", "save", "mine", *place)
    assert "no engine runs in this home" in shown
    await async_cli("checkpoints", "restore", "mine", "--yes", *place, code=1)
    await async_cli("engine", "tokens", "e-1", *place, code=1)
    (server,) = (await async_cli.json("status", *place))["servers"]
    assert server["state"] == "CANNOT_CONNECT"
    assert (engine.saved, engine.restored) == ([], [])
    await async_cli("checkpoints", "save", "mine", "--home", home.root)
    assert engine.saved == ["mine"]


async def test_another_homes_engine_is_refused_unless_its_url_is_given(
    async_cli: AsyncCli, engine: Engine, home: Home, tmp_path: Path
) -> None:
    other = Home.open(tmp_path / "other")
    other.config.write_text(f"swarm_url: {engine.url}\n")
    shown = await async_cli.failed("checkpoints", "save", "mine", "--home", other.root)
    assert f"this engine belongs to the home {home.root}" in shown
    assert engine.saved == []
    named = ("--swarm-url", engine.url)
    await async_cli("checkpoints", "save", "mine", "--home", other.root, *named)
    assert engine.saved == ["mine"]


async def test_the_servers_come_from_the_running_proxy(async_cli: AsyncCli, home: Home) -> None:
    a, b = Engine(home.root), Engine(home.root)
    async with served(a.app()) as a.url, served(b.app()) as b.url:
        flags = {"swarm_url": {"a": a.url, "b": b.url}}
        async with proxy_of(home, load(None, {}, flags)):
            await async_cli("checkpoints", "--server", "b", "save", "mine")
            await async_cli("checkpoints", "save", "first")
            listed = await async_cli.out("checkpoints", "list", "--all")
    assert (a.saved, b.saved) == (["first"], ["mine"])
    assert not missing(listed, a.url, b.url)


async def test_a_missing_checkpoint_is_refused_before_the_confirmation(
    async_cli: AsyncCli, engine: Engine
) -> None:
    engine.saved = ["before-lunch"]
    error_output = await async_cli.failed("checkpoints", "restore", "before-lunhc")
    assert "there is no checkpoint `before-lunhc`. Did you mean `before-lunch`?" in error_output
    assert "Add --yes" not in error_output
    shown = await async_cli.refused("checkpoints", "restore", "before-lunch")
    assert not missing(shown, "The present policy is kept as before-restore", "Add --yes")
    await async_cli("checkpoints", "restore", "base", "--yes")
    assert engine.restored == ["base"]


async def test_a_numpy_policy_is_exported_as_a_file(
    async_cli: AsyncCli, engine: Engine, tmp_path: Path
) -> None:
    target = tmp_path / "mine.safetensors"
    await async_cli("checkpoints", "export", "mine", target, "--half")
    assert (engine.exported, unpack(target.read_bytes())[1]["step"]) == ([("mine", "true")], "12")
    shown = await async_cli.refused("checkpoints", "export", "mine", target, "--merge")
    assert "trains no model of transformers" in shown
    assert len(engine.exported) == 1


async def test_a_torch_policy_is_exported_as_an_adapter(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    target = tmp_path / "mine"
    async with engine_of(home, asdict(LORA)) as engine:
        shown = await async_cli.out("checkpoints", "export", "mine", target)
        assert f"mine written to {target}" in shown
        assert {path.name for path in target.iterdir()} == {
            "adapter_config.json", "adapter_model.safetensors", "README.md",
        }  # fmt: skip
        assert not missing((target / "README.md").read_text(), "global step 12", "4f2a")
        shown = await async_cli.refused("checkpoints", "export", "mine", target)
        assert "exists already" in shown
        assert engine.exported == [("mine", "false")], "it is refused before the download"
        half = tmp_path / "half"
        await async_cli("checkpoints", "export", "mine", half, "--half")
        assert engine.exported[1:] == [("mine", "true")]


async def test_a_merge_without_the_base_model_leaves_nothing(
    async_cli: AsyncCli, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.torch.export.require", lambda gguf: None)
    files = "/elsewhere/mine"
    async with engine_of(home, asdict(described(base_model=files, base_files=files))) as engine:
        target = tmp_path / "mine"
        shown = await async_cli.failed("checkpoints", "export", "mine", target, "--merge", "--half")
        assert engine.exported == [("mine", "false")], "a merge is exact with float32"
    assert "the files of the base model are not on this machine" in shown
    assert not target.exists()


async def test_an_unknown_description_is_refused(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with engine_of(home, {"kind": "other"}) as engine:
        shown = await async_cli.failed("checkpoints", "export", "mine", tmp_path / "x")
        assert "another version of ajet-console" in shown
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
    async_cli: AsyncCli, engine: Engine, tmp_path: Path, steps: dict[str, int], wanted: str
) -> None:
    engine.steps, engine.saved = steps, list(steps)
    await async_cli("checkpoints", "export", "7", tmp_path / "x")
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
    cli: Cli, words: list[str], shown: set[str], home: Home
) -> None:
    listed = cli.out("checkpoints", *words, "--help")
    assert {flag for flag in ("--all", "--yes") if f"\n  {flag} " in listed} == shown
    for flag in ("--all", "--yes"):
        assert (main(["checkpoints", *words, "--home", "none", flag]) == 2) == (flag not in shown)


def test_without_a_verb_the_checkpoints_are_listed(cli: Cli, home: Home) -> None:
    assert "Start it with `ajet-console run engine`" in cli.failed("checkpoints")
    cli("checkpoints", "--server", "nosuch", code=2)
