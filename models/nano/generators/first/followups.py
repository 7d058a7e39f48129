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
AHEAD = ["Next, ", "After that, ", "OK, ", "Good. ", "Fine, ", "And then ", "Now please ", "Thank you. ", "Great, ", "Well, ", "So, ", "Alright. ", "Nice. ", "Interesting. ", "One more: ", "Continue: ", "Thanks! ", "Very good. ",
         "I see. ", "Please ", "Could you please ", "Can you ", "And now ", "Then ", "Let us go on. ", "Right. ", "As the next step ", "I would like this: ", "Wonderful. ", "Last question: "]
FOLLOW = {
    "add": ["Increase it by {n}.", "Please add {n} to it.", "What is it with {n} more?", "Raise that by {c}.", "Sum it with {n}.", "How much is it when I add {n}?", "Put {c} on top.", "Can you add {n}?", "Add {n} to that.", "And plus {c}?", "Plus {c}", "Now add {n}.", "What if I add {n}?", "and {c} more?", "Add another {c} to the result."],
    "sub": ["Decrease it by {n}.", "Please take {n} away.", "What is it with {n} less?", "Reduce that by {c}.", "Take {n} from the result.", "How much is left without {n}?", "Deduct {c}.", "Subtract {n} from that.", "And minus {c}?", "Minus {c}", "Now take away {n}.", "Take {c} off it.", "and {c} less?"],
    "mul": ["Take it {n} times.", "Please multiply the result by {n}.", "What is {n} times as much?", "How much is it times {c}?", "I need {n} of those, how much is that?", "Scale that by {n}.", "Multiply that by {n}.", "Times {c}?", "Now times {n}.", "And multiplied by {c}?", "Multiply it by {n}, please.", "{n} times that?"],
    "div": ["Please divide the result by {n}.", "What is one {n}th of it?", "Share it equally between {n} people.", "Split that by {n}.", "How much is it for each of {n}?", "Cut it into {n} equal shares.", "Divided among {n}, how much is one?", "Divide that by {n}.", "Divided by {c}?", "divide that by {c}", "Now divide it by {n}.", "And split into {n} parts?", "What is that over {c}?", "Divide the result by {n}."],
    "percent": ["How much is {c} percent of the result?", "Give me {c} % of that number.", "What is {c} % of that?", "And {c} percent of it?", "Take {c}% of the result."], "double": ["Please double the result.", "Multiply it by two.", "What is the double?", "Two times that.", "How much is twice the result?", "Take it two times.", "Make it double.", "Double that.", "Twice that?", "Now double it."],
    "half": ["Please halve that.", "Divide it by two.", "What is half of the result?", "Give me one half of it.", "Cut it in half.", "Half of that?", "Halve it.", "Now take the half."], "square": ["Please square the result.", "What is its square?", "Raise it to the second power.", "That number times itself.", "Square it.", "And squared?", "Multiply it by itself."], "negate": ["Change its sign.", "What is the opposite number?", "With a minus in front, or without if there is one.", "Now with the other sign.", "Make it negative, or positive if it is."],
    "reverse_order": ["Please start from the end.", "List them from back to front.", "Now begin with the last one.", "Swap the order.", "In the opposite order.", "Last one first, please.", "Turn the order around.", "Go through it from the end.", "Now in reverse order.", "now in reverse order", "Reverse the order.", "And the other way round?", "Backwards, please.", "Turn the list around.", "And from the last to the first?"],
    "nth_item": ["Which item is in {n} place?", "Who or what is {n}?", "Tell me the {n} one.", "What is {n} in this list?", "The {n} of them is?", "I want the {n} one.", "Which comes {n}?", "Which one is the {n}?", "What is the {n} one?", "Give me the {n} item.", "The {n}?"], "last_item": ["Tell me the last one.", "Which item is at the end?", "What is the very last?", "The last of them is?", "Which one is the last?", "And the last one?", "What comes last?"],
    "how_many": ["What is their number?", "How long is this list?", "How many things are in the list?", "How many did I give you?", "How many words or numbers is that?", "Tell me how many there are.", "How many entries are there?", "What is the count?", "How many are these?", "How many items is that?", "Count them."], "without": ["Please remove {x}.", "Take {x} out.", "What is left if {x} goes?", "The list minus {x}.", "Strike out {x}.", "Delete {x} from the list.", "I do not want {x} any more.", "Leave out {x}.", "Now without {x}.", "Remove {x} from it."],
    "with_more": ["Please add {x} at the end.", "Write {x} behind the others.", "{x} belongs to it, too.", "I forgot {x}.", "Extend it by {x}.", "Put {x} at the end.", "Add {x} to the list.", "And {x} behind it."], "upper_items": ["Please write all of them in capitals.", "All letters big, please.", "In big letters.", "Now in capitals.", "The same in upper case.", "Write them in capital letters."],
    "first_items": ["Show only the first {n}.", "I want the first {n} alone.", "Leave only the first {n}.", "Only the first {n}.", "Just the first {n}, please.", "Give me the first {n} of them."],
    "letter_it": ["How often is {c} in it?", "How many times does it have {c}?", "And the letter {c}, how often?", "How many of its letters are {c}?", "Please count {c} in it.", "How many {c}'s are in it?", "And how many {c}'s?", "Count the {c}'s in that word."], "length_it": ["How many letters are in it?", "How many characters is it?", "Tell me its length.", "And how long is the word?", "Count its letters.", "How long is it?", "How many letters has it?", "And its length?"],
    "spell_it": ["Please spell that word.", "One letter at a time, please.", "Give me its letters.", "Write it with hyphens between the letters.", "How is it spelled?", "Spell it.", "Now letter by letter.", "And spelled?"], "backwards_it": ["Please reverse the word.", "And in reverse?", "From back to front, please.", "How does it read backwards?", "Turn its letters around.", "And from the end to the beginning?", "The same word backwards.", "And backwards?", "Now reverse it.", "Write that word backwards."], "upper_it": ["Please capitalise all of it.", "In big letters.", "Write that in upper case.", "Now in capitals.", "In upper case, please."],
    "other_person": ["Now the same for {s}.", "And in the case of {s}?", "Now tell me about {s}.", "And what is it for {s}?", "I also want to know it for {s}.", "And {s}?", "What about {s}?", "And for {s}?", "How about {s}?", "The same question for {s}."],
    "only_fields": ["Please keep only {f}.", "Leave only {f} in it.", "The same with {f} alone.", "Drop everything but {f}.", "Only {f}.", "I need just {f}.", "Now with {f} only."], "same_form": ["Do the same with this: {t}", "The same form for: {t}", "Here is one more: {t}", "And now: {t}", "Now the same for: {t}", "And for this one: {t}", "Next: {t}"],
}


def greeted():
    return [user("Hello!"), assistant(solve.REPLIES["hello"])]


def thanked():
    return [user("Hi there"), assistant(solve.REPLIES["hello"]), user("Thanks"), assistant(solve.REPLIES["thanks"])]


OPENINGS = [greeted, thanked]


def make(rng, thinking=None):
    return turns.make(rng, sys.modules[__name__], thinking)
