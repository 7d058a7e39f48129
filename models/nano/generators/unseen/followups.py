"""Conversations whose last request refers to what was said before: to a result, a list, a word, a person or a text."""
from decimal import Decimal

from tasks.sample import Sample, assistant, user

from . import figures, passages
from .slots import COLOURS, FIRST, TOWNS, Filler

STEPS_MAX = 3
PLACES_MAX = 2              # of a result that a further request goes on from
RESULT_MAX = 20_000
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
TRUTH = {True: "yes", False: "no"}

# kind: (wordings, how the next number follows from the last and an operand)
NEXT = {
    "plus": (["And {b} more?", "Add {b} to that.", "Now plus {b}.", "Put {b} on top of it."], lambda n, b: n + b),
    "minus": (["Take {b} off that.", "Now minus {b}.", "Subtract {b} from that, please.", "And {b} less than that?"], lambda n, b: n - b),
    "times": (["Multiply that by {b}.", "That times {b}?", "Now {b} times as much."], lambda n, b: n * b),
    "over": (["Split that by {b}.", "Divide the result by {b}.", "And that over {b}?"], lambda n, b: n / b),
    "double": (["Double it.", "What is twice that?"], lambda n, b: n * 2),
    "half": (["Halve that.", "And half of that?"], lambda n, b: n / 2),
    "tenth": (["What is 10 percent of that?", "Now give me 10 % of the result."], lambda n, b: n / 10),
}
KEPT = ["Noted.", "All right.", "I have it."]


def settled(n):
    return n == n.quantize(Decimal(1).scaleb(-PLACES_MAX)) and abs(n) < RESULT_MAX


def next_step(rng, n):
    """-> a request that goes on from a number, and the number that it leads to."""
    while True:
        wordings, follow = NEXT[rng.choice(list(NEXT))]
        b = Decimal(rng.randint(2, 12) if rng.random() < 0.8 else rng.randint(13, 90))
        result = follow(n, b)
        if settled(result):
            return rng.choice(wordings).format(b=b), result


def judged(rng, n):
    """-> a question about a whole number, and its answer in a word."""
    if rng.random() < 0.7:
        even = n % 2 == 0
        either = [("Is that even or odd?", "even" if even else "odd"), ("Even or odd?", "even" if even else "odd"), ("Is it an even number, yes or no?", TRUTH[even]),
                  ("Is the result odd? Answer yes or no.", TRUTH[not even])]
        return rng.choice(either)
    limit = n + rng.choice((-1, 1)) * rng.randint(1, 60)
    return f"Is that more than {limit}? Yes or no?", TRUTH[n > limit]


def of_result(rng):
    n = None
    while n is None or not settled(n):
        kind = rng.choice(list(SIGNS))
        fields, answer = figures.KINDS[kind][1](rng)
        n = Decimal(answer)
    turns = [user(rng.choice(figures.ASK[kind]).format(**fields)), assistant(f"{fields['a']} {SIGNS[kind]} {fields['b']} = {answer}.")]
    for _ in range(rng.randint(0, STEPS_MAX - 1)):
        ask, n = next_step(rng, n)
        turns += [user(ask), assistant(f"That is {figures.plain(n)}.")]
    if n == n.to_integral() and rng.random() < 0.4:
        ask, expect = judged(rng, int(n))
        return turns, ask, "part", expect
    ask, n = next_step(rng, n)
    return turns, ask, "number", figures.plain(n)


def of_sorted(rng):
    kind = rng.choice(("numbers_up", "words_up", "numbers_down", "count_up"))
    fields, answer = figures.KINDS[kind][1](rng)
    turns = [user(rng.choice(figures.ASK[kind]).format(**fields)), assistant(answer)]
    pool = figures.WORDS if kind == "words_up" else [str(n) for n in range(400)]
    return turns, *of_items(rng, answer.split(", "), pool)


def of_kept(rng):
    what, words = rng.choice((("guests", FIRST), ("towns on our way", TOWNS), ("colours", COLOURS)))
    items = rng.sample(words, rng.randint(3, 6))
    ask = rng.choice(("These are the {what}: {l}. Keep them in mind.", "Remember the {what}: {l}", "I have written down the {what}: {l}."))
    turns = [user(ask.format(what=what, l=", ".join(items))), assistant(rng.choice(KEPT))]
    return turns, *of_items(rng, items, words)


