"""Continuous batching: answers join and leave the batch between token steps.

An answer depends on its prompt, its seed and the weights, not on the other answers: each row draws
one uniform number per token from its own Philox stream (Salmon et al. 2011).
"""

import codecs
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.interface import Decoder
from engine.policy.answer import LiveAnswer, ParsedAnswer, Request, SampledAnswer
from engine.policy.chat_template import parse_call
from engine.policy.kv_cache import KVCache
from engine.policy.penalties import TokenPenalties, changed_logits, new_penalties
from engine.tokenizer import CALL, END
from engine.training.model import BLOCKED, Array, Params

SLOTS = 32
GREEDY = 1e-3
"""Temperatures below this are greedy."""
_ENDS = frozenset({END})


@dataclass(slots=True, eq=False)
class _Row:
    """A live answer and what samples it."""

    answer: LiveAnswer
    uniforms: list[float]
    """One uniform number for each possible token."""
    tools: bool
    """The prompt offers tools, so the answer may start a tool call."""
    first: Array
    """Logits after the prompt, shared with rows of the same prompt."""
    penalties: TokenPenalties | None

    @property
    def prompt(self) -> tuple[int, ...]:
        """Ids of the prompt."""
        return self.answer.request.prompt.tokens

    @property
    def used(self) -> int:
        """Number of ids so far, prompt and answer."""
        return len(self.prompt) + len(self.answer.tokens)


class AnswerSampler:
    """Requests without a slot, and new text: what the samplers of all backends share."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._pieces: list[tuple[Request, str]] = []

    @property
    def waiting(self) -> int:
        """Number of requests without a slot."""
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def take_pieces(self) -> list[tuple[Request, str]]:
        """Return the new text of the requests that receive pieces, in sampling order."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _append(
        self, answer: LiveAnswer, penalties: TokenPenalties | None, token: int, logprob: float
    ) -> None:
        """Add a sampled token to an answer."""
        if penalties is not None:
            penalties.add(token)
        if piece := answer.append(token, logprob):
            self._pieces.append((answer.request, piece))

    def _finished(
        self, answer: LiveAnswer, number: int, parsed: ParsedAnswer | None
    ) -> SampledAnswer:
        """Return the result of an answer; its arguments are those of `LiveAnswer.completed`."""
        completion, piece = answer.completed(number, parsed)
        if piece:
            self._pieces.append((answer.request, piece))
        return SampledAnswer(answer.request, completion)


class Sampler(AnswerSampler):
    """Samples many answers at once; used by one thread.

    Args:
        params: Weights.
        tokenizer: Ids to text.
        slots: Maximum number of concurrent answers.
    """

    def __init__(self, params: Params, tokenizer: Decoder, slots: int = SLOTS) -> None:
        super().__init__()
        self._params = params
        self._bytes = [tokenizer.decode_bytes((token,)) for token in range(params.config.vocab)]
        self._cache = KVCache(params, slots)
        self._slots = slots
        self._rows: list[_Row] = []

    @property
    def live(self) -> int:
        """Number of answers being sampled."""
        return len(self._rows)

    def use(self, params: Params) -> None:
        """Use other weights from the next answer on.

        Raises:
            RuntimeError: answers are still being sampled.
        """
        if self._rows:
            raise RuntimeError("the sampler still has live answers")
        self._params = params
        self._cache.use(params)

    def clear(self) -> list[Request]:
        """Drop and return all requests."""
        dropped = [row.answer.request for row in self._rows] + list(self._waiting)
        self._rows.clear()
        self._waiting.clear()
        self._pieces.clear()
        return dropped

    def step(self, number: int, admit: bool = True) -> list[SampledAnswer]:
        """Admit requests that fit, then sample one token for every live row.

        Args:
            number: Global step of the weights, recorded in the answers.
            admit: False finishes the live answers without admitting new ones.
        """
        for row in range(len(self._rows) - 1, -1, -1):
            if self._rows[row].answer.request.cancelled:
                self._remove(row)
        fresh = self._admit() if admit else 0
        if not self._rows:
            return []
        self._sample_tokens(self._logits(fresh))
        done = [row for row in range(len(self._rows)) if self._rows[row].answer.finish]
        finished = [self._completed(row, number) for row in done]
        for row in reversed(done):
            self._remove(row)
        return finished

    def _admit(self) -> int:
        fresh = 0
        while self._waiting and len(self._rows) < self._slots:
            request = self._waiting[0]
            if not request.cancelled:
                self._rows.append(self._start(request, len(self._rows)))
                fresh += 1
            self._waiting.popleft()
        return fresh

    def _start(self, request: Request, slot: int) -> _Row:
        """Fill the slot's cache: copy a live row with the same prompt, else run a prefill."""
        prompt, params = request.prompt.tokens, request.params
        twin = next(
            (i for i, row in enumerate(self._rows) if row.answer.request.prompt.tokens == prompt),
            None,
        )
        if twin is None:
            first = self._cache.prefill(np.asarray(prompt, np.int64), slot)
        else:
            first = self._rows[twin].first
            self._cache.copy(twin, slot, len(prompt))
        limit = min(max(1, params.max_tokens), self._params.config.context - len(prompt))
        answer = LiveAnswer(request, limit, self._decoder(), _ENDS)
        penalties = new_penalties(params, prompt, limit)
        draws = uniforms(params.seed, limit).tolist()
        return _Row(answer, draws, CALL in prompt, first, penalties)

    def _decoder(self) -> Callable[[int], str]:
        """Return a function that returns the text that each further token completes."""
        decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        texts = self._bytes
        return lambda token: decode(texts[token])

    def _logits(self, fresh: int) -> Array:
        """Return logits of every row's next token; the last `fresh` rows are at their first
        token."""
        old = self._rows[: len(self._rows) - fresh]
        parts = []
        if old:
            last = np.array([row.answer.tokens[-1] for row in old])
            places = [
                len(row.answer.request.prompt.tokens) + len(row.answer.tokens) - 1 for row in old
            ]
            parts.append(self._cache.decode(last, np.array(places)))
        if fresh:
            parts.append(np.stack([row.first for row in self._rows[len(old) :]]))
        logits: Array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        logits[[i for i, row in enumerate(self._rows) if not row.tools], CALL] = BLOCKED
        return logits

    def _sample_tokens(self, logits: Array) -> None:
        params = [row.answer.request.params for row in self._rows]
        uniforms = np.array([row.uniforms[len(row.answer.tokens)] for row in self._rows])
        ids, logprobs = choose(
            logits,
            np.array([p.temperature for p in params]),
            np.array([p.top_p for p in params]),
            uniforms,
            changed=changed_logits(
                logits, [row.penalties for row in self._rows], np.asarray, np.where
            ),
            top_k=np.array([max(0, p.top_k) for p in params]),
            min_p=np.array([p.min_p for p in params]),
        )
        for row, token, logprob in zip(self._rows, ids.tolist(), logprobs.tolist(), strict=True):
            if token == CALL and not row.answer.tokens:
                row.answer.silent = True
            self._append(row.answer, row.penalties, token, logprob)

    def _completed(self, slot: int, number: int) -> SampledAnswer:
        answer = self._rows[slot].answer
        call = parse_call(answer.text) if answer.finish == "stop" and answer.silent else None
        return self._finished(answer, number, None if call is None else ParsedAnswer("", (call,)))

    def _remove(self, row: int) -> None:
        """Free a slot by moving the last row into it."""
        last = self._rows.pop()
        if row < len(self._rows):
            self._rows[row] = last
            self._cache.copy(len(self._rows), row, last.used)


