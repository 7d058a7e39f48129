"""Questions about passages, cited by number, and those that no passage answers. An author brings relations, questions, layouts and frames."""
import pathlib

from tasks.sample import Sample, assistant, user

from . import library, solve, words
from .made import frames, grammar
from .relations import World, table

ABSENT_ONE_IN = 4
COVERED_MAX = 0.7           # of the words of a question that a text must not answer
TRIES = 60
LONG_WORDS = (1800, 9000)   # of a long reading
ANY_FRAME = 0.4             # of what training reads, in a layout that no author wrote
MADE_RELATIONS = 10         # beside an author's own
# Statements and questions that mean the same in other words.
LIKE_IN_MEANING = table(pathlib.Path(__file__).with_name("made") / "relations.txt")


class Reading:
    """Passages, and the facts in them that can be asked for: (passage's index, sentence, question, value)."""

    def __init__(self, rng, author, held_out, natural, count, most=160):
        self.rng, self.author, self.held_out = rng, author, held_out
        self.world, self.known = None, []
        self.texts = library.LIBRARY.passages(rng, count, held_out, most) if natural else self.told(count)
        self.whole = " ".join(self.texts)
        if natural:
            for i, text in enumerate(self.texts):
                for sentence in library.sentences(text):
                    fact = library.fact(sentence)
                    asked = fact and author.question(rng, fact)
                    if asked and self.whole.count(sentence) == 1 and library.covered(asked[0], sentence) >= 0.6:
                        self.known.append((i, sentence, *asked))

    def told(self, count):
        """Passages of small facts about a few people and things."""
        relations = self.author.RELATIONS
        if not self.held_out and self.rng.random() < 0.75:
            relations = self.rng.sample(relations, self.rng.randint(2, 9)) + grammar.relations(self.rng, self.rng.randint(2, MADE_RELATIONS))
            relations += self.rng.sample(LIKE_IN_MEANING, self.rng.randint(3, 20))
        self.world = World(self.rng, relations, count * self.rng.randint(1, 4) + 1)
        texts, at = [], 0
        for i in range(count):
            share = self.world.told[at:at + max(1, round((len(self.world.told) - at) / (count - i)))]
            at += len(share)
            for told in share:
                self.known.append((i, told[3], self.world.question(self.rng, told), told[2]))
            if share:
                texts.append(" ".join(t[3] for t in share))
        return texts

    def missing(self):
        """-> a question that nothing here answers."""
        if self.world:
            return self.world.missing(self.rng)
        for _ in range(TRIES):
            text = self.rng.choice(library.LIBRARY.passages(self.rng, 1, self.held_out))
            for sentence in library.sentences(text):
                fact = library.fact(sentence)
                asked = fact and self.author.question(self.rng, fact)
                if asked and library.covered(asked[0], self.whole) <= COVERED_MAX:
                    return asked[0]
            if self.known and self.rng.random() < 0.5:
                changed = self.changed(self.rng.choice(self.known)[2])
                if changed:
                    return changed
        return f"What is {words.made_up(self.rng)}?"

    def changed(self, question):
        """The question with its longest word or two exchanged for words that are not here."""
        there = {library.stem(w) for w in library.keywords(self.whole)}
        long = sorted((w for w in library.keywords(question) if library.stem(w) in there), key=len, reverse=True)[:2]
        for w in long[:self.rng.randint(1, 2)]:
            other = words.rare(self.rng)
            if library.stem(other) in there:
                return None
            question = question.replace(w, other)
        return question if long and library.covered(question, self.whole) <= COVERED_MAX else None


def make(rng, author, thinking=None, there=None, natural=None, held_out=False, long=False):
    """`there`: whether the last question has its answer; `natural`: passages of documentation rather than of made-up facts."""
    natural = rng.random() < 0.6 if natural is None else natural
    reading, numbers, shown = laid_out(rng, author, held_out, natural, long)
    several = 1 if held_out else rng.choice((1, 1, 2, 3, 4))
    left = rng.sample(reading.known, len(reading.known))
    if not left and there is not False:
        return make(rng, author, thinking, there, natural, held_out, long)
    asked = []
    for i in range(several):
        last = i == several - 1
        absent = not left or (rng.randrange(ABSENT_ONE_IN) == 0 if there is None or not last else not there)
        asked.append((None, None, reading.missing(), None) if absent else left.pop())
    thinking = rng.random() < 0.6 if thinking is None else thinking
    messages, whole = [], reading.whole
    for i, (at, sentence, question, value) in enumerate(asked):
        number = numbers[at] if numbers and at is not None else None
        said = dressed(rng, author, question)
        if i:
            messages.append(user(said))
        elif not held_out and rng.random() < ANY_FRAME:
            messages.append(user(frames.together(rng, shown, frames.said(rng, said))))
        else:
            messages += author.posed(rng, shown, said, bool(numbers))
        thought = solve.looked_up(question, whole, sentence, number) if thinking and i == several - 1 else None
        messages.append(assistant(solve.quoted(sentence, number), thought))
    expect = (None, None) if sentence is None else (value, number)
    return Sample("passage", f"{question} {value}", messages, thinking, expect=expect, learn_history=True)


def laid_out(rng, author, held_out, natural, long):
    """-> the reading, the numbers of its passages where they have any, and how all of it is shown."""
    if long:
        size, count, most = rng.randint(*LONG_WORDS), 0, 160
        count = max(4, size // (50 if natural else 17))
    else:
        count, most = rng.choice((1, 1, 2, 3, 3, 4, 5, 5)), rng.choice((40, 80, 160))
    reading = Reading(rng, author, held_out, natural, count, most)
    count = len(reading.texts)
    numbers = None
    if count > 1 or rng.random() < 0.35:
        numbers = list(range(1, count + 1)) if rng.random() < 0.9 else sorted(rng.sample(range(1, count + 30), count))
        shape = frames.numbering(rng) if not held_out and rng.random() < ANY_FRAME else rng.choice(author.SHAPES)
        between = rng.choice(("\n", "\n\n", "\n\n"))
        return reading, numbers, between.join(shape.format(i=i, t=t, h=words.phrase(rng, 1, 3).capitalize()) for i, t in zip(numbers, reading.texts))
    return reading, numbers, reading.texts[0]


def dressed(rng, author, question):
    """As people write: without the capital, without the mark, with a letter missing, with a word before or after."""
    chance = rng.random()
    if chance < 0.12:
        question = question.lower() if rng.random() < 0.5 else question[0].lower() + question[1:]
    elif chance < 0.18:
        question = question.rstrip("?.")
    elif chance < 0.22:
        question = words.typo(rng, question)
    elif chance < 0.34:
        question = rng.choice(author.BEFORE) + question
    elif chance < 0.40:
        question += rng.choice(author.AFTER)
    return question
