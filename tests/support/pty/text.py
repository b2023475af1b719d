"""Text in place of the standard input or output of a process at a terminal."""

import io


class TerminalText(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        """True, as of a terminal."""
        return True
