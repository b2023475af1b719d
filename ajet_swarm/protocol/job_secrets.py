"""Secrets in a job: which values are, the text without them, and the text with them again.

A value is a secret when its key names one (`api_key`, `hf_token`, `password`, ...), whatever the
value looks like. A mapping or a list below such a key is a secret as a whole. A URL with a password
is one under any key. References such as `${oc.env:KEY}` and empty values are no secrets.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.lazy_yaml import yaml

MASK: Final = "***"
"""Stands for a secret; a digest may follow it."""

_MASKED: Final = re.compile(r"\*\*\*( [0-9a-f]{8})?")
_WORDS: Final = (
    "key token secret password passwd passphrase passcode pwd credential authorization auth bearer "
    "cookie jwt"
)
_ENDINGS: Final = (
    *_WORDS.split(),
    *("keys", "secrets", "passwords", "credentials", "cookies"),
    *("apitokens", "accesstokens", "authtokens", "hftokens"),
)
_INSIDE: Final = ("apikey", "secretkey", "accesstoken", "password")
"""Parts that make a name that of a secret wherever they stand: `openai_api_key_list`."""
_NO_SECRET: Final = frozenset(
    f"{name}{ending}"
    for ending, names in {
        "key": "prompt response rewardfn image video audio message messages tool tools answer sort "
        "question input output query reference label primary foreign group metric",
        "token": "pad eos bos unk sep cls mask image video stop start end special",
    }.items()
    for name in names.split()
)
"""Columns of a dataset and words of a vocabulary, compact: `reward_fn_key`, `pad_token`."""
_REFERENCE: Final = re.compile(r"\$\{(oc\.env:\w+(,\s*null)?|[\w.]+)\}")
"""Names where the value is to be taken from."""
_PASSWORD: Final = re.compile(r"\w[\w+.-]*://[^/\s:@]*:(?P<value>[^/\s@]+)@")
"""A URL with a user and a password."""
_LEAST: Final = 4
"""Characters of a secret that is replaced in texts: a shorter one is a part of usual words."""
_EMPTY: Final = frozenset({"", "~", "null", "Null", "NULL", "''", '""', "[]", "{}"})
_BLANK: Final = " \t\r\n\x85\u2028\u2029"
"""What ends a value in YAML; other white space is a part of it."""
_SIMPLE: Final = re.compile(r"[\w.+/=@-]+")
"""Plain scalars that mean the same wherever they stand."""
_NAMED: Final = re.compile(r"(?P<name>[\w.-]{0,60}\w)[\"']?[ \t]{0,8}[:=][ \t]*")
"""A name before its value, in a comment or in a text that is no YAML."""
_NEXT_KEY: Final = re.compile(r"(?P<indent>[ \t]*)(#|[\w\"'][^:]*:(\s|$))")
_QUOTED: Final = re.compile(r"""'(?P<sign><[^'>]*>|[^'])'|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


def names_secret(name: str) -> bool:
    """Whether a value of this name is a secret.

    All names that end with `key` or `token` are secrets but those known to be none: a value that
    is masked without need costs nothing.
    """
    compact = re.sub(r"[^a-z0-9]", "", name.lower()).rstrip("0123456789")
    if compact in _NO_SECRET:
        return False
    if compact.endswith(_ENDINGS) or any(part in compact for part in _INSIDE):
        return True
    return re.split(r"[^a-z0-9]+", name.lower())[-1] == "pass"


def masked(text: str, key: bytes = b"") -> str:
    """The YAML of a job with every secret replaced; all else, comments too, stays as it is.

    Args:
        text: The YAML. One that cannot be read is masked line by line.
        key: With it a digest of the value follows each mask: equal values have equal masks,
            different ones different masks. Only who has the key can test a guess.
    """
    try:
        spans = _spans(text)
    except (yaml.YAMLError, RecursionError):
        return _masked_lines(text)
    for span in reversed(spans):
        mask = _mask(span.meant, key)
        mask = f"'{mask}'" if span.quoted else mask
        text = text[: span.start] + mask + text[span.end :]
    return text


def restored(text: str, sources: Iterable[str], key: bytes = b"") -> str:
    """The YAML of a job with the values that `masked` replaced.

    Args:
        text: The YAML with masks.
        sources: Texts the values are taken from, the one that was masked first. A mask without a
            digest stands for the value on the same path of the first.
        key: The key of `masked`.

    Raises:
        UsageError: there is no value for a mask; names the path and the line.
    """
    try:
        masks = _spans(text, of_masks=True)
    except (yaml.YAMLError, RecursionError):
        return text  # the check that follows says what is wrong with it
    if not masks:
        return text
    on_path: dict[tuple[str, str], str] = {}
    known: dict[str, str] = {}
    for place, source in enumerate(sources):
        for span in _readable_spans(source):
            mask = _mask(span.meant, key)
            known.setdefault(mask, span.value)
            on_path.setdefault((span.path, mask), span.value)
            if not place:
                on_path.setdefault((span.path, MASK), span.value)
    for span in reversed(masks):
        is_mask = bool(secret_part(span.path)) or span.value != MASK  # else maybe a plain value
        value = on_path.get((span.path, span.value)) or (known.get(span.value) if is_mask else None)
        if value is None and span.quoted and is_mask:
            raise UsageError(
                f"`{span.path}` is masked, and there is no saved value to put there",
                f"line {text.count(chr(10), 0, span.start) + 1}",
                "Type the value, or take the line out",
            )
        if value is not None:
            text = text[: span.start] + value + text[span.end :]
    return text


def without_secrets(value: Any, path: str = "") -> Any:
    """The value at a dotted path of a job's tree, loaded, with each secret replaced."""
    if secret_part(path):
        return value if _is_open(value) else MASK
    if isinstance(value, Mapping):
        return {one: without_secrets(inner, str(one)) for one, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_secrets(inner) for inner in value]
    return MASK if _has_password(value) else value


def hidden(text: str, job: str) -> str:
    """A text, such as a server's error, with each secret of the job, YAML, replaced.

    Secrets of less than four characters stay.
    """
    try:
        root = yaml.compose(job, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return text
    secrets: set[str] = set()
    for _, node in _secrets(root, "", False, set()) if root is not None else ():
        for value in _scalars(node):
            secrets.update((value, *(one["value"] for one in _PASSWORD.finditer(value))))
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _LEAST and not _is_open_text(value):
            text = text.replace(value, MASK)
    return text


def hidden_error(error: AjetError, job: str) -> AjetError:
    """The error without the secrets of the job; the same one when it quotes none."""
    what, todo = hidden(error.what, job), hidden(error.todo, job)
    return error if (what, todo) == (error.what, error.todo) else AjetError(what, error.where, todo)


def quoted(value: Any) -> str:
    """A value of a job as an error quotes it: short, without secrets."""
    return f"{without_secrets(value)!r:.80}"


def secret_part(path: str) -> str:
    """The dotted path up to the first part that names a secret; empty when none does."""
    parts = path.split(".")
    for place, part in enumerate(parts, 1):
        if names_secret(part):
            return ".".join(parts[:place])
    return ""


def why_no_yaml(error: Exception) -> str:
    """What is wrong with a YAML text, without the words it quotes from there."""
    why = getattr(error, "problem", None) or str(error).splitlines()[0]
    return _QUOTED.sub(lambda found: found[0] if found["sign"] else "'…'", str(why))


# --- where they stand ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """One secret, or one mask, in a text."""

    start: int
    end: int
    path: str
    value: str
    """YAML of the value that means the same wherever it stands; of a mask the mask."""
    meant: str
    """The same in one form for each value, however it is written."""
    quoted: bool = True
    """It is a value; else a part of a comment."""


def _readable_spans(text: str) -> list[_Span]:
    try:
        return _spans(text)
    except (yaml.YAMLError, RecursionError):
        return []


def _spans(text: str, of_masks: bool = False) -> list[_Span]:
    """All secrets of a text, or all masks, in their order.

    Raises:
        YAMLError, RecursionError: the text cannot be read.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found: dict[int, _Span] = {}
    if root is not None:
        for path, node in _secrets(root, "", False, set()):
            span = _span(text, path, node)
            if of_masks and _is_mask(node):
                span = _Span(span.start, span.end, path, node.value, node.value)
            if _is_mask(node) is of_masks and not _is_open_text(text[span.start : span.end]):
                found.setdefault(span.start, span)
    for span in _in_comments(text):
        if bool(_MASKED.fullmatch(span.value)) is of_masks:
            found.setdefault(span.start, span)
    return [found[start] for start in sorted(found)]


def _secrets(
    node: "yaml.Node", path: str, secret: bool, seen: set[tuple[int, bool]]
) -> "Iterator[tuple[str, yaml.Node]]":
    """Path and node of each secret; a list stays one, of masks, in any style."""
    if (id(node), secret) in seen:
        return  # an alias
    seen.add((id(node), secret))
    if isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            yield from _secrets(item, f"{path}.{place}" if path else str(place), secret, seen)
    elif secret or _is_mask(node) or _has_password(node.value):
        yield path, node
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _secrets(name, path, False, seen)
            word = name.value if isinstance(name, yaml.ScalarNode) else ""
            inner = f"{path}.{word}" if path else word
            yield from _secrets(value, inner, names_secret(word), seen)


def _scalars(node: "yaml.Node") -> Iterator[str]:
    """The values in a secret, also those in a mapping or a list."""
    if isinstance(node, yaml.ScalarNode):
        yield node.value
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for _, item in node.value:
            yield from _scalars(item)


def _has_password(value: object) -> bool:
    found = _PASSWORD.search(value) if isinstance(value, str) else None
    return found is not None and not _REFERENCE.fullmatch(found["value"])


def _is_mask(node: "yaml.Node") -> bool:
    return isinstance(node, yaml.ScalarNode) and _MASKED.fullmatch(node.value) is not None


def _span(text: str, path: str, node: "yaml.Node") -> _Span:
    start, end = node.start_mark.index, _end(node)
    end = start + len(text[start:end].rstrip(_BLANK))
    raw = text[start:end]
    meant = _meant(node, raw)
    one_line = isinstance(node, yaml.ScalarNode) and "\n" not in raw
    simple = one_line and (raw[:1] in ("'", '"') or _SIMPLE.fullmatch(raw))
    return _Span(start, end, path, raw if simple else meant, meant)


def _end(node: "yaml.Node") -> int:
    """Where its text ends: the mark of a collection in block style is at what follows it."""
    inner = node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and inner:
        last = inner[-1][1] if isinstance(node, yaml.MappingNode) else inner[-1]
        return max(_end(last), int(last.start_mark.index))
    return int(node.end_mark.index)


def _meant(node: "yaml.Node", raw: str) -> str:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_document(node)
    except (yaml.YAMLError, ValueError, OverflowError, TypeError):
        return raw
    finally:
        loader.dispose()
    style = '"' if isinstance(value, str | list | dict) else None
    text = yaml.safe_dump(
        value, default_style=style, default_flow_style=True, width=2**31, allow_unicode=True
    )
    return str(text).removesuffix("...\n").strip()


def _is_open_text(raw: str) -> bool:
    return raw in _EMPTY or _REFERENCE.fullmatch(raw.strip("'\"")) is not None


def _is_open(value: Any) -> bool:
    """The same of a loaded value."""
    if value is None or value in ("", [], {}):
        return True
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _in_comments(text: str) -> Iterator[_Span]:
    """Secrets that are commented out: `# api_key: ...`, to the end of the line."""
    if "#" not in text:
        return
    after = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        gap = text[after : token.start_mark.index]
        for comment in re.finditer(r"#[^\n\r]*", gap):
            named = _secret_in(comment[0])
            raw = comment[0][named.end() :].rstrip() if named else ""
            if named and not _is_open_text(raw):
                start = after + comment.start() + named.end()
                yield _Span(start, start + len(raw), f"# {named['name']}", raw, raw, False)
        after = token.end_mark.index


def _secret_in(line: str) -> re.Match[str] | None:
    return next((one for one in _NAMED.finditer(line) if names_secret(one["name"])), None)


def _mask(value: str, key: bytes) -> str:
    if not key:
        return MASK
    digest = hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return f"{MASK} {digest[:8]}"


def _masked_lines(text: str) -> str:
    """The same for a text that is no YAML: what follows a name of a secret, and what it spans."""
    lines: list[str] = []
    inside: int | None = None
    for line in text.splitlines(keepends=True):
        key = _NEXT_KEY.match(line)
        if inside is not None and not (key and len(key["indent"]) <= inside):
            continue
        named = _secret_in(line)
        inside = len(line) - len(line.lstrip()) if named else None
        open_line = _PASSWORD.sub(MASK, line)
        lines.append(f"{line[: named.end()].rstrip()} '{MASK}'\n" if named else open_line)
    return "".join(lines)
