"""Ways to have a text said again, or a part of it found."""
import sys

from .. import copying

COPY = {"again": ["Repeat this text.", "Say it again.", "Write down the text once more.", "Copy the text.", "Give me the text as it is."],
        "line": ["Which line has {w}?", "Where is {w} mentioned?", "Give me the line with {w}.", "In which line do I find {w}?", "What does the text say about {w}?"],
        "next": ["Which word comes after {w}?", "What follows {w}?", "Give me the word behind {w}."], "previous": ["Which word comes before {w}?", "What stands before {w}?", "Give me the word in front of {w}."],
        "key": ["What is the value of {w}?", "What is given for {w}?", "Look up {w}.", "Which value belongs to {w}?", "What does it say for {w}?"]}


def make(rng, thinking=None):
    return copying.make(rng, sys.modules[__name__], thinking)
