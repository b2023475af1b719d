"""Prompt rows for VERL: Parquet with a reference for each prompt, each prompt once.

Source: VERL, `docs/preparation/prepare_data.rst` (columns `data_source`, `prompt`, `ability`,
`reward_model` with `style` and `ground_truth`, `extra_info` with `split` and `index`) and
`verl/utils/dataset/rl_dataset.py` (`RLHFDataset`: reads them with `datasets`; `extra_info.index`).
VERL chooses its reward function by `data_source`; for the value `ajet-console` it needs one of your
own (`custom_reward_function`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ajet_swarm.common.text import content_text
from console.export.chat import PROVENANCE, ROLES, Unsuitable
from console.export.maker import RowMaker
from console.export.records import ExportedGroup

SOURCE = "ajet-console"
"""`data_source` of a prompt whose dataset row has none in its metadata."""


_NO_TEXT = "prompt with tool calls or without text"


class Verl:
    """One row for each prompt with a reference."""

    about = "Prompts with a reference as Parquet: VERL"
    suffix = ".parquet"
    features: Mapping[str, Any] = {
        "data_source": "string",
        "prompt": [{"role": "string", "content": "string"}],
        "ability": "string",
        "reward_model": {"style": "string", "ground_truth": "string"},
        "extra_info": {"split": "string", "index": "int64"},
        "provenance": PROVENANCE,
    }

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the prompt of one group."""
        reference = record.opened.reference
        maker.check(record)
        if reference is None:
            raise Unsuitable("no reference answer")
        messages = _text_messages(record)
        maker.check_new((messages, reference))
        metadata = record.opened.metadata or {}
        yield {
            "data_source": _word(metadata, "data_source") or SOURCE,
            "prompt": messages,
            "ability": _word(metadata, "ability"),
            "reward_model": {"style": "rule", "ground_truth": reference},
            "extra_info": {"split": maker.split, "index": maker.written[maker.split]},
            "provenance": maker.provenance(record, record.candidates),
        }


def _text_messages(record: ExportedGroup) -> list[dict[str, Any]]:
    messages = []
    for message in record.prompt:
        role = ROLES.get(str(message.get("role")))
        if role is None or role == "tool" or message.get("tool_calls"):
            raise Unsuitable(_NO_TEXT)
        messages.append({"role": role, "content": content_text(message.get("content"))})
    if not messages:
        raise Unsuitable(_NO_TEXT)
    return messages


def _word(metadata: Mapping[str, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


FORMAT = Verl()
