"""Jobs: what is sent to start a run, and the errors of a bad one."""

from typing import Any

import pytest
import yaml

from ajet_swarm.common.errors import UsageError
from ajet_swarm.job import tree
from ajet_swarm.job.schema import KNOWN, LEARNING_RATE, REPEAT
from ajet_swarm.job.tree import MAX_DEPTH, JobError, check_job, dump_job, get, load_job, put
from core.jobs import default_job, hand_job


@pytest.mark.parametrize("job", [default_job("Qwen/ü"), hand_job()])
def test_there_and_back(job: dict[str, Any]) -> None:
    text = dump_job(job)
    assert load_job(text) == job
    assert yaml.safe_load(text) == job, "a number must not become text for other readers"
    assert list(yaml.safe_load(text)["ajet"]) == list(job["ajet"])


def test_a_number_that_yaml_reads_as_text_is_converted() -> None:
    job = load_job("ajet: {trainer_common: {optim: {lr: 5e-4}}, rollout: {num_repeat: '8'}}")
    assert get(job, LEARNING_RATE) == 5e-4
    assert get(job, REPEAT) == 8


def test_unknown_keys_are_retained() -> None:
    job = load_job("ajet: {rollout: {n_vllm: 3}, lora: {lora_rank: 0}}\ntrainer: {x: 1}")
    assert job == {
        "ajet": {"rollout": {"n_vllm": 3}, "lora": {"lora_rank": 0}},
        "trainer": {"x": 1},
    }


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("ajet: {a: [1}", "job.yaml:1: not YAML"),
        ("ajet:\n  a: 1\n b: 2", "job.yaml:3: not YAML"),
        ("", "no mapping `ajet`"),
        ("- 1", "no mapping `ajet`"),
        ("ajet: 3", "no mapping `ajet`"),
        ("ajet: {data: {train_batch_size: 0}}", "train_batch_size` is 0"),
        ("ajet: {rollout: {num_repeat: 2.5}}", "num_repeat` is 2.5"),
        ("ajet: {rollout: {num_repeat: many}}", "num_repeat` is 'many'"),
        ("ajet: {rollout: {num_repeat: true}}", "num_repeat` is True"),
        ("ajet: {trainer_common: {optim: {lr: -1}}}", "optim.lr` is -1"),
        ("ajet: {trainer_common: {optim: {lr: .nan}}}", "optim.lr` is nan"),
        ("ajet: {rollout: {temperature: .inf}}", "temperature` is inf"),
        ("ajet: {swarm_mode_sample_collection_method: soon}", "'soon'"),
    ],
)
def test_a_bad_job_has_a_precise_error(text: str, result: str) -> None:
    with pytest.raises(JobError) as caught:
        load_job(text, "job.yaml")
    assert result in str(caught.value)
    assert caught.value.todo
    assert isinstance(caught.value, UsageError)


def test_paths() -> None:
    job: dict[str, Any] = {}
    put(job, "a.b.c", 1)
    put(job, "a.d", None)
    assert job == {"a": {"b": {"c": 1}, "d": None}}
    assert get(job, "a.b.c") == 1
    assert get(job, "a.d", 5) == 5
    assert get(job, "a.b.c.e", 6) == 6


@pytest.mark.parametrize("job", [default_job(), hand_job()])
def test_the_shipped_jobs_are_valid(job: dict[str, object]) -> None:
    result = check_job(dump_job(job))
    assert result.job == job
    assert not result.notices
    assert result.lines["ajet"] == 1
    assert dump_job(job).splitlines()[result.lines[LEARNING_RATE] - 1].strip().startswith("lr:")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("ajet:\n  rollout:\n    num_repeat: 0\n", 3, "num_repeat` is 0"),
        ("ajet:\n  rollout:\n    temperature: 0\n", 3, "nothing would be learned"),
        ("ajet:\n  rollout:\n    temperature: 50\n", 3, "is 50"),
        ("ajet:\n  model: {path: 3}\n", 2, "ajet.model.path"),
        ("ajet:\n  swarm_mode_sample_collection_method: soon\n", 2, "'soon'"),
        ("ajet:\n  a: 1\n  b: 2\n  a: 3\n", 4, "`ajet.a` is defined twice, first on line 2"),
        ("ajet:\n  a: &x [1]\n  b: *x\n", 3, "`*x` repeats a part"),
        ("ajet:\n  ? [1, 2]\n  : 3\n", 2, "has a key that is not text"),
        ("ajet: {a: 1\nb: [\n", 2, "not YAML"),
        ("ajet:\n  x: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 2, "nested deeper"),
        (
            "ajet:\n  data: {max_prompt_length: 100, max_response_length: 200}\n"
            "  rollout:\n    max_model_len: 250\n",
            4,
            "is 300, more than",
        ),
        (
            "ajet:\n  data: {max_response_length: 200}\n"
            "  rollout:\n    max_response_length_in_one_turn: 300\n",
            4,
            "300 is more than",
        ),
    ],
)
def test_invalid_values_are_named_with_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(JobError) as caught:
        check_job(text, "job.yaml")
    assert words in caught.value.what
    assert caught.value.where == f"job.yaml:{line}"


