"""Blind pairs: an answer of the baseline beside one of a look, drawn at random for a human rater.

What the estimates need, and how the draw keeps it:

- A pair is drawn uniformly from all pairs of one sample of the baseline and one of the look that
  answer the same prompt, whatever their scores; its sides are drawn too. No pair is drawn twice.
- Pairs of two identical texts are left out, of the ratings and of the automatic win rate alike. A
  tie without a rater would count as a rating and make the interval narrower than human judgement
  does. So all estimates are about the pairs that differ; their number is in `PairCounts`.
- All pairs that count together are of one look. Each look has another policy, so ratings of several
  looks would have no common mean. The look stays the same while later looks are taken, until a
  rater asks for the newest one or a new baseline is taken; then the counts begin again.
- A rater has one open pair. It stays open until a vote or a skip, so nobody can choose among pairs.
  A skipped pair is not drawn again; the number of skips is shown beside the estimates.
"""

import asyncio
import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

import msgspec

from core.commands.refusal import NotNow
from core.events import PairCounts, PairRated
from core.events.progress import PairChoice, PairSide
from core.state import PAIR_CAP, Look, PairRatings, Progress, RatedPair
from core.verdict.pairs import LOSS, TIE, WIN, pair_sentence, result_of
from proxy.context import ProxyContext
from proxy.evaluation.archive import LookArchive, StoredLook, StoredPrompt
from proxy.evaluation.scoring import ScoredSample

OPEN_CAP = 64
"""Maximum number of raters with an open pair; beyond it the oldest pair is closed."""
_TRIES = 200
"""Draws that may hit an excluded pair before the remaining ones are listed."""

