"""The forms of the protocol: secrets of a job, methods of the models."""

import json
import logging
from copy import deepcopy

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.secrets import names_secret
from ajet_swarm.job.tree import JobError, check_job, load_job
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.job_secrets import (
    MASK,
    hidden,
    hidden_error,
    masked,
    quoted,
    restored,
    secret_part,
    without_secrets,
)
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo, RunningEpisode

KEY = b"k" * 32
_NAMES = """
api_key apikey api-key apiKey API_KEY key token secret password hf_token wandb_api_key
OPENAI_API_KEY client_secret db-password access_token credentials api_keys secret_key_2
aws_secret_access_key Authorization openai_api_key_list teacher_api_keys api_key_b
"""
NAMES = st.sampled_from(_NAMES.split())
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), min_size=1).filter(
        lambda text: text != MASK
    ),
    st.integers(),
    st.floats(allow_nan=False),
    st.dates(),
    st.lists(st.text("abc *&!%'\"#:{}[]|>\n-", min_size=1), min_size=1).filter(
        lambda parts: MASK not in parts
    ),
    st.dictionaries(st.text("xyz", min_size=1), st.integers(), min_size=1),
    st.text("ab \n#:-", min_size=1).filter(str.strip),
    st.sampled_from(
        ["1", "yes", "*x", "!y z", "&anchor", "${oc.env:KEY,fallback}", "a: b", "***x"]
    ),
)
STYLES = st.sampled_from([None, "'", '"', "|", ">"])


def tree(name: str, value: object) -> dict[str, object]:
    inner = {"model": "m", name: value, "base_url": "http://h"}
    return {
        "ajet": {
            "teacher_model": inner,
            "judges": [{"name": "j", name: deepcopy(value)}, 1],
            "n": 2,
        }
    }


def parts(value: object) -> list[str]:
    """The scalars of a masked value."""
    if isinstance(value, list):
        return [part for item in value for part in parts(item)]
    if isinstance(value, dict):
        return [part for pair in value.items() for part in parts(list(pair))]
    return [str(value)]


@pytest.mark.slow
@given(NAMES, VALUES, STYLES, st.booleans(), st.booleans())
def test_a_secret_is_masked_and_restored(
    name: str, value: object, style: str | None, flow: bool, spaced: bool
) -> None:
    text = yaml.safe_dump(
        tree(name, value), default_style=style, default_flow_style=flow, allow_unicode=True
    )
    text = f"# the comment of the operator\n{text}" + ("\n\n# after\n" if spaced else "")
    shown = masked(text, KEY)
    result = yaml.safe_load(shown)["ajet"]
    plain = yaml.safe_load(masked(text))["ajet"]
    for place in (result["teacher_model"], result["judges"][0]):
        assert all(
            len(part) == len(MASK) + 9 and part.startswith(MASK) for part in parts(place[name])
        )
    assert set(parts(plain["teacher_model"][name])) == {MASK}
    # the rest is as it was
    assert shown.startswith("# the comment of the operator\n")
    assert shown.endswith("# after\n") is spaced
    assert (result["teacher_model"]["model"], result["n"], result["judges"][1]) == ("m", 2, 1)
    assert masked(shown, KEY) == shown
    # the restored text has the saved values, at the place and in the style of the operator's edit
    assert yaml.safe_load(restored(shown, [text], KEY)) == yaml.safe_load(text)
    dumped = yaml.safe_dump(yaml.safe_load(shown), default_flow_style=not flow)
    assert yaml.safe_load(restored(dumped, [text], KEY)) == yaml.safe_load(text)
    assert yaml.safe_load(restored(masked(text), [text], KEY)) == yaml.safe_load(text)


@pytest.mark.slow
@given(NAMES, st.text("QXZ0123456789*!&#@%'\"", min_size=8, max_size=30))
def test_secrets_are_masked_in_a_text_that_is_not_yaml(name: str, value: str) -> None:
    for text in (
        f"ajet:\n  a: [\n  {name}: {value}\n  b: 1\n",
        f"ajet:\n  {name}: |\n    {value}\n    # {value}\n  b: [\n",
        f"ajet:\n  {name}: '{value}\n    {value}\n  b: [\n",
        f"ajet:\n  {name}:\n  - {value}\n  - x: {value}\n  b: *a\n",
    ):
        assert value not in masked(text)
        with pytest.raises(JobError) as caught:
            check_job(f"{text}  }}\n")
        assert value not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["prompt_key", "reward_fn_key", "pad_token", "max_tokens", "model"]
)
def test_values_that_are_not_secrets_are_kept(name: str) -> None:
    assert not names_secret(name)
    text = f"ajet: {{{name}: visible}}\n"
    assert masked(text, KEY) == text


