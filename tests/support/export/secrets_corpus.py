"""Texts with planted secrets, and texts without any, to measure redaction.

The shapes of the secrets follow what the providers document and what people paste into chats. They
were written without knowledge of the patterns of `console.export.redaction`. Every value is drawn
at run time, so no file contains a string that a scanner of repositories would report.
"""

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_DIGITS = string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase
_ALNUM = string.ascii_letters + string.digits
_URLSAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_WORDS = [
    "anchor",
    "basil",
    "cedar",
    "delta",
    "ember",
    "falcon",
    "garnet",
    "harbor",
    "indigo",
    "juniper",
    "kestrel",
    "lagoon",
    "marble",
    "nectar",
    "orchid",
    "pepper",
    "quartz",
    "river",
    "saffron",
    "timber",
    "umber",
    "velvet",
    "willow",
    "yonder",
    "zephyr",
]
_NAMES = [
    "anna",
    "bruno",
    "chen",
    "dimitri",
    "elena",
    "farid",
    "grace",
    "hana",
    "ivan",
    "julia",
    "kofi",
    "lena",
    "mateo",
    "nora",
]
_DOMAINS = (
    "example.com",
    "mail.example.org",
    "uni-beispiel.de",
    "acme.co.uk",
    "startup.io",
    "corp.example.net",
)


@dataclass(frozen=True, slots=True)
class Planted:
    """A text with one secret in it."""

    kind: str
    secret: str
    """The part that must not survive."""
    text: str


