"""Letters and words: reverse, count a letter, sort, pick the n-th word. The thought spells everything out."""
import pathlib

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


def reverse(rng):
    w = word(rng)
    ask = rng.choice(["Reverse the word {}.", "Write {} backwards.", "What is {} spelled backwards?", "Reverse: {}",
                      "Spell the word {} in reverse."]).format(w)
    thought = f"{w}: " + " ".join(w) + "\nReversed: " + " ".join(w[::-1])
    return f"reverse {w}", ask, thought, letters(w[::-1]), w[::-1]


def spell(rng):
    w = word(rng)
    ask = rng.choice(["Spell the word {}.", "Spell {}.", "How do you spell {}?"]).format(w)
    return f"spell {w}", ask, f"{w}: " + " ".join(w), "-".join(w), "-".join(w)


def count(rng):
    w = word(rng, 4)
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    ask = rng.choice(["How many times does the letter {c} occur in {w}?", "How many {c}'s are in {w}?", "Count the letter {c} in {w}.",
                      "How often does {c} appear in the word {w}?", "How many letters {c} are there in {w}?"]).format(c=c, w=w)
    seen, marks = 0, []
    for x in w:
        seen += x == c
        marks.append(f"{x}{seen}")
    n = w.count(c)
    answer = f"The letter {c} occurs {n} time{'' if n == 1 else 's'} in {w}."
    return f"count {c} {w}", ask, f"Count {c} in {w}: " + " ".join(marks) + f"\nSo {n}.", answer, n


def sort(rng):
    while True:
        # Each once, in the order in which they were drawn: a set's order is another one in each process.
        words = list(dict.fromkeys(word(rng) for _ in range(rng.randint(3, 6))))
        rng.shuffle(words)
        if len(words) > 2 and len({w[:3] for w in words}) == len(words):
            break
    ask = rng.choice(["Sort these words alphabetically: {}.", "Put these words in alphabetical order: {}.", "Sort: {}",
                      "Alphabetical order, please: {}."]).format(", ".join(words))
    ordered = sorted(words)
    key = lambda w: f"{' '.join(w[:3])} {w}"
    thought = "; ".join(map(key, words)) + "\nIn order: " + "; ".join(map(key, ordered))
    return "sort " + " ".join(sorted(words)), ask, thought, ", ".join(ordered), ", ".join(ordered)


def nth(rng):
    words = [word(rng) for _ in range(rng.randint(4, 10))]
    n = rng.randint(1, len(words))
    ask = rng.choice(["What is the {n} word of \"{s}\"?", "Which word is the {n} in \"{s}\"?", "Give me the {n} word: {s}",
                      "In the text \"{s}\", what is the {n} word?"]).format(n=nth_name(rng, n), s=" ".join(words))
    thought = " ".join(f"{i} {w}" for i, w in enumerate(words[:n], 1))
    return f"nth {n} {' '.join(words)}", ask, thought, words[n - 1], words[n - 1]


def how_many(rng):
    words = [word(rng) for _ in range(rng.randint(2, 10))]
    ask = rng.choice(["How many words are in \"{}\"?", "Count the words: {}"]).format(" ".join(words))
    thought = " ".join(f"{i} {w}" for i, w in enumerate(words, 1))
    return f"words {' '.join(words)}", ask, thought, f"There are {len(words)} words.", len(words)


KINDS = {"reverse": reverse, "count": count, "sort": sort, "nth": nth, "spell": spell, "words": how_many}
EVALUATED = ["reverse", "count", "sort", "nth"]
WEIGHTS = [26, 22, 30, 13, 5, 4]


def make(rng, test=False, thinking=None, kind=None):
    while True:
        if kind:
            chosen = kind
        else:
            chosen = rng.choice(EVALUATED) if test else rng.choices(list(KINDS), WEIGHTS)[0]
        key, ask, thought, answer, expect = KINDS[chosen](rng)
        if held_out(key) == test:
            break
    thinking = rng.random() < 0.8 if thinking is None else thinking
    thought = go_on(rng, thought, thought, expect) if thinking else None
    ask = loosely(rng, ask) if not test else ask
    return Sample("strings", key, [user(ask), assistant(answer, thought)], thinking, expect=(chosen, expect))
