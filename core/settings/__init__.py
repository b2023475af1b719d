"""All settings in one typed model: file < environment < flags.

The file is `config.yaml` in the home. A variable `AJET_CONSOLE__PROXY__PORT=8001` sets
`proxy.port`; `AJET_SWARM_URL` sets `swarm_url`. An invalid value names where it stands, its key and
what is valid.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from ajet_swarm.common.text import closest, did_you_mean, one_line
from ajet_swarm.common.urls import server_root, web_address
from core.settings.file import SettingsError, Source, read_settings, switched
from core.settings.servers import ServerSettings

PREFIX = "AJET_CONSOLE__"

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
ModelName = Literal["tiny", "smollm2"]

MOST_TAGS = 9
"""A vote's reasons have a digit each."""
_LOGIN = re.compile(r"([^/]*://)?[^/]*@")
"""A URL with a user or a password before its host."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings; unknown keys are refused."""


class ProxySettings(_Section, frozen=True):
    """The fake vLLM."""

    host: str = "127.0.0.1"
    port: Port = 8000
    """0 takes any free one."""
    api_key: str = ""
    """Needed to bind anywhere but loopback; empty accepts any key on loopback."""
    api_key_file: str = ""
    """File that holds that key and nothing else; goes before `api_key`."""
    served_model_name: str = ""
    """When set, any other model name is answered 404 as vLLM does."""
    repeats: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Candidates a request gets; 0 takes the server's own number. Never below the server's."""
    answer_budget: Seconds = 90.0
    """Seconds after which a request that is not streamed gets the provisional best."""
    stream_budget: Seconds = 600.0
    """Seconds a stream is kept alive at most."""
    watch_only: bool = False
    """Look on alone: claim nothing, start nothing, serve no requests."""
    keepalive: Seconds = 10.0
    """Seconds between two no-op events on a stream that waits."""
    answer: Literal["best", "live"] = "best"
    """What the user reads: the best candidate once it is chosen, or the first as it comes."""
    straggler_after: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds the last candidates of a group get once the first have answered; 0 waits for all."""
    straggler_first: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many those first are, at least 2; 0 is all but one."""
    straggler_limit: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    """Seconds after which a candidate is late whatever the others do, and never less than twice
    the usual time of an answer; 0 sets no limit. A group without an answer is asked again once."""
    straggler: Literal["answer", "cut"] = "answer"
    """What late candidates mean in ROLLING: the user is answered while the group completes, or
    they are given back. In ROLLING_POST they always are."""
    hedge: bool = False
    """Before that a fresh episode takes the place of each that is late, once."""
    abort_dead_clients: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds without a call after which other clients' episodes that hold up a batch in
    ROLLING_POST are aborted; 0 leaves them to the limit their client has set."""
    queue_limit: Count = 256
    """Requests that may wait for a claim; one more is answered 503."""
    queue_timeout: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds a request may wait for its episodes; 0 is as long as its client is kept waiting."""
    max_groups: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Groups of one server that may claim or hold episodes; 0 is as many as its pool allows."""
    session_cap: Annotated[int, msgspec.Meta(ge=0)] = 32
    """Requests of one session that may be open at once; one more is answered 429. 0 is no cap."""
    session_calls: Annotated[int, msgspec.Meta(ge=0)] = 120
    """Requests of one session in a minute; one more is answered 429. 0 is no cap."""
    key_cap: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests of one API key that may be open at once; one more is answered 429. 0 is no cap."""
    key_calls: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests of one API key in a minute; one more is answered 429. 0 is no cap."""
    most_choices: Count = 16
    """Choices (`n`) one request may ask for: each is an episode of the batch."""
    join: bool = True
    """The same request, sent again while the first is not answered, joins its group."""
    replay: Literal["marked", "owed", "always"] = "owed"
    """Which repeated requests get the answer just given; see docs/guide/serving.md."""
    replay_window: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Seconds in which it is given again; 0 makes a new group of each request."""
    helpers: bool = True
    """Recognise helper calls (titles, summaries, follow-ups): one answer, not trained on."""
    max_body_mb: Count = 32
    max_bodies_mb: Count = 256
    """Bodies in memory, of all connections together, in MiB; beyond it a request is answered
    503. At least `max_body_mb`."""
    max_header_kb: Count = 64
    header_timeout: Seconds = 20.0
    """Seconds a client may take to send the head of a request."""
    body_timeout: Seconds = 30.0
    """Seconds between two parts of a request's body."""
    max_connections: Count = 4096
    """Open connections; one more is answered 503."""
    cors_origins: str | tuple[str, ...] = ()
    """Web pages that may use the fake vLLM, as `https://chat.example`; `*` is any."""
    tls_cert: str = ""
    """File with the certificate chain (PEM); with `tls_key` everything is served over TLS."""
    tls_key: str = ""
    """File with the certificate's private key (PEM)."""
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    """What the reasoning of a chat answer is called; vLLM before 0.12 says `reasoning_content`."""


