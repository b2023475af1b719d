"""The token log: prompts, tokens and log-probs of an episode's calls, for later inspection."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.interface import Completion, PolicyBackend, TrainSample
from engine.server.activity import replace_nonfinite

MAX_EPISODES = 500
MAX_BYTES = 16 << 20
"""Memory bound of all entries together."""


@dataclass(frozen=True, slots=True)
class _PackedCall:
    """One call or timeline in a sixth of the memory of its tuples."""

    prompt: "array[int]"
    tokens: "array[int]"
    logprobs: "array[float]"
    mask: bytes | None
    step: int | None

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        ids = (len(self.prompt) + len(self.tokens)) * self.tokens.itemsize
        return 400 + ids + 4 * len(self.logprobs) + len(self.mask or b"")


@dataclass(frozen=True, slots=True)
class _Episode:
    calls: tuple[_PackedCall, ...]
    task_id: str
    reward: float | None
    size: int


def _pack(source: Completion | TrainSample) -> _PackedCall:
    mask, step = (None, source.step) if isinstance(source, Completion) else (source.mask, None)
    return _PackedCall(
        array("I", source.prompt_tokens),
        array("I", source.tokens),
        array("f", source.logprobs),
        None if mask is None else bytes(mask),
        step,
    )


class TokenLog:
    """The newest finished episodes, bounded in number and memory."""

    def __init__(self, episodes: int = MAX_EPISODES, size: int = MAX_BYTES) -> None:
        self._max_episodes = episodes
        self._max_bytes = size
        self._used = 0
        self._episodes: OrderedDict[str, _Episode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._episodes)

    def record(
        self,
        episode_uuid: str,
        calls: Sequence[Completion | TrainSample],
        task_id: str,
        reward: float | None,
    ) -> None:
        """Store a finished episode; evict the oldest ones over the bounds.

        Args:
            episode_uuid: The episode; a second record replaces the first.
            calls: The calls as sampled, or the timelines to train, in order.
            task_id: Group of the episode.
            reward: Final reward of the episode.
        """
        self._remove(episode_uuid)
        packed = tuple(map(_pack, calls))
        size = 400 + sum(call.size for call in packed)
        self._episodes[episode_uuid] = _Episode(packed, task_id, reward, size)
        self._used += size
        while len(self._episodes) > self._max_episodes or (
            self._used > self._max_bytes and len(self._episodes) > 1
        ):
            self._remove(next(iter(self._episodes)))

    def _remove(self, episode_uuid: str) -> None:
        removed = self._episodes.pop(episode_uuid, None)
        if removed is not None:
            self._used -= removed.size

    async def show(self, episode_uuid: str, policy: PolicyBackend | None) -> dict[str, Any] | None:
        """Return one finished episode as JSON, None when it is not stored."""
        entry = self._episodes.get(episode_uuid)
        if entry is None:
            return None
        return await _episode_json(episode_uuid, entry, "finished", policy)


async def live_episode(
    episode_uuid: str, calls: Sequence[Completion], task_id: str, policy: PolicyBackend | None
) -> dict[str, Any]:
    """Return a running episode in the form of `TokenLog.show`."""
    entry = _Episode(tuple(map(_pack, calls)), task_id, None, 0)
    return await _episode_json(episode_uuid, entry, "live", policy)


async def _episode_json(
    episode_uuid: str, entry: _Episode, state: str, policy: PolicyBackend | None
) -> dict[str, Any]:
    return {
        "episode_uuid": episode_uuid,
        "state": state,
        "task_id": entry.task_id,
        "reward": replace_nonfinite(entry.reward),
        "step": None if policy is None else policy.step,
        "calls": [await _call_json(call, policy) for call in entry.calls],
    }


async def _call_json(call: _PackedCall, policy: PolicyBackend | None) -> dict[str, Any]:
    """Return the tokens of one call; without a policy their texts and current log-probs are
    null."""
    prompt, tokens = call.prompt.tolist(), call.tokens.tolist()
    mask = [True] * len(tokens) if call.mask is None else [bool(flag) for flag in call.mask]
    texts: Sequence[str | None] = [None] * (len(prompt) + len(tokens))
    now: Sequence[float | None] = [None] * len(tokens)
    if policy is not None:
        texts = policy.token_texts([*prompt, *tokens])
        if tokens:
            now = await policy.logprobs(prompt, tokens)
    rows: list[dict[str, Any]] = [
        {"id": token, "text": text, "mask": 0, "logprob": None, "logprob_now": None}
        for token, text in zip(prompt, texts[: len(prompt)], strict=True)
    ]
    for index, token in enumerate(tokens):
        trained = mask[index]
        rows.append(
            {
                "id": token,
                "text": texts[len(prompt) + index],
                "mask": int(trained),
                "logprob": call.logprobs[index] if trained else None,
                "logprob_now": now[index] if trained else None,
            }
        )
    return {"step": call.step, "prompt_tokens": len(prompt), "tokens": replace_nonfinite(rows)}
