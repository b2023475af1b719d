"""The winners of the newest groups, for parts that look back."""

from proxy.rewards.model.assembly import Assembly
from proxy.rewards.part import Looked
from proxy.rewards.source import Abstention, Score


class Recent:
    """Word trigrams of winners by group, the newest last."""

    def __init__(self) -> None:
        self._grams: dict[str, frozenset[int]] = {}

    def besides(self, group_id: str) -> list[frozenset[int]]:
        """Those of all other groups: what is scored again must not resemble itself."""
        return [one for group, one in self._grams.items() if group != group_id]

    def keep(
        self, assembly: Assembly, looked: Looked, found: tuple[Score, ...] | Abstention
    ) -> None:
        """Note the winner of a group, where a part of the model looks back."""
        if assembly.looks_back and not isinstance(found, Abstention):
            best = max(range(len(found)), key=lambda place: (found[place].reward, -place))
            self._grams[looked.context.group_id] = looked.readings[best].grams
            while len(self._grams) > assembly.model.recent:
                del self._grams[next(iter(self._grams))]
