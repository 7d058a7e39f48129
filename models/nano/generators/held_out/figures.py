"""Ways to ask for sums, letters and lists that choose between trainings."""
import sys

from .. import exercise

ASK = {
    "add": ["My friend wants {a} and {b} put together. What do I tell him?", "Would you add up {a} and {b}?"], "sub": ["Starting at {a}, go back {b}. Where am I?", "Would you subtract {b} from {a}?"],
    "mul": ["{a} by {b}, multiplied out, gives?", "Would you multiply {a} and {b}?"], "div": ["Would you divide {a} by {b}?", "{a} parted by {b} gives?"],
    "percent": ["Suppose I keep {a} percent of {b}. How much is that?", "{a}% out of {b} makes?"], "power": ["Would you square or cube: {a}^{n}?"], "root": ["Extract the square root of {a}.", "Would you take the root of {a}?"],
    "letter": ["Inside {w} you find the letter {c} how many times?", "Give the number of {c}'s that {w} contains."],
    "spell": ["Could I have {w} spelled out?"], "backwards": ["If you read {w} the wrong way round, what do you get?"], "length": ["{w} consists of how many letters?"],
    "last_letter": ["At the very end of {w} stands which letter?"], "numbers_up": ["Bring these into rising order: {l}"], "numbers_down": ["Bring these into falling order: {l}"],
    "words_up": ["As a librarian would order them: {l}"], "largest": ["Nothing in this list beats which number? {l}"], "reversed_list": ["Recite from the end: {l}"],
    "count_up": ["Walk through the numbers {a} to {b}."], "count_down": ["Walk down the numbers {a} to {b}."],
}


def dressed(rng, form, kind):
    return form


def make(rng, thinking=None, kind=None):
    return exercise.make(rng, sys.modules[__name__], thinking, kind)
