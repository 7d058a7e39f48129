"""Training generators by several authors who share no wording, and two more authors whom training never reads.

The mix is the one table of what is trained beside the families of tasks/: {family: (share of the tokens, how a sample is made)}.
"""
import importlib

from . import filling, library
from .first import calls, chatter, copies, figures, followups, forms, passages
from .made import records, referring, tooling, wordings
from .second import calls as calls2
from .second import chatter as chatter2
from .second import copies as copies2
from .second import figures as figures2
from .second import followups as followups2
from .second import forms as forms2
from .second import passages as passages2

load = library.load


def either(*makers):
    return lambda rng: rng.choice(makers)(rng)


def aside(rng, thinking):
    """What a request with tools may be that needs none."""
    return rng.choice((figures.make, figures2.make, wordings.make, chatter.talk, chatter2.talk, chatter.outside))(rng, thinking)


def long_reading(rng):
    return rng.choice((passages.make, passages2.make))(rng, long=True)


def told(rng):
    """Small facts of people and things, in as many words as there are."""
    return rng.choice((passages.make, passages2.make))(rng, natural=False)


def form(rng):
    return records.make(rng, filling.listed)


def called(author):
    return lambda rng: author.make(rng, aside=aside)


# What is put together by rule is said twice where it is half of a family.
FAMILIES = {
    "read": (0.13, either(passages.make, passages2.make)),
    "told": (0.055, told),
    "read long": (0.02, long_reading),
    "fill": (0.165, either(forms.make, forms2.make, forms.filled, forms2.filled, form, form, form, form)),
    "call": (0.155, either(called(calls), called(calls2), called(tooling), called(tooling))),
    "refer": (0.10, either(followups.make, followups2.make, referring.make, referring.make)),
    "reckon": (0.115, either(figures.make, figures2.make, wordings.make, wordings.make)),
    "copy": (0.04, either(copies.make, copies2.make)),
    "chat": (0.018, either(chatter.talk, chatter2.talk)),
    "decline": (0.03, either(chatter.outside, chatter2.outside)),
}
PRESENT = 0.16              # of the tokens are the families of tasks/, in the proportions of data.py
KEPT = {"docs": 0.048, "prose": 0.025, "facts": 0.012}     # but for these, which are learned by heart or as text

# No family has a sample of these. The first one's questions choose between trainings; the second's are asked of a finished model alone,
# so that what is measured has influenced neither a weight nor a choice.
ASKING = ("held_out", "unseen")


def rows(author):
    """The rows that an author asks: {label: (questions, how one is made, aim)}."""
    passages, forms, calls, followups, figures, chatter = (importlib.import_module(f".{author}.{name}", __name__) for name in
                                                            ("passages", "forms", "calls", "followups", "figures", "chatter"))
    return {
        "passages, natural": (100, lambda r: passages.make(r, r.random() < 0.7, there=True, natural=True), 0.90),
        "passages, small facts": (80, lambda r: passages.make(r, r.random() < 0.7, there=True, natural=False), 0.90),
        "passages, not there": (80, lambda r: passages.make(r, r.random() < 0.7, there=False), 0.95),
        "forms": (100, lambda r: forms.make(r, r.random() < 0.7), 0.95),
        "tools, other author": (100, lambda r: calls.make(r, r.random() < 0.7, fitting=True), 0.92),
        "tools, none fits": (60, lambda r: calls.make(r, r.random() < 0.7, fitting=False), 0.92),
        "references": (100, lambda r: followups.make(r, r.random() < 0.7), 0.95),
        "figures": (160, lambda r: figures.make(r, True), 0.95),
        "small talk": (40, lambda r: chatter.talk(r, r.random() < 0.7), 1.0),
        "outside": (80, lambda r: chatter.outside(r, r.random() < 0.7), 0.95),
    }


ROWS = rows(ASKING[0])