def uniforms(seed: int | None, count: int) -> Array:
    """Return the uniform numbers of an answer, one for each token; random ones without a seed."""
    key = secrets.randbits(64) if seed is None else seed & (2**64 - 1)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def choose(
    logits: Array,
    temperature: Array,
    top_p: Array,
    uniform: Array,
    *,
    changed: Array | None = None,
    top_k: Array | None = None,
    min_p: Array | None = None,
) -> tuple[Array, Array]:
    """Sample one token per row by inverse transform.

    Args:
        logits: (rows, vocab).
        temperature: (rows,), greedy below `GREEDY`.
        top_p: (rows,) probability mass to keep, after `min_p` and `top_k`.
        uniform: (rows,) in [0, 1).
        changed: Logits after penalties, from which is sampled; None samples from `logits`.
        top_k: (rows,) number of likeliest ids to keep; 0 keeps all.
        min_p: (rows,) least probability to keep, as a share of the highest; 0 keeps all.

    Returns:
        Ids (rows,) and their log-probs by `logits` at temperature 1 (rows,).
    """
    greedy = temperature < GREEDY
    shifted = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    logs = np.log(weights.sum(axis=1))
    source, moved = logits, shifted
    if changed is not None and changed is not logits:
        source = changed
        moved = changed - changed.max(axis=1, keepdims=True)
    if source is not logits or not (temperature == 1.0).all():
        weights = np.exp(moved / np.where(greedy, 1.0, temperature)[:, None])
    _drop_unlikely(weights, greedy, top_p, top_k, min_p)
    total = np.cumsum(weights, axis=1, dtype=np.float64)
    ids = (total > (uniform * total[:, -1])[:, None]).argmax(axis=1)
    if greedy.any():
        ids = np.where(greedy, source.argmax(axis=1), ids)
    return ids, shifted[np.arange(len(ids)), ids] - logs


def _drop_unlikely(
    weights: Array, greedy: Array, top_p: Array, top_k: Array | None, min_p: Array | None
) -> None:
    """Set the weights of ids that a row does not keep to 0; the largest weight of a row is 1."""
    if min_p is not None and min_p.any():
        for row in np.flatnonzero(~greedy):
            weights[row, weights[row] < min_p[row]] = 0.0
    if top_k is not None and top_k.any():
        vocab = weights.shape[1]
        for row in np.flatnonzero((top_k > 0) & (top_k < vocab) & ~greedy):
            least = np.partition(weights[row], vocab - top_k[row])[vocab - top_k[row]]
            weights[row, weights[row] < least] = 0.0
    for row in np.flatnonzero((top_p < 1.0) & ~greedy):
        order = np.argsort(-weights[row], kind="stable")
        mass = np.cumsum(weights[row][order], dtype=np.float64)
        count = int(np.searchsorted(mass, top_p[row] * mass[-1])) + 1
        weights[row, order[count:]] = 0.0
