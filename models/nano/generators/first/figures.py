"""Ways to ask for sums, letters and lists."""
import sys

from .. import exercise, words

ASK = {
    "add": ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "Add {a} and {b}.", "How much is {a} plus {b}?", "Compute {a} + {b}", "Calculate the sum of {a} and {b}.", "{a} plus {b} equals?", "{a} + {b} = ?",
            "Total of {a} and {b}?", "I have {a} and get {b}. How much is it together?"],
    "sub": ["What is {a} - {b}?", "{a} - {b}", "Subtract {b} from {a}.", "How much is {a} minus {b}?", "{a} - {b} = ?", "Take {b} away from {a}.", "Calculate {a} - {b}", "{a} minus {b} equals?",
            "The difference of {a} and {b}?", "I had {a} euros and spent {b}. How much is left?"],
    "mul": ["What is {a} * {b}?", "{a} * {b}", "{a} x {b}", "{a} times {b}", "Multiply {a} by {b}.", "How much is {a} times {b}?", "{a} * {b} = ?", "The product of {a} and {b}?", "Compute {a} × {b}.",
            "One costs {a}. What do {b} cost?"],
    "div": ["What is {a} / {b}?", "{a} / {b}", "Divide {a} by {b}.", "How much is {a} divided by {b}?", "{a} ÷ {b}", "{a} / {b} = ?", "{a} over {b}?", "Calculate {a} divided by {b}.",
            "Split {a} into {b} equal parts. How much is one?", "{a} : {b}"],
    "percent": ["What is {a} % of {b}?", "{a}% of {b}", "How much is {a} percent of {b}?", "Calculate {a} % of {b}.", "{a} percent of {b}?", "What are {a} percent of {b}?", "Take {a}% of {b}."],
    "more": ["Increase {b} by {a} %.", "What is {b} plus {a}%?", "Add {a} % to {b}.", "A price of {b} rises by {a} percent. What is it now?"],
    "less": ["Decrease {b} by {a} %.", "What is {b} minus {a}%?", "Take {a} % off {b}.", "A price of {b} falls by {a} percent. What is it now?"],
    "power": ["What is {a} {w}?", "{a}^{n}", "{a} to the power of {n}", "Compute {a}**{n}.", "How much is {a} {w}?"],
    "root": ["What is the square root of {a}?", "square root of {a}", "sqrt({a})", "sqrt {a}", "√{a}", "Find the square root of {a}.", "Which number times itself is {a}?", "The root of {a}?"],
    "cube_root": ["What is the cube root of {a}?", "cube root of {a}", "cbrt({a})", "∛{a}"],
    "letter": ["How many {c}'s are in {w}?", "How many {c}'s are there in the word {w}?", "How many times does {c} appear in {w}?", "Count the {c}'s in {w}.", "How often is the letter {c} in {w}?",
               "How many \"{c}\" are in \"{w}\"?", "Number of {c} in {w}?", "how many {c} in {w}", "Tell me the count of {c} in '{w}'.", "In {w}, how many letters are {c}?", "How many letter {c} has {w}?"],
    "spell": ["Spell {w}.", "How is {w} spelled?", "Write {w} letter by letter.", "Spell the word \"{w}\".", "Give the letters of {w} one by one.", "spell '{w}' for me"],
    "backwards": ["Write {w} backwards.", "Reverse {w}.", "What is {w} in reverse?", "Turn the word {w} around.", "{w} backwards", "Reverse the letters of \"{w}\".", "Read {w} from right to left."],
    "length": ["How many letters does {w} have?", "How long is the word {w}?", "Count the letters of {w}.", "How many letters are in \"{w}\"?", "What is the length of {w}?", "number of letters in {w}"],
    "first_letter": ["What is the first letter of {w}?", "Which letter does {w} start with?", "With which letter does \"{w}\" begin?", "first letter of {w}"],
    "last_letter": ["What is the last letter of {w}?", "Which letter does {w} end with?", "last letter of \"{w}\"?", "How does the word {w} end, with which letter?"],
    "nth_letter": ["What is the {n} letter of {w}?", "Which is the {n} letter in \"{w}\"?", "Give me the {n} letter of {w}.", "{n} letter of {w}"],
    "upper": ["Write {w} in capitals.", "Write {w} in upper case.", "Uppercase: {w}", "{w} in capital letters, please.", "Make \"{w}\" upper case."],
    "numbers_up": ["Sort these numbers: {l}", "Sort from small to large: {l}", "Put {l} in ascending order.", "Order these from lowest to highest: {l}", "Sort ascending: {l}", "sort {l}",
                   "Arrange the numbers {l} by size.", "Which order have these numbers, smallest first? {l}"],
    "numbers_down": ["Sort from large to small: {l}", "Put {l} in descending order.", "Sort descending: {l}", "Order these from highest to lowest: {l}", "Largest first, please: {l}"],
    "words_up": ["Sort these words: {l}", "Sort alphabetically: {l}", "Put these words in alphabetical order: {l}", "Order from a to z: {l}", "Arrange alphabetically: {l}", "alphabetical order of {l}"],
    "words_down": ["Sort from z to a: {l}", "Put these words in reverse alphabetical order: {l}", "Sort the words backwards, z first: {l}"],
    "largest": ["What is the largest of {l}?", "Which of these numbers is the biggest? {l}", "Largest number: {l}", "Find the maximum of {l}.", "Which is the greatest: {l}?"],
    "smallest": ["What is the smallest of {l}?", "Which of these numbers is the smallest? {l}", "Smallest number: {l}", "Find the minimum of {l}.", "Which is the least: {l}?"],
    "reversed_list": ["Write this list in reverse order: {l}", "Reverse the order of {l}", "Turn this list around: {l}", "Last to first: {l}", "List these from the last to the first: {l}"],
    "count_up": ["Count from {a} to {b}.", "Count from {a} up to {b}", "List the numbers from {a} to {b}.", "Write all numbers from {a} to {b}.", "Say the numbers {a} to {b}.", "count {a} to {b}",
                 "Give me every number between {a} and {b}, both included."],
    "count_down": ["Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "List the numbers from {a} down to {b}.", "Count from {a} to {b}.", "countdown {a} to {b}"],
    "count_by": ["Count from {a} to {b} by {s}.", "Count from {a} to {b} in steps of {s}.", "Every {s} from {a} to {b}?", "List the numbers from {a} to {b} in steps of {s}."],
}
BEFORE = ["Please: ", "Hi, ", "Can you help? ", "Quick: ", "Question: ", "Tell me: ", "Hello! ", "ok ", "So, "]
AFTER = [" Thanks.", " Please.", " (just the answer)", " Think first.", " Be exact."]


def dressed(rng, form, kind):
    chance = rng.random()
    if chance < 0.1:
        form = form[0].lower() + form[1:]
    elif chance < 0.2:
        form = form.rstrip("?.")
    elif chance < 0.24 and "{" in form:
        head, brace, rest = form.partition("{")
        form = words.typo(rng, head) + brace + rest
    if chance > 0.9:
        form = rng.choice(BEFORE) + form
    elif chance > 0.86 and not form.endswith("}"):
        form += rng.choice(AFTER)
    return form


def make(rng, thinking=None, kind=None):
    return exercise.make(rng, sys.modules[__name__], thinking, kind)