class RatingSettings(_Section, frozen=True):
    """Rating by hand."""

    mode: Literal["off", "answer_first", "hold"] = "off"
    window: Annotated[float, msgspec.Meta(ge=0)] = 3.0
    """Seconds a scored group stays open to an override in mode off while a console looks on."""
    fallback: Literal["accept", "abort"] = "accept"
    """What a group that nobody rated in time gets: its automatic reward, or an abort."""
    discard_timeout: Seconds = 240.0
    """Seconds after which the server takes an idle episode back, in mode off."""
    discard_timeout_rating: Seconds = 600.0
    """The same while a rating mode is on."""
    score_low: float = 0.0
    """The reward that the lowest score stands for."""
    score_high: float = 1.0
    """The reward that the highest score stands for."""
    tags: str | tuple[str, ...] = ("wrong", "off-topic", "verbose", "unsafe", "style")
    """Reasons a vote can carry, at most nine; as text they are divided by commas."""
    guidelines: str = ""
    """Markdown file that says how to rate; its version goes with every vote."""
    repeats: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """Share of your votes whose group comes back later, blind; the second vote sends nothing."""
    unsure: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    """A group is unsure when its two highest automatic rewards are no further apart."""
    goal: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Votes you want to give in one session; Rate shows how far you are. 0 is no goal."""


class RewardSettings(_Section, frozen=True):
    """What computes the automatic rewards."""

    hooks: str = ""
    """Folder with `on_compute_relative_reward.py`, which alone makes the reward; empty uses the
    model of `file`."""
    file: str = ""
    """The model of the rewards: gates and weighted parts (docs/guide/rewards.md); empty is
    `rewards.yaml` in the home, and without it the built-in model."""
    time_limit: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds a hook may take for one group; 0 is the smaller of `proxy.answer_budget` and a third
    of the shorter `rating.discard_timeout`: 80 with the defaults."""
    memory_mb: Count = 2048
    short_group: Literal["send", "abort"] = "send"
    """What a group gets that stays short of candidates: sent with at least two, or aborted."""
    cut_prompts: Literal["abort", "send"] = "abort"
    """What a group gets whose prompt the engine cut to its window: an answer and no rewards, or
    rewards as any other."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    """Fresh episodes tried in place of a failed candidate."""


class UpstreamSettings(_Section, frozen=True):
    """Observe mode: an OpenAI-compatible server in place of swarm servers; nothing is trained."""

    url: str = ""
    """`http://HOST:PORT`, or the base URL that clients of it are given; empty for none."""
    key: str = ""
    """Its API key; `key_file` keeps it out of this file."""
    key_file: str = ""
    """File that holds the key and nothing else."""
    model: str = ""
    """What to ask for; empty asks for the model it lists first."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    """Of all candidates, whatever the request says, and without its seed: so that they differ. Null
    sends the request's own."""
    calls: Count = 64
    """Calls in flight at most; requests beyond wait for their turn."""


class EngineSettings(_Section, frozen=True):
    """The embedded engine."""

    host: str = "127.0.0.1"
    port: Port = 10086
    model: ModelName = "tiny"
    """What is trained: the shipped policy, or SmolLM2-135M, fetched once with
    `ajet-console engine --model smollm2`."""


class JournalSettings(_Section, frozen=True):
    """How much of the past is kept. Open groups and the newest 500 are never pruned."""

    keep_days: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Days a group stays; 0 sets no limit. Groups that a person rated, marked or noted stay until
    `keep_bytes` needs their room."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] = 10_000_000_000
    """Bytes of the journal; beyond it the oldest groups are deleted, rated ones last. 0 sets no
    limit."""


