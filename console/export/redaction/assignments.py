"""Secrets that are known by the words before them: `password: …`, `api_key="…"`, `Bearer …`."""

import re
from collections.abc import Callable
from typing import NamedTuple

from console.export.redaction.marks import (
    HEX,
    UUID,
    entropy,
    has_three_kinds,
    is_mixed,
    is_odd,
    is_random,
    mark,
)

_CORE = re.compile(
    "pass|pwd|pswd|pw|kennwort|contrase|senha|密码|пароль|key|secret|token|cred|signature|sig|sess|sid"
    "|bearer|connection|webhook"
)
"""Beginning or end of a name, in small letters; a full name is matched around it only there."""
_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
"""Keys whose whole value is a secret."""
_PASSWORD = re.compile(
    r"pass[_\- ]?(?:word|wort|phrase|code|wd)|passw?d|pswd|pwd|kennwort|contrase[nñ]a|senha|密码"
    r"|пароль|passe\b|(?P<short>(?<![a-z])(?:pass|pw)(?![a-z]))"
)
_TOKEN = re.compile(
    r"secret|token|credentials?|creds|signature|(?<![a-z])(?:sig|sid)(?![a-z])|session[_\- ]?id"
    r"|sessid|bearer|connection[_\- ]string|webhook"
)
_NAMED_KEY = re.compile(
    r"(?:api|app|access|auth|client|private|secret|signing|encryption|master|account|shared access"
    r"|service|subscription|license|licence|admin|storage|session|hmac|webhook|consumer|application"
    r"|deploy|bot|publishable|live|server|write|read|ingest|root|jwt|rest|sharedaccess)[_\- ]{0,2}$"
)
"""What stands before `key`, which makes it the name of a secret."""
_OTHER_KEY = re.compile(r"(?P<what>[a-z0-9]{1,30})[_\- ]$")
_SECRET = re.compile(r"(?i)secret|key")
"""Names whose values are secrets; the value of `token` may also be the name of a class."""
_SUFFIX = (
    r"s?(?:[_\-]?(?:prod(?:uction)?|staging|dev|live|test|base|value|primary|secondary|key|hex|b64"
    r"|v?[0-9]{1,3})){0,2}"
)
_KEY_END = re.compile(
    r"(?i)[_\-. ]?(?:confirm(?:ation|ed)?|repeat(?:ed)?|again|retype|new|old|current"
    r"|plain(?:text)?)"
)
"""Endings of the keys of forms, such as `password_confirmation`."""
_QUOTE = r"(?:\\{0,3}[\"'`*_]{1,3}|&quot;|\]|\)){0,3}"
_TYPE = r"(?:[ \t]{0,2}:[ \t]{0,2}[A-Za-z_][A-Za-z0-9_.\[\]| ]{0,30}?(?=[ \t]{0,2}=))?"
_SIGN = (
    r"[ \t]{0,8}(?:\r?\n[ \t]{0,8})?(?::=|=>|->|→|={1,3}|:{1,2}|\||>|%3D|%3A|≔"
    r"|(?:\([^()\n]{0,40}\)[ \t]{0,2})(?::|=))[ \t]{0,8}(?:\r?\n{1,2}[ \t]{0,8})?"
)
_AFTER = re.compile(
    rf"{_SUFFIX}{_QUOTE}{_TYPE}{_SIGN}(?P<open>(?:[bru](?=[\"']))?(?:\\{{0,3}}[\"'`]{{1,3}}|\*\*|&quot;)?)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"(?:[ \t]+[\w'’./#()-]{1,24}){0,7}?[ \t]*[,:]?[ \t\r\n]{0,3}"
    r"\b(?:is|was|are|will be|to|as|with|of|ist|es|est)\b[ \t]*:?[ \t\r\n]{0,3}"
    r"(?:now |still |just |currently |simply )?(?P<open>\\{0,3}[\"'`“‘*<]{0,2})",
    re.IGNORECASE,
)
_FLAG = re.compile(r"[ \t]{1,4}(?P<open>\\{0,3}[\"'`]?)")
"""Between a flag of a command or a word of `.netrc` and its value."""
_ACRONYM = re.compile(r"[A-Z]{2,}[a-z]+[A-Z]|[a-z][A-Z]{2,}[a-z]")
"""Small letters among several capitals, as names do not have them."""
_DASH = re.compile(r"-[\w-]{0,30}$")
_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_VALUE = re.compile(r"\S{1,400}")
_NEAR = re.compile(r"[A-Za-z0-9_+/=.~-]{16,400}")
_HASHES = re.compile(
    r"(?i)hash|sha-?\d|sum\b|digest|commit|md5|etag|uuid|revision|\bid\b|public|fingerprint|build"
)
_PLACEHOLDER = re.compile(
    r"(?i)<|\$\{?[a-z_(]|\{\{|\{[a-z_]*\}|%\(|%[a-z]%?$|\[redacted|\*{3}|\.{3}|…|x{4,}|your|my[_-]"
    r"|changeme|change[_-]me|example|placeholder|redacted|hidden|todo|none\b|null\b|undefined\b"
    r"|true\b|false\b|required|optional|os\.|process\.|env\b|env[.\[(]|getenv"
)
_CODE = re.compile(
    r"(?:await |new |self\.|this\.|&|\*|!)?[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)*[(\[]"
    r"|[A-Za-z_$]+(?:(?:\.|::|->)[A-Za-z_$]+)+[,;)]?$|[\[({]"
)
_PARAMETERS = re.compile(r",[a-z_]{2,30}=")
_PLAIN_SIGNS = "_-./:'’,()\\[]|?`{}"
"""Signs that words and code have."""
_WORD = re.compile(r"[A-Za-z_\-]+")
_DULL_WORDS = (
    "string password secret token text bytes str int bool number value key name type hash bcrypt"
    " argon2 scrypt basic bearer oauth email user username admin_password api_key header cookie"
    " input output field object array unknown default empty test plain plaintext"
)
_DULL = frozenset(_DULL_WORDS.split())
_STEM_WORDS = (
    "pass word secret user name string text hash crypt requir option valid correct protect change"
    " reset forgot expir login policy default token value credential input field prompt missing"
    " empty unknown never always must should cannot please enter hidden strong weak config setting"
    " param argument request response generate manag environ"
)
_STEMS = tuple(_STEM_WORDS.split())
"""Parts of words that follow `password:` without being one."""
_NO_KEY_WORDS = (
    "primary foreign cache sort partition public object s3 row dict idempotency ssh host index"
    " lookup bucket join group map the a this that each every composite unique answer hot pub"
    " config json any one by same its low off mon don tur"
)
_NO_KEYS = frozenset(_NO_KEY_WORDS.split())
"""Words before `key` that make it no secret."""
_HEADER = re.compile(
    r"(?i)(?P<name>\bauthorization\\{0,3}[\"']?[ \t]{0,3}[:=,][ \t]{0,3}\\{0,3}[\"']?[ \t]{0,3}"
    r"(?:(?:bearer|basic|token|digest|apikey|bot|negotiate|aws4-hmac-sha256)[ \t]+)?)"
    r"(?P<value>[^\s\"'\\,;<>]{6,4000})"
)
_SCHEME = re.compile(
    r"(?i)(?P<name>\b(?:bearer|basic|token)[ \t]{1,3}\\{0,3}[\"'`]?)"
    r"(?P<value>[A-Za-z0-9_.~+/=-]{8,4000})"
)
_COOKIE = re.compile(
    r"(?i)(?P<name>\b(?:set-)?cookie\\{0,3}[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\{0,3}[\"']?)"
    r"(?P<value>[A-Za-z0-9_.-]{1,60}=[^\r\n\"'\\]{4,4000})"
)
_COMMAND_LOGIN = re.compile(
    r"(?P<name>(?<![\w-])(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=)[\"']?[^\s:\"']{1,64}:)"
    r"(?P<value>[^\s\"']{3,200})"
)
_COMMAND_PASSWORD = re.compile(
    r"(?P<name>\b(?:sshpass|mysql|mysqldump|mariadb|redis-cli|ldapsearch|docker login)\b"
    r"[^\n|]{0,120}?"
    r"[ \t]-(?:p|a|w)[ \t]?[\"']?)(?P<value>[^\s\"'-][^\s\"']{3,200})"
)
_PHRASE = re.compile(
    r"(?i)(?P<name>(?:seed|recovery|backup|mnemonic|wallet)[ \t]{0,2}(?:phrase|words?|mnemonic)?"
    r"[^a-z\n]{0,6}(?:(?:is|are)[ \t:]{0,4})?[\"'`\r\n ]{0,4})"
    r"(?P<value>(?:[a-z]{3,8}[ \t,]{1,2}){11,23}[a-z]{3,8})"
)
_LOGIN_PAIR = re.compile(
    r"(?i)(?P<name>\b(?:log(?:in|[ \t]in)|credentials?|creds|user(?:name)?|account)\b[^\n]{0,40}?"
    r"[ \t:=(\"'`][A-Za-z0-9_.-]{2,40}(?:@[A-Za-z0-9_.-]{2,80})?[ \t]{0,2}[/:][ \t]{0,2})"
    r"(?P<value>[^\s\"'`),]{5,100})"
)


def without_assigned(text: str, kinds: list[str]) -> str:
    """Replace the values that words such as `password` announce.

    Args:
        text: The text.
        kinds: Kinds of the replaced secrets; extended.
    """
    lower = lowered(text)
    for rule in _RULES:
        if any(word in lower for word in rule.words):
            text = _replaced(rule, text, kinds)
    return _without_named(text, kinds)


def announces(name: str, value: str) -> str | None:
    """Return the kind of secret that a value under a key is; None if it is none.

    Args:
        name: The key, such as `DB_PASSWORD` or `apiKey`.
        value: The text under it; empty to ask about the name alone.
    """
    lower = lowered(name)
    if lower in _HEADERS:
        return "token" if not value or _is_header(value.rpartition(" ")[2]) else None
    place = 0
    while (core := _CORE.search(lower, place)) is not None:
        place = core.end()
        part = _name_at(name, lower, core)
        if part is None or not _is_end(name, part):
            continue
        if not value or _fits(value, part, quoted=True):
            return part.kind
    return None


def is_spoken(value: str, kind: str) -> bool:
    """Return whether a value is a secret of a kind by its own characters alone."""
    if kind == "password":
        return not any(map(str.isspace, value)) and _is_spoken_password(value)
    return _is_token(value)


def _is_end(text: str, name: "_Name") -> bool:
    """Return whether a key ends with the name of a secret, or with a usual ending after it."""
    rest = _KEY_END.match(text, name.end)
    return _AFTER.fullmatch(text + ":", rest.end() if rest is not None else name.end) is not None


def lowered(text: str) -> str:
    """Return a text of the same length in small letters."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.translate(_SMALL)


def _replaced(rule: "_Rule", text: str, kinds: list[str]) -> str:
    def one(match: re.Match[str]) -> str:
        if not rule.is_secret(match["value"]):
            return match[0]
        kinds.append(rule.kind)
        return match["name"] + mark(rule.kind)

    return rule.pattern.sub(one, text)


class _Name(NamedTuple):
    """Name of a secret in a text."""

    start: int
    end: int
    kind: str
    text: str
    """As it is in the text."""
    short: bool = False
    """It is the word `pass` alone."""
    other: bool = False
    """It is a key of an unknown kind."""


def _without_named(text: str, kinds: list[str]) -> str:
    lower = lowered(text)
    parts: list[str] = []
    at = place = 0
    while (core := _CORE.search(lower, place)) is not None:
        place = core.end()
        name = _name_at(text, lower, core)
        if name is None:
            continue
        place = max(place, name.end)
        span = _secret_after(text, name)
        if span is None or span[0] < at:
            continue
        parts += [text[at : span[0]], mark(name.kind)]
        kinds.append(name.kind)
        at = place = span[1]
    return "".join((*parts, text[at:])) if parts else text


def _name_at(text: str, lower: str, core: re.Match[str]) -> _Name | None:
    """Return the whole name of which a part was found; None if it is no name of a secret.

    Args:
        text: The text.
        lower: The same in small letters.
        core: The part.
    """
    begin, end = core.span()
    if core[0] == "key":
        before = lower[max(0, begin - 32) : begin]
        if (named := _NAMED_KEY.search(before)) is not None:
            first = begin - len(before) + named.start()
            return _Name(begin, end, "token", text[first:end])
        other = _OTHER_KEY.search(before)
        if other is None or other["what"] in _NO_KEYS:
            return None
        return _Name(begin, end, "token", text[begin:end], other=True)
    if (match := _PASSWORD.match(lower, begin)) is not None:
        whole = text[begin : match.end()]
        return _Name(begin, match.end(), "password", whole, short=match["short"] is not None)
    if (match := _TOKEN.match(lower, begin)) is not None:
        return _Name(begin, match.end(), "token", text[begin : match.end()])
    return None


def _secret_after(text: str, name: _Name) -> tuple[int, int] | None:
    """Return the place of the secret that a name announces; None for none."""
    if (after := _AFTER.match(text, name.end)) is not None:
        span = _value_at(text, after.end(), after["open"])
        if span is not None and _fits(text[slice(*span)], name, bool(after["open"])):
            return span
    if name.other or name.short:
        return None
    return _flagged(text, name) or _in_sentence(text, name) or _near(text, name.end)


def _flagged(text: str, name: _Name) -> tuple[int, int] | None:
    """Return the place of the value of a flag of a command, or of a word before a password."""
    before = text[max(0, name.start - 32) : name.start]
    is_flag = _DASH.search(before) is not None
    if not is_flag and name.kind != "password":
        return None
    after = _FLAG.match(text, name.end)
    span = _value_at(text, after.end(), after["open"]) if after is not None else None
    if span is None:
        return None
    test = _is_password if is_flag and name.kind == "password" else _is_spoken_password
    return span if test(text[slice(*span)]) else None


def _in_sentence(text: str, name: _Name) -> tuple[int, int] | None:
    """Return the place of the value of a sentence such as `the password is ...`."""
    after = _SENTENCE.match(text, name.end)
    span = _value_at(text, after.end(), after["open"]) if after is not None else None
    if span is None:
        return None
    test = _is_spoken_password if name.kind == "password" else _is_token
    return span if test(text[slice(*span)]) else None


def _value_at(text: str, begin: int, opened: str) -> tuple[int, int] | None:
    """Return the place of the value at `begin`; `opened` is the quote before it."""
    quote = opened.lstrip("bruBRU") if opened[-1:] in "\"'`" else ""
    closing = quote[-1:] if quote else ""
    if closing:
        line_end = text.find("\n", begin, begin + 400)
        stop = line_end if line_end >= 0 else min(len(text), begin + 400)
        end = text.find(closing, begin, stop)
        if end > begin:
            while end > begin and text[end - 1] == "\\":
                end -= 1
            return (begin, end) if end > begin else None
    match = _VALUE.match(text, begin)
    if match is None:
        return None
    value = match[0]
    for sign in ("\\n", "\\r", "\\t", '\\"', "&", "</", '"', "`", "**"):
        cut = value.find(sign)
        if cut > 0:
            value = value[:cut]
    value = value.rstrip(".,;:!?)]}>'\"*\\|")
    return (begin, begin + len(value)) if value else None


def _fits(value: str, name: _Name, quoted: bool) -> bool:
    if name.kind == "password":
        if name.short and not is_mixed(value, 1) and not is_odd(value):
            return bool(_ACRONYM.search(value)) and value.isalpha()
        return _is_password(value) if quoted else _is_unquoted_password(value)
    if name.other:
        return len(value) >= 20 and _is_token(value) and is_random(value, 20) and "/" not in value
    if _is_token(value):
        return True
    holds_secret = _SECRET.search(name.text) is not None or name.text.isupper()
    return holds_secret and len(value) >= 10 and _is_plain_secret(value)


def _is_plain_secret(value: str) -> bool:
    """Return whether a value has capitals, small letters and digits, and is no code or path."""
    if _is_placeholder(value) or _CODE.match(value) is not None or not value.isascii():
        return False
    return has_three_kinds(value) and not any(sign in value for sign in " ./:{[(")


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.match(value) is not None or len(set(value)) == 1


def _is_bearer(value: str) -> bool:
    """Return whether a word after `bearer`, `basic` or `token` is a token."""
    if is_random(value, 8) or UUID.fullmatch(value):
        return True
    return len(value) >= 16 and has_three_kinds(value)


def _is_header(value: str) -> bool:
    """Return whether the value of the header `authorization` is more than the name of a scheme."""
    if _is_placeholder(value) or _CODE.match(value) is not None:
        return False
    return is_mixed(value, 1) or is_odd(value) or len(value) >= 16


def _is_password(value: str) -> bool:
    """Return whether a value between quotes, or after a flag, is a password."""
    if len(value) < 4 or _is_placeholder(value) or value.lower() in _DULL:
        return False
    if " " in value:  # a label such as `Enter your password`; a passphrase has no capital or sign
        words = value.split()
        return len(words) >= 4 and all(word.islower() and word.isalpha() for word in words)
    return _CODE.match(value) is None or is_mixed(value, 1)


def _is_unquoted_password(value: str) -> bool:
    if not _is_password(value) or _CODE.match(value) is not None:
        return False
    if value.isalpha() and len(value) >= 8 and not any(one in value.lower() for one in _STEMS):
        return True
    return _is_spoken_password(value)


def _is_spoken_password(value: str) -> bool:
    """Return whether a value is a password by its own characters alone."""
    if len(value) < 4 or _is_placeholder(value) or _CODE.match(value) is not None:
        return False
    if value.isdigit():
        return len(value) >= 6
    if _WORD.fullmatch(value):
        return is_odd(value) or (len(value) >= 8 and _ACRONYM.search(value) is not None)
    digits = sum(map(str.isdigit, value))
    signs = sum(not one.isalnum() and one not in _PLAIN_SIGNS for one in value)
    if "://" in value or value[:2] == "//" or (not digits and value[:1] in "\\(["):
        return False
    if is_odd(value):
        return True
    return digits + signs >= 1 and any(map(str.isalpha, value)) and digits + signs + len(value) >= 7


def _is_token(value: str) -> bool:
    """Return whether a value is a key or a token."""
    if len(value) < 8 or " " in value or _is_placeholder(value):
        return False
    if _CODE.match(value) is not None or "{" in value or _PARAMETERS.search(value):
        return False
    if UUID.fullmatch(value):
        return True
    if HEX.fullmatch(value):
        return len(value) >= 16 and is_mixed(value)
    if "://" in value:
        return False
    mixed = has_three_kinds(value) or _ACRONYM.search(value) is not None
    if len(value) >= 16 and mixed and entropy(value) >= 3.3:
        longest = max(value.split("/"), key=len)
        if longest == value or "+" in value or any(map(is_odd, value.split("/"))):
            return True
        return len(longest) >= 12 and has_three_kinds(longest)
    signs = sum(not one.isalnum() and one not in "_-./:" for one in value)
    if has_three_kinds(value) and (signs or is_odd(value)):  # a password under the name of a key
        return True
    return is_mixed(value, 2) and (is_random(value, 8) or signs >= 1)


def _near(text: str, begin: int) -> tuple[int, int] | None:
    """Return the place of a random token soon after a name."""
    match = _NEAR.search(text, begin, begin + 120)
    if match is None or match.start() > begin + 60:
        return None
    value = match[0].rstrip(".=/-") + "=" * (len(match[0]) - len(match[0].rstrip("=")))
    gap = text[begin : match.start()]
    if _HASHES.search(gap) or UUID.search(value) or HEX.fullmatch(value) or "/" in value[:2]:
        return None
    capital = any(map(str.isupper, value)) and any(map(str.islower, value))
    if not is_random(value, 20) or not capital:
        return None
    return match.start(), match.start() + len(match[0])


class _Rule(NamedTuple):
    """A pattern whose group `name` announces the group `value`."""

    words: tuple[str, ...]
    """A text without any of these, in small letters, has no match."""
    pattern: re.Pattern[str]
    kind: str
    is_secret: Callable[[str], bool]


_RULES = (
    _Rule((" -u", "-user"), _COMMAND_LOGIN, "password", _is_password),
    _Rule(
        ("sshpass", "mysql", "mariadb", "redis-cli", "ldapsearch", "docker login"),
        _COMMAND_PASSWORD,
        "password",
        _is_password,
    ),
    _Rule(("authorization",), _HEADER, "token", _is_header),
    _Rule(("bearer", "basic ", "token "), _SCHEME, "token", _is_bearer),
    _Rule(("cookie",), _COOKIE, "token", lambda value: True),
    _Rule(("phrase", "mnemonic", "seed"), _PHRASE, "password", lambda value: True),
    _Rule(("login", "log in", "cred", "user"), _LOGIN_PAIR, "password", _is_spoken_password),
)
