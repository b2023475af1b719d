"""Batched sampling of a transformers model: answers join and leave between token steps.

Each row draws one uniform number per token from its own stream,
so an answer depends on its seed, not on the other rows. `generate` and the continuous batching of
transformers have one seed for all requests.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.policy.answer import AnswerFailedError, LiveAnswer, Request, SampledAnswer
from engine.policy.penalties import TokenPenalties, changed_logits, new_penalties
from engine.policy.sampler import GREEDY, AnswerSampler, uniforms
from engine.torch.hardware.devices import is_out_of_memory
from engine.torch.sampling.batch import RowBatch
from engine.torch.sampling.tool_calls import CallFormat
from engine.torch.text import ModelText

log = logging.getLogger(__name__)

_BELOW_ONE = 1 - 2**-24
"""Largest float32 below 1, to which a uniform number of float64 may round."""


_MOST_PATIENCE = 64
"""Updates after which the slots grow again, however often the memory ran out."""


@dataclass(slots=True, eq=False)
class _BatchRow:
    """An answer and what samples it; a row that lost its place in the batch continues later."""

    answer: LiveAnswer
    uniforms: Any
    """One uniform number for each possible token."""
    form: CallFormat | None
    """How the answer writes tool calls, if it may call a tool."""
    penalties: TokenPenalties | None

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids to compute before the next token: the prompt, and what was sampled already."""
        return (*self.answer.request.prompt.tokens, *self.answer.tokens)

    @property
    def length(self) -> int:
        """Number of ids of `prefix`."""
        return len(self.answer.request.prompt.tokens) + len(self.answer.tokens)