class MockSettings(_Section, frozen=True):
    """The mock user."""

    dataset: str = ""
    """Empty uses the questions that come with the program."""
    concurrency: Count = 3
    pace: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds one worker waits between two requests."""
    passes: Count = 1
    timeout: Seconds = 300.0
    user_url: str = ""
    """OpenAI-compatible address of the model that plays the user of rows with a persona."""
    user_model: str = ""
    user_key_env: str = ""
    """Name of the environment variable that holds its key."""
    user_temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 1.0
    user_turns: Annotated[int, msgspec.Meta(ge=1, le=100)] = 6
    """Messages of the user in one conversation at most."""
    user_stop: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "[END]"
    """What that model writes when the user has nothing more to say."""
    user_tokens: Annotated[int, msgspec.Meta(ge=16, le=65536)] = 1024
    """Tokens of one message at most, reasoning among them."""


class ConsoleSettings(_Section, frozen=True):
    """The screen."""

    theme: Literal["dark", "light", "ansi"] = "dark"
    rater: str = ""
    """Name that goes with your ratings."""
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    """Other keys for actions, by the action's id: `group.abort: ctrl+d`."""
    reduced_motion: bool = False
    """Nothing glides or fades; what moves, moves at once."""


class Settings(_Section, frozen=True):
    """Everything that can be set."""

    swarm_url: str | dict[str, str] = "embedded"
    """`embedded`, the URL of an AgentJet server, or several as name: URL."""
    server: dict[str, ServerSettings] = msgspec.field(default_factory=dict, name="servers")
    """By the server's name."""
    proxy: ProxySettings = msgspec.field(default_factory=ProxySettings)
    rating: RatingSettings = msgspec.field(default_factory=RatingSettings)
    rewards: RewardSettings = msgspec.field(default_factory=RewardSettings)
    upstream: UpstreamSettings = msgspec.field(default_factory=UpstreamSettings)
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)
    journal: JournalSettings = msgspec.field(default_factory=JournalSettings)
    mock: MockSettings = msgspec.field(default_factory=MockSettings)
    console: ConsoleSettings = msgspec.field(default_factory=ConsoleSettings)

    @property
    def reward_limit(self) -> float:
        """Seconds the rewards of one group may take.

        A third of the episode's clock leaves time for the answers before, and for a second try
        after the hooks' process fell.
        """
        clock = min(self.rating.discard_timeout, self.rating.discard_timeout_rating)
        return self.rewards.time_limit or min(self.proxy.answer_budget, clock / 3)

    def servers(self) -> dict[str, str]:
        """Name of each swarm server -> its URL or `embedded`, first one first.

        In observe mode the only one is the upstream.
        """
        if self.upstream.url:
            return {"upstream": self.upstream.url}
        if isinstance(self.swarm_url, dict):
            return {name: server_root(url) for name, url in self.swarm_url.items()}
        url = server_root(self.swarm_url)
        return {"embedded" if url == "embedded" else "swarm": url}

    def unknown_servers(self) -> str:
        """What is wrong with the names under `servers`; empty when each is that of a server.

        In observe mode there is no swarm server, and they wait for one.
        """
        known = self.servers()
        unknown = [] if self.upstream.url else [name for name in self.server if name not in known]
        if not unknown:
            return ""
        names = ", ".join(f"`servers.{one_line(name, 60)}`" for name in unknown[:5])
        return f"{names} in the settings: there is no such server. Known: {', '.join(known)}"


