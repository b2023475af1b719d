"""Checkpoints, tokens and updates over HTTP, on the real policy."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from core.events import Checkpoint
from engine.interface import PolicyBackend, SaveError
from engine.policy.checkpoint_manager import TinyCheckpoints
from engine.policy.tiny import TinyPolicy
from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.experiments import Experiments
from engine.torch import description
from engine.torch.checkpoints import TorchCheckpoints
from tests.support.engine.client import Driver, driving
from tests.unit.engine.torch.descriptions import LORA

pytestmark = pytest.mark.slow

BATCH = {"batch": 1, "repeat": 2}


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    directory = tmp_path / "engine"

    async def factory(reset: bool) -> PolicyBackend:
        return await asyncio.to_thread(TinyPolicy.open, directory, reset)

    async with driving(factory, experiments=Experiments(directory, TinyCheckpoints)) as made:
        yield made


async def _update(driver: Driver, step: int) -> list[str]:
    """One batch; uuids of its episodes."""
    before = [await driver.play("t", reward) for reward in (0.0, 1.0)]
    await driver.until("ROLLING", step + 1)
    return [episode["episode_uuid"] for episode in before]


async def _offline(driver: Driver) -> None:
    assert (await driver.post("/stop_engine")).json()["success"]
    await driver.until("OFFLINE")


async def _listed(driver: Driver) -> dict[str, int]:
    return {facts["name"]: facts["step"] for facts in await driver.get("/ajetc/checkpoints")}


async def _ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def _refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]


async def test_save_go_back_and_prune(driver: Driver, tmp_path: Path) -> None:
    assert await driver.get("/ajetc/checkpoints") == []
    await _refused(await driver.post("/ajetc/checkpoints", name="a"), 404, "There are: none")
    await driver.roll(**BATCH)
    await _update(driver, 1)
    saved = await _ok(await driver.post("/ajetc/checkpoints", name="one"))
    assert saved == {"success": True, "name": "one", "step": 1}
    await _update(driver, 2)
    assert await _listed(driver) == {"latest": 2, "previous": 1, "one": 1}
    await _refused(await driver.post("/ajetc/restore", name="one"), 400, "not offline")
    await _refused(await driver.http.post("/ajetc/import", content=b"x"), 400, "not offline")
    await _offline(driver)
    saved = await _ok(await driver.post("/ajetc/checkpoints", name="two"))
    read = msgspec.convert(await driver.get("/ajetc/checkpoints"), list[Checkpoint])  # as the proxy
    assert {checkpoint.name for checkpoint in read if checkpoint.kept} == {"latest", "previous"}
    assert saved["step"] == 2
    back = await _ok(await driver.post("/ajetc/restore", name="one"))
    assert back == {"success": True, "name": "one", "step": 1}
    assert (await driver.get("/ajetc/info"))["step"] == 1
    assert [facts["step"] for facts in await driver.get("/ajetc/updates")] == [1]
    await driver.roll(**BATCH)
    assert (await driver.get("/ajetc/info"))["step"] == 1
    pruned = await _ok(await driver.post("/ajetc/prune", keep=1))
    assert pruned == {"success": True, "deleted": ["one"]}
    await _offline(driver)
    assert (await _ok(await driver.post("/ajetc/restore", name="base")))["step"] == 0
    assert "latest" not in await _listed(driver)


async def test_export_and_import(driver: Driver) -> None:
    await driver.roll(**BATCH)
    await _update(driver, 1)
    first = await driver.http.get("/ajetc/export")
    assert first.status_code == 200
    assert 'filename="latest.safetensors"' in first.headers["content-disposition"]
    half = await driver.http.get("/ajetc/export", params={"name": "base", "half": True})
    assert len(half.content) < len(first.content) * 0.6
    await _refused(await driver.http.get("/ajetc/export", params={"name": "no"}), 404, "latest")
    await _offline(driver)
    await _ok(await driver.post("/ajetc/reset"))
    imported = await driver.http.post("/ajetc/import?name=mine", content=first.content)
    assert await _ok(imported) == {"success": True, "name": "mine", "step": 1}
    assert (await _listed(driver))["mine"] == 1
    again = await driver.http.get("/ajetc/export")
    assert again.content == first.content
    for name, content, words in (
        ("x", first.content[:-4], "data_offsets"),
        ("x", b"{}", "header"),
        ("latest", first.content, "not a valid checkpoint name"),
        ("../x", first.content, "not a valid checkpoint name"),
    ):
        answer = await driver.http.post("/ajetc/import", params={"name": name}, content=content)
        await _refused(answer, 400, words)


async def test_bad_names_and_numbers(driver: Driver) -> None:
    await driver.roll(**BATCH)
    await _refused(await driver.post("/ajetc/checkpoints", name="../x"), 400, "not a valid")
    await _refused(await driver.post("/ajetc/checkpoints", name="latest"), 400, "not a valid")
    for path, body in (("checkpoints", {"name": 3}), ("restore", {}), ("prune", {"keep": -1})):
        assert (await driver.http.post(f"/ajetc/{path}", json=body)).status_code == 422
    await _offline(driver)
    await _refused(await driver.post("/ajetc/restore", name="../x"), 404, "There are")


async def test_damage_and_a_second_engine_are_reported(driver: Driver, tmp_path: Path) -> None:
    await driver.roll(**BATCH)
    await _update(driver, 1)
    await _ok(await driver.post("/ajetc/checkpoints", name="good"))
    await _ok(await driver.post("/ajetc/checkpoints", name="bad"))
    await _offline(driver)
    path = tmp_path / "engine" / "bad.ckpt"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    await _refused(await driver.post("/ajetc/restore", name="bad"), 409, "--from good")
    other = CheckpointStore(tmp_path / "engine")
    await _refused(await driver.post("/ajetc/restore", name="good"), 409, "Another engine")
    await driver.sync(**BATCH)
    answer = (await driver.post("/start_engine")).json()
    assert not answer["success"]
    assert "Another engine" in await driver.logged()
    other.close()
    await _ok(await driver.post("/ajetc/restore", name="good"))


async def test_a_full_disk_is_a_507(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise SaveError("mine.ckpt: no space")

    await driver.roll(**BATCH)
    monkeypatch.setattr(CheckpointStore, "write", full)
    await _refused(await driver.post("/ajetc/checkpoints", name="mine"), 507, "no space")


async def test_the_engine_starts_from_a_named_checkpoint_once(driver: Driver) -> None:
    await driver.roll(**BATCH)
    await _update(driver, 1)
    await _ok(await driver.post("/ajetc/checkpoints", name="one"))
    await _update(driver, 2)
    await _offline(driver)
    driver.engine.policy_holder.start_from = "none"
    answer = (await driver.post("/start_engine")).json()
    assert not answer["success"]
    assert "There is no checkpoint of this name" in await driver.logged()
    driver.engine.policy_holder.start_from = "one"
    await driver.roll(**BATCH)
    await driver.until("ROLLING", 2)
    await _update(driver, 2)
    await _offline(driver)
    await driver.roll(**BATCH)
    await driver.until("ROLLING", 3)


async def test_a_policy_without_checkpoints_is_a_404(idle: Driver) -> None:
    assert (await idle.http.get("/ajetc/checkpoints")).status_code == 404
    await _refused(await idle.post("/ajetc/restore", name="x"), 404, "keeps no checkpoints")


async def test_the_model_of_the_checkpoints(driver: Driver, tmp_path: Path) -> None:
    assert await driver.get("/ajetc/checkpoints/model") is None
    folder = tmp_path / "torch"
    async with driving(experiments=Experiments(folder, TorchCheckpoints)) as torch:
        await _refused(await torch.http.get("/ajetc/checkpoints/model"), 404, "is saved here")
        await _refused(await torch.http.get("/ajetc/export"), 404, "is saved here")
        assert await torch.get("/ajetc/checkpoints") == []
        folder.mkdir()
        description.write(folder, LORA)
        assert await torch.get("/ajetc/checkpoints/model") == {
            **asdict(LORA),
            "targets": [],
            "layout": [[name, list(shape)] for name, shape in LORA.layout],
        }


async def test_tokens_of_running_and_finished_episodes(driver: Driver) -> None:
    await driver.roll(**BATCH)
    episode = await driver.claim()
    name = episode["episode_uuid"]
    assert (await driver.http.get(f"/ajetc/tokens/{name}")).status_code == 404
    text = (await driver.chat(episode)).json()["choices"][0]["message"]["content"]
    shown = await driver.get(f"/ajetc/tokens/{name}")
    assert (shown["state"], shown["step"]) == ("live", 0)
    rows = shown["calls"][0]["tokens"]
    spoken = "".join(row["text"] for row in rows if row["mask"] and row["text"] != "<end>")
    assert spoken == text
    for row in rows:
        if row["mask"]:
            assert row["logprob_now"] == pytest.approx(row["logprob"], abs=1e-4)
    await driver.end(episode, "t", 1.0)
    await driver.play("t", 0.0)
    await driver.until("ROLLING", 2)
    after = await driver.get(f"/ajetc/tokens/{name}")
    assert (after["state"], after["step"], after["reward"]) == ("finished", 1, 1.0)
    assert [row["logprob"] for row in after["calls"][0]["tokens"]] == [
        row["logprob"] for row in rows
    ]
    assert (await driver.http.get("/ajetc/tokens/none")).status_code == 404


async def test_every_figure_of_an_update_is_there(driver: Driver) -> None:
    await driver.roll(**BATCH)
    await _update(driver, 1)
    await _update(driver, 2)
    first, second = await driver.get("/ajetc/updates")
    wanted = (
        "step samples tokens groups dead_groups no_signal_share reward_mean reward_std kl "
        "clip_fraction entropy grad_norm response_tokens seconds sync_seconds at"
    )
    for facts in (first, second):
        assert all(isinstance(facts[name], int | float) for name in wanted.split())
    assert first["step_seconds"] is None
    assert second["step_seconds"] > second["seconds"] > 0
    assert first["extra"]["save_seconds"] > 0
    assert (first["reward_mean"], first["reward_std"], first["no_signal_share"]) == (0.5, 0.5, 0.0)
