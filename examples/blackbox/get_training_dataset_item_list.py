"""The tasks that the agent is trained on."""

import os
from pathlib import Path

from ajet_swarm import RouterTaskReader, Task
from ajet_swarm.data import readers

DATASET = os.environ.get("DATASET") or "dataset.jsonl"
"""A JSONL file, a Parquet file or a Hugging Face directory; relative to this folder."""


def get_training_dataset_item_list() -> list[Task]:
    """Return all items; `main_query` is the prompt, `metadata` contains the row's fields."""
    path = Path(__file__).resolve().parent / DATASET
    if path.suffix == ".jsonl":
        file = readers.JsonlDatasetFile(training=readers.JsonlTrainingFp(str(path)))
        kind, config = "jsonl_dataset_file", readers.AjetTaskReader(jsonl_dataset_file=file)
    else:
        repo = readers.HuggingfaceDatRepo(dataset_path=str(path))
        kind, config = "huggingface_dat_repo", readers.AjetTaskReader(huggingface_dat_repo=repo)
    reader = RouterTaskReader(reader_type=kind, reader_config=config)
    return list(reader.generate_training_tasks())
