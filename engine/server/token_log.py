"""The token log: what the calls of an episode were made of, kept for those who ask later."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.interface import Completion, PolicyBackend, TrainSample
from engine.server.activity import replace_nonfinite

KEPT_EPISODES = 500
KEPT_BYTES = 16 << 20
"""Bound of all that is kept, whatever the lengths of the calls."""


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
        """Bytes, about."""
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
    """The newest finished episodes, bounded by their number and by memory."""

    def __init__(self, episodes: int = KEPT_EPISODES, size: int = KEPT_BYTES) -> None:
        self._most = episodes
        self._room = size
        self._used = 0
        self._kept: OrderedDict[str, _Episode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def record(
        self,
        episode_uuid: str,
        calls: Sequence[Completion | TrainSample],
        task_id: str,
        reward: float | None,
    ) -> None:
        """Keep a finished episode; the oldest are forgotten when there is no room.

        Args:
            episode_uuid: Of the episode; recorded again, it replaces what was there.
            calls: As they were sampled, or the timelines that are trained, in order.
            task_id: Its group.
            reward: What it was ended with.
        """
        self._forget(episode_uuid)
        packed = tuple(map(_pack, calls))
        size = 400 + sum(call.size for call in packed)
        self._kept[episode_uuid] = _Episode(packed, task_id, reward, size)
        self._used += size
        while len(self._kept) > self._most or (self._used > self._room and len(self._kept) > 1):
            self._forget(next(iter(self._kept)))

    def _forget(self, episode_uuid: str) -> None:
        gone = self._kept.pop(episode_uuid, None)
        if gone is not None:
            self._used -= gone.size

    async def show(self, episode_uuid: str, policy: PolicyBackend | None) -> dict[str, Any] | None:
        """One finished episode, None when it is not kept; see `shown`."""
        entry = self._kept.get(episode_uuid)
        if entry is None:
            return None
        return await _episode_json(episode_uuid, entry, "finished", policy)


async def live_episode(
    episode_uuid: str, calls: Sequence[Completion], task_id: str, policy: PolicyBackend | None
) -> dict[str, Any]:
    """An episode that is still running, in the form of `TokenLog.show`."""
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
    """Tokens of one call; without a policy their texts and log-probs of now are null."""
    prompt, tokens = call.prompt.tolist(), call.tokens.tolist()
    mask = [True] * len(tokens) if call.mask is None else [bool(flag) for flag in call.mask]
    texts: Sequence[str | None] = [None] * (len(prompt) + len(tokens))
    now: Sequence[float | None] = [None] * len(tokens)
    if policy is not None:
        texts = policy.spell([*prompt, *tokens])
        if tokens:
            now = await policy.logprobs(prompt, tokens)
    rows: list[dict[str, Any]] = [
        {"id": token, "text": text, "mask": 0, "logprob": None, "logprob_now": None}
        for token, text in zip(prompt, texts[: len(prompt)], strict=True)
    ]
    for place, token in enumerate(tokens):
        learnt = mask[place]
        rows.append(
            {
                "id": token,
                "text": texts[len(prompt) + place],
                "mask": int(learnt),
                "logprob": call.logprobs[place] if learnt else None,
                "logprob_now": now[place] if learnt else None,
            }
        )
    return {"step": call.step, "prompt_tokens": len(prompt), "tokens": replace_nonfinite(rows)}
