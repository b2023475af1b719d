"""The rows of a batch use the cache of transformers by the name that the installed release has."""

import warnings
from typing import Any

import pytest
import torch

from engine.torch.loading import TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.sampling.batch import GrowingBatch, with_cache
from tests.torch.models import make_model


class Older:
    """A model of transformers before 5.24."""

    def forward(self, input_ids: Any, past_key_values: Any = None, **more: Any) -> None: ...


class Newer:
    """A model of transformers from 5.24 on."""

    def forward(self, input_ids: Any, cache: Any = None, **more: Any) -> None: ...


class Adapted:
    """A model with an adapter of PEFT."""

    def get_base_model(self) -> Newer:
        """Return the model below the adapter."""
        return Newer()

    def forward(self, *args: Any, **more: Any) -> None: ...


def test_the_cache_is_passed_by_the_name_of_the_release() -> None:
    assert with_cache(Older(), "kept") == {"past_key_values": "kept", "use_cache": True}
    assert with_cache(Newer(), "kept") == {"cache": "kept", "use_cache": True}
    assert with_cache(Adapted(), "kept") == {"cache": "kept", "use_cache": True}


@pytest.mark.parametrize("rank", [0, 4])
def test_the_installed_release_announces_no_removal(tmp_path: Any, rank: int) -> None:
    model = load(TorchOptions(model=str(make_model(tmp_path))), TrainingForm(rank, 8), None).model
    batch = GrowingBatch(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        batch.join([5, 6, 7], 2)
        batch.decode([1, 2])
        first = batch.logits.clone()
        batch.clear()
        batch.join([5, 6, 7, 1], 1)
    assert torch.allclose(first[0], batch.logits[0], atol=1e-4)  # the cache was used
