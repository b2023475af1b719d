"""How a benchmark says what it found."""

import sys


class Verdicts:
    """Collects figures against their bars."""

    def __init__(self) -> None:
        self._failed = False
        self._lines: list[str] = []

    def at_most(self, name: str, figure: float, bar: float, unit: str) -> None:
        """The figure must not be above the bar."""
        self._add(name, figure <= bar, f"{figure:.2f} {unit}", f"<= {bar:g} {unit}")

    def at_least(self, name: str, figure: float, bar: float, unit: str) -> None:
        """The figure must not be below the bar."""
        self._add(name, figure >= bar, f"{figure:.2f} {unit}", f">= {bar:g} {unit}")

    def info(self, name: str, figure: float, unit: str) -> None:
        """A figure without a bar."""
        self._lines.append(f"INFO {name} {figure:.2f} {unit}")

    def skip(self, name: str, why: str, bar: str) -> None:
        """The figure could not be taken here; neither good nor bad."""
        self._lines.append(f"SKIP {name} {why} {bar}")

    def _add(self, name: str, good: bool, figure: str, bar: str) -> None:
        self._failed |= not good
        self._lines.append(f"{'PASS' if good else 'FAIL'} {name} {figure} {bar}")

    def close(self) -> None:
        """Print all lines and exit."""
        print("\n".join(self._lines))
        sys.exit(1 if self._failed else 0)
