"""Which keys of a screen or of a part of it work now, and why the others do not.

A `KeyArea` is a container with keys of its own. A screen nests one for each job around its widgets:

    class Votes(KeyArea):
        BINDINGS = [Binding("t", "tie", "Tie", id="rate.tie")]

        def obstacle(self, action): ...     # why the key has no effect now
        def action_tie(self): ...
"""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from console.models.app_host import AppHost, host
from console.session.app_state import Session
from core.commands import COMMANDS


class ActionKeys:
    """Decides which keys of a screen or an area work now, and explains the others."""

    def __init__(
        self,
        node: Widget,
        writing: frozenset[str],
        obstacle: Callable[[str], str | None],
        explain: Callable[[str, str], None] | None = None,
    ) -> None:
        """Create the rules of a node.

        Args:
            node: The screen or area with the bindings.
            writing: Actions that a read-only console does not offer.
            obstacle: Returns why an action is unavailable now; None when it is available, empty
                when there is nothing to explain.
            explain: Receives a key and why it does nothing now; shown as a toast when left out.
        """
        self._node = node
        self._writing = writing
        self._obstacle = obstacle
        self._explain = explain
        bindings = (known for keys in node._bindings.key_to_bindings.values() for known in keys)
        self._ids = {known.action.partition("(")[0]: known.id or "" for known in bindings}
        """Action -> id of its key; the id of a command is its name."""
        self._available: frozenset[str] = frozenset()
        """Actions that were available at the last refresh."""

    def allows(self, action: str) -> bool:
        """Return whether the key of an action works now."""
        if action in self._writing and host(self._node).session.read_only:
            return False
        return not self._is_refused(action) and self._obstacle(action) is None

    def _is_refused(self, action: str) -> bool:
        """Return whether the role of this console does not suffice for an action's command."""
        command = COMMANDS.get(self._ids.get(action, ""))
        identity = host(self._node).session.identity
        return command is not None and not identity.permits(command.role)

    def refresh(self) -> None:
        """Rebuild the footer when other keys work than at the last refresh."""
        available = frozenset(name for name in self._ids if self._node.check_action(name, ()))
        if available != self._available:
            self._available = available
            self._node.screen.refresh_bindings()

    def explain(self, event: events.Key) -> None:
        """Show why the key that was pressed does nothing now."""
        if host(self._node).session.read_only:
            return
        for node, bindings in self._node.screen._binding_chain:
            if node is not self._node:
                continue
            for binding in bindings.key_to_bindings.get(event.key, ()):
                action = binding.action.partition("(")[0]
                why = self._obstacle(action)
                if self._is_refused(action):
                    why = "Your token does not permit this; an operator may do it"
                if why and self._explain is not None:
                    self._explain(event.key, why)
                elif why:
                    host(self._node).say(why, "warning")


class KeyArea(Vertical):
    """A part of a screen with keys of its own: `BINDINGS` and the methods `action_NAME`.

    Its keys work while it, or a widget in it, has the focus; those of the areas around it and of
    the screen come after them.
    """

    DEFAULT_CSS = "KeyArea { width: 1fr; height: 1fr; }"
    WRITING: ClassVar[frozenset[str]] = frozenset()
    """Actions that a read-only console does not offer."""

    class Changed(Message):
        """A key has changed what the screen shows."""

    def __init__(self, *, focusable: bool = False) -> None:
        """`focusable` is for the innermost area of a screen without a list."""
        super().__init__()
        self.can_focus = focusable
        self.keys = ActionKeys(self, self.WRITING, self.obstacle, self.explain)

    @property
    def host(self) -> AppHost:
        """The app, typed."""
        return host(self)

    @property
    def session(self) -> Session:
        """The state and commands of this console."""
        return self.host.session

    def changed(self) -> None:
        """Have the screen painted, after what the key has started."""
        self.post_message(self.Changed())

    def obstacle(self, action: str) -> str | None:
        """Return why an action is unavailable now: None if it is available, "" if not explained."""
        return None

    def explain(self, key: str, why: str) -> None:
        """Show why a key does nothing now."""
        self.host.say(why, "warning")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        return self.keys.allows(action)

    def on_key(self, event: events.Key) -> None:
        """Explain a key that has no effect now."""
        self.keys.explain(event)
