"""Blind pairs: an answer of the baseline beside one of a later measurement, for a human rater.

What the estimates need, and how the draw keeps it:

- A pair is drawn uniformly from all pairs of an earlier and a current sample that answer the same
  prompt, whatever their scores; its sides are drawn too. No pair is drawn twice.
- Pairs of two identical texts are left out, of the ratings and of the automatic win rate alike. A
  tie without a rater would count as a rating and make the interval narrower than human judgement
  does. So all estimates are about the pairs that differ; their number is in `PairCounts`.
- All pairs that count together are of one measurement: each has another policy, so ratings of
  several would have no common mean. It stays the same while later ones are taken, until a rater
  asks for the newest one or a new baseline is taken; then the counts begin again.
- A rater has one open pair. It stays open until a vote or a skip, so nobody can choose among pairs.
  A skipped pair is not drawn again; the number of skips is shown beside the estimates.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from core.commands.spec import NotNow
from core.events import LookEnded, PairCounts, PairRated
from core.events.progress import PairChoice, PairSide
from core.state import Progress
from core.state.progress import PAIR_CAP
from core.verdict.pairs import LOSS, TIE, WIN, pair_sentence, result_of
from proxy.context import ProxyContext
from proxy.evaluation.measurement import Measurement, SampleArchive
from proxy.evaluation.scoring import ScoredSample

OPEN_CAP = 64
"""Maximum number of raters with an open pair; beyond it the oldest pair is closed."""
_NEWEST = "Ask for a pair of the newest look"
_WORDS = {
    WIN: ("now", "the current answer is better"),
    LOSS: ("before", "the answer of before is better"),
    TIE: ("tie", "neither is better"),
    None: ("skip", "skipped"),
}

Place = tuple[str, int, int]
"""Prompt id, place of the answer in the baseline, place in the later measurement."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two different answers to a prompt."""

    place: Place
    prompt: str
    left: PairSide
    before: ScoredSample
    now: ScoredSample

    def shown(self) -> dict[str, str]:
        """Return what a rater may see; nothing in it depends on which answer is on which side."""
        sides = (self.before.text, self.now.text)
        left, right = sides if self.left == "before" else sides[::-1]
        return {"prompt": self.prompt, "left": left, "right": right}

    @property
    def automatic(self) -> float | None:
        """The result by the rewards of the answers; None without rewards."""
        if self.before.reward is None or self.now.reward is None:
            return None
        return result_of(self.before.reward, self.now.reward)

    @property
    def by_part(self) -> dict[str, float]:
        """The result by each part of the reward that applies to both answers."""
        before, now = self.before.parts, self.now.parts
        return {name: result_of(before[name], now[name]) for name in before if name in now}


class PairPool:
    """All pairs of a baseline and a later measurement that differ.

    Args:
        before: The samples of the baseline.
        now: The samples of the later measurement.
    """

    def __init__(self, before: Measurement, now: Measurement) -> None:
        self.compared = before.look_id, now.look_id
        self._before = {prompt.id: prompt.samples for prompt in before.prompts}
        self._now = now.prompts
        results = Counter(pair.automatic for pair in self._pairs())
        every = sum(
            len(prompt.samples) * len(self._before.get(prompt.id, ())) for prompt in self._now
        )
        self.counts = PairCounts(
            now=results[WIN],
            tie=results[TIE],
            before=results[LOSS],
            unscored=results[None],
            same=every - results.total(),
        )

    def draw(self, random: Random, taken: Collection[Place]) -> Pair | None:
        """Return a pair that is not in `taken`, each with the same probability; None if there is
        no further one."""
        excluded = frozenset(taken)
        left = [pair for pair in self._pairs() if pair.place not in excluded]
        if not left:
            return None
        pair = random.choice(left)
        side: PairSide = "before" if random.random() < 0.5 else "now"
        return Pair(pair.place, pair.prompt, side, pair.before, pair.now)

    def _pairs(self) -> Iterator[Pair]:
        for prompt in self._now:
            for first, before in enumerate(self._before.get(prompt.id, ())):
                for second, now in enumerate(prompt.samples):
                    if before.text.strip() != now.text.strip():
                        place = (prompt.id, first, second)
                        yield Pair(place, prompt.prompt, "before", before, now)