def load(
    file: Path | None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read all three sources; later ones win.

    Args:
        file: The YAML file; it need not exist.
        environment: Defaults to the process's own.
        flags: Dotted keys to values, `{"proxy.port": 8001}`; None values are left out.

    Raises:
        SettingsError: a key is unknown or a value invalid; names source, key and what is valid.
    """
    values: dict[str, Any] = {}
    if file is not None:
        _merge(values, *read_settings(file))
    environ = os.environ if environment is None else environment
    _merge(values, _env_values(environ), Source("environment"))
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    _merge(values, _nest(given), Source("command line"))
    settings = _convert(values, Source("command line"))
    _look_at(settings.rating)
    return settings


def parse_servers(given: Iterable[str], *, upstream: bool = False) -> str | dict[str, str]:
    """`["URL"]` or `["name=URL", ...]` from a repeated flag or a comma-separated variable.

    Args:
        given: The texts.
        upstream: It is the upstream's address, which is looked at more closely when it is used.

    Raises:
        SettingsError: one is no address of a server, or would show a password.
    """
    named: dict[str, str] = {}
    for text in given:
        name, mark, url = text.partition("=")
        plain_url = not mark or "/" in name or ":" in name
        key = "swarm" if plain_url else name.strip()
        value = text if plain_url else url
        if key in named:
            key = f"{key}{len(named) + 1}"
        named[key] = value.strip().rstrip("/") if upstream else server_root(value)
    for name, url in named.items():
        if not upstream and _LOGIN.match(url):
            raise SettingsError(
                "the address of a swarm server holds a user or a password, which would be shown",
                where=f"swarm_url {name}",
                todo="Leave them out: the swarm protocol has no login. Reach a closed server "
                "through a tunnel (ssh -L)",
            )
        if url != "embedded" and web_address(url) is None:
            raise SettingsError(
                f"`{url}` is no URL of a swarm server",
                where=f"swarm_url {name}",
                todo="Give http://HOST:PORT, https://HOST:PORT or `embedded`",
            )
    if list(named) == ["swarm"]:
        return named["swarm"]
    return named


def _env_values(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if name.startswith(PREFIX):
            values[name.removeprefix(PREFIX).lower().replace("__", ".")] = text
    nested = _nest(values)
    if url := environment.get("AJET_SWARM_URL"):
        nested.setdefault("swarm_url", parse_servers(url.split(",")))
    return nested


def _nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in dotted.items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise SettingsError(f"`{key}` cannot be set: `{part}` has no keys of its own")
        place[last] = value
    return nested


def _merge(values: dict[str, Any], more: Mapping[str, Any], source: Source) -> None:
    """Lay `more` over `values`, checking it alone first so that an error names its source."""
    _convert(more, source)
    for key, value in more.items():
        section = values.get(key)
        if isinstance(value, dict) and isinstance(section, dict) and key != "swarm_url":
            section.update(value)
        else:
            values[key] = dict(value) if isinstance(value, dict) else value


def _convert(values: Mapping[str, Any], source: Source) -> Settings:
    try:
        settings = msgspec.convert(switched(values, Settings), Settings, strict=False)
    except msgspec.ValidationError as error:
        raise _fault(str(error), values, source) from error
    for name, url in settings.servers().items():
        parse_servers([f"{name}={url}"], upstream=bool(settings.upstream.url))
    return settings


def _fault(error: str, values: Mapping[str, Any], source: Source) -> SettingsError:
    """Return a conversion error with the key, where it stands, and what is valid there."""
    message, of_key, at = error.replace(" - at `key` in `$", " - at `$!").partition(" - at `$")
    key, kind = _located(at.strip("!.`"), values)
    if of_key and at.startswith("!"):
        what = f"`{key}` has a key that is not text" if key else "a key is not text"
        return SettingsError(what, source.place(key), "Put it in quotes")
    section = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if section and (unknown := re.search(r"unknown field `(.*)`", message)):
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        above = f"{key}." if key else ""
        similar = closest(unknown[1], names)
        todo = f"Did you mean `{above}{similar[0]}`?" if similar else f"Known: {', '.join(names)}"
        path = f"{above}{unknown[1]}"
        return SettingsError(f"unknown key `{path}`", source.place(path), todo)
    if section:
        return SettingsError(f"`{key}` must hold keys of its own", source.place(key))
    todo = ""
    if get_origin(kind) is Literal:
        words = get_args(kind)
        meant = did_you_mean(message.partition("'")[2].rpartition("'")[0], words)
        todo = f"{meant} Valid: {', '.join(words)}".strip()
    what = f"`{key}` is invalid: {message[0].lower()}{message[1:]}"
    return SettingsError(what, source.place(key), todo)


def _located(path: str, values: Any) -> tuple[str, Any]:
    """Return the dotted key that a conversion error is about, and its type.

    Args:
        path: As msgspec has it, with `[...]` for any key of a dict: `servers[...].vision`.
        values: What was converted.
    """
    kind: Any = Settings
    key = ""
    for step in re.findall(r"\[[^]]*\]|[^.[]+", path):
        part = step
        if step.startswith("["):
            kinds = [one for one in (kind, *get_args(kind)) if get_origin(one) is dict]
            kind = get_args(kinds[0])[1] if kinds else None
            if kinds and isinstance(values, Mapping):
                part = next((str(one) for one in values if not _fits(values[one], kind)), step)
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            kind = fields.get(part)
        key += part if part.startswith("[") or not key else f".{part}"
        values = values.get(part) if isinstance(values, Mapping) else None
    return key, kind


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _look_at(rating: RatingSettings) -> None:
    """What no field alone can say."""
    low, high = rating.score_low, rating.score_high
    if not low < high:
        raise SettingsError(
            f"`rating.score_low` ({low:g}) does not lie below `rating.score_high` ({high:g})",
            where="settings",
            todo="Else the best score would be worth the least",
        )
    tags = rating.tags.split(",") if isinstance(rating.tags, str) else rating.tags
    if len(tags) > MOST_TAGS:
        raise SettingsError(
            f"`rating.tags` has {len(tags)} entries", where="settings", todo="Nine at most"
        )
