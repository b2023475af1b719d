"""A scripted model for the untrained players, in this process.

It keeps nothing and knows only the prompt it is sent. Equal prompts get equal answers. It plays a
plain game: believe what was checked, suspect whom others accuse and who accuses nobody.
"""

import re
import zlib
from collections import Counter

from examples.werewolves.prompts import accused

ACCUSED, SILENT, KNOWN = 2, 3, 100
"""Weights of suspicion: an accusation, a speech without one, a check."""
_ME = re.compile(r"You are player (\d)")
_PACK = re.compile(r"The pack: ([\d ]+)\.")
_ALIVE = re.compile(r"Alive: ([\d ]+)\.")
_SPEECH = re.compile(r'^(\d): "(.*)"$', re.MULTILINE)
_CHECKED = re.compile(r"(\d) (no )?werewolf")


def answer(system: str, user: str) -> str:
    """Return the scripted player's answer."""
    asked = user.rsplit("\n", 1)[-1]
    targets = _players(asked.rsplit("?", 1)[-1])
    known = {int(who): not no for who, no in _CHECKED.findall(user)}
    if "Heal" in asked:
        return "heal"
    if "poison" in asked.lower():
        sure = [who for who in targets if suspicion(system, user)[who] >= 2 * SILENT]
        return f"poison {_pick(sure, user)}" if sure else "pass"
    if "kill" in asked:
        return str(max(targets, default=0))  # the others of the pack name the same
    if "check" in asked:
        return str(_pick([who for who in targets if who not in known] or targets, user))
    if not targets:
        return "pass"
    against = suspicion(system, user)
    worst = max(against[who] for who in targets)
    whom = _pick([who for who in targets if against[who] == worst], user)
    if "Speak" in asked:
        wolf = next((who for who in targets if known.get(who)), None)
        return f"I am the seer: {wolf} is a werewolf." if wolf else f"I suspect {whom}."
    return str(whom)


def suspicion(system: str, user: str) -> Counter[int]:
    """Return the suspicion of each living player, from this player's view."""
    alive = _players(_first(_ALIVE, user))
    against: Counter[int] = Counter(dict.fromkeys(alive, 0))
    for who, text in _SPEECH.findall(user):
        whom = accused(text, tuple(player for player in alive if player != int(who)))
        against[whom or int(who)] += ACCUSED if whom else SILENT
        if "seer" in text and whom:
            against[whom] += 2 * ACCUSED
    for who, no in _CHECKED.findall(user):
        against[int(who)] += -KNOWN if no else KNOWN
    for friend in (*_players(_first(_PACK, system)), int(_first(_ME, system) or 0)):
        against[friend] -= 2 * KNOWN
    return against


def _players(text: str) -> list[int]:
    return [int(digit) for digit in re.findall(r"\d", text)]


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match.group(1) if match else ""


def _pick(among: list[int], user: str) -> int:
    """Choose one of several by a hash of the prompt, without state or randomness."""
    return among[zlib.crc32(user.encode()) % len(among)]
