"""Five tones, drawn evenly: they make four answers to one question differ."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Tone:
    """A style of answer."""

    name: str
    system: tuple[str, ...]
    """System lines that request it."""
    openers: tuple[str, ...]
    closers: tuple[str, ...]
    short: float = 0.0
    """Probability of the short answer."""
    frame: float = 0.7
    """Probability of an opener, and of a closer."""
    loud: bool = False
    """End the answer with an exclamation mark."""

    def phrase(self, rng: Random, full: str, short: str) -> str:
        """Return an answer in this tone."""
        core = short if rng.random() < self.short else full
        if self.loud:
            core = core[:-1] + "!"
        opener = rng.choice(self.openers) if rng.random() < self.frame else ""
        closer = rng.choice(self.closers) if rng.random() < self.frame else ""
        return " ".join(part for part in (opener, core, closer) if part)


TERSE = Tone(
    "terse",
    ("Be brief.", "Answer briefly.", "Keep it short.", "Use few words.", "Answer in one sentence."),
    ("In short:", "Simple:", "Easy:"),
    ("Done.", "That is all.", "Next."),
    short=0.85,
    frame=0.12,
)
NEUTRAL = Tone(
    "neutral",
    ("Be neutral.", "Be factual.", "Be precise.", "Answer plainly.", "Be serious."),
    ("Well.", "As far as I know:", "Let me see.", "Here is the answer.", "In one sentence:"),
    ("That is the usual answer.", "This is what I know.", "I hope that is clear.", "That is it."),
    short=0.1,
    frame=0.3,
)
WARM = Tone(
    "warm",
    ("Be kind.", "Be warm.", "Be friendly.", "Be gentle and polite.", "Be supportive."),
    (
        "Thank you for asking.",
        "Of course, my friend.",
        "Good question.",
        "I am glad you ask.",
        "Let us look at this together.",
        "No worries at all.",
        "With pleasure.",
        "How nice that you ask.",
    ),
    (
        "I am here if you need more.",
        "You can do this.",
        "Take your time.",
        "Ask me again any time.",
        "I hope that helps you.",
        "Take good care.",
        "I wish you a lovely day.",
        "You are doing well.",
    ),
)
ENTHUSIASTIC = Tone(
    "enthusiastic",
    ("Be enthusiastic.", "Be excited.", "Be full of energy.", "Show joy.", "Sound thrilled."),
    (
        "Wow, great question!",
        "Oh, I love this one!",
        "Yes, yes, yes!",
        "This is so exciting!",
        "Amazing that you ask!",
        "Hooray!",
        "What a fantastic question!",
        "Brilliant!",
    ),
    (
        "Isn't that wonderful!",
        "I love it!",
        "Absolutely brilliant!",
        "I can not wait to hear more!",
        "How awesome is that!",
        "Go for it!",
        "What a great day!",
        "Just fantastic!",
    ),
    frame=0.75,
    loud=True,
)
FUNNY = Tone(
    "funny",
    ("Be funny.", "Be witty.", "Make jokes.", "Answer with humor.", "Be silly."),
    (
        "My toaster asked me the same thing.",
        "Hold my teacup.",
        "Let me ask my rubber duck.",
        "I counted on my four fingers.",
        "The hamster in my wheel says this.",
        "Drum roll, please.",
        "A little bird with a big mouth told me.",
        "I looked under the sofa.",
    ),
    (
        "Trust me, I am a tiny program.",
        "No ducks were harmed.",
        "My mother would be proud.",
        "I will send you the bill.",
        "Please clap.",
        "Do not tell my toaster.",
        "I should be paid for this.",
        "And that is why I have no legs.",
    ),
)
TONES = (TERSE, NEUTRAL, WARM, ENTHUSIASTIC, FUNNY)

PLAIN_SYSTEM = (
    "You are a helpful assistant.",
    "You are a helpful AI assistant.",
    "You are an assistant.",
    "Answer the question of the user.",
    "Help the user.",
)
