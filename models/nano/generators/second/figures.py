"""Other ways to ask for sums, letters and lists: of tasks, shops and notes."""
import sys

from .. import exercise

ASK = {
    "add": ["total: {a} & {b}", "{a} gains {b}", "two amounts, {a} and {b}, combined?", "add({a}, {b})", "{b} on top of {a}", "evaluate {a} + ({b})", "{a} and {b} summed up", "Task: {a} + {b}. Result:", "Give the result of adding {b} to {a}", "({a}) + ({b})", "If x is {a} and y is {b}, what is x + y?",
            "My bill has two items, {a} and {b}. Sum?", "work out {a}+{b} for me", "sum({a}, {b})", "{a} increased by {b}"],
    "sub": ["{a} loses {b}", "subtract({a}, {b})", "{a}, then {b} off", "gap between {a} and {b}", "evaluate {a} - ({b})", "{a} less {b}", "Task: {a} - {b}. Result:", "Give the result of {a} without {b}", "({a}) - ({b})", "If x is {a} and y is {b}, what is x - y?", "work out {a}-{b} for me",
            "{a} reduced by {b}", "How far is it from {b} to {a}?", "From {a} I remove {b}, leaving?"],
    "mul": ["product({a}, {b})", "{a} by {b}", "{b} copies of {a}", "{a}-fold {b}", "evaluate {a} * ({b})", "{a} multiplied with {b}", "Task: {a} * {b}. Result:", "({a}) * ({b})", "If x is {a} and y is {b}, what is x * y?", "work out {a}*{b} for me", "{b} pieces at {a} each, total?",
            "Area of a field of {a} by {b}?", "{a} taken {b} times"],
    "div": ["divide({a}, {b})", "{a} per {b}", "ratio of {a} to {b}", "{a} cut into {b}", "evaluate {a} / ({b})", "{a} shared among {b}", "Task: {a} / {b}. Result:", "({a}) / ({b})", "If x is {a} and y is {b}, what is x / y?", "work out {a}/{b} for me", "How often does {b} go into {a}?",
            "{a} split {b} ways", "the quotient of {a} and {b}"],
    "percent": ["percent({a}, {b})", "{a}/100 of {b}", "{a} per cent from {b} is how much?", "Find {a}% of {b}", "the share of {a} percent in {b}", "Tip of {a}% on {b}?", "VAT at {a} % on {b} is?", "work out {a} % of {b}", "{b}, of that {a} %"],
    "more": ["{b} raised by {a} percent", "{b} with {a} % on top", "What comes out when {b} grows {a}%?"],
    "less": ["{b} lowered by {a} percent", "{b} with {a} % discount", "What remains of {b} after {a}% off?"],
    "power": ["pow {a} {n}", "{a} up to {n}", "raise {a} to {n}", "power({a}, {n})", "the {n}-th power of {a}", "evaluate {a}^{n}"],
    "root": ["sqrt {a}", "{a} under the root", "evaluate sqrt({a})", "root of {a} please", "x * x = {a}. What is x?", "A square has area {a}. How long is its side?", "second root of {a}", "the square root of {a} is what"],
    "cube_root": ["third root of {a}", "x * x * x = {a}. x?", "A cube has volume {a}. Its edge?"],
    "letter": ['count("{c}", "{w}")', "{c}s inside {w}?", "tally {c} in {w}", "in the string {w}, {c} occurs?", "Letter count: {c} in {w}", "{w}: how many {c}?", "occurrences of \"{c}\" in \"{w}\"", "Do a count of {c} within {w}", "How frequent is {c} in the word '{w}'?", "Check {w} for the letter {c} and count.",
               "The word {w} contains {c} how many times?", "Look at {w}. Number of {c}s?"],
    "spell": ["spelling of {w}?", "chars of {w} with dashes", "hyphenate each letter: {w}", "letters of {w}, please", "S-p-e-l-l it: {w}", "Break {w} into letters.", "{w}, letter after letter", "Dictate {w} to me by letters"],
    "backwards": ["{w} reversed?", "inverse spelling of {w}", "tail to head: {w}", "read {w} starting from the last letter", "mirror {w}", "{w} written from the end", "Flip {w}", "reverse(\"{w}\")", "Start at the end of {w} and write it", "the word {w}, last letter first"],
    "length": ["{w} - length?", "count chars: {w}", 'how long is "{w}"', "len(\"{w}\")", "{w}: how many characters?", "letter count of {w}", "Of how many letters is {w} made?", "size of the word {w}"],
    "first_letter": ["{w} - initial letter?", "initial of {w}", "Which letter comes first in {w}?"],
    "last_letter": ["{w} - final letter?", "the final letter in {w}", "Which letter comes last in {w}?"],
    "nth_letter": ["{w}, {n} letter?", "letter number {n} of \"{w}\"", "In {w}, the {n} letter is?"],
    "upper": ["CAPS for {w}", "{w} to upper case", "shout {w}", "all caps: {w}"],
    "numbers_up": ["asc: {l}", "{l} sorted?", "low to high {l}", "by size: {l}", "{l}\nSmallest to largest.", "Rank upwards: {l}", "sorted([{l}])", "Line up {l} beginning with the lowest.", "increasing order please -> {l}", "{l} -- from least to most"],
    "numbers_down": ["desc: {l}", "high to low {l}", "{l} sorted downwards?", "biggest to tiniest: {l}", "{l}\nLargest to smallest.", "Rank downwards: {l}", "Line up {l} beginning with the highest.", "decreasing order please -> {l}", "{l} -- from most to least"],
    "words_up": ["abc order: {l}", "{l} -> alphabetical", "by first letters: {l}", "{l}\nA to Z.", "as in a dictionary: {l}", "alphabetize {l}", "Line up by alphabet: {l}", "sorted by letters -> {l}"],
    "words_down": ["{l}\nZ to A.", "alphabetize backwards {l}", "descending by alphabet -> {l}"],
    "largest": ["max({l})", "{l} - which is highest?", "The top value in {l}", "Pick the biggest: {l}"],
    "smallest": ["min({l})", "{l} - which is lowest?", "The bottom value in {l}", "Pick the tiniest: {l}"],
    "reversed_list": ["reversed([{l}])", "tail to head: {l}", "{l}\nNow the other way round.", "invert the sequence {l}", "backwards, item by item: {l}", "Begin with the final item: {l}"],
    "count_up": ["all integers {a} to {b}", "{a}, and so on up to {b}", "list({a}..{b})", "{a}..{b}", "range {a} to {b}, all of them", "numbers starting at {a} and ending at {b}", "Enumerate {a} through {b}.", "Print {a} to {b}", "go from {a} to {b} one by one"],
    "count_down": ["down: {a} to {b}", "all integers from {a} falling to {b}", "{a}..{b} going down", "numbers falling from {a} to {b}", "Enumerate {a} down through {b}.", "rocket start: {a} to {b}"],
    "count_by": ["every {s}th number, {a} to {b}", "range({a}, {b}, step={s}) with the end", "{a} to {b}, step {s}", "Enumerate from {a} to {b} with a step of {s}.", "jump by {s} from {a} until {b}"],
}
MARKS = ["!", "...", " ?", "??", " ->", ":"]


def dressed(rng, form, kind):
    chance = rng.random()
    if chance < 0.08 and "{" not in form[:2]:
        form = form[0].upper() + form[1:]
    elif chance < 0.16 and form[-1] in "?.":
        form = form[:-1] + rng.choice(MARKS)
    elif chance < 0.22:
        form = f"- {form}"
    elif chance < 0.27:
        form = f"{form} (exact)"
    elif chance < 0.31:
        form = f"\"{form}\"" if '"' not in form else form
    return form


def make(rng, thinking=None, kind=None):
    return exercise.make(rng, sys.modules[__name__], thinking, kind)