@pytest.mark.slow
@pytest.mark.parametrize("value", ["", "null", "~", "''", "${oc.env:KEY}", '"${oc.env:KEY}"', "[]"])
def test_references_and_empty_values_are_not_secrets(value: str) -> None:
    text = f"ajet:\n  api_key: {value}\n  b: 1\n"
    assert masked(text, KEY) == text


@pytest.mark.slow
def test_a_mapping_comes_back_into_a_flow() -> None:
    text = "ajet:\n  key:\n    'x': a, b\n    y: 2\n"
    shown = yaml.safe_load(masked(text, KEY))["ajet"]["key"]
    made = restored(
        yaml.safe_dump({"ajet": {"n": 1, "key": shown}}, default_flow_style=True), [text], KEY
    )
    assert yaml.safe_load(made) == {"ajet": {"key": {"x": "a, b", "y": 2}, "n": 1}}


@pytest.mark.slow
def test_white_space_that_yaml_does_not_strip_belongs_to_the_secret() -> None:
    assert masked("ajet:\n  key: a\xa0 \n  b: 1\n") == "ajet:\n  key: '***' \n  b: 1\n"


@pytest.mark.slow
def test_a_secret_behind_an_alias_is_masked_at_its_definition() -> None:
    assert "sk-1" not in masked("ajet:\n  x: &a sk-1\n  api_key: *a\n")


@pytest.mark.slow
def test_a_secret_that_is_commented_out_is_masked_and_restored() -> None:
    text = "ajet:\n  api_key: ${oc.env:KEY}\n  # api_key: sk-1 # old\n  b: '# key: no comment'\n"
    shown = masked(text, KEY)
    assert "sk-1" not in shown
    assert "no comment" in shown
    assert restored(shown, [text], KEY) == text


@pytest.mark.slow
def test_equal_values_have_equal_masks_and_only_with_the_key() -> None:
    one, same, other = (f"ajet:\n  key: {value}\n" for value in ("a1", "'a1'", "a2"))
    assert masked(one, KEY) == masked(same, KEY) != masked(other, KEY)
    assert masked(one, KEY) != masked(one, b"other")
    assert masked(one) == masked(other) == "ajet:\n  key: '***'\n"


@pytest.mark.slow
def test_a_list_is_masked_in_one_way_however_it_is_written() -> None:
    flow = "opd: {teacher_api_keys: [a1a1, 'b2b2'], one: 1}\n"
    block = "opd:\n  teacher_api_keys:\n  - a1a1\n  - b2b2\n  one: 1\n"
    shown = [yaml.safe_load(masked(text, KEY))["opd"] for text in (flow, block)]
    assert shown[0] == shown[1]
    assert len(shown[0]["teacher_api_keys"]) == 2
    assert yaml.safe_load(restored(masked(flow, KEY), [flow], KEY)) == yaml.safe_load(flow)
    assert masked("api_keys: []\n", KEY) == "api_keys: []\n"


@pytest.mark.slow
def test_a_mask_finds_its_value_on_another_path_and_in_another_job() -> None:
    saved, other = "ajet:\n  key: a\n", "ajet:\n  b: {key: c}\n"
    shown = masked("ajet:\n  deep: {token: c, key: a}\n", KEY)
    assert restored(shown, [saved, other], KEY) == "ajet:\n  deep: {token: c, key: a}\n"


@pytest.mark.slow
def test_a_mask_without_a_value_is_refused_with_its_line() -> None:
    shown = masked("ajet:\n  x: 1\n  key: gone\n", KEY)
    for text, sources in ((shown, ["ajet:\n  key: a\n"]), ("a: 1\n\nkey: '***'\n", ["b: 1"])):
        with pytest.raises(UsageError, match="is masked, and there is no saved value") as caught:
            restored(text, sources, KEY)
        assert caught.value.where == "line 3"
    # a bare mask takes the value of its own path alone
    with pytest.raises(UsageError):
        restored("ajet:\n  key: '***'\n", ["ajet: {}", "ajet:\n  key: of another server\n"], KEY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        "*hunter2",
        "!hunter2 x",
        "!hunter2",
        "{hunter2: 1, hunter2: 2}",
        "&hunter2 *hunter3",
        "@hunter2",
    ],
)
def test_no_refusal_quotes_a_secret(value: str) -> None:
    text = f"ajet:\n  api_key: {value}\n  data: {{train_batch_size: {{api_key: hunter2}}}}\n"
    for read in (check_job, load_job):
        with pytest.raises(JobError) as caught:
            read(text)
        assert "hunter" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.slow
def test_no_notice_names_keys_inside_a_secret() -> None:
    (notice,) = check_job("ajet:\n  teacher: {api_key: {hunter2: 1}}\n").notices
    assert notice.text == "unknown key `ajet.teacher`"