@pytest.mark.parametrize("text", ["", "3", "ajet: 1", "- a", "a: 1\n---\nb: 2", "x: 2001-99-99"])
def test_texts_that_are_not_jobs_are_refused(text: str) -> None:
    with pytest.raises(JobError):
        check_job(text)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("ajet:\n  rollout:\n    num_repeats: 4\n", 3, "is `ajet.rollout.num_repeat` meant?"),
        ("ajet:\n  lr: 0.1\n", 2, "is `ajet.trainer_common.optim.lr` meant?"),
        ("ajet: {}\ncritik: {a: 1}\n", 2, "unknown key `critik`: is `critic` meant?"),
        ("ajet:\n  interchange_server: {interchange_server_port: auto}\n", 2, "needs a number"),
        (
            "ajet:\n  trainer_common: {ppo_max_token_len_per_gpu: 8}\n",
            2,
            "is `ajet.rollout.ppo_max_token_len_per_gpu` meant?",
        ),
        ("ajet: {}\nactor_rollout_ref: {a: 1}\n", 2, "refuses values there that contradict"),
        ("ajet:\n  data:\n    max_prompt_length: 9\n", 3, "the four lengths belong together"),
        ("ajet:\n  lora: {lora_rank: 8, layered_summon: true}\n", 2, "load_format: safetensors"),
    ],
)
def test_questionable_values_have_a_notice_with_their_line(
    text: str, line: int, words: str
) -> None:
    (notice,) = check_job(text).notices
    assert (notice.line, words in notice.text) == (line, True), notice


@pytest.mark.parametrize(
    "path",
    [
        "ajet.rollout.name",
        "ajet.rollout.vllm_tool_parser",
        "ajet.rollout.chat_template_generate_prompt_type",
        "ajet.trainer_common.loss_weight_normalization_episode_level",
        "ajet.trainer_common.advantage_estimation_episode_level",
        "ajet.rollout.val_kwargs.do_sample",
        "ajet.teacher_model.api_key",
        "ajet.opd.enable",
        "ajet.task_judge.judge_protocol",
        "ajet.interchange_server.already_started",
        "ajet.trainer_common.fsdp_config.param_offload",
        "ajet.trainer_common.optim.lr_warmup_steps_ratio",
        "ajet.context_tracker.timeline_merging_policy.ignore_tools",
    ],
)
def test_keys_of_agentjets_own_files_are_known(path: str) -> None:
    job: dict[str, object] = {"ajet": {}, "defaults": ["verl_default"], "hydra": {"run": {}}}
    put(job, path, None)
    assert not check_job(yaml.safe_dump(job)).notices


def test_a_suggestion_is_never_a_present_key() -> None:
    job = default_job()
    put(job, "ajet.rollout.num_repeated", 1)
    (notice,) = check_job(dump_job(job)).notices
    assert notice.text == "unknown key `ajet.rollout.num_repeated`"


def test_in_a_whole_tree_only_what_replaces_a_known_key_is_named() -> None:
    job: dict[str, object] = {"ajet": {}}
    for path in ("actor_rollout_ref.model.path", "trainer.nnodes", "data.seed"):
        put(job, path, 1)
    put(job, "ajet.rollout.a_key_of_a_newer_server", 1)
    put(job, "ajet.rollout.num_repeats", 4)
    unknown = [one.text for one in check_job(dump_job(job)).notices if "unknown" in one.text]
    assert unknown == [
        "unknown key `ajet.rollout.num_repeats`: is `ajet.rollout.num_repeat` meant?"
    ]


def test_below_an_unknown_key_nothing_more_is_named() -> None:
    notices = check_job("ajet:\n  rollouts:\n    a: 1\n    b: {c: 2}\n").notices
    assert [one.line for one in notices] == [2]


@pytest.mark.slow
def test_every_known_key_is_known() -> None:
    for path in KNOWN:
        job: dict[str, object] = {"ajet": {}}
        put(job, path, None)
        assert not check_job(yaml.safe_dump(job)).notices, path


def test_a_long_text_that_is_not_yaml_is_not_repeated() -> None:
    secret = "s" * 300
    with pytest.raises(JobError) as caught:
        check_job(f"ajet:\n  a: !{secret}!b c\n")
    assert "not YAML" in caught.value.what
    assert "sss" not in str(caught.value)


def test_the_loader_in_c_and_the_other_one_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        dump_job(default_job()),
        "\ufeffajet:\r\n  a: 'é😀'\r\n  b: |\r\n    x\r\n  c: {d: 1}\r\n",
        "ajet: {a: 1\nb: [\n",
        "ajet:\n\ta: 1\n",
        "ajet:\n  a: b: c\n",
        "ajet:\n  a: *secret\n  b: [\n",
        "ajet: {a: 1}\n--- {}\n",
    ]

    def results() -> list[object]:
        found: list[object] = []
        for text in texts:
            try:
                found.append(check_job(text).lines)
            except JobError as error:
                found.append(str(error))
        return found

    expected = results()
    assert [isinstance(one, str) for one in expected] == [False, False, *[True] * 5]
    monkeypatch.setattr(tree.yaml, "CSafeLoader", None)
    assert results() == expected
