"""Removal of keys, tokens, passwords, e-mail addresses and telephone numbers from an export.

The value of a key whose name says secret goes, whatever it looks like: `{"password": "..."}`,
`API_KEY=...`, `--token ...`. Known by their own form are tokens with the prefix of a provider,
private keys in PEM, `Authorization`, passwords in URLs, addresses and telephone numbers. Every
expression is linear in the length of the text, which may be hostile.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from console.export.json_text import JsonText, encoded

CACHE_TEXTS = 2_000
"""Number of texts whose result is kept: system prompts and questions repeat."""
CACHE_LENGTH = 20_000
"""Maximum length of a text whose result is kept."""
_PLAIN = re.compile(r"[a-z_]{1,24}")
"""A single word, such as most keys of objects: no rule applies to it."""
_SAMPLE = "ab 1-2\n_"
"""A text with beginnings and ends of words and lines, where a pattern must not match nothing."""

_NO_TOKENS = "max|min|num|pad|eos|bos|unk|sep|cls|mask|next|stop|page|total|special|prompt"
"""Words before `token` that make it a piece of text or a number of them."""
_NO_KEYS = "PUBLIC|PRIMARY|FOREIGN|PARTITION|SORT|CACHE|INDEX|UNIQUE"
_NAME = (
    r"(?:(?P<password>pass[_\- ]?(?:word|wort|phrase|code|wd)s?|passwd|pswd|kennwort|contrase[nñ]a"
    r"|senha|密码|пароль|(?<![a-z])pwd?s?|(?<=[_\-\"'])pass)"
    r"|secrets?|credentials?|creds|bearer|session[_\- ]?id|connection[_\- ]?string"
    r"|(?=token)"
    + "".join(f"(?<!{word})(?<!{word}[_ -])" for word in _NO_TOKENS.split("|"))
    + r"token"
    r"|(?:api|app|access|auth|client|private|secret|signing|encryption|master|account|service"
    r"|subscription|license|admin|storage|session|hmac|webhook|consumer|deploy|bot|wallet|jwt|root)"
    r"[_\- ]?key|(?=_KEY)"
    + "".join(f"(?<!(?-i:{word}))" for word in _NO_KEYS.split("|"))
    + r"(?-i:(?<=[A-Z0-9])_KEY))"
    r"(?:[_\-. ]?(?:prod|production|staging|dev|live|test|base|value|hex|b64|primary|secondary"
    r"|new|old|current|again|repeat(?:ed)?|confirm(?:ed|ation)?|v?[0-9]{1,3})){0,2}"
)
_KEY = re.compile(rf"(?i){_NAME}$|^(?P<header>(?:proxy-)?authorization|(?:set-)?cookie)$")
_TELEPHONE_KEY = re.compile(
    r"(?i)(?:^|[_\- ])(?:tele)?(?:phone|fax|mobile)(?:[_\- ]?(?:no|number))?$"
)
_ASSIGNED = re.compile(
    r"(?i)(?=[-|<_abcdehjkmprstw密п])"
    r"(?:(?P<flag>--[\w-]{0,40})|(?P<cell>[|<][ \t`*]{0,4}\w{0,40}))?"
    rf"{_NAME}(?![a-z0-9_])"
    r"[\\\"'`*\])]{0,5}(?:[ \t]?\([^()\n]{0,40}\))?"
    r"(?:[ \t]{0,2}:[ \t]{0,2}[a-z_][\w.\[\]| ]{0,30}?(?=[ \t]{0,2}=))?"
    r"(?:[ \t]{0,8}(?P<sign>=>|:=|=(?!=)|:(?!:)|%3D|(?(cell)[|>]|(?!)))[ \t]{0,8}"
    r"|(?(flag)[ \t]{1,4}|(?!)))"
    r"(?:(?P<quote>\\{0,3}[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\n]){1,400})(?P=quote)"
    r"|(?P<bare>[^\s,;&\"'`<>)}\]\\|]{1,400}))"
)
_REFERENCE = re.compile(
    r"(?i)[$<{\[(*%]|\.{3}|…|[a-z_]\w*(?:(?:\.|::|->)\w+)*[(\[]|[a-z_]\w*(?:(?:\.|::|->)[a-z_]\w*)+$"
    r"|(?:await|new|str|string|bytes|int|bool|number|any|optional|none|null|nil|undefined|true|false)$"
)
"""A bare value that is code, a variable, a type or a placeholder."""
_VARIABLE = re.compile(r"[$<{*]|\[redacted:|\.{3}|…|%\w+%|[A-Za-z_][\w.]*[(\[]")
"""The same after `NAME=` as in a file of environment variables, where a word is the value."""
_WORD = re.compile(r"[^\W\d_]+[.,]?$")
_GOES_ON = re.compile(r"[.,]?[ \t]+[^\W\d_]")
"""Between a word after `password: ` and the rest of its sentence."""
_AUTHORIZATION = re.compile(
    r"(?i)(\bauthorization\\{0,3}[\"']?[ \t]{0,3}[:=,][ \t]{0,3}\\{0,3}[\"']?[ \t]{0,3}"
    r"(?:(?:bearer|basic|token|digest|apikey|bot|negotiate|aws4-hmac-sha256)[ \t]+)?+"
    r"|\b(?:bearer|basic)[ \t]{1,3}(?=[a-z_.~+/=-]{0,80}[0-9])(?=\S{16}))"
    r"([^\s\"'\\,;<>$({\[]{6,4000})"
)
_COOKIE = re.compile(
    r"(?i)(\b(?:set-)?cookie\\{0,3}[\"']?[ \t]{0,3}:[ \t]{0,3})([^\r\n\"'\\]{4,4000})"
)
_LOGIN = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{1,24}://[^\s/@:\"'<>]{0,100}:)([^\s@/\"'<>]{1,200})(?=@)"
)
_COMMAND_LOGIN = re.compile(
    r"((?<![\w-])(?:-u|--user)[ \t=]{1,4}[\"']?[^\s:\"']{1,64}:)([^\s\"']{3,200})"
)
_PRIVATE_KEY = re.compile(
    r"()(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:\\[nr]|[A-Za-z0-9+/=:,.\s]|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)"
)
_PREFIXES = (
    # code and packages
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- glrt- npm_ pypi- rubygems_ dckr_pat_ snyk_ ATATT"
    # language models
    " sk- sk_ gsk_ pplx- xai- hf_ api_org_ r8_ nvapi- tgp_v1_ fw_ csk- pcsk_ lsv2_ tvly- jina_"
    # clouds and operation
    " AIza ya29. GOCSPX- LTAI dop_v1_ doo_v1_ HRKU- sbp_ sb_secret_ hvs. hvb. hvr. pul- PMAK-"
    " AGE-SECRET-KEY-1 NRAK- glc_ glsa_ sntrys_ sntryu_ dt0c01. dapi phc_ phx_ tskey- lin_api_ ntn_"
    # messages, mail, payment
    " xoxb- xoxp- xoxa- xoxs- xoxe- xapp- SG. xkeysib- rk_live_ rk_test_ pk_live_ pk_test_ whsec_"
    " shpat_ shpss_ sq0atp- sq0csp- EAAA hooks.slack.com/services/ discord.com/api/webhooks/"
)
_TOKEN = re.compile(
    r"()(?=\S{19})((?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:(?:"
    + "|".join(map(re.escape, _PREFIXES.split()))
    + r")(?=[A-Za-z_./+=-]{0,60}[0-9])[A-Za-z0-9_./+=-]{15,}[A-Za-z0-9_/+=-]"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}))"
)
_ADDRESS = re.compile(
    r"()((?<![\w.%+-])(?!(?:git|hg|svn)@[^\s:/]{1,80}[:/])[\w.+-]{1,64}(?:@|%40)"
    r"[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.(?!(?:png|jpe?g|gif|svg|webp|ico|pdf|[jt]sx?|py|json|ya?ml|toml"
    r"|css|html|xml|service|socket|timer|target|mount|git|lock|so|txt|zip|gz|tar|csv|log|conf|sh)\b)"
    r"[^\W\d_]{2,24})(?![\w@(])"
)
_TELEPHONE = re.compile(
    r"()((?<![\w.+/-])(?<![0-9] )(?:\+[0-9]|\(?0?[0-9]{2})[0-9 ()./-]{5,20}[0-9](?![\w/-]))"
)
_CALLED = re.compile(r"(?i)\b(?:tel|telephone|phone|mobile|fax|call)[.:]{0,2}[ \t]{0,3}$")
_AMERICAN = re.compile(r"\([0-9]{3}\) ?[0-9]{3}[ .-][0-9]{4}|[0-9]{3}([.-])[0-9]{3}\1[0-9]{4}")


_HEX_KEY = re.compile(r"(?i)(private[_\- ]?key[^\n]{0,40}?)(\b(?:0x)?[0-9a-f]{64}\b)")
_NAME_FIELDS = ("name", "key", "variable", "header")
_VALUE_FIELDS = frozenset({"value", "values", "default", "example"})


def mark(kind: str) -> str:
    """Return the text in place of a secret."""
    return f"[redacted: {kind}]"


def _secret_kind(name: object) -> str | None:
    """Return the kind of the secret that a key names; None if it names none."""
    if not isinstance(name, str) or len(name) > 200:
        return None
    if (match := _KEY.search(name)) is not None:
        return "password" if match["password"] else "token"
    return "telephone number" if _TELEPHONE_KEY.search(name) else None


def _is_telephone(match: re.Match[str]) -> bool:
    number = match[2]
    digits = sum(map(str.isdigit, number))
    before = match.string[max(0, match.start() - 16) : match.start()]
    if _CALLED.search(before) or _AMERICAN.fullmatch(number):
        return 6 <= digits <= 15
    return number[0] == "+" and 8 <= digits <= 15 and (digits >= 10 or " " in number.strip())


_Test = Callable[[re.Match[str]], bool]
_FORMS: tuple[tuple[str, re.Pattern[str], str, _Test], ...] = (
    ("private key", _PRIVATE_KEY, "private key", bool),
    ("private", _HEX_KEY, "private key", bool),
    ("", _TOKEN, "token", bool),
    ("-u", _COMMAND_LOGIN, "password", bool),
    ("://", _LOGIN, "password", lambda match: not match[2].isdigit() or len(match[2]) > 5),
    ("authorization|bearer|basic", _AUTHORIZATION, "token", bool),
    ("cookie", _COOKIE, "token", lambda match: "=" in match[2]),
)
"""Words, one of which a text with a match contains in small letters; pattern, kind, and test of a
match, whose group 2 is replaced."""
_CONTACTS: tuple[tuple[str, re.Pattern[str], str, _Test], ...] = (
    ("@|%40", _ADDRESS, "e-mail address", bool),
    ("", _TELEPHONE, "telephone number", _is_telephone),
)
_SECRET_WORDS = (
    "pass|pw|secret|token|key|cred|bearer|session|connection|kennwort|contrase|senha|密|пар"
)


class Redactor:
    """Replaces secrets by `[redacted: KIND]` and counts them.

    Args:
        patterns: Regular expressions of the operator; each match is replaced.

    Raises:
        UsageError: A pattern is no regular expression, or matches the empty text.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._own = [_compiled(pattern) for pattern in patterns]
        self._cache: OrderedDict[str, tuple[str, tuple[str, ...]]] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """Number of replaced secrets by kind."""

    def value(self, value: Any, kind: str | None = None) -> Any:
        """Return a plain JSON value with redacted texts; the keys of objects are redacted too.

        Args:
            value: The value.
            kind: Kind of the secret that a key announces, such as `password`.

        Raises:
            RecursionError: The value is nested too deeply.
        """
        if isinstance(value, JsonText):
            return encoded(self.value(value.value, kind))
        if isinstance(value, Mapping):
            return self._object(value, kind)
        if isinstance(value, list | tuple):
            return self._list(value, kind)
        if kind and isinstance(value, str | int | float) and value != "" and value not in (0, 1):
            self.counts[kind] += 1
            return mark(kind)
        return self.text(value) if isinstance(value, str) else value

    def _object(self, value: Mapping[Any, Any], kind: str | None) -> dict[str, Any]:
        """Redact an object; the description of a type keeps all but its example values."""
        describes_type = isinstance(value.get("type"), str)
        named = None
        if "role" not in value:  # `name` of a message is a tool
            named = next(filter(None, (_secret_kind(value.get(at)) for at in _NAME_FIELDS)), None)
        clean: dict[str, Any] = {}
        for key, item in value.items():
            text = unique = self.text(str(key))
            number = 1
            while unique in clean:  # two redacted keys are equal, their values are not
                number += 1
                unique = f"{text} {number}"
            announced = _secret_kind(key)
            if key in _VALUE_FIELDS:
                announced = announced or named or kind
            elif not describes_type:
                announced = announced or kind
            clean[unique] = self.value(item, announced)
        return clean

    def _list(self, value: Sequence[Any], kind: str | None) -> list[Any]:
        """Redact a list; a flag such as `--token` and the first item of a pair are names too."""
        clean: list[Any] = []
        flag = None
        for item in value:
            if (
                isinstance(item, list | tuple)
                and len(item) == 2
                and (pair := _secret_kind(item[0]))
            ):
                clean.append([item[0], self.value(item[1], pair)])
            else:
                clean.append(self.value(item, kind or flag))
            is_flag = isinstance(item, str) and item.startswith("-")
            flag = _secret_kind(item) if is_flag else None
        return clean

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not self._own and (len(text) < 5 or _PLAIN.fullmatch(text)):
            return text
        cached = self._cache.get(text)
        if cached is None:
            cached = self._redacted(text)
            if len(text) <= CACHE_LENGTH:
                self._cache[text] = cached
                if len(self._cache) > CACHE_TEXTS:
                    self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(text)
        result, kinds = cached
        self.counts.update(kinds)
        return result

    def _redacted(self, text: str) -> tuple[str, tuple[str, ...]]:
        kinds: list[str] = []
        for pattern in self._own:
            text = pattern.sub(lambda match: _own_mark(match, kinds), text)
        for form in _FORMS:
            text = _without(text, *form, kinds)
        if _has_word(text, _SECRET_WORDS):
            text = _ASSIGNED.sub(lambda match: _without_assigned(match, kinds), text)
        for form in _CONTACTS:
            text = _without(text, *form, kinds)
        return text, tuple(kinds)


