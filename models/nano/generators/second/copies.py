"""Ways to have a text said again, or a part of it found."""
import sys

from .. import copying

COPY = {"again": ["echo", "echo this", "verbatim, please", "same again", "print the above as is"],
        "line": ["grep {w}", "{w}?", "source for {w}", "find {w}", "quote whatever mentions {w}", "the passage on {w}"],
        "next": ["{w}, then?", "successor of {w}", "after {w} we read?"], "previous": ["predecessor of {w}", "before {w} we read?", "what leads to {w}?"],
        "key": ["{w}?", "get {w}", "value[{w}]", "{w} =", "lookup {w}", "entry for {w}"]}


def make(rng, thinking=None):
    return copying.make(rng, sys.modules[__name__], thinking)
