"""Letters and words: reverse, count a letter, sort, pick the n-th word. The thought spells everything out."""
import pathlib

from . import wording
from .sample import Sample, assistant, go_on, held_out, letters, loosely, user
from .words import ANIMALS, COMMON, THINGS, invented

NTH = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
WORDS = sorted(set(COMMON + THINGS + ANIMALS))
# Frequent words of the documentation, so that most tokens of the vocabulary are spelled out now and then.
DOCUMENTED = pathlib.Path(__file__).with_name("wordlist.txt").read_text().split()


def word(rng, shortest=3, longest=11):
    while True:
        chance = rng.random()
        w = rng.choice(WORDS) if chance < 0.35 else rng.choice(DOCUMENTED) if chance < 0.7 else invented(rng, rng.choice((2, 2, 3)))
        if shortest <= len(w) <= longest:
            return w


def nth_name(rng, n):
    return NTH[n - 1] if rng.random() < 0.5 else f"{n}{'st' if n == 1 else 'nd' if n == 2 else 'rd' if n == 3 else 'th'}"


def shown(rng, w, free):
    """The word as the user writes it, and in the quotes that the user puts around it."""
    w = wording.cased(rng, w) if free else w
    return w, dict(w=wording.quoted(rng, w) if free else w)


def reverse(rng, free=False):
    w, fields = shown(rng, word(rng), free)
    ask = rng.choice(["Reverse the word {w}.", "Write {w} backwards.", "What is {w} spelled backwards?", "Reverse: {w}",
                      "Spell the word {w} in reverse."])
    return f"reverse {w.lower()}", ask, fields, reversing(w), letters(w[::-1]), w[::-1]


def reversing(w):
    return f"{w}: " + " ".join(w) + "\nReversed: " + " ".join(w[::-1])


def spell(rng, free=False):
    w, fields = shown(rng, word(rng), free)
    ask = rng.choice(["Spell the word {w}.", "Spell {w}.", "How do you spell {w}?"])
    return f"spell {w.lower()}", ask, fields, f"{w}: " + " ".join(w), "-".join(w), "-".join(w)


def count(rng, free=False):
    w = word(rng, 4)
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    _, fields = shown(rng, w, free)
    fields["c"] = c.upper() if free and rng.random() < 0.1 else wording.quoted(rng, c, 0.25) if free else c
    ask = rng.choice(["How many times does the letter {c} occur in {w}?", "How many {c}'s are in {w}?", "Count the letter {c} in {w}.",
                      "How often does {c} appear in the word {w}?", "How many letters {c} are there in {w}?"])
    thought, answer, n = counting(c, w)
    return f"count {c} {w}", ask, fields, thought, answer, n


def counting(c, w):
    seen, marks = 0, []
    for x in w:
        seen += x == c
        marks.append(f"{x}{seen}")
    n = w.count(c)
    return f"Count {c} in {w}: " + " ".join(marks) + f"\nSo {n}.", f"The letter {c} occurs {n} time{'' if n == 1 else 's'} in {w}.", n


def sort(rng, free=False):
    while True:
        # Each once, in the order in which they were drawn: a set's order is another one in each process.
        words = list(dict.fromkeys(word(rng) for _ in range(rng.randint(3, 6))))
        rng.shuffle(words)
        if len(words) > 2 and len({w[:3] for w in words}) == len(words):
            break
    ask = rng.choice(["Sort these words alphabetically: {s}.", "Put these words in alphabetical order: {s}.", "Sort: {s}",
                      "Alphabetical order, please: {s}."])
    return "sort " + " ".join(sorted(words)), ask, dict(s=listed(rng, words) if free else ", ".join(words)), *sorting(words)


def listed(rng, words):
    """A list as people write one."""
    chance = rng.random()
    if chance < 0.5:
        return ", ".join(words)
    if chance < 0.6:
        return ", ".join(words[:-1]) + " and " + words[-1]
    if chance < 0.7:
        return "\n" + "\n".join(f"- {w}" for w in words)
    if chance < 0.8:
        return ", ".join(f'"{w}"' for w in words)
    return rng.choice((" ", "; ", " ", ",")).join(words)


def sorting(words):
    ordered = sorted(words)
    key = lambda w: f"{' '.join(w[:3])} {w}"
    thought = "; ".join(map(key, words)) + "\nIn order: " + "; ".join(map(key, ordered))
    return thought, ", ".join(ordered), ", ".join(ordered)


def nth(rng, free=False):
    words = [word(rng) for _ in range(rng.randint(4, 10))]
    n = rng.randint(1, len(words))
    ask = rng.choice(["What is the {n} word of \"{s}\"?", "Which word is the {n} in \"{s}\"?", "Give me the {n} word: {s}",
                      "In the text \"{s}\", what is the {n} word?"])
    fields = dict(n=nth_name(rng, n), i=n, **running(rng, words, free))
    thought = " ".join(f"{i} {w}" for i, w in enumerate(words[:n], 1))
    return f"nth {n} {' '.join(words)}", ask, fields, thought, words[n - 1], words[n - 1]


def running(rng, words, free):
    """A text of these words: as it is, and quoted where another form sets it inside a sentence."""
    s = " ".join(words)
    if free and rng.random() < 0.3:
        s = s[0].upper() + s[1:] + rng.choice((".", "", "!"))
        words[0] = words[0][0].upper() + words[0][1:]
    return dict(s=s, q=wording.quoted(rng, s, 1.0) if free else s)


def how_many(rng, free=False):
    words = [word(rng) for _ in range(rng.randint(2, 10))]
    ask = rng.choice(["How many words are in \"{s}\"?", "Count the words: {s}"])
    fields = running(rng, words, free)
    thought = " ".join(f"{i} {w}" for i, w in enumerate(words, 1))
    return f"words {' '.join(words)}", ask, fields, thought, f"There are {len(words)} words.", len(words)


KINDS = {"reverse": reverse, "count": count, "sort": sort, "nth": nth, "spell": spell, "words": how_many}
EVALUATED = ["reverse", "count", "sort", "nth"]
WEIGHTS = [24, 20, 26, 13, 8, 9]


def make(rng, test=False, thinking=None, kind=None, form=None):
    """`form`: "trained" or "new" asks in a way of phrases.py; None as the card's rows do, and in training in either."""
    other = bool(form) or (not test and rng.random() < 0.55)
    while True:
        if kind:
            chosen = kind
        else:
            chosen = rng.choice(EVALUATED) if test else rng.choices(list(KINDS), WEIGHTS)[0]
        key, ask, fields, thought, answer, expect = KINDS[chosen](rng, other)
        if held_out(key) == test:
            break
    thinking = rng.random() < 0.85 if thinking is None else thinking
    thought = go_on(rng, thought, thought, expect) if thinking else None
    if other:
        ask = wording.request(rng, chosen, fields, form == "new")
    else:
        ask = ask.format(**fields)
        ask = loosely(rng, ask) if not test else ask
    return Sample("strings", key, [user(ask), assistant(answer, thought)], thinking, expect=(chosen, expect))
