"""Secrets in a job: detection, masking, and restoration of masked values.

A value is a secret when its key names one (`api_key`, `hf_token`, `password`, ...), whatever the
value is. All scalars of a mapping or list below such a key are secrets. A URL with a password is a
secret under any key. References such as `${oc.env:KEY}` and empty values are not secrets.
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
from ajet_swarm.common.secrets import names_secret

MASK: Final = "***"
"""Replacement of a secret; a digest may follow it."""

_MASKED: Final = re.compile(r"\*\*\*( [0-9a-f]{8})?")
_PUBLIC: Final = re.compile(r"|~|null|Null|NULL|\$\{(oc\.env:\w+(,\s*null)?|[\w.]+)\}")
"""An empty value, or a reference to the value's source."""
_PASSWORD: Final = re.compile(r"\w[\w+.-]*://[^/\s:@]*:(?P<value>[^/\s@]+)@")
"""A URL with a user and a password."""
_MIN_LENGTH: Final = 4
"""Minimum length of a secret that is replaced in texts; a shorter one occurs in ordinary words."""
_BLANK: Final = " \t\r\n\x85\u2028\u2029"
"""White space that ends a value in YAML; any other belongs to the value."""
_SIMPLE: Final = re.compile(r"[\w.+/=@-]+|'[^\n]*'|\"[^\n]*\"")
"""Scalars that have the same value in any YAML context."""
_NAMED: Final = re.compile(r"(?P<name>[\w.-]{0,60}\w)[\"']?[ \t]{0,8}[:=][ \t]*")
"""A name before its value in a comment."""
_QUOTED: Final = re.compile(r"""'(?P<sign><[^'>]*>|[^'])'|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A scalar of a job, or a secret in a comment."""

    start: int
    end: int
    path: str
    text: str
    """Its value, without quotes."""
    raw: str
    """As YAML that has this value in any context."""
    kind: str
    """Its tag; empty in a comment."""
    is_secret: bool

    @property
    def is_mask(self) -> bool:
        return _MASKED.fullmatch(self.text) is not None

    def mask(self, key: bytes) -> str:
        if not key:
            return MASK
        value = f"{self.kind} {self.text}".encode("utf-8", "surrogatepass")
        return f"{MASK} {hmac.new(key, value, hashlib.sha256).hexdigest()[:8]}"


def masked(text: str, key: bytes = b"") -> str:
    """Return the YAML of a job with every secret masked; all else, including comments, is kept.

    Args:
        text: The YAML; a text that is not YAML is masked as a whole.
        key: If not empty, each mask is followed by a keyed digest of its value: equal values have
            equal masks. Without the key a guess cannot be verified.
    """
    try:
        scalars = _scalars(text)
    except (yaml.YAMLError, RecursionError):
        return MASK
    for scalar in reversed(scalars):
        if scalar.is_secret and not scalar.is_mask:
            mask = f"'{scalar.mask(key)}'" if scalar.kind else scalar.mask(key)
            text = text[: scalar.start] + mask + text[scalar.end :]
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
    masks = [scalar for scalar in _readable(text) if scalar.is_mask]
    values: dict[tuple[str, str], str] = {}
    for index, source in enumerate(sources if masks else ()):
        for scalar in _readable(source):
            if scalar.is_secret and not scalar.is_mask:
                values.setdefault((scalar.path, scalar.mask(key)), scalar.raw)
                values.setdefault(("", scalar.mask(key)), scalar.raw)
                if not index:
                    values.setdefault((scalar.path, MASK), scalar.raw)
    for mask in reversed(masks):
        value = values.get((mask.path, mask.text))
        # `***` under a key that is not secret may be an ordinary value
        if value is None and (mask.is_secret or mask.text != MASK):
            value = values.get(("", mask.text)) if mask.text != MASK else None
            if value is None and mask.kind:
                raise UsageError(
                    f"`{mask.path}` is masked, and there is no saved value for it",
                    f"line {text.count(chr(10), 0, mask.start) + 1}",
                    "Type the value, or remove the line",
                )
        if value is not None:
            text = text[: mask.start] + value + text[mask.end :]
    return text


def without_secrets(value: Any, path: str = "") -> Any:
    """Return a loaded value of a job with each secret masked.

    Args:
        value: The value.
        path: Its dotted path in the job.
    """
    if secret_part(path):
        is_public = value in (None, "", [], {}) or _PUBLIC.fullmatch(str(value))
        return value if is_public else MASK
    if isinstance(value, Mapping):
        return {name: without_secrets(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_secrets(inner) for inner in value]
    return MASK if isinstance(value, str) and _has_password(value) else value


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
    secrets = {scalar.text for scalar in _readable(job) if scalar.is_secret and scalar.kind}
    secrets |= {match["value"] for value in secrets for match in _PASSWORD.finditer(value)}
    long = [value for value in secrets if len(value) >= _MIN_LENGTH]
    return tuple(sorted(long, key=lambda value: (-len(value), value)))


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


def _readable(text: str) -> list[_Scalar]:
    """Return the scalars of a text; none if it is not YAML."""
    try:
        return _scalars(text)
    except (yaml.YAMLError, RecursionError):
        return []


def _scalars(text: str) -> list[_Scalar]:
    """Return all scalars of a text, and the secrets in its comments, in their order.

    Raises:
        YAMLError, RecursionError: the text is not YAML.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found: dict[int, _Scalar] = {}
    for path, node, named in _nodes(root, "", False, set()) if root is not None else ():
        start, end = node.start_mark.index, node.end_mark.index
        raw = text[start:end].rstrip(_BLANK)
        end = start + len(raw)
        if not _SIMPLE.fullmatch(raw):
            dumped = yaml.safe_dump(node.value, default_style='"', width=2**31, allow_unicode=True)
            tag = "" if node.tag == "tag:yaml.org,2002:str" else f"!<{node.tag}> "
            raw = f"{tag}{dumped.strip()}"
        is_public = _PUBLIC.fullmatch(node.value) is not None
        secret = (named and not is_public) or _has_password(node.value)
        if start not in found or secret:  # an alias may stand below the name of a secret
            found[start] = _Scalar(start, end, path, node.value, raw, node.tag, secret)
    found |= {mask.start: mask for mask in _in_comments(text)}
    return [found[start] for start in sorted(found)]


def _nodes(
    node: "yaml.Node", path: str, is_secret: bool, seen: set[tuple[int, bool]]
) -> "Iterator[tuple[str, yaml.Node, bool]]":
    """Yield path, node and whether it is a secret of each scalar below `node`, keys included.

    Args:
        node: Root of a tree.
        path: Its dotted path; within a secret, places stand for the keys.
        is_secret: Whether a key above names a secret.
        seen: Visited nodes, with `is_secret`; aliases are visited once.
    """
    if (id(node), is_secret) in seen:
        return
    seen.add((id(node), is_secret))
    if isinstance(node, yaml.ScalarNode):
        yield path, node, is_secret
    for place, item in enumerate(node.value if isinstance(node, yaml.CollectionNode) else ()):
        if isinstance(node, yaml.SequenceNode):
            yield from _nodes(item, f"{path}.{place}".lstrip("."), is_secret, seen)
            continue
        name, value = item
        word = name.value if isinstance(name, yaml.ScalarNode) else ""
        inner = f"{path}.{place if is_secret else word}".lstrip(".")
        yield from _nodes(name, f"{inner}:", is_secret, seen)
        yield from _nodes(value, inner, is_secret or names_secret(word), seen)


def _has_password(value: str) -> bool:
    match = _PASSWORD.search(value)
    return match is not None and not _PUBLIC.fullmatch(match["value"])


def _in_comments(text: str) -> Iterator[_Scalar]:
    """Yield secrets that are commented out: `# api_key: ...`, to the end of the line."""
    after = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader) if "#" in text else ():
        for comment in re.finditer(r"#[^\n\r]*", text[after : token.start_mark.index]):
            names = (match for match in _NAMED.finditer(comment[0]) if names_secret(match["name"]))
            if (name := next(names, None)) and not _PUBLIC.fullmatch(
                raw := comment[0][name.end() :].rstrip()
            ):
                start = after + comment.start() + name.end()
                path = f"# {name['name']}"
                yield _Scalar(start, start + len(raw), path, raw, raw, "", True)
        after = token.end_mark.index
