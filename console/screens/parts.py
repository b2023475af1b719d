"""Parts of a screen: each implements one job of the screen and owns its keys."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from textual.binding import Binding, BindingType

from console.models.app_host import AppHost
from console.screens.base import ConsoleScreen
from console.session.app_state import Session

Params = ParamSpec("Params")
AnyPart = TypeVar("AnyPart", bound="ScreenPart")


class ScreenPart:
    """One job of a screen.

    The methods `action_NAME` of a part become actions of the screen with `bind_actions`; `BINDINGS`
    are the keys for them. The class of the screen joins them to its own with `merge_bindings`.
    """

    BINDINGS: ClassVar[Sequence[BindingType]] = ()

    def __init__(self, screen: ConsoleScreen) -> None:
        self.screen = screen

    @property
    def host(self) -> AppHost:
        """The app of the screen."""
        return self.screen.host

    @property
    def session(self) -> Session:
        """The session of the screen."""
        return self.screen.session


def merge_bindings(*tables: Iterable[BindingType]) -> list[BindingType]:
    """Join tables of key bindings; a later table replaces the keys of an earlier one."""
    merged: dict[str, list[Binding]] = {}
    for table in tables:
        by_key: dict[str, list[Binding]] = {}
        for binding in Binding.make_bindings(table):
            by_key.setdefault(binding.key, []).append(binding)
        merged.update(by_key)
    return [binding for bindings in merged.values() for binding in bindings]


def bind_actions(screen: ConsoleScreen, *parts: ScreenPart) -> None:
    """Make the actions of the parts actions of the screen."""
    for part in parts:
        for name in dir(type(part)):
            if name.startswith("action_"):
                setattr(screen, name, getattr(part, name))


def in_background(
    group: str, *, exclusive: bool = False
) -> Callable[
    [Callable[Concatenate[AnyPart, Params], Coroutine[Any, Any, None]]],
    Callable[Concatenate[AnyPart, Params], None],
]:
    """Make a coroutine method of a part start as a worker of its screen when it is called.

    Args:
        group: The group of the worker.
        exclusive: Cancel the workers of the group that still run.
    """

    def decorate(
        method: Callable[Concatenate[AnyPart, Params], Coroutine[Any, Any, None]],
    ) -> Callable[Concatenate[AnyPart, Params], None]:
        @wraps(method)
        def start(part: AnyPart, /, *args: Params.args, **kwargs: Params.kwargs) -> None:
            part.screen.run_worker(
                method(part, *args, **kwargs),
                name=method.__name__,
                group=group,
                exclusive=exclusive,
                exit_on_error=False,
            )

        return start

    return decorate


class CommandSender:
    """Sends the commands of a screen in the background and reports their outcome."""

    def __init__(
        self,
        screen: ConsoleScreen,
        on_success: Callable[[str], None] | None = None,
        silent: frozenset[str] = frozenset(),
    ) -> None:
        """Create a sender for a screen.

        Args:
            screen: Runs the workers that await the outcomes.
            on_success: Receives the message of a command that succeeded; None shows it as a toast.
            silent: Commands whose success needs no report, because every screen shows it.
        """
        self._screen = screen
        self._on_success = on_success
        self._silent = silent

    def send(self, name: str, /, **args: Any) -> None:
        """Send a command; a refusal is shown as a toast."""
        if self._on_success is None and name not in self._silent:
            self._screen.host.run_command(name, **args)
            return
        self._screen.run_worker(
            self._send(name, **args), name=name, group="command", exit_on_error=False
        )

    async def _send(self, name: str, /, **args: Any) -> None:
        outcome = await self._screen.session.command(name, **args)
        if not outcome.ok:
            self._screen.host.say(outcome.message, "error")
        elif self._on_success is not None and self._screen.is_mounted:
            self._on_success(outcome.message)
