"""Questions about passages that choose between trainings: no form of training's, other documents."""
import pathlib
import sys

from tasks.sample import user

from .. import library, reading, relations

RELATIONS = relations.table(pathlib.Path(__file__).with_name("relations.txt"))
SHAPES = ["[{i}] {t}", "[{i}] {t}", "Passage {i}: {t}", "Item {i} >> {t}", "--- {i} ---\n{t}"]
SINGLE = ["{q} (from: {p})", "Someone told me this: {p}\nMy colleague asks: {q}", "Extract of a book: {p}\n\nHere is the task: {q}", "Text: {p} {q}"]
SEVERAL = ["Consult the material and reply with a reference.\n\n{p}\n\nMatter: {q}", "{p}\n\nWith these at hand, {q}", "Material:\n{p}\n\nRequest: {q}", "{p}\n\n{q}"]
BEFORE, AFTER = ["Good day. ", "One thing: "], [" Many thanks in advance.", " Keep it short."]


def posed(rng, shown, question, numbered):
    return [user(rng.choice(SEVERAL if numbered else SINGLE).format(p=shown, q=question))]


def question(rng, fact):
    some = fact.rest.split(",")[0].split()
    if fact.verb in library.VERBS:
        return f"Which things does {fact.subject} {library.VERBS[fact.verb]}?", " ".join(some[:3]).rstrip(".")
    if fact.verb in ("is", "are", "was", "were") and rng.random() < 0.5:
        return f"Could you clarify what {fact.subject} {fact.verb}?", " ".join(some[:3]).rstrip(".")
    if len(some) > 4 and rng.random() < 0.6:
        return f"Name the thing that {fact.verb} {' '.join(some[:8])}.", fact.subject
    return f"What do we learn of {fact.subject} and {' '.join(some[-2:])}?".replace(".?", "?"), " ".join(some[:3]).rstrip(".")


def make(rng, thinking=None, **wanted):
    return reading.make(rng, sys.modules[__name__], thinking, held_out=True, **wanted)
