"""The last look at a painted line: what could move the cursor or hide text is taken out."""

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ajet_swarm.common.text import HARMFUL


class OutputSanitizer(LineFilter):
    """Screens make text from outside visible themselves; this stands behind them all.

    What is typed or pasted into a line of text comes through here alone.

    Attributes:
        caught: Segments that had to be changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caught = 0

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same cells, without anything that is no cell."""
        if not any(HARMFUL.search(segment.text) for segment in segments):
            return segments
        found = []
        for text, style, control in segments:
            if control or not HARMFUL.search(text):
                found.append(Segment(text, style, control))
                continue
            self.caught += 1
            found.append(Segment(HARMFUL.sub(lambda one: _blank(one[0]), text), style))
        return found


def _blank(one: str) -> str:
    """As many cells as the character is counted for, so that the line keeps its width."""
    return "\N{MIDDLE DOT}" * max(0, get_character_cell_size(one))