def _draw(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _mixed(rng: random.Random, alphabet: str, count: int) -> str:
    """Draw a string with a lower-case letter, an upper-case letter and a digit."""
    while True:
        value = _draw(rng, alphabet, count)
        if all(any(test(c) for c in value) for test in (str.islower, str.isupper, str.isdigit)):
            return value


def _segment(rng: random.Random, value: object) -> str:
    data = json.dumps(value) if not isinstance(value, str) else value
    return base64.urlsafe_b64encode(data.encode()).rstrip(b"=").decode()


def _jwt(rng: random.Random) -> str:
    head = _segment(rng, {"alg": rng.choice(["HS256", "RS256"]), "typ": "JWT"})
    body = _segment(rng, {"sub": _draw(rng, _DIGITS, 10), "iat": rng.randrange(10**9, 2 * 10**9)})
    return f"{head}.{body}.{_draw(rng, _URLSAFE, 43)}"


def _private_key(rng: random.Random) -> str:
    label = rng.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = "\n".join(_draw(rng, _BASE64, 64) for _ in range(rng.randint(4, 12)))
    return f"-----BEGIN {label}PRIVATE KEY-----\n{lines}\n-----END {label}PRIVATE KEY-----"


def _password(rng: random.Random) -> str:
    return _mixed(rng, _ALNUM, rng.randint(10, 18)) + rng.choice(["!", "#", "$", "?", ""])


def _email(rng: random.Random) -> str:
    first, last = rng.choice(_NAMES), rng.choice(_WORDS)
    local = rng.choice(
        [f"{first}.{last}", f"{first}_{last}{rng.randint(1, 99)}", f"{first}+{last}"]
    )
    return f"{local}@{rng.choice(_DOMAINS)}"


KEYS: dict[str, Callable[[random.Random], str]] = {
    "openai": lambda r: "sk-" + _mixed(r, _ALNUM, 48),
    "openai project": lambda r: "sk-proj-" + _mixed(r, _URLSAFE, 120) + "x",
    "anthropic": lambda r: "sk-ant-api03-" + _mixed(r, _URLSAFE, 93) + "AA",
    "openrouter": lambda r: "sk-or-v1-" + _draw(r, _HEX, 64),
    "hugging face": lambda r: "hf_" + _mixed(r, string.ascii_letters + _DIGITS, 34),
    "github": lambda r: r.choice(["ghp_", "gho_", "ghs_"]) + _mixed(r, _ALNUM, 36),
    "github fine-grained": lambda r: f"github_pat_{_mixed(r, _ALNUM, 22)}_{_mixed(r, _ALNUM, 59)}",
    "gitlab": lambda r: "glpat-" + _mixed(r, _URLSAFE, 19) + "7",
    "aws access key": lambda r: r.choice(["AKIA", "ASIA"]) + _draw(r, _UPPER + "234567", 16),
    "google": lambda r: "AIza" + _mixed(r, _URLSAFE, 34) + "k",
    "slack": lambda r: (
        f"xoxb-{_draw(r, _DIGITS, 12)}-{_draw(r, _DIGITS, 12)}-{_mixed(r, _ALNUM, 24)}"
    ),
    "stripe": lambda r: r.choice(["sk_live_", "rk_live_"]) + _mixed(r, _ALNUM, 24),
    "groq": lambda r: "gsk_" + _mixed(r, _ALNUM, 52),
    "npm": lambda r: "npm_" + _mixed(r, _ALNUM, 36),
    "sendgrid": lambda r: f"SG.{_mixed(r, _URLSAFE, 21)}a.{_mixed(r, _URLSAFE, 42)}b",
    "telegram": lambda r: f"{_draw(r, '123456789', 10)}:AA{_mixed(r, _URLSAFE, 33)}",
    "json web token": _jwt,
    "private key": _private_key,
}
"""Kind -> a secret that its own shape gives away."""
_SENTENCES = (
    "My key is {} and the call fails.",
    "Why do I get a 401? I send Authorization: Bearer {}",
    'client = OpenAI(api_key="{}")',
    "curl -H 'Authorization: Bearer {}' http://localhost:8000/v1/models",
    "export API_KEY={}\npython run.py",
    '{{"env": {{"TOKEN": "{}"}}}}',
    "I pasted `{}` into the settings, is that right?",
    "{} stopped working yesterday",
    "Use this: {}.",
    "token: {}\nregion: eu-west-1",
)


def _assigned(rng: random.Random) -> tuple[str, str]:
    """Return a password or secret that only its name gives away, and its text."""
    value = rng.choice([_password(rng), _draw(rng, _HEX, 40), _mixed(rng, _BASE64, 40)])
    text = rng.choice(
        (
            "DB_PASSWORD={}",
            'password = "{}"',
            "password: {}",
            "aws_secret_access_key = {}",
            '"client_secret": "{}"',
            "SECRET_KEY='{}'",
            "export HF_TOKEN={} && python train.py",
            "api_key: {}",
            "--password {} --host db.internal",
            "X-Api-Key: {}",
        )
    )
    return value, text.format(value)


def _address(rng: random.Random) -> tuple[str, str]:
    """Return the password of a URL, and the URL in a sentence."""
    value = _mixed(rng, _ALNUM, rng.randint(8, 20))
    user, host = rng.choice(_NAMES), rng.choice(_DOMAINS)
    text = rng.choice(
        (
            f"postgresql://{user}:{value}@{host}:5432/app",
            f"The database is at mysql://{user}:{value}@{host}/shop, read only.",
            f"git clone https://{user}:{value}@{host}/team/repo.git",
            f"redis://:{value}@{host}:6379/0",
            f"amqp://{user}:{value}@{host}",
        )
    )
    return value, text


def _basic(rng: random.Random) -> tuple[str, str]:
    pair = f"{rng.choice(_NAMES)}:{_password(rng)}".encode()
    value = base64.b64encode(pair).decode()
    return value, f"Authorization: Basic {value}"


def _mail(rng: random.Random) -> tuple[str, str]:
    value = _email(rng)
    sentence = rng.choice(
        (
            "Write to {} please.",
            "From: Support <{}>",
            "Contact {}, or call us.",
            '{{"user": "{}"}}',
            "My address is {}",
            "mailto:{}?subject=Hello",
        )
    )
    return value, sentence.format(value)


def planted(count: int, seed: int = 1) -> Iterator[Planted]:
    """Yield texts with one secret each; all kinds occur equally often."""
    rng = random.Random(seed)
    special = {"assignment": _assigned, "address": _address, "basic": _basic, "e-mail": _mail}
    kinds = [*KEYS, *special, "assignment", "e-mail"]
    for at in range(count):
        kind = kinds[at % len(kinds)]
        if kind in KEYS:
            secret = KEYS[kind](rng)
            text = rng.choice(_SENTENCES).format(secret)
        else:
            secret, text = special[kind](rng)
        if rng.random() < 0.5:
            text = f"{_prose(rng)} {text}"
        if rng.random() < 0.5:
            text = f"{text}\n{_prose(rng)}"
        yield Planted(kind, secret, text)


# --- texts without secrets ----------------------------------------------------------------------


def _prose(rng: random.Random) -> str:
    first, second, third = rng.sample(_WORDS, 3)
    return rng.choice(
        (
            f"Explain the difference between {first} and {second} in two sentences.",
            f"How many grams of {first} go into a {second} cake for {rng.randint(2, 12)} people?",
            f"The password policy of our {first} team asks for twelve characters.",
            f"What is a secret garden? Mention {first}, {second} and {third}.",
            f"My token budget is {rng.randint(1, 99)}000 and the key idea is {first}.",
            f"Summarise: the {first} met the {second} at {rng.randint(1, 12)} o'clock.",
            f"Is it better to rotate an API key every {rng.randint(10, 90)} days?",
            f"Übersetze „{first} {second}“ ins Französische, bitte.",
            f"写一首关于{rng.choice(['秋天', '大海', '友谊'])}的短诗。",
            f"Tell a story of {rng.choice(_NAMES).title()} and the {first} {second}.",
        )
    )


def _code(rng: random.Random) -> str:
    name, other = rng.sample(_WORDS, 2)
    return rng.choice(
        (
            f"def {name}_{other}(token: str, key: int = {rng.randint(1, 99)}) -> str:\n"
            "    return token[key:]",
            f'password = os.environ["{name.upper()}_PASSWORD"]',
            f"api_key = settings.{name}.api_key  # set by the operator",
            f"const secret = await vault.read('{name}/{other}');",
            f'token = tokenizer.encode("{name}")[0]',
            "@pytest.fixture\ndef password():\n    return getpass()",
            f"SELECT key, token FROM {name} WHERE secret IS NULL LIMIT {rng.randint(1, 50)};",
            f"for key, value in {name}.items():\n    print(key, value)",
            f"key={name} sort=desc page={rng.randint(1, 40)}",
            f"if password == confirm_password: save_{name}()",
            "password: <your password>",
            "api_key: ${API_KEY}",
            'openai.api_key = os.getenv("API_KEY")',
            f"secret_name: {name}-{other}",
            "Authorization: Bearer $TOKEN",
        )
    )


def _identifier(rng: random.Random) -> str:
    return rng.choice(
        (
            f"commit {_draw(rng, _HEX, 40)}",
            f"sha256:{_draw(rng, _HEX, 64)}",
            f"md5 {_draw(rng, _HEX, 32)}  image.iso",
            f"request id {uuid.UUID(int=rng.getrandbits(128), version=4)}",
            f"episode {uuid.UUID(int=rng.getrandbits(128), version=4)} got 0.{rng.randint(10, 99)}",
            f"Traceback: object at 0x{_draw(rng, _HEX, 12)}",
            f"ISBN 978-3-16-{_draw(rng, _DIGITS, 6)}-0",
            f"DE89 3704 0044 0532 0130 {_draw(rng, _DIGITS, 2)}",
            f"data:image/png;base64,{base64.b64encode(rng.randbytes(120)).decode()}",
            f"numpy=={rng.randint(1, 2)}.{rng.randint(0, 26)}.{rng.randint(0, 9)} --hash=sha256:"
            + _draw(rng, _HEX, 64),
            f"pi is 3.{_draw(rng, _DIGITS, 40)}",
            f"order {_draw(rng, _UPPER, 3)}-{_draw(rng, _DIGITS, 8)} of {rng.randint(1, 28)} May",
            f"{_draw(rng, 'ACGT', 60)} is a part of the genome",
            f"chatcmpl-{_draw(rng, _HEX, 32)}",
            f"call_{_draw(rng, _ALNUM, 24)}",
        )
    )


def _link(rng: random.Random) -> str:
    first, second = rng.sample(_WORDS, 2)
    host = rng.choice(_DOMAINS)
    return rng.choice(
        (
            f"https://{host}/docs/{first}/{second}#token-limits",
            f"http://localhost:{rng.randint(1024, 65000)}/v1/chat/completions",
            f"https://{host}:8443/search?q={first}+{second}&page={rng.randint(1, 9)}",
            f"s3://{first}-{second}/models/step-{rng.randint(1, 900)}/weights.safetensors",
            f"/srv/{first}/{second}/checkpoints/{rng.randint(1, 900)}",
            f"ssh {first}.{host}",
            f"pip install {first}-{second}",
            f"docker pull {first}/{second}:{rng.randint(1, 9)}.{rng.randint(0, 9)}",
            f"follow @{first}_{second} for more",
            f"meet me @ {rng.randint(1, 12)}:30",
        )
    )


def _long_name(rng: random.Random) -> str:
    words = rng.sample(_WORDS, 5)
    return rng.choice(
        (
            "_".join(words),
            "".join(word.title() for word in words) + "Factory",
            "-".join(words) + f"-v{rng.randint(1, 20)}",
            "::".join(words),
            ".".join(words) + "()",
            f"test_{'_'.join(words)}[{words[0]}-{rng.randint(1, 9)}]",
        )
    )


def _answer(rng: random.Random) -> str:
    first, second, third = rng.sample(_WORDS, 3)
    return (
        f"Sure! Here are three points about {first}:\n\n1. **{second.title()}** matters.\n"
        f"2. Use `{third}(key)` with care.\n3. Never share your password: choose a strong one.\n\n"
        f"The answer is $x = {rng.randint(-99, 99)}$, since ${rng.randint(1, 9)}^2 + y$ is even."
    )


def clean(count: int, seed: int = 2) -> Iterator[str]:
    """Yield different texts without a secret, among them many that resemble one."""
    rng = random.Random(seed)
    makers = (_prose, _code, _identifier, _link, _long_name, _answer)
    texts: set[str] = set()
    while len(texts) < count:
        text = makers[len(texts) % len(makers)](rng)
        if rng.random() < 0.3:
            text = f"{_prose(rng)}\n{text}"
        if text not in texts:
            texts.add(text)
            yield text


def structured(count: int, seed: int = 3) -> Iterator[tuple[str, object]]:
    """Yield passwords, each with a structured value in which a name announces it."""
    rng = random.Random(seed)
    shapes: tuple[Callable[[str, str], object], ...] = (
        lambda name, value: {name: value},
        lambda name, value: {"user": "ada", "login": {name: value}},
        lambda name, value: [{"name": name.upper(), "value": value}],
        lambda name, value: {"variables": [{"value": value, "key": name}]},
        lambda name, value: {name + "s": [value]},
        lambda name, value: {"args": ["run", f"--{name}", value]},
        lambda name, value: {name: {"value": value}},
    )
    names = ("password", "db_password", "passwd", "pwd", "user_password", "passphrase")
    for at in range(count):
        secret = _password(rng)
        yield secret, shapes[at % len(shapes)](rng.choice(names), secret)
