"""Removes characters that could move the cursor or hide text from each painted line."""

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ajet_swarm.common.text import HARMFUL


class OutputSanitizer(LineFilter):
    """Line filter that replaces harmful characters, after the screens have done so themselves.

    For text typed or pasted into an input field, this filter is the only protection.

    Attributes:
        caught: Number of segments that had to be changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caught = 0

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with harmful characters replaced, at the same width."""
        if not any(HARMFUL.search(segment.text) for segment in segments):
            return segments
        result = []
        for text, style, control in segments:
            if control or not HARMFUL.search(text):
                result.append(Segment(text, style, control))
                continue
            self.caught += 1
            safe_text = HARMFUL.sub(lambda match: _placeholder(match[0]), text)
            result.append(Segment(safe_text, style))
        return result


def _placeholder(character: str) -> str:
    """Return a replacement with the width of the character, so that the line keeps its width."""
    return "\N{MIDDLE DOT}" * max(0, get_character_cell_size(character))
