"""Small talk and questions outside the domain that choose between trainings."""
import sys

from .. import talking
from . import passages      # whose questions are outside where no text is there

BY_RULE = 0             # its own words alone
TALK = {
    "hello": ["Salutations!", "A very good day to you.", "Hello from my kitchen."], "thanks": ["I am grateful.", "Thanks a million!", "You were a great help."], "bye": ["I must be off.", "Have a nice evening!"],
    "who": ["May I know your name?", "With what am I conversing?"], "can": ["What would you say are your talents?", "In which matters may I turn to you?", "What can you do"], "feelings": ["Are you feeling fine?", "How have you been?"],
    "statement": ["The sun is shining on my desk.", "My cousin {first} visits me on {weekday}.", "I ate too much {food}."], "okay": ["So be it.", "Agreed."], "anger": ["I am not satisfied with you."], "bored": ["Nothing to do today."],
}
OUTSIDE = ["Which river flows through {town}?", "Could you describe the flag of {country}?", "How would one repair a {device}?", "Please compose a song on {topic}.", "Which king ruled in {year}?", "Name three books by {full}.",
           "How is {food} prepared in {country}?", "Say \"{phrase}\" in {tongue}, please.", "What makes {concept2} so hard?", "Is it going to snow in {town}?", "In which film does {full} play?", "What would happen without {topic}?",
           "Why do people like {hobby}?", "Give me a script in {code} which {does}.", "How heavy is an adult {animal}?", "Which medicine helps against a sore {body}?", "What is the best-known invention of {country}?",
           "Who discovered {word}?", "How many moons has Jupiter?", "What is the current exchange rate?"]


def talk(rng, thinking=None):
    return talking.talk(rng, sys.modules[__name__], thinking)


def outside(rng, thinking=None):
    return talking.outside(rng, sys.modules[__name__], thinking, held_out=True)


KINDS = ["talk", "outside"]
