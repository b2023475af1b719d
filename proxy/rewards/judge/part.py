"""The part of kind `judge`: its connection to the endpoint, its health and its version."""

import asyncio
import functools
import hashlib
import logging
from pathlib import Path

import msgspec

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.judge.modes import GroupJudging
from proxy.rewards.judge.prompt import winner_schema
from proxy.rewards.judge.question import Breaker, Cache, JudgeClient, QuestionRunner, SpendCounter
from proxy.rewards.judge.settings import (
    OWN,
    SETTINGS,
    JudgeFault,
    Options,
    address,
    find_key,
    is_local,
    options,
)
from proxy.rewards.part import (
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartKind,
    PartValue,
)
from proxy.rewards.source import Abstention, Reporting, SourceHealth

log = logging.getLogger(__name__)

CACHE = "judge.db"
"""Database file with the verdicts of all judges of a home."""
_TEST_PROMPT = [{"role": "user", "content": 'Reply with {"reason": "", "winner": "tie"}'}]
_VERSIONED_FILES = ("prompt.py", "modes.py")
PROBE_EVERY = 30.0
"""Seconds between two probes of an endpoint that failed the last one."""


class Judge(Reporting):
    """The part of kind `judge`; see `proxy.rewards.part.SlowPart`.

    Args:
        options: Its settings.
    """

    learns_version = True

    def __init__(self, options: Options) -> None:
        self.options = options
        named = (options.rubric, options.key_file)
        self.files: tuple[Path, ...] = tuple(file for file in named if file is not None)
        self.proven = False
        """Whether a probe or a verdict has shown that the judge works."""
        self.judges_one_by_one = options.mode == "pointwise"
        """Whether the value of an answer is independent of the other answers."""
        self._environment = PartEnvironment()
        self._spend = SpendCounter(options.name)
        self._tasks = Tasks(f"judge {options.name}")
        self._breaker = Breaker(options.breaker_after, options.breaker_seconds, self._refresh)
        self._cache: Cache | None = None
        self._client: JudgeClient | None = None
        self._runner: QuestionRunner | None = None
        self._model = options.model or ""
        self._lock = asyncio.Lock()
        self._fault: JudgeFault | None = None
        """The fault that the last probe found; None while there is none."""
        self._trouble = ""
        """The fault that is published with the counts."""
        super().__init__(SourceHealth(True, None, self._version()))

    @property
    def faulty_setting(self) -> str:
        """The setting that causes the fault; empty for none."""
        return self._fault.field if self._fault is not None else ""

    def place(self, environment: PartEnvironment) -> None:
        """Set the folder of the cache, the counts, and the time limit of a group.

        A judge that is rebuilt because a file was saved continues the counts of its predecessor.
        """
        name = self.options.name
        self._environment = environment
        counts = SpendCounter(name, environment.publish)
        self._spend = environment.kept.setdefault(f"judge {name}", counts)
        if self.options.group_seconds > environment.seconds:
            self.options = msgspec.structs.replace(self.options, group_seconds=environment.seconds)

    async def start(self) -> None:
        """Report a fault of the settings at once, and begin to probe the endpoint."""
        try:
            await self._connected()
        except JudgeFault as fault:
            self._set_fault(fault)
        self._tasks.spawn(self._probe_until_ok(), "probe")

    async def close(self) -> None:
        """Close connections and cache; the callers of calls in progress give them up."""
        await self._tasks.close()
        if self._trouble and self._spend.now.trouble == self._trouble:
            self._spend.change(trouble="")  # the fault concerns this part, not its successor
        self._spend.flush()
        for resource in (self._client, self._cache):
            if resource is not None:
                await resource.close()

    async def score(self, group: PartInput) -> list[PartValue]:
        """Return the judge's value of each answer.

        Raises:
            PartAbstained: the judge gave no verdict, or not in the requested form.
        """
        try:
            if not group.context.answers:
                raise PartAbstained("the group has no answers to judge")
            runner = await self._open()
            values = await GroupJudging(self.options, runner, self._spend, group.context).values()
        except PartAbstained:
            self._spend.add(groups=1, failures=1)
            self._refresh()
            raise
        self._spend.add(groups=1)
        return values

    async def probe(self) -> str:
        """Return the model and its address if the judge can be used now.

        Request the list of models and, if it does not contain the model, a one-word completion.

        Raises:
            JudgeFault: it cannot be used; says what to do.
        """
        client = await self._connected()
        try:
            listed = await client.models() or []
            model = self._model or _first(listed)
            if model not in listed:
                await client.ask(model, _TEST_PROMPT, winner_schema(), "probe")
        except JudgeFault as fault:
            fault.text = f"the judge at {client.url} fails: {fault.text}"
            fault.todo = fault.todo or todo_of(fault, self.options)
            raise
        self._model = model
        return f"{model} at {client.url}"

    async def _probe_until_ok(self) -> None:
        """Probe the endpoint until it works, or a verdict has shown that it does."""
        while True:
            try:
                await self.probe()
            except JudgeFault as fault:
                self._set_fault(fault)
            else:
                self._set_fault(None)
                return
            await asyncio.sleep(PROBE_EVERY)
            if self._fault is None:
                return

    async def _connected(self) -> JudgeClient:
        """Return the connection to the endpoint; create it on first use.

        Raises:
            JudgeFault: a setting is unusable.
        """
        async with self._lock:
            if self._client is None:
                # in a thread: it reads certificates and the key
                self._client = await asyncio.to_thread(self._new_client)
            return self._client

    def _new_client(self) -> JudgeClient:
        options, own = self.options, self._environment.own
        if options.url != OWN:
            url, key = options.url, find_key(options.key_env, options.key_file)
        elif own is not None:
            url, key = address(own.url), own.key
            self._model = self._model or own.model
        else:
            raise JudgeFault(
                "`url: own` needs a server that can be asked directly, and there is none",
                "Give the url of the server, or start in observe mode (upstream.url)",
                field="url",
            )
        clock = self._environment.runtime.clock
        return JudgeClient(options, url, key, lambda: self._spend.add(calls=1), clock)

    async def _open(self) -> QuestionRunner:
        """Return the object that asks questions; create it on first use.

        Raises:
            PartAbstained: a setting is unusable, or no model is set and the endpoint lists none.
        """
        if self._runner is not None:
            return self._runner
        try:
            client = await self._connected()
            if not self._model:
                self._model = _first(await client.models() or [])
                self._refresh()
        except JudgeFault as fault:
            raise PartAbstained(f"the judge cannot be used: {fault.cause}") from None
        if self._runner is None:  # another group may have created it meanwhile
            options, environment = self.options, self._environment
            if options.cache and environment.home is not None:
                self._cache = Cache(environment.home / CACHE)
            self._runner = QuestionRunner(
                options,
                client,
                self._model,
                self._breaker,
                self._cache,
                self._spend,
                self._on_success,
                environment.runtime.chance,
            )
            self._refresh()
        return self._runner

    def _on_success(self) -> None:
        if self._fault is not None or not self.proven:
            self._set_fault(None)

    def _set_fault(self, fault: JudgeFault | None) -> None:
        self._fault = fault
        newly_proven = fault is None and not self.proven
        self.proven = self.proven or newly_proven
        self._refresh()
        if newly_proven:
            self._notify()

    def _refresh(self) -> None:
        """Compute health and version again, and publish changes."""
        options, fault = self.options, self._fault
        if self._breaker.trouble:
            todo = "Until then, only cached verdicts give rewards"
            fault = JudgeFault(self._breaker.trouble, todo, again=True)
        if spent := self._spend.over(options.spend_limit):
            todo = "Raise spend_limit, or restart the proxy, which counts from 0"
            fault = JudgeFault(spent, todo, again=True)
        self._trouble = fault.text if fault else ""
        self._spend.change(
            model=self._model,
            mode=options.mode,
            priced=options.priced,
            limit=options.spend_limit or 0.0,
            trouble=self._trouble,
        )
        if fault is None:
            self._report(SourceHealth(True, None, self._version()))
            return
        error = Abstention(options.name, fault.cause)
        level = "warning" if fault.again and not self.proven else "error"
        health = SourceHealth(False, error, self._version() if fault.again else "", level)
        if health != self.health():
            log.warning("judge %s: %s", options.name, self._trouble)
        self._report(health)

    def _version(self) -> str:
        """Return the hash of what determines its verdicts besides settings and code."""
        what = f"{self.options.url}\n{self._model}\n{self.options.rubric_text}\n{_code_hash()}"
        return hashlib.sha256(what.encode()).hexdigest()[:12]


def _first(models: list[str]) -> str:
    """Return the model that is used when none is named.

    Raises:
        JudgeFault: there is none.
    """
    if not models:
        raise JudgeFault("it lists no model", "Name one with `model`")
    return models[0]


@functools.cache
def _code_hash() -> str:
    """Return the hash of the files that build prompts and read replies."""
    total = hashlib.sha256()
    for name in _VERSIONED_FILES:
        total.update(Path(__file__).with_name(name).read_bytes())
    return total.hexdigest()


def todo_of(fault: JudgeFault, options: Options) -> str:
    """Return what the operator can do about a judge that could not be used."""
    if fault.status in (401, 403):
        named = options.key_env or options.key_file
        if named is None and not is_local(options.url):
            return "It needs a key: name the variable that holds it with key_env"
        return f"Check that the key is right ({named})" if named else "Name its key with key_env"
    if fault.status in (400, 404):
        return "Check that url and model are right"
    return "Check that it runs and that url is right"


JUDGE = PartKind(
    lambda name, settings, where: Judge(options(name, settings)),
    "Score of a language model by a rubric",
    SETTINGS,
    slow=True,
    ascending=("low", "high"),
    relative="a judge costs calls, and may compare the answers of a group",
)