def of_items(rng, items, pool):
    """-> a request about a list that has been said, its rule and its answer; `pool` has more of the kind."""
    place = rng.randrange(min(4, len(items)))
    gone = rng.choice(items)
    sought = rng.choice(items) if rng.random() < 0.5 else rng.choice(pool)
    return rng.choice([
        (rng.choice(("And now the other way round.", "Now in reverse, please.", "Say it backwards.", "The list from the end to the beginning?")), "text", ", ".join(items[::-1])),
        (rng.choice(("How many entries is that?", "How many are they?", "How many are there in the list?")), "part", str(len(items))),
        (f"Which one comes {figures.NTH[place]}?", "last", items[place].lower()),
        (rng.choice(("And the last one?", "What stands at the end?")), "last", items[-1].lower()),
        (rng.choice((f"Leave out {gone}.", f"The list without {gone}, please.")), "text", ", ".join(item for item in items if item != gone)),
        (rng.choice(("Is {} among them, yes or no?", "Does the list have {}? Yes or no.")).format(sought), "part", TRUTH[sought in items]),
    ])


def of_word(rng):
    w = rng.choice(figures.WORDS)
    c = rng.choice(w)
    turns = [user(rng.choice(("How many letters are there in {w}?", "{w}: how many letters?")).format(w=w)), assistant(f"{w} has {len(w)} letters.")]
    return turns, *rng.choice([
        (rng.choice(("And backwards?", "Write it from back to front.")), "text", w[::-1]),
        (rng.choice((f"How many of them are {c}?", f"And how often is there {c} in it?")), "part", str(w.count(c))),
        ("What is its last letter?", "last", w[-1]),
        ("Now write it in capitals.", "exact", w.upper()),
    ])


def of_person(rng):
    filler = Filler(rng)
    told, *asked = rng.choice([
        ("My name is {a:first} and I live in {t:town}.", ("What is my name?", "a"), ("Where do I live?", "t")),
        ("My cousin {a:first} works in {t:town} and earns {m:int 1200-4800} euros a month.", ("In which town does my cousin work?", "t"), ("How much does that bring in a month?", "m"),
         ("What is my cousin called?", "a")),
        ("I keep {n:int 3-40} hens, and the oldest is called {a:first}.", ("How many hens do I have?", "n"), ("What is the oldest one called?", "a")),
        ("Our dog {a:first} is {n:int 2-15} years old and has a {c:colour} collar.", ("How old is the dog?", "n"), ("What colour is the collar?", "c"), ("And the dog's name?", "a")),
        ("My train to {t:town} leaves at {h:clock} from platform {n:int 2-19}.", ("From which platform does it leave?", "n"), ("When does it leave?", "h"), ("Where does it go?", "t")),
        ("I am {n:int 19-88} and my favourite colour is {c:colour}.", ("How old am I?", "n"), ("Which colour do I like best?", "c")),
    ])
    turns = [user(filler.filled(told)), assistant(rng.choice(KEPT))]
    if rng.random() < 0.4:
        turns += [user(rng.choice(("Thank you.", "I am a little tired today.", "Good."))), assistant(rng.choice(KEPT))]
    ask, slot = rng.choice(asked)
    return turns, ask, "part", filler.shown[slot]


def of_text(rng):
    """A second question about a text."""
    filler = Filler(rng)
    paper = passages.Paper(filler, rng.choice(passages.NOTICES))
    (first, questions), (second, others) = rng.sample([asked for asked in paper.asked if asked[0]], 2)
    layout = rng.choice(passages.ONE)
    turns = [user(layout.format(text=paper.text, question=rng.choice(questions))), assistant(filler.shown[paper.scope + first] + ".")]
    ask = rng.choice(("", "", "And one more thing: ", "Another question about the same text. ")) + rng.choice(others)
    return turns, ask, "passage", (filler.shown[paper.scope + second], None)


SUBJECTS = {of_result: 6, of_sorted: 3, of_kept: 3, of_word: 2, of_person: 3, of_text: 3}


def make(rng, thinking=None):
    turns, ask, rule, expect = rng.choices(list(SUBJECTS), list(SUBJECTS.values()))[0](rng)
    answer = expect[0] if rule == "passage" else expect
    thinking = rng.random() < 0.7 if thinking is None else thinking
    return Sample(rule, ask, turns + [user(ask), assistant(answer)], thinking, expect=expect)
