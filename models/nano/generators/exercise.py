"""Sums, letters and lists: instances and how they are solved. An author brings the wording, ASK: {kind: forms}."""
from decimal import Decimal

from tasks.sample import Sample, assistant, go_on, user

from . import solve, words

NTH = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
WEIGHTS = {"add": 10, "sub": 10, "mul": 10, "div": 9, "percent": 7, "more": 3, "less": 3, "power": 3, "root": 5, "cube_root": 1, "letter": 16, "spell": 6, "backwards": 6,
           "length": 6, "first_letter": 2, "last_letter": 3, "nth_letter": 4, "upper": 2, "numbers_up": 7, "numbers_down": 5, "words_up": 7, "words_down": 3, "largest": 3,
           "smallest": 3, "reversed_list": 5, "count_up": 6, "count_down": 4, "count_by": 3}
COUNTED_MAX = 40            # numbers in a row
GO_ON = 0.3                 # share of the thoughts of which a third goes on after the answer is settled


def number(rng, digits, negative=0.15, decimals=0.55):
    places = rng.choice((1, 1, 2)) if rng.random() < decimals else 0
    n = Decimal(rng.randint(1, 10 ** digits - 1)).scaleb(-places)
    return -n if rng.random() < negative else n


def sum_of(op):
    def made(rng):
        if op == "div":
            b = Decimal(rng.choice((2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25))) if rng.random() < 0.8 else Decimal(rng.randint(2, 9)).scaleb(-1)
            a = b * number(rng, 3, 0.1, 0.4) if rng.random() < 0.7 else number(rng, rng.randint(2, 4), 0.1, 0.3)
        else:
            most = 3 if op == "mul" else 4
            a, b = number(rng, rng.randint(1, most)), number(rng, rng.randint(1, most))
        thought, result = solve.calculated(op, a, b)
        return dict(a=solve.shown(a), b=solve.shown(b)), thought, solve.equation(op, a, b, result), solve.shown(result), "number"
    return made


def percent(rng):
    p, n = (Decimal(rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75))) if rng.random() < 0.6 else Decimal(rng.randint(1, 99))), number(rng, 3, 0, 0.2)
    thought, result = solve.percentage(p, n)
    return dict(a=solve.shown(p), b=solve.shown(n)), thought, f"{solve.shown(p)} % of {solve.shown(n)} is {solve.shown(result)}.", solve.shown(result), "number"


def changed(op):
    def made(rng):
        fields, thought, _, part, _ = percent(rng)
        n = Decimal(fields["b"])
        more, result = solve.calculated(op, n, Decimal(part))
        word = "more" if op == "add" else "less"
        return fields, f"{thought}\n{more}", f"{fields['b']} and {fields['a']} % {word} is {solve.shown(result)}.", solve.shown(result), "number"
    return made


def power(rng):
    n = 2 if rng.random() < 0.6 else 3
    base = rng.randint(2, 99) if n == 2 else rng.randint(2, 12)
    thought, result = solve.power(base, n)
    return dict(a=base, n=n, w={2: "squared", 3: "cubed"}[n]), thought, f"{base}^{n} = {result}.", str(result), "number"


def root(k):
    def made(rng):
        base = (rng.randint(2, 31) if rng.random() < 0.85 else rng.choice((40, 50, 60, 70, 80, 90, 100))) if k == 2 else rng.randint(2, 10)
        thought, result = solve.root(base ** k, k)
        return dict(a=base ** k), thought, f"The {'square' if k == 2 else 'cube'} root of {base ** k} is {result}.", str(result), "number"
    return made


def word(rng, least=3, most=13):
    while True:
        w = words.rare(rng) if rng.random() < 0.75 else words.first(rng)
        if least <= len(w) <= most:
            return w.capitalize() if rng.random() < 0.08 else w


def letter(rng):
    w = word(rng, 4)
    c = rng.choice(w.lower()) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    thought, answer, n = solve.counted(c, w)
    return dict(w=w, c=c), thought, answer, str(n), "part"


def spell(rng):
    w = word(rng)
    return dict(w=w), f"{w}: " + " ".join(w), "-".join(w), "-".join(w), "text"


def backwards(rng):
    w = word(rng)
    thought, answer = solve.backwards(w)
    return dict(w=w), thought, answer, w[::-1], "text"


def length(rng):
    w = word(rng)
    return dict(w=w), " ".join(f"{c}{i}" for i, c in enumerate(w.lower(), 1)), f"{w} has {len(w)} letters.", str(len(w)), "part"


