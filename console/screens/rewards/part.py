"""The values of one part of the reward in the newest groups; Enter opens a group."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ajet_swarm.common.text import one_line, plural
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.views.rewards.part import GroupOpinions, group_opinions, opinion_lines
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane


class RewardPartScreen(ConsoleScreen):
    """Groups with the value and the reason of one part for each answer."""

    area: ClassVar[str] = "Reward part"
    help_text: ClassVar[str] = (
        "Each block is a group: the value of this part for each answer, the answer's reward and "
        "the part's reason. ▲ is the winner. ◆ decided it: without this part another answer would "
        "have won, or several would have tied. Enter opens the group."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="rewards.part_leave"),
    ]

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="part-title")
        yield ItemList(id="part-groups")

    @property
    def target_group(self) -> str | None:
        return self.query_one(ItemList).cursor or None

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what is new, once a second at most."""
        if dirty.isdisjoint({"*", "clock"}):
            return
        opinions = group_opinions(self.session.state, self.part)
        name = one_line(self.part, 60)
        count = (
            f"  {plural(len(opinions), 'group')}, newest first" if opinions else "  in no group now"
        )
        title = ((" PART  ", "bold $heading"), (name, "bold"), (count, "$muted"))
        self.query_one("#part-title", TextPane).show_lines([title])
        self.query_one(ItemList).show_items(tuple(opinions), lambda width: _items(opinions, width))

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group."""
        event.stop()
        others = list(self.query_one(ItemList).keys)
        self.host.push_screen(GroupScreen(event.key, others))


def _items(opinions: list[GroupOpinions], width: int) -> Iterable[ListItem]:
    return (
        ListItem(opinion.group_id, tuple(opinion_lines(opinion, width))) for opinion in opinions
    )