Place = tuple[str, int, int]
"""Prompt id, place of the answer in the baseline, place in the look."""


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A pair that a rater sees."""

    pair_id: str
    rater: str
    place: Place
    prompt: str
    left: PairSide
    before: ScoredSample
    now: ScoredSample

    def shown(self) -> dict[str, str]:
        """Return what a rater may see; nothing in it depends on which answer is on which side."""
        sides = (self.before.text, self.now.text)
        left, right = sides if self.left == "before" else sides[::-1]
        return {"pair_id": self.pair_id, "prompt": self.prompt, "left": left, "right": right}


class PairPool:
    """All pairs of a baseline and a look.

    Args:
        before: The samples of the baseline.
        now: The samples of the look.
    """

    def __init__(self, before: StoredLook, now: StoredLook) -> None:
        earlier = {one.id: one for one in before.prompts}
        self._prompts: list[tuple[StoredPrompt, StoredPrompt]] = [
            (earlier[one.id], one) for one in now.prompts if one.id in earlier
        ]
        self._ends = list(accumulate(len(a.samples) * len(b.samples) for a, b in self._prompts))
        self.counts = self._count()

    def draw(self, random: Random, taken: Iterable[Place]) -> tuple[Place, OpenPair] | None:
        """Return a pair of different texts that is not in `taken`, and its contents.

        Each has the same probability. None if there is no further one.
        """
        excluded = frozenset(taken)
        total = self._ends[-1] if self._ends else 0
        for _ in range(_TRIES if total else 0):
            if (one := self._allowed(random.randrange(total), excluded)) is not None:
                return one.place, self._with_sides(one, random)
        remaining = [at for at in range(total) if self._allowed(at, excluded) is not None]
        if not remaining:
            return None
        one = self._allowed(random.choice(remaining), excluded)
        assert one is not None
        return one.place, self._with_sides(one, random)

    @staticmethod
    def _with_sides(one: OpenPair, random: Random) -> OpenPair:
        side: PairSide = "before" if random.random() < 0.5 else "now"
        return OpenPair(one.pair_id, one.rater, one.place, one.prompt, side, one.before, one.now)

    def _allowed(self, at: int, excluded: frozenset[Place]) -> OpenPair | None:
        """Return pair number `at`; None if its texts are identical or it is excluded."""
        index = bisect.bisect_right(self._ends, at)
        old, new = self._prompts[index]
        offset = at - (self._ends[index - 1] if index else 0)
        first, second = divmod(offset, len(new.samples))
        before, now = old.samples[first], new.samples[second]
        place = (new.id, first, second)
        if place in excluded or same_text(before, now):
            return None
        return OpenPair("", "", place, new.prompt, "before", before, now)

    def _count(self) -> PairCounts:
        counts = {LOSS: 0, TIE: 0, WIN: 0}
        same = unscored = 0
        for old, new in self._prompts:
            for before in old.samples:
                for now in new.samples:
                    if same_text(before, now):
                        same += 1
                    elif (result := automatic_result(before, now)) is None:
                        unscored += 1
                    else:
                        counts[result] += 1
        return PairCounts(
            now=counts[WIN], tie=counts[TIE], before=counts[LOSS], unscored=unscored, same=same
        )


def same_text(before: ScoredSample, now: ScoredSample) -> bool:
    """Return whether two answers are equal apart from space around them."""
    return before.text.strip() == now.text.strip()


def automatic_result(before: ScoredSample, now: ScoredSample) -> float | None:
    """Return the result of a pair by the rewards of its answers; None without rewards."""
    if before.reward is None or now.reward is None:
        return None
    return result_of(before.reward, now.reward)


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
        archive: LookArchive,
        random: Random | None = None,
    ) -> None:
        self._context = context
        self._server = server
        self._archive = archive
        self._random = random or context.runtime.chance.random
        self._lock = asyncio.Lock()
        self._open: dict[str, OpenPair] = {}
        """By rater."""
        self._pool: PairPool | None = None
        self._pool_of: tuple[str, str] = ("", "")
        """Ids of the baseline and the look of the pool."""
        self._requested = ""
        """Id of the look that a rater asked for."""

    async def pair(self, rater: str, newest: bool = False) -> tuple[str, dict[str, Any]]:
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
            ratings = self._ratings(look)
            pairs = ratings.pairs if ratings is not None else []
            one = self._open.get(rater)
            if one is None:
                one = await self._drawn(pool, rater, pairs)
            shown: dict[str, Any] = {
                **one.shown(),
                "server": self._server,
                "baseline_step": baseline.step,
                "step": look.step,
                "newest_step": self._progress.current.step if self._progress.current else None,
                "ratings": sum(known.result is not None for known in pairs),
                "different": pool.counts.different,
                "same": pool.counts.same,
            }
        return f"pair {one.pair_id} of {self._server}: vote left, right, tie or skip", shown

    async def vote(self, pair_id: str, choice: str, rater: str) -> tuple[str, dict[str, Any]]:
        """Record a vote; it is committed before this returns. Return message and data.

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
        await journal.committed(self._context.bus.state.seq)
        return await self._answer(known)

    # --- drawing --------------------------------------------------------------------------------

    @property
    def _progress(self) -> Progress:
        return self._context.bus.state.progress.get(self._server) or Progress()

    def _ratings(self, look: Look) -> PairRatings | None:
        """Return the ratings of a look against the baseline in use."""
        ratings = self._progress.pair_ratings
        return ratings if ratings is not None and ratings.look_id == look.look_id else None

    def _compared(self, newest: bool) -> tuple[Look, Look]:
        """Return the baseline and the look to compare it with."""
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
        for one in progress.looks:
            if one.look_id == held and one.complete and one.baseline_id == baseline.look_id:
                return baseline, one
        return baseline, look

    async def _pool_for(self, baseline: Look, look: Look) -> PairPool:
        compared = baseline.look_id, look.look_id
        if self._pool is None or self._pool_of != compared:
            before = await asyncio.to_thread(self._archive.read, baseline.file)
            now = await asyncio.to_thread(self._archive.read, look.file)
            if before is None or now is None:
                which = "baseline" if before is None else f"look at step {look.step}"
                raise NotNow(
                    f"the samples of the {which} cannot be read",
                    self._server,
                    "Take a new baseline and a look after it"
                    if before is None
                    else "Ask for a pair of the newest look",
                )
            self._pool = await asyncio.to_thread(PairPool, before, now)
            self._pool_of = compared
            self._open.clear()
        return self._pool

    async def _drawn(self, pool: PairPool, rater: str, pairs: list[RatedPair]) -> OpenPair:
        if len(pairs) >= PAIR_CAP:
            raise NotNow(
                f"{PAIR_CAP} pairs of this look are rated",
                self._server,
                "Ask for a pair of the newest look",
            )
        taken = [one.place for one in pairs] + [one.place for one in self._open.values()]
        drawn = await asyncio.to_thread(pool.draw, self._random, taken)
        if drawn is None:
            all_same = not pool.counts.different
            raise NotNow(
                "both looks have the same answers" if all_same else "all pairs are rated or open",
                self._server,
                "Ask for a pair of the newest look after the next update",
            )
        place, one = drawn
        opened = OpenPair(
            self._context.runtime.chance.token(6),
            rater,
            place,
            one.prompt,
            one.left,
            one.before,
            one.now,
        )
        while len(self._open) >= OPEN_CAP:
            del self._open[next(iter(self._open))]
        self._open[rater] = opened
        return opened

    # --- voting ---------------------------------------------------------------------------------

    def _known(self, pair_id: str) -> RatedPair | None:
        ratings = self._progress.pair_ratings
        pairs = ratings.pairs if ratings is not None else ()
        return next((one for one in pairs if one.pair_id == pair_id), None)

    def _publish(self, pair_id: str, choice: PairChoice, rater: str) -> None:
        """Publish the vote on an open pair.

        Raises:
            NotNow: No such pair is open, or its baseline was replaced.
        """
        one = next((pair for pair in self._open.values() if pair.pair_id == pair_id), None)
        baseline = self._progress.baseline
        pool_id, look_id = self._pool_of
        if one is None or self._pool is None or baseline is None or baseline.look_id != pool_id:
            raise NotNow(
                f"pair {pair_id} is not open", self._server, "Ask for another with `progress.pair`"
            )
        look = next((look for look in self._progress.looks if look.look_id == look_id), None)
        prompt_id, before, now = one.place
        shared = [part for part in one.before.parts if part in one.now.parts]
        self._context.bus.publish(
            PairRated(
                server=self._server,
                pair_id=pair_id,
                baseline_id=pool_id,
                look_id=look_id,
                baseline_step=baseline.step,
                step=look.step if look is not None else None,
                rater=rater or one.rater,
                prompt_id=prompt_id,
                before=before,
                now=now,
                left=one.left,
                choice=choice,
                result=_result(choice, one.left),
                automatic=automatic_result(one.before, one.now),
                parts={name: result_of(one.before.parts[name], one.now.parts[name])
                       for name in shared},
                counts=self._pool.counts,
            )
        )  # fmt: skip
        del self._open[one.rater]

    async def _answer(self, known: RatedPair) -> tuple[str, dict[str, Any]]:
        """Return which answer was which, and the estimates with this vote."""
        ratings = self._progress.pair_ratings
        assert ratings is not None
        figures = await asyncio.to_thread(lambda: ratings.figures)
        result = {WIN: "now", LOSS: "before", TIE: "tie", None: "skip"}[known.result]
        text = {
            "now": "the answer of now is better",
            "before": "the answer of before is better",
            "tie": "neither is better",
            "skip": "skipped",
        }[result]
        sides: Mapping[str, str] = {
            "left": known.left,
            "right": "now" if known.left == "before" else "before",
        }
        sentence = pair_sentence(figures) if figures is not None else "no ratings yet"
        return f"{text}; {sentence}", {
            **sides,
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
    """Return the result of a choice for the answer of now."""
    if choice == "skip":
        return None
    if choice == "tie":
        return TIE
    chose_left = choice == "left"
    return WIN if chose_left == (left == "now") else LOSS
