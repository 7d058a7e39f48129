"""Greetings, thanks and small talk of one or two turns; questions that the model should say it does not know enough for."""
from tasks.beyond import REFUSAL
from tasks.sample import Sample, assistant, user

from .slots import Filler, blocks

TEXTS = dict(blocks("chatter.txt"))
ENDINGS = ["", "", "", " Please.", " Thanks!"]
REPLIES = ["Hello! What can I do for you?", "Good to hear from you.", "All right."]


def loosely(rng, text):
    """Many people write without capitals."""
    return text.lower() if rng.random() < 0.2 else text


def talk(rng, thinking=None):
    """Anything but nothing or a refusal is right."""
    filler = Filler(rng)
    first, *second = (loosely(rng, filler.filled(turn)) for turn in rng.choice(TEXTS["talk"]).split(" / "))
    turns = [user(first), assistant(rng.choice(REPLIES))]
    turns += [m for turn in second for m in (user(turn), assistant(rng.choice(REPLIES)))]
    return Sample("said", first, turns, rng.random() < 0.7 if thinking is None else thinking)


def outside(rng, thinking=None):
    text = Filler(rng).filled(rng.choice(TEXTS["outside"]))
    ask = loosely(rng, text + rng.choice(ENDINGS))
    return Sample("outside", text, [user(ask), assistant(f"I {REFUSAL}.")], rng.random() < 0.7 if thinking is None else thinking)
