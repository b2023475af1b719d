"""The tiny policy shipped with the engine: one million parameters, its own vocabulary and template;
sampled and trained by one worker thread."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine import tokenizer as bpe
from engine.interface import LATEST, Hyperparameters, Prompt, TrainSample, UpdateStats
from engine.policy import chat_template, weights
from engine.policy.local import LocalPolicy
from engine.policy.params_copies import ParamsCopies
from engine.policy.sampler import Sampler
from engine.policy.weights import WeightStore
from engine.tokenizer import CALL, Tokenizer
from engine.training.grpo import Learner
from engine.training.model import BLOCKED, log_softmax, logits_only
from engine.training.state import Base, State

NAME = "tiny-0.9m"
"""Display name, with the number of parameters."""
_TAG_NAMES = {
    bpe.SYSTEM: "<system>",
    bpe.USER: "<user>",
    bpe.ANSWER: "<answer>",
    bpe.END: "<end>",
    bpe.TOOL: "<tool>",
    bpe.CALL: "<call>",
}


class TinyTextCodec(Tokenizer):
    """The shipped tokenizer and chat template."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        return chat_template.render(self, context, messages, tools, max_tokens)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id: tags by name, bytes that are no character as `\\xe2`."""
        return [
            _TAG_NAMES.get(token) or self.decode_bytes((token,)).decode("utf-8", "backslashreplace")
            for token in ids
        ]


class TinyPolicy(LocalPolicy):
    """The tiny policy, trained in place. Create it with `open`.

    Args:
        base: Base weights.
        state: State from which training continues.
        store: Storage of the state; None saves nothing.
    """

    def __init__(self, base: Base, state: State, store: WeightStore | None) -> None:
        self._base, self._state, self._store = base, state, store
        language, config = TinyTextCodec.shipped(), state.params.config
        self._sampler = Sampler(state.params, language)
        self._learner = Learner(state, base.params)
        super().__init__(NAME, config.context, config.vocab, language, self._sampler, store)
        self._start(ParamsCopies(state, language))

    @classmethod
    def open(
        cls, directory: Path | None, reset: bool = False, start_from: str | None = None
    ) -> "TinyPolicy":
        """Load the saved policy, or the shipped one when nothing is saved.

        Args:
            directory: Folder of the saved state; None saves nothing.
            reset: Set the saved state aside and start from the shipped weights.
            start_from: Checkpoint to restore; the saved state is set aside.

        Raises:
            AjetError: another engine uses the directory, or the weights cannot be read.
        """
        base = weights.shipped()
        if directory is None:
            return cls(base, State.fresh(base), None)
        store = WeightStore(directory)
        try:
            if reset:
                store.reset()
            if start_from is not None:
                store.restore(start_from, base.digest)
            return cls(base, store.load(base), store)
        except BaseException:
            store.close()
            raise

    @property
    def step(self) -> int:
        return self._state.step

    async def close(self) -> None:
        await super().close()
        self._learner.close()

    def _score(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
        """Return the log-probs; as when sampling, a tool call has no probability in an answer to a
        prompt without tools."""
        ids, start = (*prompt, *tokens), len(prompt)
        positions = np.arange(start - 1, len(ids) - 1)
        logits = logits_only(self._state.params, np.array([ids]), positions)
        if CALL not in prompt:
            logits[:, CALL] = BLOCKED
        values: list[float] = log_softmax(logits)[positions - start + 1, ids[start:]].tolist()
        return values

    def _update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        try:
            stats = self._learner.update(samples, hyper)
        finally:
            self._sampler.use(self._state.params)
        if self._store is None:
            return stats
        began = time.perf_counter()
        self._save(LATEST)
        saved = {"save_seconds": time.perf_counter() - began}
        return replace(stats, extra={**stats.extra, **saved})

    def _save(self, name: str) -> None:
        if self._store is not None:
            self._store.save(self._state, self._base, name)

    def _restore_base(self) -> None:
        state, fresh = self._state, State.fresh(self._base)
        state.params.flat[...] = fresh.params.flat
        state.adam, state.step = fresh.adam, 0
        self._sampler.use(state.params)
