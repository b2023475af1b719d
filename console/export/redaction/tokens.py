"""Tokens that are known by their own form: prefixes of providers, JWTs, passwords in URLs."""

import re

from console.export.redaction.marks import mark

_W = "[A-Za-z0-9_-]"
_A = "[A-Za-z0-9]"
_PREFIXED = (
    # code hosting and packages
    rf"gh[pousr]_{_A}{{20,}}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl[a-z]{2,6}-[A-Za-z0-9_.-]{16,}",
    rf"GR1348941{_W}{{16,}}",
    rf"AT(?:ATT|BB|CTT)[A-Za-z0-9]{_W}{{16,}}=?[A-Z0-9]{{0,10}}",
    rf"npm_{_A}{{30,}}",
    rf"pypi-{_W}{{24,}}",
    r"rubygems_[a-f0-9]{30,}",
    rf"dckr_(?:pat|oat)_{_W}{{16,}}",
    r"oy2[a-z0-9]{43}",
    rf"cio{_A}{{32}}(?![A-Za-z0-9])",
    r"CLOJARS_[a-z0-9]{50,}",
    rf"cmVmdGtu{_A}{{40,}}",
    rf"AKC{_A}{{60,}}",
    r"sgp_[A-Za-z0-9_]{30,}",
    rf"snyk_{_W}{{20,}}",
    # language models
    rf"sk-(?=[A-Za-z_-]{{0,60}}[0-9]){_W}{{16,}}",
    r"sk_[a-f0-9]{40,}",
    rf"gsk_{_A}{{30,}}",
    rf"pplx-{_A}{{30,}}",
    rf"xai-{_A}{{30,}}",
    rf"hf_{_A}{{20,}}",
    rf"api_org_{_A}{{30,}}",
    rf"r8_{_A}{{30,}}",
    rf"nvapi-{_W}{{30,}}",
    rf"tgp_v1_{_W}{{30,}}",
    rf"fw_{_A}{{20,}}",
    r"csk-[a-z0-9]{30,}",
    rf"pcsk_{_W}{{30,}}",
    r"(?:lsv2_[a-z]{2}|ls__)[A-Za-z0-9_]{30,}",
    rf"tvly-{_W}{{20,}}",
    rf"jina_{_W}{{30,}}",
    r"fc-[a-f0-9]{30,}",
    r"e2b_[a-f0-9]{30,}",
    rf"apify_api_{_A}{{20,}}",
    rf"wandb_v1_{_W}{{20,}}",
    rf"pa-{_W}{{40,}}",
    rf"BSA{_W}{{27}}(?!{_W})",
    rf"vck_{_W}{{30,}}",
    # clouds
    r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"ABSK[A-Za-z0-9+/]{60,}={0,2}",
    rf"AIza{_W}{{30,}}",
    r"ya29\.[A-Za-z0-9_.-]{20,}",
    rf"GOCSPX-{_W}{{20,}}",
    rf"1//0{_W}{{30,}}",
    r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
    rf"LTAI{_A}{{12,}}",
    rf"AKID{_A}{{13,}}",
    rf"AKLT{_W}{{20,}}",
    rf"AQVN{_W}{{35,}}",
    r"do[oprt]_v1_[a-f0-9]{40,}",
    rf"HRKU-{_W}{{20,}}",
    rf"nf[a-z]_{_A}{{30,}}",
    rf"vc[a-z]_{_A}{{20,}}",
    rf"rnd_{_A}{{20,}}",
    r"(?:fo1_|fm[12]_)[A-Za-z0-9_+/=,-]{30,}",
    r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}",
    r"pscale_[a-z]{2,5}_[A-Za-z0-9_.-]{20,}",
    r"sb[ps]_[a-f0-9]{36,}",
    rf"sb_(?:secret|publishable)_{_W}{{16,}}",
    rf"sha256~{_W}{{40,}}",
    r"LKUA[A-Za-z0-9]{20,}",
    # secrets management and operation
    rf"hv[sbr]\.{_W}{{20,}}",
    rf"s\.{_A}{{24}}(?![A-Za-z0-9.])",
    rf"{_A}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{40,}}",
    r"dp\.[a-z]{2,5}\.[A-Za-z0-9_.-]{30,}",
    r"ops_eyJ[A-Za-z0-9+/=_-]{40,}",
    r"A3-[A-Z0-9]{6}-[A-Z0-9-]{20,40}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"pul-[a-f0-9]{40}",
    rf"pn[ub]_{_A}{{30,}}",
    rf"CCIP(?:AT|RJ)_{_W}{{20,}}",
    r"bk[a-z]{2}_[a-z0-9]{30,}",
    r"PMAK-[a-f0-9]{20,}-[a-f0-9]{30,}",
    rf"NR(?:AK|II|JS|RA|IQ|SP|AL)-{_W}{{16,}}",
    r"gl(?:c|sa)_[A-Za-z0-9+/=_-]{20,}",
    r"sntry[su]_[A-Za-z0-9+/=_-]{30,}",
    r"dt0[cs][0-9]{2}\.[A-Z0-9]{20,}\.[A-Z0-9]{40,}",
    r"API-[A-Z0-9]{25,32}(?![A-Z0-9])",
    r"dapi[a-f0-9]{32}(?:-[0-9])?",
    rf"phc_{_A}{{30,}}",
    rf"phx_{_A}{{30,}}",
    rf"tskey-[a-z]{{2,12}}-{_W}{{16,}}",
    rf"lin_(?:api|oauth)_{_A}{{30,}}",
    rf"(?:secret|ntn)_{_A}{{40,}}",
    rf"pat{_A}{{14}}\.[a-f0-9]{{60,}}",
    r"pat-[a-z]{2}[0-9]-[a-f0-9-]{30,}",
    rf"figd_{_W}{{30,}}",
    rf"CFPAT-{_W}{{30,}}",
    r"tfp_[A-Za-z0-9_.=-]{40,}",
    r"rdme_[a-z0-9]{50,}",
    rf"ico-{_A}{{32}}",
    # messages and mail
    rf"xox[a-z](?:\.xox[a-z])?-{_W}{{10,}}",
    rf"xapp-[0-9]-{_W}{{20,}}",
    rf"SG\.{_W}{{16,}}\.{_W}{{16,}}",
    r"key-[a-f0-9]{32}(?![A-Za-z0-9])",
    r"[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9])",
    r"(?:SK|AC)[a-f0-9]{32}(?![A-Za-z0-9])",
    r"xkeysib-[a-f0-9]{40,}-[A-Za-z0-9]{10,}",
    r"xsmtpsib-[a-f0-9]{40,}-[A-Za-z0-9]{10,}",
    rf"[0-9]{{8,10}}:AA{_W}{{32,34}}(?!{_W})",
    rf"[0-9]{{8,10}}:{_W}{{35}}(?!{_W})",
    rf"[MNO]{_W}{{23,27}}\.{_W}{{6,7}}\.{_W}{{27,}}",
    rf"mfa\.{_W}{{80,}}",
    r"sl\.[A-Za-z0-9_-]{60,}",
    rf"EAA{_A}{{50,}}",
    rf"IG(?:QVJ|AA){_W}{{50,}}",
    r"AAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{40,}",
    # payment and shops
    rf"(?:sk|rk|pk)_(?:live|test|prod)_{_A}{{10,}}",
    r"whsec_[A-Za-z0-9+/=]{20,}",
    r"shp[a-z]{2}_[a-fA-F0-9]{20,}",
    rf"sq0[a-z]{{3}}-{_W}{{20,}}",
    r"EAAA[a-zA-Z0-9_-]{50,}",
    r"access_token\$[a-z]{4,12}\$[a-z0-9]{10,}\$[a-f0-9]{20,}",
    r"access-(?:sandbox|development|production)-[a-f0-9-]{30,}",
    rf"rzp_(?:live|test)_{_A}{{10,}}",
    rf"FLW(?:SEC|PUB)K(?:_TEST)?-{_W}{{16,}}",
    rf"(?:live|test)_{_A}{{30,}}",
    r"shippo_(?:live|test)_[a-f0-9]{30,}",
    rf"duffel_(?:live|test)_{_W}{{30,}}",
    rf"EZ[AT]K{_A}{{40,}}",
    # maps, telephony, others
    r"[ps]k\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{10,}",
    rf"ddp_{_W}{{30,}}",
    rf"00(?=[a-z0-9_-]{{0,39}}[A-Z])(?=[A-Z0-9_-]{{0,39}}[a-z]){_W}{{40}}(?!{_W})",
)
_SIGNED = rf"eyJ{_W}{{8,}}(?:\.{_W}*){{1,4}}"
"""JSON Web Tokens, signed and encrypted ones."""
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-F][0-9A-F]))"
"""Place before a token: no letter or digit, except of an escape in JSON text or in a URL."""
_TOKEN = re.compile(rf"{_BEGIN}(?:{'|'.join(_PREFIXED)}|{_SIGNED})")
_RUN = re.compile(r"[A-Za-z0-9_.:~$/+=%\\-]{17,}")
"""Every token is in a run of at least that many characters."""
_PROMISING = re.compile(r"[0-9]|[A-Za-z]{16}|[a-z][A-Z]")
"""A run without any of these is a path or a name."""
_WEBHOOK = re.compile(
    r"(?i)(https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|"
    r"(?:[a-z]{1,10}\.)?discord(?:app)?\.com/api/webhooks|"
    r"[a-z0-9-]{1,40}\.webhook\.office\.com/webhookb2|hooks\.zapier\.com/hooks/catch|"
    r"chat\.googleapis\.com/v1/spaces|api\.telegram\.org/bot)/?)[A-Za-z0-9_/@?=&%:.~-]{8,}"
)
_LOGIN = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{1,24}://[^\s/@:\"'<>]{0,100}:)(?!//)([^\s@\"'<>]{1,200})@"
)
_LOGIN_TOKEN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,24}://)([A-Za-z0-9_.-]{16,200})@")
_AMAZON = re.compile(r"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_AZURE = re.compile(r"(?<![A-Za-z0-9/+=-])[A-Za-z0-9/+]{86}==")
_NEAR_AZURE = ("azure", "accountkey", "cosmos", "servicebus", "sharedaccess", "storage")


def without_tokens(text: str, kinds: list[str]) -> str:
    """Replace tokens of known forms, and passwords in URLs.

    Args:
        text: The text.
        kinds: Kinds of the replaced secrets; extended.
    """
    if "://" in text:
        text = _without_url_secrets(text, kinds)
    if _RUN.search(text) is None:
        return text

    def replaced(_: re.Match[str]) -> str:
        kinds.append("token")
        return mark("token")

    def in_run(match: re.Match[str]) -> str:
        run = match[0]
        return _TOKEN.sub(replaced, run) if _PROMISING.search(run) else run

    def replaced_if_mixed(match: re.Match[str]) -> str:
        value = match[0]
        mixed = any(map(str.isdigit, value)) and any(map(str.isupper, value))
        if not mixed or not any(map(str.islower, value)):
            return value
        return replaced(match)

    text = _RUN.sub(in_run, text)
    lower = text.lower()
    if "aws" in lower or "amazon" in lower or "redacted: token" in lower:
        text = _AMAZON.sub(replaced_if_mixed, text)
    if "==" in text and any(word in lower for word in _NEAR_AZURE):
        text = _AZURE.sub(replaced_if_mixed, text)
    return text


def _without_url_secrets(text: str, kinds: list[str]) -> str:
    def webhook(match: re.Match[str]) -> str:
        kinds.append("token")
        return match[1] + mark("token")

    def login(match: re.Match[str]) -> str:
        if "/" in match[2] and not any(map(str.isdigit, match[2].partition("/")[0])):
            return match[0]  # a path with `@`, after a port that is none
        if match[2].partition("/")[0].isdigit() and "/" in match[2]:
            return match[0]  # a port: http://host:8000/@name
        kinds.append("password")
        return f"{match[1]}{mark('password')}@"

    def login_token(match: re.Match[str]) -> str:
        if not any(map(str.isdigit, match[2])):
            return match[0]
        kinds.append("token")
        return f"{match[1]}{mark('token')}@"

    text = _WEBHOOK.sub(webhook, text)
    return _LOGIN_TOKEN.sub(login_token, _LOGIN.sub(login, text))
