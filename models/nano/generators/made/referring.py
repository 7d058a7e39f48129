"""Ways to refer back, put together by rule: to a result, a list, a word, a person, a form."""
import random
import sys

from tasks.sample import assistant, user

from .. import solve, turns
from ..first import passages
from . import roles, wordings

IT = ["it", "that", "this", "the result", "that result", "the answer", "this number", "that number", "what you got", "the last number", "what came out", "your answer", "the outcome"]
LIST = ["it", "that", "this", "the list", "them", "these", "those", "this list", "all of it", "what you wrote", "your answer", "the whole list", "that row"]
WORD = ["it", "that", "this", "the word", "that word", "this word", "the same word"]
# {i} stands for what is referred to
ON_RESULT = {
    "add": "add {n} to {i};raise {i} by {n};{i} plus {c};put {n} on top of {i};increase {i} by {n};join {i} with {n};let {i} grow by {n};{n} more than {i};{i} and another {n};{i} with {c} on top;give {i} {n} more;+ {c};plus {n}",
    "sub": "take {n} from {i};lower {i} by {n};{i} minus {c};remove {n} from {i};decrease {i} by {n};{i} less {n};take {n} off {i};{i} without {n};cut {i} by {n};{n} less than {i};let {i} lose {n};- {c};minus {n}",
    "mul": "multiply {i} by {n};{i} times {c};{n} times {i};take {i} times {n};scale {i} by {n};multiply {i} with {n};{n} lots of {i};repeat {i} {n} times over;* {c};times {n}",
    "div": "divide {i} by {n};{i} divided by {c};split {i} into {n};share {i} among {n};cut {i} into {n} parts;{i} over {c};one part of {n} of {i};split {i} among {n} friends;{i} by {c}, divided;break {i} into {n} equal pieces;/ {c};divided by {n}",
    "percent": "take {c} percent of {i};{c} % of {i};{c}% of {i};find {c} percent of {i};a share of {c} % of {i}", "double": "double {i};{i} twice;two times {i};twice {i};take {i} two times;add {i} to itself",
    "half": "halve {i};half of {i};one half of {i};cut {i} in two;divide {i} by two;split {i} in half", "square": "square {i};{i} squared;the square of {i};{i} times itself;multiply {i} by itself;raise {i} to the power of two",
    "even": "is {i} even;is {i} an even number;even;can {i} be halved without a rest;does two go into {i};is {i} divisible by two;even, or not", "odd": "is {i} odd;is {i} an odd number;odd;odd, or not;is {i} uneven",
    "negate": "turn the sign of {i};{i} with the other sign;negate {i};the opposite of {i};put a minus before {i}",
}
ON_LIST = {
    "reverse_order": "reverse {i};turn {i} around;{i} in reverse;{i} in the reverse order;{i} from the end;{i} from back to front;read {i} backwards;flip {i};list {i} the other way round;write {i} starting with the last;{i}, last to first;in reverse;backwards;the other way round;from the last to the first;the opposite order",
    "nth_item": "the {n} of {i};the {n} one of {i};the {n} in {i};pick the {n} of {i};say the {n} one;which of {i} is {n};what comes {n};the {n} one;number {n} of {i}", "last_item": "the last of {i};the end of {i};the final one;what comes last;pick the last of {i};the last one",
    "how_many": "count {i};how many {i} has;the number of things in {i};the length of {i};how many are there;how many there are;how many are in {i};how many entries {i} has;how many items that makes;the count of {i}", "without": "leave {x} out;{i} without {x};drop {x};remove {x} from {i};take {x} out of {i};strike {x};forget about {x};{i} but not {x}",
    "with_more": "add {x} to {i};append {x};put {x} behind {i};{i} with {x} at the end;write {x} after {i};{x} comes last;add {x} at the end of {i}", "upper_items": "write {i} in capitals;{i} in capitals;{i} in upper case;put {i} in capital letters;{i} in large letters", "first_items": "the first {n} of {i};only the first {n};keep the first {n} of {i};just the first {n} of {i};cut {i} after {n}",
}
ON_WORD = {
    "letter_it": "count the {c} in {i};how many {c} are in {i};how often {c} is in {i};the number of {c}'s in {i};how many times {i} has {c};look for {c} in {i} and count;how many {c} {i} has", "length_it": "count the letters of {i};the length of {i};how long {i} is;the number of letters in {i};how many letters {i} has",
    "spell_it": "spell {i};spell out {i};the spelling of {i};{i} letter by letter;write {i} with hyphens;the letters of {i}", "backwards_it": "reverse {i};turn {i} around;{i} backwards;{i} in reverse;flip {i};write {i} from the end;{i} from back to front;mirror {i}", "upper_it": "write {i} in capitals;{i} in capitals;{i} in upper case;put {i} in large letters",
}
ASKED = ["{x}", "{x}", "{x}", "and {x}", "now {x}", "so {x}", "tell me, {x}", "one question: {x}", "then {x}", "but {x}", "please say: {x}"]
SAID = ["{x}", "{x}", "{x}", "now {x}", "and {x}", "then {x}", "please {x}", "next {x}", "now, {x}", "so {x}", "and now {x}", "{x}, please", "can you {x}", "could you {x}", "what is {x}", "i want {x}", "i also need {x}", "let us {x}", "{x} now", "after that {x}", "what if i {x}", "go on: {x}", "give me {x}", "tell me {x}", "and what is {x}",
        "once more: {x}", "what about {x}", "how about {x}", "one step more: {x}", "try {x}", "i'd like {x}", "would you {x}", "{x}, can you", "the next thing: {x}", "say {x}", "show {x}", "also {x}", "{x} too", "finally {x}"]