def letter_at(which):
    def made(rng):
        w = word(rng, 4)
        i = 0 if which == "first" else len(w) - 1 if which == "last" else rng.randrange(min(len(w), 10))
        thought = f"{w}: " + " ".join(f"{n} {c}" for n, c in enumerate(w, 1))
        name = which if which != "nth" else NTH[i]
        return dict(w=w, n=name if which != "nth" or rng.random() < 0.6 else f"{i + 1}."), thought, f"The {name} letter of {w} is {w[i]}.", w[i], "last"
    return made


def upper(rng):
    w = word(rng)
    return dict(w=w), f"{w}: " + " ".join(w), w.upper(), w.upper(), "exact"


def numbers(rng):
    decimals, negative = rng.choice((0, 0, 0.5)), rng.choice((0, 0, 0.3))
    return list(dict.fromkeys(number(rng, rng.randint(1, 4), negative, decimals) for _ in range(rng.randint(3, 7))))


def listed(rng, items):
    chance = rng.random()
    joined = ", ".join(items) if chance < 0.6 else " ".join(items) if chance < 0.75 else "; ".join(items) if chance < 0.82 else ", ".join(items[:-1]) + " and " + items[-1]
    return joined if chance < 0.95 else "\n" + "\n".join(f"- {i}" for i in items)


def sorting(kind, down):
    def made(rng):
        if kind == "numbers":
            items = numbers(rng)
            thought, answer = solve.sorted_numbers(items, down)
            return dict(l=listed(rng, [solve.shown(i) for i in items])), thought, answer, answer, "text"
        items = list(dict.fromkeys(word(rng).lower() for _ in range(rng.randint(3, 6))))
        thought, answer = solve.sorted_words(items, down)
        return dict(l=listed(rng, items)), thought, answer, answer, "text"
    return made


def extreme(which):
    def made(rng):
        items = numbers(rng)
        thought, _ = solve.sorted_numbers(items)
        found = solve.shown((max if which == "largest" else min)(items))
        return dict(l=listed(rng, [solve.shown(i) for i in items])), thought, f"The {which} is {found}.", found, "number"
    return made


def reversed_list(rng):
    items = [word(rng) for _ in range(rng.randint(3, 7))] if rng.random() < 0.6 else [str(rng.randint(1, 999)) for _ in range(rng.randint(3, 7))]
    answer = ", ".join(items[::-1])
    return dict(l=listed(rng, items)), solve.numbered(items), answer, answer, "text"


def counting(which):
    def made(rng):
        step = rng.randint(2, 10) if which == "by" else 1
        a = rng.randint(0, 30) if rng.random() < 0.7 else rng.randint(0, 990)
        b = a + step * rng.randint(2, rng.choice((10, 20, COUNTED_MAX - 1)))
        a, b = (b, a) if which == "down" else (a, b)
        thought, answer = solve.counting(a, b, step)
        return dict(a=a, b=b, s=step), thought, answer, answer, "text"
    return made


KINDS = {"add": sum_of("add"), "sub": sum_of("sub"), "mul": sum_of("mul"), "div": sum_of("div"), "percent": percent, "more": changed("add"), "less": changed("sub"), "power": power,
         "root": root(2), "cube_root": root(3), "letter": letter, "spell": spell, "backwards": backwards, "length": length, "first_letter": letter_at("first"),
         "last_letter": letter_at("last"), "nth_letter": letter_at("nth"), "upper": upper, "numbers_up": sorting("numbers", False), "numbers_down": sorting("numbers", True),
         "words_up": sorting("words", False), "words_down": sorting("words", True), "largest": extreme("largest"), "smallest": extreme("smallest"), "reversed_list": reversed_list,
         "count_up": counting("up"), "count_down": counting("down"), "count_by": counting("by")}
SUMS = {"add", "sub", "mul", "div", "percent", "more", "less", "power", "root", "cube_root"}


def make(rng, author, thinking=None, kind=None):
    kinds = [k for k in WEIGHTS if k in author.ASK]
    kind = kind or rng.choices(kinds, [WEIGHTS[k] for k in kinds])[0]
    fields, thought, answer, expect, rule = KINDS[kind](rng)
    ask = rng.choice(author.ASK[kind])
    ask = author.dressed(rng, ask, kind).format(**fields)
    thinking = (rng.random() < 0.85 if kind in SUMS else rng.random() < 0.75) if thinking is None else thinking
    thought = None if not thinking else go_on(rng, thought, thought, expect) if rng.random() < GO_ON and not kind.startswith("count_") else thought
    return Sample(rule, ask, [user(ask), assistant(answer, thought)], thinking, expect=expect)
