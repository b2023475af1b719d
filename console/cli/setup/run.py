"""One run of the setup: the answers, the files, what to paste, one request."""

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.clients import lines
from console.cli.common import cert_of, confirm, say, say_json, settings_of
from console.cli.effective import client_key
from console.cli.output import output
from console.cli.restart import proxy_loss
from console.cli.setup import config, servers, trial
from console.cli.setup.catalog import BY_ID, asked, first_query, present_answers
from console.cli.setup.dialog import Dialog, Run, confirmed, say_notes
from console.cli.setup.question import AnswerRefused, Checked, Situation, checked_answer
from console.clients.catalog import find
from console.clients.installed import AGENTS
from console.clients.snippets import ANY_KEY, DEFAULT_CONTEXT, DEFAULT_MODEL, OWN_KEY, fill
from console.clients.window import AGENT_PROMPT, SMALL, window_of
from core.runtime.home import Home, running
from core.runtime.sockets import public_url
from core.settings import PREFIX, Settings, load

NOT_OF_PROXY = frozenset({"application", "dataset", "model"})
"""Questions whose answers the proxy does not use, or reads when it needs them."""
QUERY = "Why is the sky blue?"
"""The request of a home without a dataset."""


class Setup:
    """One run of the command.

    Args:
        args: The parsed command line.
        home: The home; it is created when the first file is written.
        run: Runs a coroutine to its end.
        asks: Whether an operator can be asked.

    Attributes:
        written: Whether the answers were written.
    """

    def __init__(self, args: argparse.Namespace, home: Home, run: Run[Any], asks: bool) -> None:
        self._args = args
        self._run = run
        self._asks = asks
        self._trial: trial.Trial | None = None
        self._result: trial.Result | None = None
        self._failure: AjetError | None = None
        self.situation = Situation(
            home,
            load(home.config, environment={}),
            home.config.exists(),
            Path.cwd(),
            live=not args.no_check,
        )
        self.written = False

    def run(self, given: Mapping[str, str]) -> int:
        """Take or ask the answers, write them, send the request; return the exit code.

        Args:
            given: Answers of the command line, by the id of their question.

        Raises:
            UsageError: an answer is refused, or missing where nobody can be asked.
        """
        self._run(servers.recognize(self.situation))
        dialog = Dialog(self.situation, present_answers(self.situation), self._run)
        notes = self._take(dialog, given)
        if self._asks:
            say_notes(notes)
        tries = not self._args.no_request
        if self._asks and not (given and self.situation.configured):
            if not self.situation.configured:
                dialog.ask_missing()
            if dialog.review() == "write" and not dialog.changed:
                say("Nothing was changed")
                return 0
        texts = config.planned(self.situation, dialog.answers, dialog.changed)
        file = self.situation.home.config
        if self._args.dry_run:
            return _plan(file, texts)
        self._write(texts, () if self._asks else notes)
        self._warn_of_environment(dialog)
        if tries:
            self._try(dialog)
        if not self.situation.configured or "application" in dialog.changed:
            self._show_paste(dialog.answers.get("application", ""))
        url = self._base_url(settings_of(self.situation.home))
        self._end()
        if self._args.json:
            self._say_json(dialog, texts, url)
        sys.stdout.flush()  # a closed pipe is an error here, also after a failed request
        if self._failure is not None:
            raise self._failure
        return 0

    def _write(self, texts: Mapping[Path, str], notes: Sequence[str]) -> None:
        """Write the files, then what the checks saw: a reader such as `head` may end the output."""
        config.apply(self.situation.home, texts)
        self.written = True
        if not self._args.json:
            say_notes(notes)
        for path in texts:
            say(f"wrote {path}")
        if not (texts or self._asks):
            say("Nothing was changed")

    def close(self) -> None:
        """Stop the processes that this run started and that still run."""
        if self._trial is not None and self._trial.started:
            self._run(self._trial.stop())

    # --- answers -----------------------------------------------------------------------------

    def _take(self, dialog: Dialog, given: Mapping[str, str]) -> list[str]:
        """Check the answers of the command line; without a terminal, all others must exist.

        Returns:
            What the checks saw.
        """
        notes: list[str] = []
        renewed = {one for name in given for one in BY_ID[name].renews} if not self._asks else set()
        for name in (one for one in BY_ID if one in given or one in renewed):
            question = BY_ID[name]
            if not question.asked(self.situation, dialog.answers):
                if name not in given:
                    continue
                raise UsageError(f"`{name}` is not asked with these answers", name)
            text = given.get(name, dialog.answers.get(name, ""))
            try:
                checked: Checked = self._run(
                    checked_answer(question, self.situation, dialog.answers, text)
                )
            except AnswerRefused as error:
                todo = error.todo
                if error.usable is not None:
                    todo = f"{todo}; --no-check writes the answer nevertheless".lstrip("; ")
                raise UsageError(error.what, name, todo) from error
            notes += checked.notes
            dialog.take(question, checked)
        if self._asks and not (given and self.situation.configured):
            return notes
        missing = [
            one
            for one in asked(self.situation, dialog.answers)
            if one.id not in dialog.answers and not one.optional
        ]
        if missing:
            first = missing[0]
            values = [one.value for one in first.choices(self.situation)]
            valid = " | ".join(filter(None, [*values, first.free and f"({first.free})"]))
            names = ", ".join(one.id for one in missing)
            raise UsageError(
                f"no answer to {names}, and no terminal to ask at",
                first.id,
                f"Give {first.id}=VALUE: {one_line(valid, 200)}",
            )
        return notes

    def _warn_of_environment(self, dialog: Dialog) -> None:
        """Say which answers the environment overrides."""
        for one in asked(self.situation, dialog.answers):
            for key in one.settings(self.situation, dialog.answers.get(one.id, "")):
                name = PREFIX + key.upper().replace(".", "__")
                if key == "swarm_url" and os.environ.get("AJET_SWARM_URL"):
                    name = "AJET_SWARM_URL"
                if name in os.environ:
                    say(f"! {name} is set: it has precedence over `{key}`")

    # --- the application -----------------------------------------------------------------------

    def _base_url(self, settings: Settings) -> str:
        """Return the proxy's address without `/v1`."""
        info = running(self.situation.home, "proxy")
        if info is not None:
            return info.url
        proxy = settings.proxy
        scheme = "https" if proxy.tls_cert else "http"
        address = public_url(proxy.host, proxy.port, scheme)
        return address if proxy.port else f"{address.removesuffix(':0')}:PORT"

    def _show_paste(self, application: str) -> None:
        """Show what the application needs; for an agent, whether the policy's window is enough."""
        settings = settings_of(self.situation.home)
        proxy, base = settings.proxy, self._base_url(settings)
        key = OWN_KEY if proxy.api_key or proxy.api_key_file else ANY_KEY
        context = None
        if running(self.situation.home, "proxy") is not None:
            own = client_key(settings, self.situation.home) if key == OWN_KEY else ""
            context = window_of(base, own, cert_of(self.situation.home))
        model = proxy.served_model_name or DEFAULT_MODEL
        for client in find(application)[:1]:
            say(f"\nPaste into {client.title}:")
            for text in lines(client)[1:]:  # without the title
                filled = fill(text, base, key, model, context or DEFAULT_CONTEXT)
                say(textwrap.indent(filled, "  ").rstrip())
            if context is not None and context < AGENT_PROMPT and client.name in AGENTS:
                say(f"  # {SMALL.format(context=context)}")
        if key == OWN_KEY:
            say("  # `ajet-console clients --show-key` shows the key")

    # --- the request ---------------------------------------------------------------------------

    def _try(self, dialog: Dialog) -> None:
        """Send one request and show its group; an error is raised at the end of the run."""
        home = self.situation.home
        width = max(60, min(120, shutil.get_terminal_size().columns))
        try:
            self._trial = one = trial.Trial.of(home)
            query = first_query(self.situation, dialog.answers.get("dataset", "none")) or QUERY
            if dialog.changed - NOT_OF_PROXY:
                self._restart_if_agreed(one)
            self._run(one.start())
            self._result = result = self._request(one, query)
        except AjetError as error:
            self._failure = error
            return
        say("\nOne request through the whole chain:")
        for line in trial.shown(result, width):
            say(f"  {line}")
        self._failure = trial.no_rewards(result)

    def _request(self, one: trial.Trial, query: str) -> trial.Result:
        """Send the request; ask first whether an AgentJet server that is OFFLINE is started."""
        try:
            return self._run_request(one, query, start=self._args.start)
        except trial.ServerOffline as error:
            text = f"\n{error.what[:1].upper()}{error.what[1:]}. Start it with its job now?"
            if not (self._asks and confirmed(text, default=False)):
                raise
            return self._run_request(one, query, start=True)

    def _run_request(self, one: trial.Trial, query: str, *, start: bool) -> trial.Result:
        result: trial.Result = self._run(one.request(query, start_server=start))
        return result

    def _restart_if_agreed(self, one: trial.Trial) -> None:
        """Stop a proxy that runs with the old settings, if the operator agrees."""
        info = running(self.situation.home, "proxy")
        if info is None:
            return
        text = f"A proxy runs with the previous settings (pid {info.pid})"
        agreed = self._args.restart
        if self._asks and not agreed:
            loss = self._run(proxy_loss(info.url, self.situation.home))
            agreed = confirm(f"\n{text}. Restart it now", loss, yes=False)
        if agreed:
            self._run(one.stop_proxy(info.port))
        else:
            say(f"{text}: it keeps them. With --restart it is started again")

    def _end(self) -> None:
        """Leave what was started running, or stop it."""
        one = self._trial
        if one is None or not one.started:
            return
        roles = " and ".join(f"the {role}" for role in one.started)
        leave = self._args.leave
        if self._asks and not (leave or self._args.stop) and self._failure is None:
            leave = confirmed(f"\nLeave {roles} running?", default=False)
        if leave:
            one.leave()
            say(f"Left running: {roles}. `ajet-console` attaches to them")
        else:
            self._run(one.stop())
            say(f"Stopped: {roles}. `ajet-console` starts everything")

    def _say_json(self, dialog: Dialog, texts: Mapping[Path, str], url: str) -> None:
        say_json(
            {
                "base_url": f"{url}/v1",
                "config": str(self.situation.home.config),
                "written": [str(one) for one in texts],
                "answers": dict(dialog.answers),
                "changed": sorted(dialog.changed),
                "request": trial.data(self._result) if self._result is not None else None,
            }
        )


def _plan(file: Path, texts: Mapping[Path, str]) -> int:
    """Show what would be written."""
    for path in texts:
        say(output().plan(f"would write {path}"))
    if file in texts:
        say(texts[file].rstrip())
    if not texts:
        say(output().plan("would change nothing"))
    return 0
