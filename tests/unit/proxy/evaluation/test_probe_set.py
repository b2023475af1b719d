"""The probe set: the shipped prompts, files of one's own, and their faults."""

import json
import re
from pathlib import Path

import pytest

from core.events import ProbePrompt
from engine.corpus.questions import HELD_OUT
from proxy.evaluation.probe_set import (
    LONGEST,
    MOST_PROMPTS,
    ProbeSetError,
    load_probe_set,
    shipped_probe_set,
    write_prompts,
)
from proxy.held_out import HeldOutPrompts, normalised

ROOT = Path(__file__).parents[4]


def test_the_shipped_set_has_32_facts_and_32_correct_sums() -> None:
    prompts = shipped_probe_set().prompts
    facts = [prompt for prompt in prompts if prompt.id.startswith("fact-")]
    sums = [prompt for prompt in prompts if prompt.id.startswith("sum-")]
    assert (len(facts), len(sums), len(prompts)) == (32, 32, 64)
    assert all(prompt.reference for prompt in prompts)
    for prompt in sums:
        first, second = map(int, re.findall(r"\d+", prompt.prompt))
        assert prompt.reference == str(first + second)


def test_no_shipped_prompt_is_a_question_that_the_mock_user_asks_by_default() -> None:
    lines = (ROOT / "mock" / "data" / "questions.jsonl").read_text().splitlines()
    queries = {normalised(json.loads(line)["query"]) for line in lines}
    assert not [
        prompt for prompt in shipped_probe_set().prompts if normalised(prompt.prompt) in queries
    ]


def test_no_shipped_sum_is_asked_in_either_order() -> None:
    held = {_numbers(prompt.prompt) for prompt in shipped_probe_set().prompts if "sum" in prompt.id}
    assert held == HELD_OUT
    lines = (ROOT / "mock" / "data" / "questions.jsonl").read_text().splitlines()
    queries = [json.loads(line)["query"] for line in lines]
    additions = [query for query in queries if re.search(r"\d ?\+|plus|Add", query)]
    assert len(additions) >= 200
    assert not [query for query in additions if _numbers(query) in held]


def _numbers(prompt: str) -> tuple[int, ...]:
    """Return the numbers of a sum, the smallest first."""
    return tuple(sorted(map(int, re.findall(r"\d+", prompt))))


def test_a_file_may_name_its_fields_as_datasets_do(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(
        '{"prompt": "Capital of France?", "reference": "Paris", "id": "fr"}\n\n'
        '{"query": "2+2=?", "answer": 4}\n{"question": "Tell me a joke."}\n'
    )
    first, second, third = load_probe_set(str(file)).prompts
    assert (first.id, first.prompt, first.reference) == ("fr", "Capital of France?", "Paris")
    assert (second.id, second.reference) == ("line-3", "4")
    assert third.reference == ""


def test_the_version_changes_with_prompts_references_and_ids(tmp_path: Path) -> None:
    rows = ({"prompt": "a"}, {"prompt": "a", "reference": "b"}, {"prompt": "a", "id": "x"})
    file = tmp_path / "set.jsonl"
    versions = set()
    for row in rows:
        file.write_text(json.dumps(row))
        versions.add(load_probe_set(str(file)).version)
        assert load_probe_set(str(file)).version in versions, "the same file has one version"
    file.write_text("\n" + json.dumps(rows[0]))  # its id, which names the line, is another
    versions.add(load_probe_set(str(file)).version)
    assert len(versions) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the probe set is empty"),
        ("\n \n", "the probe set is empty"),
        ('{"prompt": "a"}\n{"prompt": ', "set.jsonl:2: Input data was truncated"),
        ("[1]", "set.jsonl:1: Expected `object`, got `array`"),
        ('{"prompt": "  "}', "set.jsonl:1: the line has no prompt"),
        ('{"prompt": "?!"}', "set.jsonl:1: the line has no prompt"),
        ('{"id": "x"}', "set.jsonl:1: the line has no prompt"),
        ('{"prompt": ["a"]}', "got `array` - at `$.prompt`"),
        ('{"prompt": "a", "answer": true}', "got `bool` - at `$.answer`"),
        ('{"prompt": "a", "query": "a"}', "`prompt` and `query` are two names of one field"),
        ('{"prompt": "a", "referense": "b"}', "set.jsonl:1: Object contains unknown field `refe"),
        ('{"prompt": "a", "id": []}', "got `array` - at `$.id`"),
        ('{"prompt": "Why?"}\n{"prompt": "why"}', "set.jsonl:2: the prompt is that of line 1"),
        ('{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}', "the id is that of line 1"),
        (json.dumps({"prompt": "a" * (LONGEST + 1)}), f"length <= {LONGEST} - at `$.prompt`"),
        ("[" * 100_000, "set.jsonl:1: Expected `object`, got `array`"),
        ('{"messages": "a"}', "got `str` - at `$.messages`"),
        ('{"messages": [{"content": "a"}]}', "`messages` has a message without a `role`"),
        ('{"messages": []}', "`messages` does not end with a user message"),
        ('{"messages": [{"role": "assistant"}]}', "does not end with a user message"),
        ('{"messages": [{"role": "user", "content": " "}]}', "the line has no prompt"),
        ('{"messages": [{"role": "user", "content": "a"}], "prompt": "a"}', "are given"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(text)
    with pytest.raises(ProbeSetError) as refused:
        load_probe_set(str(file))
    assert expected in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProbeSetError, match="cannot be read: No such file"):
        load_probe_set(str(tmp_path / "none.jsonl"))
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(ProbeSetError, match="not UTF-8 text"):
        load_probe_set(str(binary))
    large = tmp_path / "large.jsonl"
    large.write_text("".join(f'{{"prompt": "p{n}"}}\n' for n in range(MOST_PROMPTS + 1)))
    with pytest.raises(ProbeSetError, match=f"at most {MOST_PROMPTS} prompts"):
        load_probe_set(str(large))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("what is 7 + 8", True),
        ("  WHAT IS  7+8 ??", True),
        ("What is \uff17 + \uff18?", True),  # full-width digits
        ("What is 7 - 8?", False),
        ("What is 7 + 9?", False),
        ("", False),
    ],
)
def test_a_text_is_held_out_whatever_its_case_spacing_and_punctuation(
    text: str, same: bool
) -> None:
    held_out = HeldOutPrompts()
    assert not held_out.matches("What is 7 + 8?")
    held_out.replace("gpu", [ProbePrompt(id="a", prompt="What is 7 + 8?")])
    assert held_out.matches(text) is same
    held_out.replace("gpu", [])
    assert not held_out.matches(text)


def test_a_prompt_with_earlier_messages_matches_the_whole_conversation_alone() -> None:
    system = {"role": "system", "content": "Be brief."}
    last = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
    held_out = HeldOutPrompts()
    held_out.replace("gpu", [ProbePrompt(id="a", prompt="Go on.", before=(system,))])
    assert held_out.matches("go on", [system, last])
    assert not held_out.matches("go on", [last])
    assert not held_out.matches("go on", [{**system, "content": "Be long."}, last])


def test_a_written_set_is_read_as_it_was(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    prompts = (
        ProbePrompt(id="a", prompt="Why?", reference="because"),
        ProbePrompt(id="b", prompt="Caf\u00e9 \u2028 \U0001f600?", before=(system,)),
    )
    file = tmp_path / "probe_set.jsonl"
    write_prompts(file, prompts)
    assert load_probe_set(str(file)).prompts == prompts
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ProbeSetError, match="cannot be written"):
        write_prompts(tmp_path / "no" / "folder.jsonl", prompts)
