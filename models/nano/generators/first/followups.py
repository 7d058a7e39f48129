"""Ways to refer back, after a first question in the words of figures.py."""
import sys

from tasks.sample import assistant, user

from .. import solve, turns
from . import figures, passages

RELATIONS = passages.RELATIONS
KEYS = "name city code age price date owner amount email place size color team status".split()
FIRST = {k: figures.ASK[k] for k in ("add", "sub", "mul", "div", "letter", "length", "spell", "backwards", "upper")} | {
    "words": figures.ASK["words_up"], "numbers": figures.ASK["numbers_up"], "count": figures.ASK["count_up"],
    "told": ["Remember these: {l}", "Here is my list: {l}", "My shopping list: {l}", "Keep this list in mind: {l}."],
    "facts": ["{t} {q}", "{t}\n\n{q}", "Text: {t} {q}"], "form": ["Extract {f} as JSON: {t}", "As JSON with {f}: {t}"],
}
FOLLOW = {
    "add": ["Add {n} to that.", "And plus {c}?", "Plus {c}", "Now add {n}.", "What if I add {n}?", "and {c} more?", "Add another {c} to the result."],
    "sub": ["Subtract {n} from that.", "And minus {c}?", "Minus {c}", "Now take away {n}.", "Take {c} off it.", "and {c} less?"],
    "mul": ["Multiply that by {n}.", "Times {c}?", "Now times {n}.", "And multiplied by {c}?", "Multiply it by {n}, please.", "{n} times that?"],
    "div": ["Divide that by {n}.", "Divided by {c}?", "divide that by {c}", "Now divide it by {n}.", "And split into {n} parts?", "What is that over {c}?", "Divide the result by {n}."],
    "percent": ["What is {c} % of that?", "And {c} percent of it?", "Take {c}% of the result."], "double": ["Double that.", "Twice that?", "Now double it."],
    "half": ["Half of that?", "Halve it.", "Now take the half."], "square": ["Square it.", "And squared?", "Multiply it by itself."], "negate": ["Now with the other sign.", "Make it negative, or positive if it is."],
    "reverse_order": ["Now in reverse order.", "now in reverse order", "Reverse the order.", "And the other way round?", "Backwards, please.", "Turn the list around.", "And from the last to the first?"],
    "nth_item": ["Which one is the {n}?", "What is the {n} one?", "Give me the {n} item.", "The {n}?"], "last_item": ["Which one is the last?", "And the last one?", "What comes last?"],
    "how_many": ["How many are these?", "How many items is that?", "Count them."], "without": ["Leave out {x}.", "Now without {x}.", "Remove {x} from it."],
    "with_more": ["Put {x} at the end.", "Add {x} to the list.", "And {x} behind it."], "upper_items": ["Now in capitals.", "The same in upper case.", "Write them in capital letters."],
    "first_items": ["Only the first {n}.", "Just the first {n}, please.", "Give me the first {n} of them."],
    "letter_it": ["How many {c}'s are in it?", "And how many {c}'s?", "Count the {c}'s in that word."], "length_it": ["How long is it?", "How many letters has it?", "And its length?"],
    "spell_it": ["Spell it.", "Now letter by letter.", "And spelled?"], "backwards_it": ["And backwards?", "Now reverse it.", "Write that word backwards."], "upper_it": ["Now in capitals.", "In upper case, please."],
    "other_person": ["And {s}?", "What about {s}?", "And for {s}?", "How about {s}?", "The same question for {s}."],
    "only_fields": ["Only {f}.", "I need just {f}.", "Now with {f} only."], "same_form": ["Now the same for: {t}", "And for this one: {t}", "Next: {t}"],
}


def greeted():
    return [user("Hello!"), assistant(solve.REPLIES["hello"])]


def thanked():
    return [user("Hi there"), assistant(solve.REPLIES["hello"]), user("Thanks"), assistant(solve.REPLIES["thanks"])]


OPENINGS = [greeted, thanked]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
