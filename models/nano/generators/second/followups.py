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
AHEAD = ["k, ", "cool. ", "thx, ", "and now ", "next: ", "hm, ", "ok so ", "again: ", "wait, ", "lol ok, ", "good, ", "now ", "so then ", "and ", "yep. ", "followup: ", "q: ", "got it, ", "then ", "btw ", "oh and ", "step two: ",
         "perfect. ", "also ", "quick one: ", "alright "]
FOLLOW = {
    "add": ["add {c}", "increase by {n}", "and another {n}", "+ {n} please", "outcome plus {c}", "now it grew by {n}", "sum with {c}", "+{c}", "then + {c}", "raise it by {n}", "{n} on top of this", "what if it were {c} more", "put {n} onto the outcome"], "sub": ["subtract {c}", "decrease by {n}", "less {n}", "- {n} please", "outcome minus {c}", "{n} got lost, so?", "now it shrank by {n}", "-{c}", "then - {c}", "lower it by {n}", "drop {n} from this", "it less {c}"],
    "mul": ["multiply by {c}", "{n} times", "{c} such numbers make?", "by {n}", "outcome times {c}", "{n}-fold", "*{c}", "then * {c}", "this number {n} times over", "scale it with {n}", "x {c}"], "div": ["divide by {c}", "over {n}", "per head with {n} heads?", "outcome divided by {c}", "in {n} equal portions", "split {n} ways", "one of {n} parts", "/{c}", "then / {c}", "share it among {n}", "cut this into {n} equal pieces", "a {n}th part of it, as a number", "÷ {c}"],
    "percent": ["{c}% thereof", "and of this, {c} per cent", "{c} % of the outcome"], "double": ["double", "doubled?", "times two", "2x that", "the same again on top", "x2", "twice as much?", "two of those"], "half": ["half", "halved?", "by two", "/2 please", "50 percent of it", "50:50", "one half thereof", "cut it in two"],
    "square": ["squared", "its second power", "to the power of two", "^2", "the square thereof"], "negate": ["sign change", "negated?", "times minus one", "flip the sign"],
    "reverse_order": ["reversed please", "backward", "from the tail", "descending instead", "bottom to top", "in opposite sequence", "rewind it", "other direction", "flip the order", "invert it", "end to start", "the list upside down", "and descending"], "nth_item": ["item {n}?", "what is at place {n}", "{n} please", "entry {n}?", "show {n}", "which is {n}", "number {n}", "{n} entry?", "pick the {n}"],
    "last_item": ["last?", "tail element?", "closing entry?", "the final entry?", "what stands at the end?"], "how_many": ["count?", "how many", "length of the list?", "total items?", "amount of entries", "number of things", "size?", "number of entries?", "how big is the list"], "without": ["remove {x}", "skip {x}", "no {x} please", "cross out {x}", "exclude {x}", "drop {x}", "{x} is gone, list again", "minus {x}"],
    "with_more": ["+ {x}", "plus {x} at the end", "insert {x} last", "there is {x} as well", "append {x}", "{x} too", "also {x}"], "upper_items": ["uppercase all", "BIG please", "caps for all", "ALL CAPS", "shout them", "capitalise every letter"], "first_items": ["head {n}", "first {n}", "{n} from the top", "top {n}", "just {n} from the start", "the leading {n}"],
    "letter_it": ["how many {c}?", "{c} in it?", "count {c}", "and {c}?", "the letter {c} in there?", "occurrences of {c}?", "{c} count"], "length_it": ["length?", "how long", "size of it?", "its letter total", "number of characters?", "letters in total?"], "spell_it": ["letters?", "spelling?", "letter after letter", "broken into letters?", "dictate it"],
    "backwards_it": ["reversed?", "backwards", "back to front", "inverted letters", "mirrored?", "from its end", "flip that word"], "upper_it": ["uppercase", "big letters", "in caps please", "CAPS", "to upper"], "other_person": ["and {s}", "{s} as well?", "what of {s}", "next: {s}", "{s}?", "same for {s}", "now {s}", "{s} too?", "and in the case of {s}"],
    "only_fields": ["only {f}", "{f} alone", "just {f}", "keep {f}", "strip all but {f}", "reduce to {f}"], "same_form": ["next record: {t}", "same for {t}", "one more: {t}", "another record: {t}", "again with {t}", "-> {t}"],
}


def introduced():
    return [user("yo"), assistant(solve.REPLIES["hello"])]


OPENINGS = [introduced]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
