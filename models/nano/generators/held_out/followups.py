"""Ways to refer back that choose between trainings."""
import sys

from .. import turns
from . import figures, passages

RELATIONS = passages.RELATIONS
KEYS = "flight pilot runway cargo mass destination".split()
FIRST = {k: figures.ASK[k] for k in ("add", "sub", "mul", "div", "letter", "spell", "backwards")} | {
    "words": figures.ASK["words_up"], "numbers": figures.ASK["numbers_up"], "count": figures.ASK["count_up"], "facts": ["Someone told me this: {t}\nMy colleague asks: {q}"],
    "form": ["{t} Now write the JSON: {f}"],
}
AHEAD = []              # its own words alone
FOLLOW = {
    "add": ["Please put {c} on it.", "Now {c} is added to this; what do I have?"], "sub": ["Please pull {c} out of it."], "mul": ["Take this result {n} times."], "div": ["divide that by {c}", "Distribute this evenly over {c}."],
    "double": ["Make it twice as large."], "reverse_order": ["now in reverse order", "Could you list that the opposite way?"], "nth_item": ["Tell me which is {n} in it."], "how_many": ["How many did you list?"],
    "without": ["Without {x}, how does it read?"], "letter_it": ["Does it have the letter {c}, and how often?"], "backwards_it": ["Then turn it round."], "spell_it": ["Then spell it out."],
    "other_person": ["And what of {s}?"], "only_fields": ["Give me nothing but {f}."], "same_form": ["Proceed with this one: {t}"],
}
OPENINGS = [list]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