class TorchSampler(AnswerSampler):
    """`TokenSampler` of a causal language model.

    Args:
        batch: Computes the logits.
        text: Ids to text.
        ends: Ids that end an answer.
        context: Window in tokens.
        slots: Maximum number of concurrent answers; halved when the memory runs out, and doubled
            again by `grow`.
        kind: What the answers are called in the log.
        room: Maximum number of ids of the live answers with their prompts, each padded to the
            longest: others continue later. None: what the slots need.
    """

    def __init__(
        self,
        batch: RowBatch,
        text: ModelText,
        ends: frozenset[int],
        context: int,
        slots: int,
        kind: str = "answers",
        room: int | None = None,
    ) -> None:
        super().__init__()
        self._batch, self._text, self._ends = batch, text, ends
        self._context, self.slots, self._most = context, slots, slots
        self._kind, self._room = kind, room
        self._patience, self._calm = 1, 0
        """Updates before the slots grow again, and those since the memory ran out."""
        self._interrupted: list[_BatchRow] = []
        """Rows that lost their place in the batch, in order."""
        self._joining: list[_BatchRow] = []
        """Rows that are being added to the batch."""
        self._rows: list[_BatchRow] = []
        self._results: list[SampledAnswer] = []

    @property
    def live(self) -> int:
        """Number of answers being sampled, with those that wait to continue."""
        return len(self._rows) + len(self._interrupted)

    def clear(self) -> list[Request]:
        """Drop and return all requests and the cache."""
        rows = (*self._rows, *self._joining, *self._interrupted)
        dropped = [row.answer.request for row in rows] + list(self._waiting)
        self._rows, self._joining, self._interrupted = [], [], []
        self._waiting.clear()
        self._results, self._pieces = [], []
        self._batch.clear()
        return dropped

    def grow(self) -> None:
        """Double the slots after enough updates in which the memory did not run out, up to those at
        the start; call it while no answer is sampled."""
        self._calm += 1
        if self.slots < self._most and self._calm >= self._patience:
            self.slots, self._calm = min(self._most, 2 * self.slots), 0
            self._batch.resize(self.slots)
            log.info("%d answers are sampled at the same time again", self.slots)

    def interrupt(self) -> None:
        """Free the memory of the batch; its answers continue with the next step."""
        self._interrupted = [*self._rows, *self._joining, *self._interrupted]
        self._rows, self._joining = [], []
        self._batch.release()

    def step(self, number: int, admit: bool = True) -> list[SampledAnswer]:
        """Admit requests that fit, then sample one token for every live row.

        When the memory runs out, all answers continue in a smaller batch.

        Raises:
            AnswerFailedError: the memory is too small for one answer alone, which was dropped.
        """
        reason: str | None = None
        try:
            with torch.no_grad():
                self._step(number, admit)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0]
        if reason is not None:  # behind the handler: the error's traceback holds tensors
            self._shrink(reason)
        results, self._results = self._results, []
        return results

    def _step(self, number: int, admit: bool) -> None:
        self._keep([not row.answer.request.cancelled for row in self._rows])
        self._interrupt_surplus()
        self._admit(admit)
        if not self._rows:
            return
        tokens = self._sample_tokens()
        self._results += [self._completed(row, number) for row in self._rows if row.answer.finish]
        going = [not row.answer.finish for row in self._rows]
        self._keep(going)
        if self._rows:
            left = [token for token, on in zip(tokens, going, strict=True) if on]
            self._batch.decode(left)

    def _shrink(self, reason: str) -> None:
        """Halve the number of slots; all live rows join a new batch, in their order."""
        before, self.slots = self.slots, max(1, self.slots // 2)
        self._patience, self._calm = min(_MOST_PATIENCE, 2 * self._patience), 0
        self.interrupt()
        self._batch.resize(self.slots)
        rows = self._interrupted
        failed = rows.pop(0) if before == 1 and rows else None
        if failed is not None:
            raise AnswerFailedError(
                failed.answer.request,
                f"The memory of the device is too small for this answer alone, after "
                f"{len(failed.prefix)} tokens of prompt and answer ({reason})",
                todo="Use a smaller --context or a smaller model, or free memory of the device.",
            )
        log.warning(
            "The memory of the device ran out while %s were sampled (%s). From now on %d are "
            "sampled at the same time instead of %d; the %d that were interrupted continue.",
            self._kind,
            reason,
            self.slots,
            before,
            len(rows),
        )

    def _admit(self, fresh: bool) -> None:
        """Compute what comes before the next token of rows that fit; rows in which it is the same
        share one pass.

        Args:
            fresh: False admits only rows that were interrupted.
        """
        going = deque(row for row in self._interrupted if not row.answer.request.cancelled)
        self._joining, self._interrupted = [], []
        while going and self._fits(going[0].length):
            self._joining.append(going.popleft())
        self._interrupted = list(going)
        while fresh and self._waiting and not going:
            request = self._waiting[0]
            if not request.cancelled:
                if not self._fits(len(request.prompt.tokens)):
                    break
                self._joining.append(self._row(request))
            self._waiting.popleft()
        groups: dict[tuple[int, ...], list[_BatchRow]] = {}
        for row in self._joining:
            groups.setdefault(row.prefix, []).append(row)
        for prefix, rows in groups.items():
            self._batch.join(prefix, len(rows))
            self._rows += rows
            self._joining = [row for row in self._joining if row not in rows]

    def _fits(self, length: int) -> bool:
        """Return whether one more row, of this many ids, can join."""
        rows = [*self._rows, *self._joining]
        if len(rows) >= self.slots:
            return False
        longest = max([length, *(row.length for row in rows)])
        return not rows or self._room is None or (len(rows) + 1) * (longest + 1) <= self._room

    def _interrupt_surplus(self) -> None:
        """Interrupt the last rows if the next token of all rows does not fit into the room."""
        if self._room is None or not self._rows:
            return
        fit = max(1, self._room // (max(row.length for row in self._rows) + 1))
        self._interrupted = [*self._rows[fit:], *self._interrupted]
        self._keep([place < fit for place in range(len(self._rows))])

    def _row(self, request: Request) -> _BatchRow:
        params, prompt = request.params, request.prompt.tokens
        limit = max(1, min(params.max_tokens, self._context - len(prompt)))
        form = self._text.call_format(request.prompt)
        answer = LiveAnswer(
            request,
            limit,
            self._text.decoder(form),
            self._ends,
            () if form is None else form.markers,
            () if form is None else form.openings,
        )
        penalties = new_penalties(params, prompt, limit)
        return _BatchRow(answer, uniforms(params.seed, limit), form, penalties)

    def _keep(self, keep: list[bool]) -> None:
        """Drop rows."""
        if all(keep):
            return
        self._rows = [row for row, stays in zip(self._rows, keep, strict=True) if stays]
        if self._rows:
            self._batch.keep([i for i, stays in enumerate(keep) if stays])
        else:
            self._batch.clear()

    def _sample_tokens(self) -> list[int]:
        params = [row.answer.request.params for row in self._rows]
        draws = [row.uniforms[len(row.answer.tokens)] for row in self._rows]
        logits = self._batch.logits

        def column(values: list[Any], needed: bool = True) -> Any:
            if not needed:
                return None
            return torch.tensor(values).to(logits.device, non_blocking=True)

        def moved(values: Any) -> Any:
            return torch.from_numpy(values).to(logits.device, non_blocking=True)

        penalties = [row.penalties for row in self._rows]
        ids, logprobs = choose(
            logits,
            column([p.temperature for p in params]),
            column([p.top_p for p in params], any(p.top_p < 1.0 for p in params)),
            torch.tensor(np.minimum(draws, _BELOW_ONE), dtype=torch.float32).to(
                logits.device, non_blocking=True
            ),
            changed=changed_logits(logits, penalties, moved, torch.where),
            top_k=column([max(0, p.top_k) for p in params], any(p.top_k > 0 for p in params)),
            min_p=column([p.min_p for p in params], any(p.min_p > 0 for p in params)),
        )
        tokens: list[int] = ids.tolist()
        for row, token, logprob in zip(self._rows, tokens, logprobs.tolist(), strict=True):
            self._append(row.answer, row.penalties, token, logprob)
        return tokens

    def _completed(self, row: _BatchRow, number: int) -> SampledAnswer:
        answer, parsed = row.answer, None
        if row.form is not None and answer.finish == "stop":
            parsed = row.form.parse(answer.text, answer.request.prompt.tools)
        return self._finished(answer, number, parsed)


def choose(
    logits: Any,
    temperature: Any,
    top_p: Any,
    uniform: Any,
    *,
    changed: Any = None,
    top_k: Any = None,
    min_p: Any = None,
) -> tuple[Any, Any]:
    """Sample one token per row by inverse transform.

    Args:
        logits: (rows, vocab), float32.
        temperature: (rows,), greedy below `GREEDY`.
        top_p: (rows,) probability mass to keep, after `min_p` and `top_k`; None keeps all.
        uniform: (rows,) in [0, 1).
        changed: Logits after penalties, from which is sampled; None samples from `logits`.
        top_k: (rows,) number of likeliest ids to keep, 0 all; None keeps all.
        min_p: (rows,) least probability to keep, as a share of the highest; None keeps all.

    Returns:
        Ids (rows,) and their log-probs by `logits` at temperature 1 (rows,).
    """
    source = logits if changed is None else changed
    greedy = temperature < GREEDY
    heat = torch.where(greedy, torch.ones_like(temperature), temperature)
    weights = torch.softmax(source / heat[:, None], dim=-1)
    if min_p is not None:
        least = weights.amax(dim=-1) * min_p
        weights = weights.masked_fill(weights < least[:, None], 0.0)
    if top_k is not None:
        weights = _likeliest(weights, top_k)
    if top_p is not None:
        ordered, order = weights.sort(dim=-1, descending=True)
        sums = ordered.cumsum(dim=-1)
        before = sums - ordered
        ordered = ordered.masked_fill(before > top_p[:, None] * sums[:, -1:], 0.0)
        weights = torch.zeros_like(weights).scatter(1, order, ordered)
    total = weights.cumsum(dim=-1)
    ids = (total > (uniform * total[:, -1])[:, None]).int().argmax(dim=-1)
    ids = torch.where(greedy, source.argmax(dim=-1), ids)
    logprobs = torch.log_softmax(logits, dim=-1).gather(1, ids[:, None])[:, 0]
    return ids, logprobs


def _likeliest(weights: Any, count: Any) -> Any:
    """Return the weights with all but the `count` largest of each row at 0; 0 keeps all."""
    vocab = weights.shape[1]
    most = min(vocab, int(count.max()))
    largest = weights.topk(most, dim=-1).values
    place = count.clamp(1, most) - 1
    least = largest.gather(1, place[:, None]).masked_fill(count[:, None] == 0, 0.0)
    return weights.masked_fill(weights < least, 0.0)
