"""Copying and finding in texts of any words: said again, quoted by a word or two, looked up by a key. An author brings the wording, COPY.

A name is copied token by token, and most of the tokens are rare: here every one of them is seen at every place.
"""
from tasks.sample import Sample, assistant, copied, user

from . import library, solve, words
from .made import frames


def piece(rng):
    chance = rng.random()
    word = words.rare(rng)
    if chance < 0.5:
        return word
    return word.capitalize() if chance < 0.68 else words.made_up(rng).capitalize() if chance < 0.76 else words.code(rng) if chance < 0.82 else words.surname(rng) if chance < 0.9 \
        else word.upper() if chance < 0.92 else str(words.whole(rng))


def soup(rng, least, most):
    """Any words in a row; at times words of a sentence."""
    if rng.random() < 0.3:
        _, _, paragraphs = library.LIBRARY.document(rng)
        found = rng.choice(paragraphs).split()
        begin = rng.randrange(max(1, len(found) - most))
        found = found[begin:begin + rng.randint(least, most)]
    else:
        found = [piece(rng) for _ in range(rng.randint(least, most))]
    return " ".join(found)


def again(rng, author):
    text = soup(rng, 1, 30)
    return frames.together(rng, text, rng.choice(author.COPY["again"])), f"The text says: {copied(text)}", copied(text), text, "text"


def found_line(rng, author):
    """Lines, one of which has the words asked for."""
    lines = list(dict.fromkeys(soup(rng, 4, 14) for _ in range(rng.randint(2, 9))))
    at = rng.randrange(len(lines))
    some = library.keywords(lines[at])
    if not some:
        return found_line(rng, author)
    question = rng.choice(author.COPY["line"]).format(w=" ".join(rng.sample(some, min(len(some), rng.randint(1, 3)))))
    numbered = rng.random() < 0.7
    shape = frames.numbering(rng) if numbered else "{t}"
    shown = rng.choice(("\n", "\n\n")).join(shape.format(i=i, t=t) for i, t in enumerate(lines, 1))
    number = at + 1 if numbered else None
    thought = solve.looked_up(question, " ".join(lines), lines[at], number)
    return frames.together(rng, shown, question), thought, solve.quoted(lines[at], number), (lines[at], number), "passage"


def neighbour(rng, author):
    """The word before or behind another."""
    listed = list(dict.fromkeys(piece(rng) for _ in range(rng.randint(4, 20))))
    at, which = rng.randrange(1, len(listed) - 1) if len(listed) > 2 else 0, rng.choice(("next", "previous"))
    if not at:
        return neighbour(rng, author)
    found = listed[at + (1 if which == "next" else -1)]
    ask = frames.together(rng, " ".join(listed), rng.choice(author.COPY[which]).format(w=listed[at]))
    pair = " ".join(sorted((listed[at], found), key=listed.index))
    return ask, f"The text says: {copied(pair)}", copied(found), found, "text"


def looked_up(rng, author):
    """A value by its key."""
    keys = list(dict.fromkeys(words.phrase(rng, 1, 2) for _ in range(rng.randint(2, 12))))
    joint, between = rng.choice((": ", " = ", " - ", " is ", " -> ", "\t", " | ", ", ", "=")), rng.choice(("\n", "\n", "; ", ". "))
    rows = [(k, soup(rng, 1, 3)) for k in keys]
    key, value = rng.choice(rows)
    ask = frames.together(rng, between.join(f"{k}{joint}{v}" for k, v in rows), rng.choice(author.COPY["key"]).format(w=key))
    return ask, f"The text says: {copied(f'{key}{joint}{value}')}", copied(value), value, "text"


def make(rng, author, thinking=None):
    ask, thought, answer, expect, rule = rng.choice((again, found_line, found_line, neighbour, looked_up))(rng, author)
    thinking = rng.random() < 0.5 if thinking is None else thinking
    return Sample(rule, ask, [user(ask), assistant(answer, thought if thinking else None)], thinking, expect=expect)
