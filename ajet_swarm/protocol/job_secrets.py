"""Secrets in a job: detection, masking, and restoration of masked values.

A value is a secret when its key names one (`api_key`, `hf_token`, `password`, ...), whatever the
value is. A mapping or list below such a key is secret as a whole. A URL with a password is a secret
under any key. References such as `${oc.env:KEY}` and empty values are not secrets.
"""

import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.lazy_yaml import yaml

MASK: Final = "***"
"""Replacement of a secret; a digest may follow it."""

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
"""Parts that identify the name of a secret at any position, as in `openai_api_key_list`."""
_NO_SECRET: Final = frozenset(
    f"{name}{ending}"
    for ending, names in {
        "key": "prompt response rewardfn image video audio message messages tool tools answer sort "
        "question input output query reference label primary foreign group metric",
        "token": "pad eos bos unk sep cls mask image video stop start end special",
    }.items()
    for name in names.split()
)
"""Names that are not secrets, without separators: dataset columns and special tokens, such as
`reward_fn_key` and `pad_token`."""
_REFERENCE: Final = re.compile(r"\$\{(oc\.env:\w+(,\s*null)?|[\w.]+)\}")
"""A reference to the value's source."""
_PASSWORD: Final = re.compile(r"\w[\w+.-]*://[^/\s:@]*:(?P<value>[^/\s@]+)@")
"""A URL with a user and a password."""
_MIN_LENGTH: Final = 4
"""Minimum length of a secret that is replaced in texts; a shorter one occurs in ordinary words."""
_EMPTY: Final = frozenset({"", "~", "null", "Null", "NULL", "''", '""', "[]", "{}"})
_BLANK: Final = " \t\r\n\x85\u2028\u2029"
"""White space that ends a value in YAML; any other belongs to the value."""
_SIMPLE: Final = re.compile(r"[\w.+/=@-]+")
"""Plain scalars that have the same value in any YAML context."""
_NAMED: Final = re.compile(r"(?P<name>[\w.-]{0,60}\w)[\"']?[ \t]{0,8}[:=][ \t]*")
"""A name before its value, in a comment or in a text that is not YAML."""
_NEXT_KEY: Final = re.compile(r"(?P<indent>[ \t]*)(#|[\w\"'][^:]*:(\s|$))")
_QUOTED: Final = re.compile(r"""'(?P<sign><[^'>]*>|[^'])'|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


def names_secret(name: str) -> bool:
    """Return whether a value of this name is a secret.

    Every name that ends with `key` or `token` counts as one, except the known exceptions: masking a
    value without need does no harm.
    """
    compact = re.sub(r"[^a-z0-9]", "", name.lower()).rstrip("0123456789")
    if compact in _NO_SECRET:
        return False
    if compact.endswith(_ENDINGS) or any(part in compact for part in _INSIDE):
        return True
    return re.split(r"[^a-z0-9]+", name.lower())[-1] == "pass"


def masked(text: str, key: bytes = b"") -> str:
    """Return the YAML of a job with every secret masked; all else, including comments, is kept.

    Args:
        text: The YAML; invalid YAML is masked line by line.
        key: If not empty, each mask is followed by a keyed digest of its value: equal values have
            equal masks. Without the key a guess cannot be verified.
    """
    try:
        spans = _spans(text)
    except (yaml.YAMLError, RecursionError):
        return _masked_lines(text)
    for span in reversed(spans):
        mask = _mask(span.canonical, key)
        mask = f"'{mask}'" if span.is_value else mask
        text = text[: span.start] + mask + text[span.end :]
    return text


def restored(text: str, sources: Iterable[str], key: bytes = b"") -> str:
    """Return the YAML of a job with masks replaced by the original values.

    Args:
        text: The YAML with masks.
        sources: Texts with the values; the first is the one that was masked. A mask without a
            digest stands for the value at the same path of the first.
        key: The key of `masked`.

    Raises:
        UsageError: a mask has no value; gives path and line.
    """
    try:
        masks = _spans(text, of_masks=True)
    except (yaml.YAMLError, RecursionError):
        return text  # the caller's validation reports the error
    if not masks:
        return text
    by_path: dict[tuple[str, str], str] = {}
    by_mask: dict[str, str] = {}
    for index, source in enumerate(sources):
        for span in _readable_spans(source):
            mask = _mask(span.canonical, key)
            by_mask.setdefault(mask, span.value)
            by_path.setdefault((span.path, mask), span.value)
            if not index:
                by_path.setdefault((span.path, MASK), span.value)
    for span in reversed(masks):
        # `***` under a key that is not secret may be an ordinary value
        is_mask = bool(secret_part(span.path)) or span.value != MASK
        value = by_path.get((span.path, span.value))
        if not value and is_mask:
            value = by_mask.get(span.value)
        if value is None and span.is_value and is_mask:
            raise UsageError(
                f"`{span.path}` is masked, and there is no saved value for it",
                f"line {text.count(chr(10), 0, span.start) + 1}",
                "Type the value, or remove the line",
            )
        if value is not None:
            text = text[: span.start] + value + text[span.end :]
    return text


def without_secrets(value: Any, path: str = "") -> Any:
    """Return a loaded value of a job with each secret masked.

    Args:
        value: The value.
        path: Its dotted path in the job.
    """
    if secret_part(path):
        return value if _is_public(value) else MASK
    if isinstance(value, Mapping):
        return {name: without_secrets(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_secrets(inner) for inner in value]
    return MASK if _has_password(value) else value


def hidden(text: str, job: str) -> str:
    """Return a text with each secret of a job masked, except those of less than four characters.

    Args:
        text: For example, a server's error.
        job: The job as YAML.
    """
    for value in _hidden_values(job) if text else ():
        text = text.replace(value, MASK)
    return text


@functools.lru_cache(maxsize=4)
def _hidden_values(job: str) -> tuple[str, ...]:
    """Return the secrets of a job that `hidden` masks, longest first; none if it is not YAML.

    The texts of one job follow each other, as in the log of a server, and parsing takes longest.
    """
    try:
        root = yaml.compose(job, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return ()
    secrets: set[str] = set()
    for _, node in _secrets(root, "", False, set()) if root is not None else ():
        for value in _scalars(node):
            secrets.update((value, *(match["value"] for match in _PASSWORD.finditer(value))))
    long = [one for one in secrets if len(one) >= _MIN_LENGTH and not _is_public_text(one)]
    return tuple(sorted(long, key=lambda one: (-len(one), one)))


def hidden_error(error: AjetError, job: str) -> AjetError:
    """Return an error with the secrets of a job masked; the error itself if it contains none."""
    what, todo = hidden(error.what, job), hidden(error.todo, job)
    return error if (what, todo) == (error.what, error.todo) else AjetError(what, error.where, todo)


def quoted(value: Any) -> str:
    """Return a value of a job as text for an error, shortened, with secrets masked."""
    return f"{without_secrets(value)!r:.80}"


def secret_part(path: str) -> str:
    """Return a dotted path up to the first part that names a secret; empty if none does."""
    parts = path.split(".")
    for count, part in enumerate(parts, 1):
        if names_secret(part):
            return ".".join(parts[:count])
    return ""


def yaml_problem(error: Exception) -> str:
    """Return the problem of a YAML error, without its quotations of the text."""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return _QUOTED.sub(lambda match: match[0] if match["sign"] else "'…'", str(problem))


# --- positions of secrets ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """A secret or a mask in a text."""

    start: int
    end: int
    path: str
    value: str
    """The value as YAML that is valid in any context; the mask for a mask."""
    canonical: str
    """The value in a form that does not depend on its notation."""
    is_value: bool = True
    """False for a part of a comment."""


def _readable_spans(text: str) -> list[_Span]:
    try:
        return _spans(text)
    except (yaml.YAMLError, RecursionError):
        return []


def _spans(text: str, of_masks: bool = False) -> list[_Span]:
    """Return all secrets, or all masks, of a text in their order.

    Raises:
        YAMLError, RecursionError: the text is not YAML.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    by_start: dict[int, _Span] = {}
    if root is not None:
        for path, node in _secrets(root, "", False, set()):
            span = _span(text, path, node)
            if of_masks and _is_mask(node):
                span = _Span(span.start, span.end, path, node.value, node.value)
            if _is_mask(node) is of_masks and not _is_public_text(text[span.start : span.end]):
                by_start.setdefault(span.start, span)
    for span in _in_comments(text):
        if bool(_MASKED.fullmatch(span.value)) is of_masks:
            by_start.setdefault(span.start, span)
    return [by_start[start] for start in sorted(by_start)]


def _secrets(
    node: "yaml.Node", path: str, secret: bool, seen: set[tuple[int, bool]]
) -> "Iterator[tuple[str, yaml.Node]]":
    """Yield path and node of each secret below `node`; a list's items are secrets of their own.

    Args:
        node: Root of a tree.
        path: Its dotted path.
        secret: Whether a key above names a secret.
        seen: Visited nodes, with `secret`; aliases are visited once.
    """
    if (id(node), secret) in seen:
        return  # an alias
    seen.add((id(node), secret))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _secrets(item, f"{path}.{index}" if path else str(index), secret, seen)
    elif secret or _is_mask(node) or _has_password(node.value):
        yield path, node
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _secrets(name, path, False, seen)
            word = name.value if isinstance(name, yaml.ScalarNode) else ""
            inner = f"{path}.{word}" if path else word
            yield from _secrets(value, inner, names_secret(word), seen)


def _scalars(node: "yaml.Node") -> Iterator[str]:
    """Yield the scalar values in a secret, including those in its mappings and lists."""
    if isinstance(node, yaml.ScalarNode):
        yield node.value
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for _, item in node.value:
            yield from _scalars(item)


def _has_password(value: object) -> bool:
    match = _PASSWORD.search(value) if isinstance(value, str) else None
    return match is not None and not _REFERENCE.fullmatch(match["value"])


def _is_mask(node: "yaml.Node") -> bool:
    return isinstance(node, yaml.ScalarNode) and _MASKED.fullmatch(node.value) is not None


def _span(text: str, path: str, node: "yaml.Node") -> _Span:
    start, end = node.start_mark.index, _end(node)
    end = start + len(text[start:end].rstrip(_BLANK))
    raw = text[start:end]
    canonical = _canonical(node, raw)
    one_line = isinstance(node, yaml.ScalarNode) and "\n" not in raw
    simple = one_line and (raw[:1] in ("'", '"') or _SIMPLE.fullmatch(raw))
    return _Span(start, end, path, raw if simple else canonical, canonical)


def _end(node: "yaml.Node") -> int:
    """Return the offset of a node's end; for a block collection, PyYAML marks the next token."""
    inner = node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and inner:
        last = inner[-1][1] if isinstance(node, yaml.MappingNode) else inner[-1]
        return max(_end(last), int(last.start_mark.index))
    return int(node.end_mark.index)


def _canonical(node: "yaml.Node", raw: str) -> str:
    """Return the value of a node as YAML in flow style; `raw` if it cannot be loaded."""
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


def _is_public_text(raw: str) -> bool:
    """Return whether the YAML of a value is empty or a reference, and so never a secret."""
    return raw in _EMPTY or _REFERENCE.fullmatch(raw.strip("'\"")) is not None


def _is_public(value: Any) -> bool:
    """Return whether a loaded value is empty or a reference."""
    if value is None or value in ("", [], {}):
        return True
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _in_comments(text: str) -> Iterator[_Span]:
    """Yield secrets that are commented out: `# api_key: ...`, to the end of the line."""
    if "#" not in text:
        return
    after = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        gap = text[after : token.start_mark.index]
        for comment in re.finditer(r"#[^\n\r]*", gap):
            name = _secret_name(comment[0])
            raw = comment[0][name.end() :].rstrip() if name else ""
            if name and not _is_public_text(raw):
                start = after + comment.start() + name.end()
                yield _Span(start, start + len(raw), f"# {name['name']}", raw, raw, False)
        after = token.end_mark.index


def _secret_name(line: str) -> re.Match[str] | None:
    """Return the match of the first name of a secret in a line."""
    return next((match for match in _NAMED.finditer(line) if names_secret(match["name"])), None)


def _mask(value: str, key: bytes) -> str:
    if not key:
        return MASK
    digest = hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return f"{MASK} {digest[:8]}"


def _masked_lines(text: str) -> str:
    """Mask a text that is not YAML: each line with a secret's name, and its indented lines."""
    lines: list[str] = []
    inside: int | None = None
    for line in text.splitlines(keepends=True):
        key = _NEXT_KEY.match(line)
        if inside is not None and not (key and len(key["indent"]) <= inside):
            continue
        name = _secret_name(line)
        inside = len(line) - len(line.lstrip()) if name else None
        if name:
            lines.append(f"{line[: name.end()].rstrip()} '{MASK}'\n")
        else:
            lines.append(_PASSWORD.sub(MASK, line))
    return "".join(lines)
