"""Where an AgentJet server has the weights of a step, and what checkpoint folders hold."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import UsageError
from ajet_swarm.job.schema import EXPERIMENT
from ajet_swarm.job.tree import Job, dump_job, put
from core.events.server import JobSent
from core.jobs import server_job
from core.state import Server
from proxy.evaluation.saved_weights import (
    BASE_DIR,
    SAVE_FREQ,
    NotPossible,
    checked_path,
    has_tokenizer,
    merge_command,
    model_in,
    saved_weights,
    step_of,
)
from tests.support.engine.model_folder import write_model, write_safetensors, write_shards

# --- the job -------------------------------------------------------------------------------------


def server(job: Job | None, **fields: Any) -> Server:
    sent = JobSent(yaml=dump_job(job)) if job is not None else None
    return Server(name="gpu", url="http://gpu", job=sent, **fields)


def job_with(**values: Any) -> Job:
    job = server_job("/models/base")
    put(job, EXPERIMENT, "chat")
    put(job, BASE_DIR, "/ckpt")
    put(job, SAVE_FREQ, 5)
    for path, value in values.items():
        put(job, path.replace("__", "."), value)
    return job


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (None, ""),
        (1, "/models/base"),
        (5, ""),
        (6, "/ckpt/ajet-console/chat/global_step_5"),
        (7, ""),
        (41, "/ckpt/ajet-console/chat/global_step_40"),
    ],
)
def test_step_n_plus_1_samples_what_was_saved_after_update_n(
    step: int | None, expected: str
) -> None:
    assert saved_weights(server(job_with()), "/models/base", step) == expected


def test_a_job_without_these_keys_saves_where_and_when_the_server_does() -> None:
    job = server_job("/models/base")
    put(job, EXPERIMENT, "chat")
    assert (
        saved_weights(server(job), "", 21) == "saved_checkpoints/ajet-console/chat/global_step_20"
    )
    assert saved_weights(server(job), "", 11) == ""


@pytest.mark.parametrize(
    "job",
    [
        None,
        job_with(ajet__trainer_common__save_freq=-1),
        job_with(ajet__trainer_common__save_freq=0),
        job_with(ajet__trainer_common__save_freq="often"),
        job_with(ajet__experiment_name="read_yaml_name"),
        job_with(ajet__model__path="/models/other"),
    ],
)
def test_nothing_is_invented_for_a_job_that_saves_nothing_or_is_unknown(job: Job | None) -> None:
    assert saved_weights(server(job), "/models/base", 6) == ""


def test_a_start_by_another_client_leaves_only_the_model_that_is_reported() -> None:
    other = server(job_with(), foreign_start=5.0)
    assert saved_weights(other, "/models/base", 6) == ""
    assert saved_weights(other, "/models/theirs", 1) == "/models/theirs"
    assert saved_weights(other, "", 1) == ""
    assert saved_weights(None, "", 6) == ""
    broken = Server(name="gpu", url="", job=JobSent(yaml="ajet: ["))
    assert saved_weights(broken, "", 6) == ""


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/c/p/e/global_step_40", 41),
        ("/c/global_step_1/old/global_step_40/actor/huggingface", 41),
        ("/models/merged", None),
        ("/c/global_step_x", None),
        ("/c/my_global_step_4", None),
    ],
)
def test_the_step_of_a_folder(path: str, step: int | None) -> None:
    assert step_of(path) == step


# --- a path from the operator --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (" /ckpt/global_step_40/ ", "/ckpt/global_step_40"),
        ("//ckpt//a", "/ckpt/a"),
        ("/models/mit Leerzeichen/ß", "/models/mit Leerzeichen/ß"),
        ("me/qwen-step-40", "me/qwen-step-40"),
    ],
)
def test_a_folder_or_a_model_on_the_hub_is_accepted(value: str, path: str) -> None:
    assert checked_path(value) == path


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("/", "no full path"),
        ("tiny", "no full path"),
        ("saved_checkpoints/a/b", "no full path"),
        ("~/models/a", "no full path"),
        ("/a/../../etc/passwd", "contains `..`"),
        ("/a/${oc.env:HOME}", "which the server replaces"),
        ("/a\nmodel: evil", "cannot be printed"),
        ("/a\x1b]52;c;eA==\x07", "cannot be printed"),
        ("/a\u202efed", "cannot be printed"),
        ("/a\0b", "cannot be printed"),
        ("/" + "a" * 2000, "longer than 1024"),
        ("https://host/model", "no full path"),
    ],
)
def test_a_hostile_or_unusable_path_is_refused(value: str, what: str) -> None:
    with pytest.raises(UsageError, match=what.replace("$", r"\$")) as caught:
        checked_path(value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300


# --- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "huggingface", "actor", "actor/huggingface"])
@pytest.mark.parametrize("files", [1, 3])
def test_a_complete_model_is_found(tmp_path: Path, place: str, files: int) -> None:
    write_shards(tmp_path)
    folder = write_model(tmp_path / place, files)
    assert model_in(str(tmp_path)) == folder
    assert model_in(str(folder)) == folder
    assert has_tokenizer(folder)


def test_shards_alone_name_the_folder_to_merge(tmp_path: Path) -> None:
    actor = write_shards(tmp_path / "global_step_40")
    for start in (tmp_path / "global_step_40", actor):
        assert refused(start).command == merge_command(str(actor))
    (actor / "dist_ckpt").mkdir()
    assert refused(actor).command == merge_command(str(actor), megatron=True)


def refused(folder: Path) -> NotPossible:
    with pytest.raises(NotPossible) as caught:
        model_in(str(folder))
    return caught.value


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    assert model_in(str(tmp_path / "none")) is None
    (tmp_path / "file").write_text("")
    assert model_in(str(tmp_path / "file")) is None


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (_remove("config.json"), "config.json is missing"),
        (_remove(SECOND), f"{SECOND} is missing"),
        (_write(INDEX, "{}"), "missing required field `weight_map`"),
        (_write(INDEX, '{"weight_map": {"w": "none"}}'), "none is missing"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], None], detail: str) -> None:
    folder = write_model(tmp_path / "actor" / "huggingface", 2)
    damage(folder)
    assert " is damaged: " in refused(tmp_path).what
    assert detail in refused(tmp_path).what


def test_a_folder_with_neither_is_damaged_and_a_pipe_is_not_read(tmp_path: Path) -> None:
    assert refused(tmp_path).what.endswith("is damaged: it holds neither weights nor shards")
    write_safetensors(tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "config.json")
    assert refused(tmp_path).what.endswith("is damaged: config.json is missing")


def test_an_adapter_apart_from_the_weights_is_no_complete_model(tmp_path: Path) -> None:
    (write_model(tmp_path) / "lora_adapter").mkdir()
    assert "holds a LoRA adapter" in refused(tmp_path).what


def test_a_model_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    (write_model(tmp_path) / "tokenizer_config.json").unlink()
    assert model_in(str(tmp_path)) == tmp_path
    assert not has_tokenizer(tmp_path)


def test_the_merge_command_is_that_of_verl_with_quoted_paths() -> None:
    assert merge_command("/ckpt/global_step_40/actor") == (
        "python -m verl.model_merger merge --backend fsdp --local_dir /ckpt/global_step_40/actor"
        " --target_dir /ckpt/global_step_40/actor/huggingface"
    )
    hostile = merge_command("/a; rm -rf ~ $(id) 'x'/actor", megatron=True)
    words = shlex.split(hostile)
    assert words[3:6] == ["merge", "--backend", "megatron"]
    assert words[-3:] == [
        "/a; rm -rf ~ $(id) 'x'/actor",
        "--target_dir",
        "/a; rm -rf ~ $(id) 'x'/actor/huggingface",
    ]
