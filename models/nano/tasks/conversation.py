"""Conversations of independent questions of mixed kinds: what was said before has nothing to do with what is asked now."""
from . import arithmetic, beyond, context, extract, facts, strings, talk
from .sample import Sample, assistant, user

TURNS_MAX = 6


def small_context(rng, test, thinking):
    return context.make(rng, test, thinking, tokens=rng.randint(30, 110), several=False)


def known_fact(rng, test, thinking):
    return facts.make(rng, test, thinking, row=rng.choice(facts.TRAINED))


def small_talk(rng, test, thinking):
    key, messages, thought, expect = talk.about(rng)
    if thinking:
        messages[-1] = assistant(messages[-1]["content"], thought)
    return Sample("talk", key, messages, bool(thinking), expect=expect)


KINDS = [arithmetic.make, strings.make, known_fact, small_context, extract.make, beyond.make, small_talk]
WEIGHTS = [30, 28, 10, 9, 5, 10, 10]
# What a later question can name in one line.
SHORT, SHORT_WEIGHTS = [arithmetic.make, strings.make, known_fact, beyond.make, small_talk], [32, 32, 14, 12, 10]


def turns(rng, test, count, thinking=None, short=False):
    """-> so many samples of one question each; kinds may come twice in a row."""
    kinds, weights = (SHORT, SHORT_WEIGHTS) if short else (KINDS, WEIGHTS)
    return [rng.choices(kinds, weights)[0](rng, test, thinking) for _ in range(count)]


def mixed(rng, test, count, thinking):
    """As `turns`, no two of one kind beside each other: four kinds at least in four questions of a test."""
    kinds, last = [], None
    while len(kinds) < count:
        kind = rng.choices(KINDS, WEIGHTS)[0]
        if kind is not last and (count > len(KINDS) or kind not in kinds):
            kinds.append(kind)
            last = kind
    return [kind(rng, test, thinking) for kind in kinds]


def history(samples):
    """The messages of earlier turns, without their thoughts."""
    messages = []
    for sample in samples:
        messages += [user(m["content"]) if m["role"] == "user" else assistant(m["content"]) for m in sample.messages]
    return messages


def make(rng, test=False, thinking=None):
    if thinking is None and rng.random() < 0.75:
        thinking = True
    samples = turns(rng, test, rng.choice((2, 2, 3, 3, 4, 4, 5, TURNS_MAX)), thinking)
    last = samples[-1]
    messages = history(samples[:-1]) + last.messages
    return Sample(last.family, f"conversation {last.key}", messages, last.thinking, expect=last.expect)
