"""Tokens screen: the token log of one candidate."""

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from console.screens.tokens.text import head_line, refusal_lines, title_line, token_lines
from console.ui.keys import keys
from console.widgets.pane import TextPane
from console.widgets.scrolled_pane import ScrolledPane
from core.control_payloads import EpisodeTokens
from core.state import Candidate, Group


class TokensScreen(ConsoleScreen):
    """Shows the tokens of an episode; read once, again on request."""

    area: ClassVar[str] = "Tokens"
    help_text: ClassVar[str] = (
        "Each token of the candidate's episode. loss 1: trained on; 0: context only. sampled: its "
        "log-prob when it was sampled, now: by the current policy, diff: now minus sampled, "
        "positive for a token that became likelier. On a wide screen also both probabilities and "
        "their ratio, which training clips. Tokens of the prompt are folded. Only the embedded "
        "engine has a token log, for its newest episodes."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ScrolledPane"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("left,h", "step(-1)", "Candidate"),
        ("right,l,tab", "step(1)", "Candidate", "tokens.next", "Of another candidate", "← →"),
        ("z", "fold", "Unfold", "tokens.fold", "Context tokens"),
        ("r", "read", "Read again", "tokens.read", "Log-probs by the current policy"),
        ("escape", "dismiss", "Back", "tokens.leave"),
    )

    def __init__(self, group_id: str, candidate: int) -> None:
        super().__init__()
        self._group_id = group_id
        self._candidate_index = candidate
        self._unfolded = False
        self._tokens: EpisodeTokens | None = None
        self._message: tuple[str, str] = ("Reading the token log…", "")

    def compose_body(self) -> ComposeResult:
        yield TextPane(id="tokens-title")
        yield ScrolledPane(id="tokens-rows")

    def on_mount(self) -> None:
        """Read the log."""
        self.action_read()

    @property
    def target_group(self) -> str | None:
        return self._group_id

    @property
    def group(self) -> Group | None:
        """The group; None when it is no longer in memory."""
        return self.session.state.groups.get(self._group_id)

    @property
    def candidate(self) -> Candidate | None:
        """The candidate; None when it is no longer in memory."""
        candidates = self.group.candidates if self.group is not None else []
        here = 0 <= self._candidate_index < len(candidates)
        return candidates[self._candidate_index] if here else None

    def action_read(self) -> None:
        """Read the log, with log-probs by the current policy."""
        candidate, group = self.candidate, self.group
        self._tokens = None
        self._message = ("Reading the token log…", "")
        if candidate is None or group is None:
            self._message = ("This group is no longer in memory", "")
        elif not candidate.episode_uuid:
            self._message = ("This candidate has no episode: there is nothing to show", "")
        else:
            self._fetch(candidate.episode_uuid, group.server)
        self._paint()

    @work(group="tokens", exclusive=True, exit_on_error=False)
    async def _fetch(self, episode_uuid: str, server: str) -> None:
        try:
            self._tokens = await self.session.proxy.tokens(episode_uuid, server)
        except AjetError as error:
            self._message = (f"There are no tokens to show: {error.what}", error.todo)
        if self.is_mounted:
            self._paint()

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint on the first show and for another size only."""
        if "*" in dirty:
            self._paint()

    def _paint(self) -> None:
        group, index, tokens = self.group, self._candidate_index, self._tokens
        unfolded, message = self._unfolded, self._message
        episode = self.candidate.episode_uuid if self.candidate is not None else ""
        self.query_one("#tokens-title", TextPane).show(
            (self._group_id, index, episode, id(tokens)),
            lambda width: [title_line(group, index, tokens, width)],
        )
        rows = self.query_one("#tokens-rows", TextPane)
        rows.show_head(tokens is None, lambda width: head_line(width) if tokens is not None else ())
        if tokens is None:
            rows.show(message, lambda width: refusal_lines(*message, width))
        else:
            rows.show((tokens, unfolded), lambda width: token_lines(tokens, width, unfolded))

    def action_step(self, by: int) -> None:
        """Show the tokens of another candidate."""
        group = self.group
        if group is not None and group.candidates:
            self._candidate_index = (self._candidate_index + by) % len(group.candidates)
            self.query_one("#tokens-rows", TextPane).scroll_home(animate=False)
            self.action_read()

    def action_fold(self) -> None:
        """Unfold the context tokens, or fold them again."""
        self._unfolded = not self._unfolded
        self._paint()