FORMS_MAX = 300


def forms(kind, parts, referred):
    rng, found = random.Random(kind), []
    for part in parts.split(";"):
        for said in ASKED if kind in ("even", "odd") else SAID:
            text = said.replace("{x}", part.replace("{i}", rng.choice(referred) if rng.random() < 0.6 else referred[0]))
            text = text[0].upper() + text[1:] if rng.random() < 0.75 and text[0].isalpha() else text
            asks = kind in ("even", "odd") or text.lower().startswith(("can", "could", "what", "how", "would", "which"))
            found.append(text + rng.choice(("?", "?", "") if asks else (".", ".", "", "!", "?")))
    return found if len(found) <= FORMS_MAX else rng.sample(found, FORMS_MAX)


FOLLOW = {kind: forms(kind, parts, IT) for kind, parts in ON_RESULT.items()} | {kind: forms(kind, parts, LIST) for kind, parts in ON_LIST.items()} | {kind: forms(kind, parts, WORD) for kind, parts in ON_WORD.items()} | {
    "other_person": ["And {s}?", "What about {s}?", "The same about {s}, please.", "Is it known of {s}?", "How is it with {s}?", "Then {s}?", "And {s}, what of that?", "Now {s}.", "And when it comes to {s}?", "{s} too?", "And for {s}, what is it?", "Now ask the same of {s}.", "Also {s}, please.", "I want that for {s}.",
                     "{s}?", "Please say it of {s}.", "As for {s}?"],
    "only_fields": ["Just {f}, please.", "Only {f} this time.", "Now {f} alone.", "Make it smaller: {f}.", "I only care for {f}.", "Leave all out except {f}.", "Keep {f}, drop the others.", "Again, but with {f} only.", "Without the rest: {f}", "Restrict it to {f}.", "Cut it down to {f}.", "{f} will do.", "The same object, fields {f}."],
    "same_form": ["Once more for {t}", "And for {t}", "Another one: {t}", "Again, with this text: {t}", "The next text: {t}", "Same keys, other text: {t}", "And what of this: {t}", "More of it: {t}", "Here comes another: {t}", "Go on with {t}", "This one too: {t}"],
}
RELATIONS = passages.RELATIONS
KEYS = sorted({noun for kind in ("person", "town", "code", "date", "decimal", "small", "word") for noun in roles.ROLES[kind]})
FIRST = {kind: wordings.ASK[kind] for kind in ("add", "sub", "mul", "div", "letter", "length", "spell", "backwards", "upper")} | {
    "words": wordings.ASK["words_up"], "numbers": wordings.ASK["numbers_up"], "count": wordings.ASK["count_up"],
    "told": ["Note: {l}", "Take these: {l}", "I have {l}.", "On my list are {l}", "Look at {l}", "We need {l}", "{l}. Keep them.", "Store {l}", "These are mine: {l}", "Do not forget {l}"],
    "facts": ["{t} {q}", "{q} {t}", "{t}\n\n{q}", "{q}\n{t}", "They say: {t} So: {q}", "It is written: {t} Now, {q}", "Read this. {t} {q}", "From a letter: {t}\n{q}", "{t} My question: {q}", "\"{t}\" {q}"],
    "form": ["{t}. JSON with {f}", "Make JSON with {f} of this: {t}", "Turn {t} into JSON ({f})", "{t} -> {f} as JSON", "As JSON, {f}: {t}", "Give {f} in JSON. {t}", "Fields {f}. Text: {t}. JSON only.", "{t}\nWrite {f} as a JSON object."],
}
AHEAD = ["OK. ", "Good. ", "Thanks. ", "Fine. ", "Right, ", "Well done. ", "Hm, ", "I see, ", "Nice, ", "Correct. ", "Perfect. ", "Okay, ", "Great. ", "Aha. ", "Good, ", "Yes. ", "Understood. ", "Cool. ", "That helps. ", "And "]


def greeted():
    return [user("Good day"), assistant(solve.REPLIES["hello"])]


OPENINGS = [greeted]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
