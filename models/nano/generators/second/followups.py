"""Other ways to refer back: short ones, as in a chat."""
import sys

from tasks.sample import assistant, user

from .. import solve, turns
from . import figures, passages

RELATIONS = passages.RELATIONS
KEYS = "id title region batch author label channel device operator vendor model rating gate seat shelf".split()
FIRST = {k: figures.ASK[k] for k in ("add", "sub", "mul", "div", "letter", "length", "spell", "backwards", "upper")} | {
    "words": figures.ASK["words_up"], "numbers": figures.ASK["numbers_up"], "count": figures.ASK["count_up"],
    "told": ["note down {l}", "I bought {l}.", "The team: {l}", "these are mine: {l}"], "facts": ["CONTEXT\n{t}\n\nQUERY\n{q}", "{q}\n{t}", "We know: {t} {q}"],
    "form": ["{f} <- {t}", "JSON please ({f}):\n{t}"],
}
FOLLOW = {
    "add": ["+{c}", "then + {c}", "raise it by {n}", "{n} on top of this", "what if it were {c} more", "put {n} onto the outcome"], "sub": ["-{c}", "then - {c}", "lower it by {n}", "drop {n} from this", "it less {c}"],
    "mul": ["*{c}", "then * {c}", "this number {n} times over", "scale it with {n}", "x {c}"], "div": ["/{c}", "then / {c}", "share it among {n}", "cut this into {n} equal pieces", "a {n}th part of it, as a number", "÷ {c}"],
    "percent": ["{c}% thereof", "and of this, {c} per cent", "{c} % of the outcome"], "double": ["x2", "twice as much?", "two of those"], "half": ["50:50", "one half thereof", "cut it in two"],
    "square": ["to the power of two", "^2", "the square thereof"], "negate": ["flip the sign"],
    "reverse_order": ["other direction", "flip the order", "invert it", "end to start", "the list upside down", "and descending"], "nth_item": ["number {n}", "{n} entry?", "pick the {n}"],
    "last_item": ["the final entry?", "what stands at the end?"], "how_many": ["size?", "number of entries?", "how big is the list"], "without": ["drop {x}", "{x} is gone, list again", "minus {x}"],
    "with_more": ["append {x}", "{x} too", "also {x}"], "upper_items": ["ALL CAPS", "shout them", "capitalise every letter"], "first_items": ["top {n}", "just {n} from the start", "the leading {n}"],
    "letter_it": ["the letter {c} in there?", "occurrences of {c}?", "{c} count"], "length_it": ["number of characters?", "letters in total?"], "spell_it": ["broken into letters?", "dictate it"],
    "backwards_it": ["mirrored?", "from its end", "flip that word"], "upper_it": ["CAPS", "to upper"], "other_person": ["{s}?", "same for {s}", "now {s}", "{s} too?", "and in the case of {s}"],
    "only_fields": ["keep {f}", "strip all but {f}", "reduce to {f}"], "same_form": ["another record: {t}", "again with {t}", "-> {t}"],
}


def introduced():
    return [user("yo"), assistant(solve.REPLIES["hello"])]


OPENINGS = [introduced]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
