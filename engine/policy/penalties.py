"""Penalties on repeated tokens, with vLLM's meaning, for the samplers of both backends.

Presence and frequency count the ids generated so far; repetition counts those of the prompt too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.interface import SamplingParams
from engine.training.model import Array

LARGEST = 1e30
"""Bound of a changed logit: a tiny repetition penalty must not make it infinite."""


class TokenPenalties:
    """Ids of one answer whose logits change, and how often each was generated.

    Args:
        params: Parameters of the answer.
        prompt: Ids of the prompt.
        most: Maximum number of further ids.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int], most: int) -> None:
        self._params = params
        known = sorted(set(prompt)) if params.repetition_penalty != 1.0 else []
        self._places = {token: place for place, token in enumerate(known)}
        self._ids = np.zeros(len(known) + most, np.int64)
        self._ids[: len(known)] = known
        self._counts = np.zeros(len(known) + most, np.float32)

    def add(self, token: int) -> None:
        """Count a generated id."""
        place = self._places.setdefault(token, len(self._places))
        self._ids[place] = token
        self._counts[place] += 1

    @property
    def ids(self) -> Array:
        """Distinct ids."""
        return self._ids[: len(self._places)]

    @property
    def factors(self) -> Array:
        """Repetition penalty of each of `ids`, to divide or multiply by."""
        return np.full(len(self._places), self._params.repetition_penalty, np.float32)

    @property
    def reductions(self) -> Array:
        """What presence and frequency subtract from the logit of each of `ids`."""
        counts = self._counts[: len(self._places)]
        params = self._params
        total: Array = params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
        return total.astype(np.float32)


def new_penalties(
    params: SamplingParams, prompt: Sequence[int], most: int
) -> TokenPenalties | None:
    """Return the penalties of an answer; None when it asks for none."""
    return TokenPenalties(params, prompt, most) if params.penalizes else None


def changed_logits(
    logits: Any,
    rows: Sequence[TokenPenalties | None],
    array: Callable[[Array], Any],
    where: Callable[[Any, Any, Any], Any],
) -> Any:
    """Return the logits of all rows after their penalties; the same object when no row has any.

    Args:
        logits: (rows, vocab), of numpy or torch; not changed.
        rows: The penalties of each row.
        array: Converts a numpy array to the kind and device of `logits`.
        where: `where` of numpy or torch.
    """
    present = [(place, row) for place, row in enumerate(rows) if row is not None and len(row.ids)]
    if not present:
        return logits
    places = np.concatenate([np.full(len(row.ids), place, np.int64) for place, row in present])
    at = (array(places), array(np.concatenate([row.ids for _, row in present])))
    factors = array(np.concatenate([row.factors for _, row in present]))
    values = logits[at]
    values = where(values > 0, values / factors, values * factors)
    values = values - array(np.concatenate([row.reductions for _, row in present]))
    result = logits.copy() if isinstance(logits, np.ndarray) else logits.clone()
    result[at] = values.clip(-LARGEST, LARGEST)
    return result
