"""Ways to ask for sums, letters and lists."""
import sys

from .. import exercise, words

ASK = {
    "add": ["How much do {a} and {b} make?", "If I put {a} and {b} together, how much is it?", "Starting with {a}, I get {b} more. What is the sum?", "Please add up {a} and {b}.", "{a} and {b} together?", "{b} more than {a} is how much?", "What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "Add {a} and {b}.", "How much is {a} plus {b}?", "Compute {a} + {b}", "Calculate the sum of {a} and {b}.", "{a} plus {b} equals?", "{a} + {b} = ?",
            "Total of {a} and {b}?", "I have {a} and get {b}. How much is it together?"],
    "sub": ["What is left of {a} when {b} is gone?", "How much more is {a} than {b}?", "{b} less than {a} is how much?", "Please take {b} from {a}.", "Deduct {b} from {a}.", "If {a} shrinks by {b}, what remains?", "What is {a} - {b}?", "{a} - {b}", "Subtract {b} from {a}.", "How much is {a} minus {b}?", "{a} - {b} = ?", "Take {b} away from {a}.", "Calculate {a} - {b}", "{a} minus {b} equals?",
            "The difference of {a} and {b}?", "I had {a} euros and spent {b}. How much is left?"],
    "mul": ["How much are {a} pieces of {b}?", "What do you get if you multiply {a} and {b}?", "{a} rows of {b}, how many in all?", "Please multiply {a} and {b}.", "{a} multiplied by {b}", "How much is {a}x{b}?", "What is {a} * {b}?", "{a} * {b}", "{a} x {b}", "{a} times {b}", "Multiply {a} by {b}.", "How much is {a} times {b}?", "{a} * {b} = ?", "The product of {a} and {b}?", "Compute {a} × {b}.",
            "One costs {a}. What do {b} cost?"],
    "div": ["What do you get if you divide {a} by {b}?", "How many times does {b} fit into {a}?", "{a} for {b} people, how much is one share?", "Please divide {a} by {b}.", "{a} divided by {b}", "One {b}th of {a}?", "What is {a} / {b}?", "{a} / {b}", "Divide {a} by {b}.", "How much is {a} divided by {b}?", "{a} ÷ {b}", "{a} / {b} = ?", "{a} over {b}?", "Calculate {a} divided by {b}.",
            "Split {a} into {b} equal parts. How much is one?", "{a} : {b}"],
    "percent": ["{b} times {a} %", "How many are {a} % out of {b}?", "If I take {a} percent from {b}, how much do I take?", "What is {a} % of {b}?", "{a}% of {b}", "How much is {a} percent of {b}?", "Calculate {a} % of {b}.", "{a} percent of {b}?", "What are {a} percent of {b}?", "Take {a}% of {b}."],
    "more": ["Increase {b} by {a} %.", "What is {b} plus {a}%?", "Add {a} % to {b}.", "A price of {b} rises by {a} percent. What is it now?"],
    "less": ["Decrease {b} by {a} %.", "What is {b} minus {a}%?", "Take {a} % off {b}.", "A price of {b} falls by {a} percent. What is it now?"],
    "power": ["What is {a} raised to the power {n}?", "Please calculate {a} {w}.", "{a} {w} is how much?", "How much is {a} ^ {n}?", "What is {a} {w}?", "{a}^{n}", "{a} to the power of {n}", "Compute {a}**{n}.", "How much is {a} {w}?"],
    "root": ["Which number times itself is {a}?", "Please take the square root of {a}.", "What number squared gives {a}?", "How much is the root of {a}?", "What is the square root of {a}?", "square root of {a}", "sqrt({a})", "sqrt {a}", "√{a}", "Find the square root of {a}.", "Which number times itself is {a}?", "The root of {a}?"],
    "cube_root": ["What is the cube root of {a}?", "cube root of {a}", "cbrt({a})", "∛{a}"],
    "letter": ["Please count the letter {c} in {w}.", "How many times do I write {c} in {w}?", "How many of the letters of {w} are {c}?", "Does {w} have {c}, and how many?", "What number of {c}'s has {w}?", "{c} is in {w} how often?", "How many {c}'s are in {w}?", "How many {c}'s are there in the word {w}?", "How many times does {c} appear in {w}?", "Count the {c}'s in {w}.", "How often is the letter {c} in {w}?",
               "How many \"{c}\" are in \"{w}\"?", "Number of {c} in {w}?", "how many {c} in {w}", "Tell me the count of {c} in '{w}'.", "In {w}, how many letters are {c}?", "How many letter {c} has {w}?"],
    "spell": ["Please spell {w} with hyphens.", "How do I spell {w}?", "Say {w} one letter at a time.", "Put hyphens between the letters of {w}.", "Spell {w}.", "How is {w} spelled?", "Write {w} letter by letter.", "Spell the word \"{w}\".", "Give the letters of {w} one by one.", "spell '{w}' for me"],
    "backwards": ["How does {w} read backwards?", "What do I get when I reverse {w}?", "Please turn {w} around.", "Write {w} from its end to its beginning.", "Say {w} in reverse.", "Which word is {w} backwards?", "What would {w} be in reverse?", "Write {w} backwards.", "Reverse {w}.", "What is {w} in reverse?", "Turn the word {w} around.", "{w} backwards", "Reverse the letters of \"{w}\".", "Read {w} from right to left."],
    "length": ["How many characters are in {w}?", "Please count the letters in {w}.", "{w} has how many letters?", "From how many letters is {w} built?", "Tell me how long {w} is.", "How many letters does {w} have?", "How long is the word {w}?", "Count the letters of {w}.", "How many letters are in \"{w}\"?", "What is the length of {w}?", "number of letters in {w}"],
    "first_letter": ["What is the first letter of {w}?", "Which letter does {w} start with?", "With which letter does \"{w}\" begin?", "first letter of {w}"],
    "last_letter": ["What is the last letter of {w}?", "Which letter does {w} end with?", "last letter of \"{w}\"?", "How does the word {w} end, with which letter?"],
    "nth_letter": ["Which letter of {w} is the {n}?", "Tell me the {n} letter of {w}.", "Letter {n} of {w}?", "What is the {n} letter of {w}?", "Which is the {n} letter in \"{w}\"?", "Give me the {n} letter of {w}.", "{n} letter of {w}"],
    "upper": ["Please capitalise all letters of {w}.", "How does {w} look in capitals?", "Write {w} in capitals.", "Write {w} in upper case.", "Uppercase: {w}", "{w} in capital letters, please.", "Make \"{w}\" upper case."],
    "numbers_up": ["Bring these numbers into order: {l}", "From the smallest to the largest: {l}", "Please sort by size, the smallest first: {l}", "Which is the right order of {l}, from low to high?", "Order the numbers {l}.", "Sort these numbers: {l}", "Sort from small to large: {l}", "Put {l} in ascending order.", "Order these from lowest to highest: {l}", "Sort ascending: {l}", "sort {l}",
                   "Arrange the numbers {l} by size.", "Which order have these numbers, smallest first? {l}"],
    "numbers_down": ["From the largest to the smallest: {l}", "Please sort by size, the biggest first: {l}", "Order from high to low: {l}", "Sort {l}, the highest first.", "Start with the largest: {l}", "Sort these in decreasing order: {l}", "Sort from large to small: {l}", "Put {l} in descending order.", "Sort descending: {l}", "Order these from highest to lowest: {l}", "Largest first, please: {l}"],
    "words_up": ["Please put in alphabetical order: {l}", "In which alphabetical order are {l}?", "Order the words {l} by the alphabet.", "Bring these words into alphabetical order: {l}", "Sort these words: {l}", "Sort alphabetically: {l}", "Put these words in alphabetical order: {l}", "Order from a to z: {l}", "Arrange alphabetically: {l}", "alphabetical order of {l}"],
    "words_down": ["Reverse alphabetical order, please: {l}", "From z to a: {l}", "Sort the words {l} against the alphabet.", "Sort from z to a: {l}", "Put these words in reverse alphabetical order: {l}", "Sort the words backwards, z first: {l}"],
    "largest": ["Which one is the highest of {l}?", "The biggest number among {l}?", "What is the largest of {l}?", "Which of these numbers is the biggest? {l}", "Largest number: {l}", "Find the maximum of {l}.", "Which is the greatest: {l}?"],
    "smallest": ["Which one is the lowest of {l}?", "The smallest number among {l}?", "What is the smallest of {l}?", "Which of these numbers is the smallest? {l}", "Smallest number: {l}", "Find the minimum of {l}.", "Which is the least: {l}?"],
    "reversed_list": ["Please list these backwards: {l}", "Begin at the end of this list: {l}", "Say these from back to front: {l}", "What is this list in reverse? {l}", "Write this list in reverse order: {l}", "Reverse the order of {l}", "Turn this list around: {l}", "Last to first: {l}", "List these from the last to the first: {l}"],
    "count_up": ["Please count: {a} to {b}.", "Start at {a} and stop at {b}, counting up.", "Which numbers go from {a} to {b}?", "Every whole number from {a} up to {b}.", "Count from {a} to {b}.", "Count from {a} up to {b}", "List the numbers from {a} to {b}.", "Write all numbers from {a} to {b}.", "Say the numbers {a} to {b}.", "count {a} to {b}",
                 "Give me every number between {a} and {b}, both included."],
    "count_down": ["Please count down: {a} to {b}.", "Start at {a} and go down to {b}.", "From {a} back to {b}, one by one.", "Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "List the numbers from {a} down to {b}.", "Count from {a} to {b}.", "countdown {a} to {b}"],
    "count_by": ["Please count in {s}s from {a} to {b}.", "Begin with {a}, add {s} each time and end with {b}.", "Count from {a} to {b} by {s}.", "Count from {a} to {b} in steps of {s}.", "Every {s} from {a} to {b}?", "List the numbers from {a} to {b} in steps of {s}."],
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
