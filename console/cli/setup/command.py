"""The command `setup`: ask, write, show what to paste, send one request."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.common import existing_home, settings_of
from console.cli.options import Args, argument, flag, one_of, option, takes
from console.cli.output import confirm, progress, say, say_json, would
from console.cli.processes import losses
from console.cli.setup import config, trial
from console.cli.setup.dialog import KEYS, ask_missing, review, say_notes
from console.cli.setup.question import Draft
from console.cli.setup.questions import (
    BY_ID,
    asked,
    first_query,
    missing,
    recognize,
    take,
    take_present,
)
from console.clients.catalog import find
from core.runtime.home import Home, running
from core.runtime.sockets import public_url
from core.settings import PREFIX
from core.settings.file import read_settings

NOT_OF_PROXY = frozenset({"application", "dataset", "gpus", "model"})
"""Questions whose answers the proxy does not use, or reads when it needs them."""
QUERY = "Why is the sky blue?"
"""The request of a home without a dataset."""


@takes(
    argument("answer", "the answer to a question", nargs=-1, metavar="KEY=VALUE"),
    option("--answers FILE", "file with answers, a line `KEY: VALUE` each", type=Path),
    flag("--no-request", "write the settings only"),
    flag("--no-check", "do not ask servers and judges whether they answer"),
    flag("--start", "start an AgentJet server that is OFFLINE with its job"),
    flag("--restart", "restart a proxy that runs with other settings"),
    one_of(
        flag("--leave", "leave the proxy and the engine running"),
        flag("--stop", "stop them without a question"),
    ),
    notes=(
        "         ajet-console setup rating=hold          change one answer",
        "         ajet-console setup --answers FILE --json --no-request",
        "On a terminal it asks for what is missing; elsewhere each question needs an answer.",
        f"Questions: {', '.join(BY_ID)}. See docs/guide/setup.md.",
    ),
)
def setup(args: Args) -> int:
    """Run the setup.

    Raises:
        UsageError: an answer is unknown, refused, or missing where nobody can be asked.
        AjetError: the settings cannot be read or written.
    """
    answers = _answers_of(args)
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (args.json or args.dry_run)
    home = existing_home(args)
    with _signals_interrupt() as received:
        one = Setup(args, home, asks)
        try:
            return one.run(answers)
        except (KeyboardInterrupt, BrokenPipeError) as end:
            where = f"in {home.config}" if one.written else "as they were"
            with contextlib.suppress(OSError):  # the terminal may be closed
                sys.stderr.write(f"\nThe setup was ended. The settings are {where}\n")
            if isinstance(end, BrokenPipeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 1
            if received:
                raise SystemExit(128 + received[0]) from end
            raise
        finally:
            one.close()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl+C does; yield the numbers of those that arrived."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for signal_ in (signal.SIGTERM, signal.SIGHUP):
                stack.callback(signal.signal, signal_, signal.signal(signal_, interrupt))
        yield received


def _answers_of(args: Args) -> dict[str, str]:
    """Return the answers of the file and of the command line, by the id of their question."""
    answers: list[tuple[str, str, str]] = []
    if args.answers is not None:
        file = args.answers.expanduser()
        if not file.exists():
            raise UsageError("there is no such file", f"--answers {args.answers}")
        values, source = read_settings(file)
        for name, value in values.items():
            if isinstance(value, Mapping | list):
                raise UsageError(f"`{name}` is not a single value", source.place(name))
            answers.append(
                (str(name), "" if value is None else str(value), source.place(str(name)))
            )
    for pair in args.answer:
        name, sign, value = pair.partition("=")
        if not sign:
            raise UsageError(f"`{one_line(pair, 60)}` is not KEY=VALUE", "setup")
        answers.append((name, value.strip(), "setup"))
    for name, _, where in answers:
        if name not in BY_ID:
            what = f"there is no question `{one_line(name, 40)}`"
            raise UsageError(what, where, known_names(name, BY_ID))
    return {name: value for name, value, _ in answers}


class Setup:
    """One run of the command.

    Args:
        args: The parsed command line.
        home: The home; it is created when the first file is written.
        asks: Whether an operator can be asked.

    Attributes:
        written: Whether the answers were written.
    """

    def __init__(self, args: Args, home: Home, asks: bool) -> None:
        self._args, self._home, self._asks = args, home, asks
        self._trial: trial.Trial | None = None
        self._result: trial.Result | None = None
        self._failure: AjetError | None = None
        self._draft = Draft.of(home, Path.cwd(), live=not args.no_check)
        self.written = False

    def run(self, answers: Mapping[str, str]) -> int:
        """Take or ask the answers, write them, send the request; return the exit code.

        Args:
            answers: Answers of the command line, by the id of their question.

        Raises:
            UsageError: an answer is refused, or missing where nobody can be asked.
        """
        draft = self._draft
        with progress("asking the server of the settings"):
            recognize(draft)
        take_present(draft)
        dialogue = self._asks and not (answers and draft.configured)
        notes = self._take(answers, renews=not dialogue)
        if dialogue:
            say_notes(*notes)
            notes = []
            if not draft.configured:
                say(KEYS)
                ask_missing(draft)
            if review(draft) == "write" and not draft.changed:
                say("Nothing was changed")
                return 0
        else:
            self._check_complete()
        texts = config.planned(draft)
        if self._args.dry_run:
            return _plan(self._home.config, texts)
        config.apply(self._home, texts)
        self.written = True
        if not self._args.json:
            say_notes(*notes)  # not before: `head` may close the output
        for path in texts:
            say(f"wrote {path}")
        if not (texts or self._asks):
            say("Nothing was changed")
        self._warn_of_environment()
        if not self._args.no_request:
            self._try()
        self._finish(texts)
        sys.stdout.flush()  # a closed pipe is an error here, also after a failed request
        if self._failure is not None:
            raise self._failure
        return 0

    def close(self) -> None:
        """Stop the processes that this run started and that still run."""
        if self._trial is not None and self._trial.started:
            asyncio.run(self._trial.stop())

    def _take(self, answers: Mapping[str, str], *, renews: bool) -> list[str]:
        """Check the answers of the command line, with `renews` also present ones that depend on
        them; return what the checks saw."""
        draft, notes = self._draft, list[str]()
        renewed = {renew for name in answers for renew in BY_ID[name].renews} if renews else set()
        before = dict(draft.answers)
        for name, question in BY_ID.items():
            if name not in answers and name not in renewed:
                continue
            if not question.asked(draft):
                if name not in answers:
                    continue
                raise UsageError(f"`{name}` is not asked with these answers", name)
            text = answers.get(name, before.get(name, ""))
            try:
                with progress("checking"):
                    checked = question.checked(draft, text)
            except AjetError as error:
                todo = error.todo
                if getattr(error, "usable", None) is not None:
                    todo = f"{todo}; --no-check writes the answer nevertheless".lstrip("; ")
                raise UsageError(error.what, name, todo) from error
            notes += checked.notes
            take(draft, question, checked.answer)
        return notes

    def _check_complete(self) -> None:
        """Refuse to go on without an answer where nobody can be asked."""
        needed = [question for question in missing(self._draft) if not question.optional]
        if needed:
            first = needed[0]
            values = [choice.value for choice in first.choices(self._draft)]
            valid = " | ".join(filter(None, [*values, first.free and f"({first.free})"]))
            names = ", ".join(question.id for question in needed)
            what = f"no answer to {names}, and no terminal to ask at"
            raise UsageError(what, first.id, f"Give {first.id}=VALUE: {one_line(valid, 200)}")

    def _warn_of_environment(self) -> None:
        """Say which answers the environment overrides."""
        draft = self._draft
        for question in asked(draft):
            for key in question.settings(draft, draft.answer(question.id)):
                names = [PREFIX + key.upper().replace(".", "__")]
                for name in names + ["AJET_SWARM_URL"] * (key == "swarm_url"):
                    if os.environ.get(name):
                        say(f"! {name} is set: it has precedence over `{key}`")

    def _try(self) -> None:
        """Send one request and show its group; an error is raised at the end of the run."""
        try:
            self._trial = one = trial.Trial(self._home)
            query = first_query(self._draft) or QUERY
            outdated = self._draft.changed - NOT_OF_PROXY
            asyncio.run(one.start(self._restart_port() if outdated else 0))
            try:
                result = asyncio.run(one.request(query, start_server=self._args.start))
            except trial.ServerOffline as error:
                act = f"\n{error.what[:1].upper()}{error.what[1:]}. Start it with its job now"
                if not (self._asks and confirm(act)):
                    raise
                result = asyncio.run(one.request(query, start_server=True))
        except AjetError as error:
            self._failure = error
            return
        say("\nOne request through the whole chain:")
        width = max(60, min(120, shutil.get_terminal_size().columns))
        for line in trial.shown(result, width):
            say(f"  {line}")
        self._result, self._failure = result, trial.no_rewards(result)

    def _restart_port(self) -> int:
        """Return the port of a proxy with the previous settings, if its restart is agreed."""
        info = running(self._home, "proxy")
        if info is None:
            return 0
        text = f"A proxy runs with the previous settings (pid {info.pid})"
        agreed = self._args.restart
        if self._asks and not agreed:
            lost = asyncio.run(losses("proxy", self._home))
            agreed = confirm(f"\n{text}. Restart it now", lost)
        if not agreed:
            say(f"{text}: it keeps them. With --restart it is started again")
        return info.port if agreed else 0

    def _finish(self, texts: Mapping[Path, str]) -> None:
        """Show what the application needs; leave what was started running, or stop it."""
        draft, application = self._draft, self._draft.answer("application")
        if application and (not draft.configured or "application" in draft.changed):
            from console.cli.clients import clients
            from console.cli.tree import parse

            say(f"\nPaste into {find(application)[0].title}:")
            clients(parse(["clients", application, "--home", str(self._home.root)]))
        if self._args.json:
            info, proxy = running(self._home, "proxy"), settings_of(self._home).proxy
            scheme = "https" if proxy.tls_cert else "http"
            base = info.url if info is not None else public_url(proxy.host, proxy.port, scheme)
            say_json(
                {
                    "base_url": f"{base}/v1",
                    "config": str(self._home.config),
                    "written": [str(text) for text in texts],
                    "answers": draft.answers,
                    "changed": sorted(draft.changed),
                    "request": self._result,
                }
            )
        one = self._trial
        if one is not None and one.started:
            roles = " and ".join(f"the {role}" for role in one.started)
            leave = self._args.leave
            if self._asks and not (leave or self._args.stop) and self._failure is None:
                leave = confirm(f"\nLeave {roles} running")
            if leave:
                one.leave()
                say(f"Left running: {roles}. `ajet-console` attaches to them")
            else:
                asyncio.run(one.stop())
                say(f"Stopped: {roles}. `ajet-console` starts everything")


def _plan(file: Path, texts: Mapping[Path, str]) -> int:
    """Show what would be written."""
    for path in texts:
        would(f"write {path}")
    if file in texts:
        say(texts[file].rstrip())
    if not texts:
        would("change nothing")
    return 0
