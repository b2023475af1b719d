"""TRL's own data utilities read the exports; `make test-torch` has an environment for it."""

import json
from pathlib import Path
from typing import Any

import pytest

data_utils = pytest.importorskip("trl.data_utils")  # first: quick where it is missing
datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

from console.export.run import ExportOptions, export  # noqa: E402  after the modules it needs
from core.journal.read_only import JournalFile  # noqa: E402
from tests.support.ranked import called, ranked_group, write_journal  # noqa: E402

TEMPLATE = (
    "{%- if tools %}[tools]{{ tools | tojson }}\n{% endif -%}"
    "{%- for message in messages -%}"
    "<{{ message.role }}>"
    "{%- if message.content is not none %}{{ message.content }}{% endif -%}"
    "{%- for call in message.tool_calls or [] -%}"
    "[call]{{ call.function.name }}{{ call.function.arguments | tojson }}"
    "{%- endfor -%}"
    "{{ '\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt %}<assistant>{% endif -%}"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "adds",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
        },
    }
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer with a word for each character, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {chr(code): code for code in range(1_000)}
    inner = Tokenizer(models.WordLevel(words | {"[UNK]": 1_000}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Export to a folder in two files, and load it as a user does."""
    events = [
        event
        for number in range(40)
        for event in ranked_group(f"g{number}", f"question {number}", ["good", "bad"], [1.0, 0.0])
    ]
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "add 1"},
        called('{"a": 1}'),
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": "again"},
    ]
    events += ranked_group(
        "tools", chat, [called('{"a": 2}'), called('{"b": "x"}')], [0.9, 0.1], tools=TOOLS
    )
    journal = write_journal(tmp_path / "journal.db", events)

    def run(name: str) -> Any:
        out = tmp_path / name
        file = JournalFile(journal)
        export(file, ExportOptions(name, out))
        return datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]

    return run


def tools_of(example: dict[str, Any]) -> Any:
    """The tools, as the trainers of TRL decode them."""
    tools = example.get("tools")
    return json.loads(tools) if isinstance(tools, str) else tools


def test_preference_pairs(load: Any, tokenizer: Any) -> None:
    rows = list(load("preference"))
    assert len(rows) == 41
    for row in rows:
        assert data_utils.is_conversational(row)
        assert data_utils.maybe_extract_prompt(row) is row
        texts = data_utils.apply_chat_template(row, tokenizer, tools_of(row))
        assert texts["prompt"].endswith("<assistant>")
        assert texts["chosen"] != texts["rejected"]
    joined = [
        {"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]}
        for row in rows[:3]
    ]
    assert [data_utils.extract_prompt(row)["prompt"] for row in joined] == [
        row["prompt"] for row in rows[:3]
    ]
    last = data_utils.apply_chat_template(rows[-1], tokenizer, tools_of(rows[-1]))
    assert '[call]add{"a": 2}' in last["chosen"]
    assert '[call]add{"b": "x"}' in last["rejected"]
    assert last["prompt"].startswith("[tools]")
    assert "<tool>1" in last["prompt"]
    ids = data_utils._tokenize(tokenizer, rows[0]["prompt"], add_generation_prompt=True)
    assert tokenizer.decode(ids["input_ids"]).replace(" ", "").endswith("<assistant>")


def test_labelled_answers(load: Any, tokenizer: Any) -> None:
    rows = list(load("unpaired"))
    assert [row["label"] for row in rows] == [True, False] * 41
    for row in rows:
        assert data_utils.is_conversational(row)
        texts = data_utils.apply_chat_template(row, tokenizer, tools_of(row))
        assert texts["label"] == row["label"]
        assert texts["completion"].strip()


def test_conversations(load: Any, tokenizer: Any) -> None:
    rows = list(load("sft"))
    assert len(rows) == 41
    for row in rows:
        assert data_utils.is_conversational(row)
        text = data_utils.apply_chat_template(row, tokenizer, tools_of(row))["text"]
        assert "<user>" in text
    assert '[call]add{"a": 2}' in text


def test_rankings_of_pairs_are_unpaired_by_trl(load: Any) -> None:
    pairs = load("preference")
    assert data_utils.unpair_preference_dataset(pairs).num_rows == 2 * pairs.num_rows