class PairRating:
    """The blind pairs of one server and their votes; see the module for the rules of the draw.

    Args:
        context: The shared parts of the proxy.
        server: Name of the server.
        archive: The stored samples.
        random: Source of the draws; by default that of the context.
    """

    def __init__(
        self,
        context: ProxyContext,
        server: str,
        archive: SampleArchive,
        random: Random | None = None,
    ) -> None:
        self._context = context
        self._server = server
        self._archive = archive
        self._random = random or context.runtime.chance.random
        self._lock = asyncio.Lock()
        self._open: dict[str, tuple[str, Pair]] = {}
        """By rater: id and pair."""
        self._pool: PairPool | None = None
        self._requested = ""
        """Id of the measurement that a rater asked for."""

    async def pair(self, rater: str = "", newest: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the open pair of a rater, a new one if there is none: message and data.

        Args:
            rater: Name of the rater.
            newest: Compare the newest look from now on, even if an earlier one has ratings.

        Raises:
            NotNow: There are no two looks, their samples cannot be read, or all pairs are rated.
        """
        async with self._lock:
            baseline, look = self._compared(newest)
            pool = await self._pool_for(baseline, look)
            ratings, current = self._progress.pair_ratings, self._progress.current
            rated = ratings.pairs if ratings is not None and ratings.look_id == look.look_id else []
            if rater not in self._open:
                await self._open_pair(pool, rater, rated)
            pair_id, pair = self._open[rater]
        return f"pair {pair_id} of {self._server}: vote left, right, tie or skip", {
            "pair_id": pair_id,
            **pair.shown(),
            "server": self._server,
            "baseline_step": baseline.step,
            "step": look.step,
            "newest_step": current.step if current is not None else None,
            "ratings": sum(known.result is not None for known in rated),
            "different": pool.counts.different,
            "same": pool.counts.same,
        }

    async def vote(self, pair_id: str, choice: str, rater: str = "") -> tuple[str, dict[str, Any]]:
        """Record a vote; it is on the disk before this returns. Return message and data.

        The same vote on the same pair again changes nothing, and has the same answer.

        Raises:
            NotNow: The pair is not open, it was rated otherwise, or the journal cannot be written.
            JournalError: Writing has just failed; the vote counts while the proxy runs.
        """
        kind = msgspec.convert(choice, PairChoice)
        journal = self._context.journal
        if journal.error:
            raise NotNow(
                f"nothing is changed: the journal cannot be written: {journal.error}",
                todo="Vote again once the journal can be written; see the alert",
            )
        known = self._known(pair_id)
        if known is None:
            self._publish(pair_id, kind, rater)
            known = self._known(pair_id)
            assert known is not None
        elif known.result != _result(kind, known.left):
            raise NotNow(f"pair {pair_id} is rated already", todo="Ask for another one")
        await journal.durable(self._context.bus.state.seq)
        return await self._answer(known)

    @property
    def _progress(self) -> Progress:
        return self._context.bus.state.progress.get(self._server) or Progress()

    def _compared(self, newest: bool) -> tuple[LookEnded, LookEnded]:
        """Return the baseline and the measurement to compare it with."""
        progress = self._progress
        baseline, look = progress.baseline, progress.current
        if baseline is None or look is None:
            raise NotNow(
                "there are no two looks to compare",
                self._server,
                "Pairs need a baseline and a complete look after it; `progress.look` takes one",
            )
        if newest:
            self._requested = look.look_id
        ratings = progress.pair_ratings
        held = self._requested or (ratings.look_id if ratings is not None else "")
        for earlier in progress.looks:
            if (earlier.look_id, earlier.baseline_id) == (held, baseline.look_id):
                return baseline, earlier if earlier.complete else look
        return baseline, look

    async def _pool_for(self, baseline: LookEnded, look: LookEnded) -> PairPool:
        if self._pool is None or self._pool.compared != (baseline.look_id, look.look_id):
            before = await self._samples(
                baseline, "baseline", "Take a new baseline and a look after it"
            )
            now = await self._samples(look, f"look at step {look.step}", _NEWEST)
            self._pool = await asyncio.to_thread(PairPool, before, now)
            self._open.clear()
        return self._pool

    async def _samples(self, look: LookEnded, what: str, todo: str) -> Measurement:
        samples = await asyncio.to_thread(self._archive.read, look.file)
        if samples is None:
            raise NotNow(f"the samples of the {what} cannot be read", self._server, todo)
        return samples

    async def _open_pair(self, pool: PairPool, rater: str, rated: Sequence[PairRated]) -> None:
        if len(rated) >= PAIR_CAP:
            raise NotNow(f"{PAIR_CAP} pairs of this look are rated", self._server, _NEWEST)
        taken = [known.place for known in rated] + [pair.place for _, pair in self._open.values()]
        drawn = await asyncio.to_thread(pool.draw, self._random, taken)
        if drawn is None:
            all_same = not pool.counts.different
            raise NotNow(
                "both looks have the same answers" if all_same else "all pairs are rated or open",
                self._server,
                f"{_NEWEST} after the next update",
            )
        while len(self._open) >= OPEN_CAP:
            del self._open[next(iter(self._open))]
        self._open[rater] = self._context.runtime.chance.token(6), drawn

    def _known(self, pair_id: str) -> PairRated | None:
        ratings = self._progress.pair_ratings
        rated = ratings.pairs if ratings is not None else ()
        return next((known for known in rated if known.pair_id == pair_id), None)

    def _publish(self, pair_id: str, choice: PairChoice, rater: str) -> None:
        """Publish the vote on an open pair.

        Raises:
            NotNow: No such pair is open, or its baseline was replaced.
        """
        owner = next((name for name, (known, _) in self._open.items() if known == pair_id), None)
        pool, baseline = self._pool, self._progress.baseline
        compared_with = baseline.look_id if baseline is not None else ""
        if owner is None or pool is None or baseline is None or pool.compared[0] != compared_with:
            todo = "Ask for another with `progress.pair`"
            raise NotNow(f"pair {pair_id} is not open", self._server, todo)
        baseline_id, look_id = pool.compared
        look = next((look for look in self._progress.looks if look.look_id == look_id), None)
        _, pair = self._open[owner]
        prompt_id, before, now = pair.place
        self._context.bus.publish(
            PairRated(
                server=self._server,
                pair_id=pair_id,
                baseline_id=baseline_id,
                look_id=look_id,
                baseline_step=baseline.step,
                step=look.step if look is not None else None,
                rater=rater or owner,
                prompt_id=prompt_id,
                before=before,
                now=now,
                left=pair.left,
                choice=choice,
                result=_result(choice, pair.left),
                automatic=pair.automatic,
                parts=pair.by_part,
                counts=pool.counts,
            )
        )
        del self._open[owner]

    async def _answer(self, known: PairRated) -> tuple[str, dict[str, Any]]:
        """Return which answer was which, and the estimates with this vote."""
        ratings = self._progress.pair_ratings
        assert ratings is not None
        figures = await asyncio.to_thread(lambda: ratings.figures)
        result, text = _WORDS[known.result]
        sentence = pair_sentence(figures) if figures is not None else "no ratings yet"
        return f"{text}; {sentence}", {
            "left": known.left,
            "right": "now" if known.left == "before" else "before",
            "result": result,
            "automatic": known.automatic,
            "baseline_step": ratings.baseline_step,
            "step": ratings.step,
            "ratings": figures.ratings if figures is not None else 0,
            "skipped": ratings.skipped,
            "sentence": sentence,
            "figures": msgspec.to_builtins(figures),
        }


def _result(choice: PairChoice, left: PairSide) -> float | None:
    """Return the result of a choice for the current answer."""
    if choice in ("skip", "tie"):
        return None if choice == "skip" else TIE
    return WIN if (choice == "left") == (left == "now") else LOSS
