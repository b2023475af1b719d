"""Output of a benchmark: figures compared with their bars."""

import sys


class Verdicts:
    """Collector of figures and their bars."""

    def __init__(self) -> None:
        self._failed = False
        self._lines: list[str] = []

    def at_most(self, name: str, figure: float, bar: float, unit: str) -> None:
        """Require that the figure is at most the bar."""
        self._add(name, figure <= bar, f"{figure:.2f} {unit}", f"<= {bar:g} {unit}")

    def at_least(self, name: str, figure: float, bar: float, unit: str) -> None:
        """Require that the figure is at least the bar."""
        self._add(name, figure >= bar, f"{figure:.2f} {unit}", f">= {bar:g} {unit}")

    def info(self, name: str, figure: float, unit: str) -> None:
        """Record a figure without a bar."""
        self._lines.append(f"INFO {name} {figure:.2f} {unit}")

    def skip(self, name: str, why: str, bar: str) -> None:
        """Record a figure that cannot be measured here."""
        self._lines.append(f"SKIP {name} {why} {bar}")

    def _add(self, name: str, good: bool, figure: str, bar: str) -> None:
        self._failed |= not good
        self._lines.append(f"{'PASS' if good else 'FAIL'} {name} {figure} {bar}")

    def close(self) -> None:
        """Print all lines and exit."""
        print("\n".join(self._lines))
        sys.exit(1 if self._failed else 0)