@pytest.mark.slow
def test_values_of_a_tree_are_quoted_without_secrets() -> None:
    held = {"a": [{"api_key": "hunter2", "b": 1}], "token": 7, "key": None}
    assert without_secrets(held) == {"a": [{"api_key": MASK, "b": 1}], "token": MASK, "key": None}
    assert quoted(held).startswith("{'a': [{'api_key': '***'")
    assert without_secrets("hunter2", "ajet.secrets.openai") == MASK
    assert secret_part("ajet.secrets.openai") == "ajet.secrets"
    assert secret_part("ajet.model.path") == ""


@pytest.mark.slow
def test_a_url_with_a_password_is_a_secret_under_any_key() -> None:
    text = "ajet:\n  base_url: http://user:pw@host/v1\n  proxy: http://u:${oc.env:PW}@host\n"
    shown = masked(text, KEY)
    assert "pw" not in shown
    assert "http://u:${oc.env:PW}@host" in shown
    for back in (restored(shown, [text], KEY), restored(masked(text), [text])):
        assert yaml.safe_load(back) == yaml.safe_load(text)
    assert restored("ajet: {separator: '***'}", [text]) == "ajet: {separator: '***'}"
    assert without_secrets(yaml.safe_load(text))["ajet"]["base_url"] == MASK
    assert "pw@" not in masked(f"{text}  b: [\n")


@pytest.mark.slow
def test_a_text_is_shown_without_the_secrets_of_a_job() -> None:
    job = """
ajet:
  model: visible
  api_key: hunter2hunter2
  hf_token: abc
  api_keys: [first1, {b: second2}]
  base_url: http://user:passw0rd@host
  password: ${oc.env:visible}
"""
    result = "api_key=hunter2hunter2 abc visible first1 second2 passw0rd ${oc.env:visible}"
    stored = "api_key=*** abc visible *** *** *** ${oc.env:visible}"
    assert hidden(result, job) == stored
    error = hidden_error(AjetError(result, "where", result), job)
    assert (error.what, error.where, error.todo) == (stored, "where", stored)
    same = AjetError("no GPU")
    assert hidden_error(same, job) is same
    assert hidden(result, "a: [") == result


def test_a_task_is_copied_and_written_out() -> None:
    task = Task(main_query="q", task_id="t", metadata={"rows": [1]})
    shallow, deep = task.model_copy(update={"task_id": "u"}), task.copy(deep=True)
    assert (task.task_id, shallow.task_id) == ("t", "u")
    assert shallow.metadata is task.metadata
    assert deep == task
    assert deep.metadata["rows"] is not task.metadata["rows"]
    assert task.dict() == task.model_dump() == Task.model_validate(task.dict()).dict()
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert Task.model_validate(task) is task


def test_an_output_is_copied_and_written_out() -> None:
    output = WorkflowOutput(reward=0.5, log_metrics={"x": np.float32(0.5)})
    assert json.loads(output.model_dump_json())["log_metrics"] == {"x": 0.5}
    assert output.model_copy(update={"reward": 1.0}).reward == 1.0
    output.metadata["lock"] = object()
    with pytest.raises(SwarmError, match="not JSON: a object"):
        output.model_dump_json()


def test_two_instances_do_not_share_default_values() -> None:
    Task().metadata["a"] = 1
    WorkflowOutput().metadata["a"] = 1
    assert Task().metadata == WorkflowOutput().metadata == {}


def test_unknown_fields_are_ignored_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            task = Task(main_query="q", main_qery="typed wrong")  # type: ignore[call-arg]
        output = WorkflowOutput(reward=1, rewards=2)  # type: ignore[call-arg]  # on purpose
        assert output == WorkflowOutput(reward=1)
    assert task == Task(main_query="q")
    assert caplog.text.count("a Task has no `main_qery`: ignored. It has main_query") == 1
    assert "WorkflowOutput has no `rewards`" in caplog.text


@pytest.mark.parametrize("value", [3, "text", [("main_query", "q")], None])
def test_a_value_that_is_not_a_model_is_named(value: object) -> None:
    with pytest.raises(SwarmError, match="is not a Task"):
        Task.model_validate(value)
    with pytest.raises(SwarmError, match="not JSON"):
        Task.model_validate_json("{")
    with pytest.raises(SwarmError, match="`metadata` is a str"):
        Task.model_validate({"metadata": "x"})


def test_a_server_answer_can_be_used_as_a_dict() -> None:
    running = RunningEpisode(client_uuid="me", llm_call_count="3")
    assert running["client_uuid"] == running.get("client_uuid") == "me"
    assert running.get("nothing", 7) == 7
    assert "client_uuid" in running
    assert "calls" not in running, "as attributes only"
    assert dict(running) == dict(running.items()) == running.model_dump()
    with pytest.raises(KeyError):
        running["calls"]
    pool = PoolInfo(running_episode_details={"u": running})
    assert json.loads(pool.model_dump_json())["running_episode_details"]["u"]["client_uuid"] == "me"
    assert EpisodeRecord(episode_uuid="u")["episode_uuid"] == "u"