def _has_word(text: str, words: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in words.split("|"))


def _without(
    text: str, words: str, pattern: re.Pattern[str], kind: str, test: _Test, kinds: list[str]
) -> str:
    def replaced(match: re.Match[str]) -> str:
        if not test(match):
            return match[0]
        kinds.append(kind)
        return match[1] + mark(kind)

    return pattern.sub(replaced, text) if _has_word(text, words) else text


def _without_assigned(match: re.Match[str], kinds: list[str]) -> str:
    """Return an assignment without its value, unless that is a reference or begins a sentence."""
    if "[redacted: " in match[0]:
        return match[0]
    part = "quoted" if match["bare"] is None else "bare"
    if part == "bare":
        name = match.string[match.start() : match.start("sign")]
        is_variable = (
            match["sign"] == "=" and name.isupper() and match.end("sign") == match.start(part)
        )
        if (_VARIABLE if is_variable else _REFERENCE).match(match["bare"]):
            return match[0]
        is_word = match["sign"] == ":" and _WORD.match(match["bare"])
        if is_word and _GOES_ON.match(match.string, match.end()):
            return match[0]
    kind = "password" if match["password"] else "token"
    kinds.append(kind)
    begin, end = match.span(part)
    return match.string[match.start() : begin] + mark(kind) + match.string[end : match.end()]


def _own_mark(match: re.Match[str], kinds: list[str]) -> str:
    if not match[0]:
        return ""
    kinds.append("own pattern")
    return mark("own pattern")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"`{one_line(pattern, 60)}` is no regular expression: {error}",
            "export.patterns",
            "Correct it in the settings",
        ) from error
    if any(not match[0] for match in compiled.finditer(_SAMPLE)) or compiled.match(""):
        raise UsageError(
            f"`{one_line(pattern, 60)}` matches the empty text, so it would match everywhere",
            "export.patterns",
            "Use a pattern that needs at least one character",
        )
    return compiled
