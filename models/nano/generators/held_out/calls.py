"""Forty tools that choose between trainings, and what people ask of them; none of their parameters is said as training says it."""
import sys

from .. import calling
from ..calling import chosen

VERBS = "open tune brew dispatch inflate thaw engrave audition ferry quarantine appraise knead crown shelve tether salute prune glaze muster hoist".split()
NOUNS = "gate harp espresso courier balloon fillet pendant actor caravan calf antique dough chess_champion novel glacier admiral hedge tile orchestra sail".split()
PLAIN = [("name", "word", ("that is called {v}", "called {v}"), "Its name"), ("minutes", "small", ("during {v} minutes", "for {v} minutes"), "How many minutes"),
         ("visitor", "person", ("on behalf of {v}",), "Who asked"), ("price_limit", "decimal", ("not above {v}",), "Most that it may cost"), ("reference", "code", ("under the reference {v}",), "Reference"),
         ("deadline", "date", ("no later than {v}",), "Until when"), ("harbour", "town", ("over in {v}",), "Which harbour"), ("tools", "words", ("by means of {v}",), "What is needed"),
         ("headline", "phrase", ("headed \"{v}\"",), "Its headline"), ("copies", "small", ("in {v} copies",), "How many")]


def verb(rng):
    return rng.choice(VERBS)


def noun(rng):
    return rng.choice(NOUNS).replace("chess_champion", "champion")


def parameter(rng, noun):
    if rng.random() < 0.2:
        schema, draw = chosen(rng, ["rough", "smooth", "polished"])
        return calling.parameter(rng, "finish", None, ("with a {v} finish",), "The finish", schema, draw)
    return calling.parameter(rng, *rng.choice(PLAIN))


def tool_name(rng, verb, noun):
    return calling.named(rng, [verb, noun] if rng.random() < 0.8 else [noun, verb, "service"])


def description(rng, verb, noun):
    return rng.choice((f"This tool will {verb} the {noun} you name", f"Used whenever somebody wants to {verb} the {noun}."))


def goal(rng, verb, noun):
    return verb, f"the {noun}"


def sentence(rng, goal, phrases):
    frame = rng.choice(("{g}{p}.", "Kind sir, {g}{p}.", "It would be nice to {g}{p}.", "Somebody should {g}{p}."))
    goal = goal if frame.startswith("{g}") else goal[0].lower() + goal[1:]
    return frame.format(g=goal, p="".join(" " + p for p in phrases))


def make(rng, thinking=None, **wanted):
    return calling.make(rng, sys.modules[__name__], thinking, **wanted)


SYSTEM = ["You help."]
LEADS_SHARE = 0         # its own words alone
