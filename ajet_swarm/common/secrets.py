"""Which names and which texts are secrets, for logs, errors, exports and jobs.

The value of a key whose name says secret is one, whatever it looks like: `{"password": "..."}`,
`API_KEY=...`, `--token ...`. Known by their own form are tokens with the prefix of a provider,
private keys in PEM, `Authorization`, cookies, passwords in URLs, e-mail addresses and telephone
numbers. Every expression is linear in the length of the text, which may be hostile.
"""

import re

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
_KEY = rf"(?i){_NAME}$|^(?P<header>(?:proxy-)?authorization|(?:set-)?cookie)$"
_TELEPHONE_KEY = r"(?i)(?:^|[_\- ])(?:tele)?(?:phone|fax|mobile)(?:[_\- ]?(?:no|number))?$"
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
_TOKEN = (
    r"(?P<token>(?=\S{19})(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:(?:"
    + "|".join(map(re.escape, _PREFIXES.split()))
    + r")(?=[A-Za-z_./+=-]{0,60}[0-9])[A-Za-z0-9_./+=-]{15,}[A-Za-z0-9_/+=-]"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}))"
)
_FORMS = (
    r"(?P<private_key>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:\\[nr]|[A-Za-z0-9+/=:,.\s]|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)"
    r"|[A-Za-z][A-Za-z0-9+.-]{1,24}://[^\s/@:\"'<>]{0,100}:"
    r"(?P<password>(?![0-9]{1,5}@)[^\s@/\"'<>]{1,200})(?=@)"
    r"|(?i:\bauthorization\\{0,3}[\"']?[ \t]{0,3}[:=,][ \t]{0,3}\\{0,3}[\"']?[ \t]{0,3}"
    r"(?:(?:bearer|basic|token|digest|apikey|bot|negotiate|aws4-hmac-sha256)[ \t]+)?+"
    r"|\b(?:bearer|basic)[ \t]{1,3}(?=[a-z_.~+/=-]{0,80}[0-9])(?=\S{16}))"
    r"(?P<header>(?!-----BEGIN )[^\s\"'\\,;<>$({\[]{6,4000})"
    r"|(?i:\b(?:set-)?cookie)\\{0,3}[\"']?[ \t]{0,3}:[ \t]{0,3}"
    r"(?P<cookie>[^\r\n\"'\\=]{1,100}=[^\r\n\"'\\]{1,4000})"
)
"""Secrets of a known form. Compiled when first used, like all long expressions here."""
_ASSIGNED = (
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
_VARIABLE = r"[$<{*]|\[redacted:|\.{3}|…|%\w+%|[A-Za-z_][\w.]*[(\[]"
"""A bare value that is a placeholder, a variable or a call."""
_CODE = (
    r"(?i)[\[(%]|[a-z_]\w*(?:(?:\.|::|->)\w+)*[(\[]|[a-z_]\w*(?:(?:\.|::|->)[a-z_]\w*)+$"
    r"|(?:await|new|str|string|bytes|int|bool|number|any|optional|none|null|nil|undefined|true|false)$"
)
"""A bare value that is code; after `NAME=`, as in a file of variables, a word is the value."""
_SENTENCE = r"[^\W\d_]+[.,]?[ \t]+[^\W\d_]"
"""What follows `password: ` in a sentence."""
_ADDRESS = (
    r"(?P<address>(?<![\w.%+-])(?!(?:git|hg|svn)@[^\s:/]{1,80}[:/])[\w.+-]{1,64}(?:@|%40)"
    r"[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.(?!(?:png|jpe?g|gif|svg|webp|ico|pdf|[jt]sx?|py|json|ya?ml|toml"
    r"|css|html|xml|service|socket|timer|target|mount|git|lock|so|txt|zip|gz|tar|csv|log|conf|sh)\b)"
    r"[^\W\d_]{2,24}(?![\w@(]))"
)
_TELEPHONE = (
    r"(?P<telephone>(?<![\w.+/-])(?<![0-9] )"
    r"(?:\+[0-9]|\(?0?[0-9]{2})[0-9 ()./-]{5,20}[0-9](?![\w/-]))"
)
_CALLED = r"(?i)\b(?:tel|telephone|phone|mobile|fax|call)[.:]{0,2}[ \t]{0,3}$"
_AMERICAN = r"\([0-9]{3}\) ?[0-9]{3}[ .-][0-9]{4}|[0-9]{3}([.-])[0-9]{3}\1[0-9]{4}"
_IN_LOGS = r"(?i)\b(?:sk-[A-Za-z0-9+/=_-]{11,}|(?<=bearer )[A-Za-z0-9._~+/=-]{8,})"


_OF_JOB = (
    r"(?:key|secret|password|credential|cookie)s?$|(?:api|access|auth|hf)tokens$|apikey|secretkey"
    r"|(?:token|passwd|passphrase|passcode|pwd|authorization|auth|bearer|jwt)$|accesstoken|password"
)
"""Names of secrets in a job, in small letters without separators."""
_PLAIN_IN_JOB = (
    r"(?:prompt|response|rewardfn|image|video|audio|messages?|tools?|answer|sort|question|input"
    r"|output|query|reference|label|primary|foreign|group|metric)key"
    r"|(?:pad|eos|bos|unk|sep|cls|mask|image|video|stop|start|end|special)token"
)
"""Dataset columns and special tokens, such as `reward_fn_key` and `pad_token`."""
_OF_FORM = (("", _TOKEN), ("-----begin|://|authorization|bearer|basic|cookie", _FORMS))
_NAMES = "pass|pw|secret|token|key|cred|bearer|session|connection|kennwort|contrase|senha|密|пар"
_ALL = (*_OF_FORM, (_NAMES, _ASSIGNED), ("@|%40", _ADDRESS), ("", _TELEPHONE))
"""Words, one of which a text with a match contains in small letters, and the pattern."""
_KINDS = {
    "private_key": "private key",
    "password": "password",
    "address": "e-mail address",
    "telephone": "telephone number",
}
"""Last group of a match -> the kind of its secret; `token`, or a password by its name, else."""


def mark(kind: str) -> str:
    """Return the text in place of a secret."""
    return f"[redacted: {kind}]"


def secret_kind(name: object) -> str:
    """Return what a key of this name has: `password`, `token`, `telephone number` or nothing."""
    if not isinstance(name, str) or len(name) > 200:
        return ""
    if match := re.search(_KEY, name):
        return "password" if match["password"] else "token"
    return "telephone number" if re.search(_TELEPHONE_KEY, name) else ""


def names_secret(name: str) -> bool:
    """Return whether a value of this name in a job is a secret.

    Every name that ends with `key` or `token` counts as one, except the known exceptions: masking a
    value without need does no harm.
    """
    compact = re.sub(r"[^a-z0-9]", "", name.lower()).rstrip("0123456789")
    if re.fullmatch(_PLAIN_IN_JOB, compact):
        return False
    return bool(re.search(_OF_JOB, compact)) or re.split(r"[\W_]+", name.lower())[-1] == "pass"


def redact(text: str) -> str:
    """Return a line of a log, or an error, without keys, tokens and passwords of their own form."""
    return _replaced(re.sub(_IN_LOGS, "[redacted]", text), _OF_FORM)[0]


def without_secrets(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text without secrets, and the kinds of those that were replaced."""
    return _replaced(text, _ALL)


def _replaced(text: str, rules: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    kinds: list[str] = []

    def cut(match: re.Match[str]) -> str:
        """Return a match without its last group, whose name says the kind."""
        group = match.lastgroup or ""
        if group in ("quoted", "bare") and _is_reference(match):
            return match[0]
        if group == "telephone" and not _is_telephone(match):
            return match[0]
        named = "password" if match.groupdict().get("password") else "token"
        kinds.append(_KINDS.get(group, named))
        begin, end = match.span(group)
        start, after = match.span()
        return f"{match.string[start:begin]}{mark(kinds[-1])}{match.string[end:after]}"

    for words, pattern in rules:
        lower = text.lower()
        if any(word in lower for word in words.split("|")):
            text = re.sub(pattern, cut, text)
    return text, tuple(kinds)


def _is_reference(match: re.Match[str]) -> bool:
    """Return whether an assigned value is redacted already, code, or the begin of a sentence."""
    if "[redacted: " in match[0] or (bare := match["bare"]) is None:
        return "[redacted: " in match[0]
    name, begin = match.string[match.start() : match.start("sign")], match.start("bare")
    if match["sign"] == "=" and name.isupper() and match.end("sign") == begin:
        return re.match(_VARIABLE, bare) is not None
    goes_on = match["sign"] == ":" and re.match(_SENTENCE, match.string[begin : begin + 80])
    return bool(goes_on or re.match(_VARIABLE, bare) or re.match(_CODE, bare))


def _is_telephone(match: re.Match[str]) -> bool:
    number, digits = match[0], sum(map(str.isdigit, match[0]))
    before = match.string[max(0, match.start() - 16) : match.start()]
    if re.search(_CALLED, before) or re.fullmatch(_AMERICAN, number):
        return 6 <= digits <= 15
    return number[0] == "+" and 8 <= digits <= 15 and (digits >= 10 or " " in number.strip())
