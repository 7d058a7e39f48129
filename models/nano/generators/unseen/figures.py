"""Small sums, letters in words, sorting and counting; the right answer is computed here with decimals of Python's own."""
from decimal import Decimal

from tasks.sample import Sample, assistant, user

WORDS = """kettle marmalade window teaspoon umbrella raspberry committee balloon letterbox bookkeeper mississippi banana lantern pepper cinnamon giraffe
hazelnut elephant tomorrow address necessary parallel cucumber chocolate assessment lighthouse grasshopper butterfly watermelon satellite mushroom dandelion
harbour cabbage whistle ribbon thunder puzzle blanket gravel orchard saffron trumpet velvet walnut zipper acrobat basket candle dolphin engine feather garlic
hammer island jacket kitten ladder magnet needle oyster parrot quiver rocket saddle turnip violin wagon yellow anchor bucket copper donkey emerald""".split()
NTH = "first second third fourth fifth sixth seventh".split()
STEPS_MAX = 14
LETTERS = "abcdefghilmnoprstuwy"

ASK = {
    "add": ["What do {a} and {b} come to?", "{a} + {b}", "Please add {b} to {a}.", "{a} and {b} added up?", "{a} plus {b} makes?"],
    "sub": ["{a} - {b}", "Take {b} away from {a}.", "What remains of {a} after subtracting {b}?", "How much is {a} minus {b}?", "{a} less {b} is what?"],
    "mul": ["{a} times {b}?", "{a} * {b} =", "Multiply {a} by {b} for me.", "What is the product of {a} and {b}?", "Work out {a} x {b}."],
    "div": ["{a} / {b}", "Share {a} equally among {b}: how much does each get?", "What does {a} divided by {b} give?", "Divide {a} by {b}.", "{a} divided by {b}, please."],
    "percent": ["How much is {a} percent of {b}?", "{a}% of {b}?", "Work out {a} % of {b}.", "Of {b} I want {a} percent. How much is that?"],
    "power": ["What is {a} squared?", "{a}^2", "The square of {a}, please.", "{a} to the power of 2?"],
    "root": ["Square root of {a}?", "What is the square root of {a}?", "sqrt({a})", "Which positive number times itself gives {a}?"],
    "letter": ["How many times does {w} contain the letter {c}?", "Count the letter {c} in the word {w}.", "In \"{w}\", how many {c} are there?", "Number of {c}'s in {w}?"],
    "length": ["How long is the word {w}, in letters?", "Number of letters in {w}?", "Of how many letters does \"{w}\" consist?"],
    "backwards": ["Write {w} from back to front.", "The word {w} backwards, please.", "Reverse the letters of {w}."],
    "spell": ["Spell {w} with hyphens between the letters.", "Write out {w} letter by letter, with a hyphen between the letters."],
    "nth": ["Which letter of {w} is the {n} one?", "What is the {n} letter in the word {w}?", "Tell me the {n} letter of \"{w}\"."],
    "upper": ["Write {w} in capitals.", "{w} in upper case, please.", "Put the word {w} into capital letters."],
    "numbers_up": ["Sort from small to large: {l}", "Put these numbers in rising order: {l}", "{l} - in order, the smallest first, please."],
    "numbers_down": ["Sort from large to small: {l}", "Arrange {l} with the biggest number first.", "{l} - from the highest to the lowest, please."],
    "words_up": ["Put these words in alphabetical order: {l}", "Sort by alphabet: {l}", "How does this list look in alphabetical order? {l}"],
    "largest": ["Which of these is the greatest number: {l}?", "Find the maximum of {l}.", "{l} - which one is the biggest?"],
    "smallest": ["Which of these is the least number: {l}?", "Find the minimum of {l}.", "{l} - which one is the smallest?"],
    "reverse": ["Turn the order of this list around: {l}", "Say this list from the end to the beginning: {l}", "List backwards, please: {l}"],
    "count_up": ["Count from {a} to {b}, with commas.", "Write the whole numbers from {a} to {b}, separated by commas.", "Please count up: {a} to {b}."],
    "count_down": ["Count down from {a} to {b}, with commas.", "Write the numbers from {a} down to {b}, separated by commas.", "Backwards from {a} to {b}, please count."],
    "count_by": ["Count from {a} to {b} in steps of {s}, with commas.", "Starting at {a}, go up by {s} until {b}, separated by commas."],
}
GREETED = ["", "", "", "", "", "Hi! ", "Quick one: ", "Please help me. ", "For my homework: "]


def plain(n):
    """Without an exponent and without noughts at the end."""
    text = f"{n:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def operand(rng, digits, negative=0.15):
    n = Decimal(rng.randint(2, 10 ** digits - 1)).scaleb(-rng.choice((0, 0, 1, 1, 2)))
    return -n if rng.random() < negative else n


def added(rng):
    a, b = operand(rng, rng.randint(1, 4)), operand(rng, rng.randint(1, 4), 0.08)
    return {"a": plain(a), "b": plain(b)}, plain(a + b)


def subtracted(rng):
    a, b = operand(rng, rng.randint(1, 4)), operand(rng, rng.randint(1, 4), 0.05)
    return {"a": plain(a), "b": plain(b)}, plain(a - b)


def multiplied(rng):
    a, b = operand(rng, rng.randint(1, 3)), operand(rng, rng.randint(1, 2))
    return {"a": plain(a), "b": plain(b)}, plain(a * b)


def divided(rng):
    b, quotient = Decimal(rng.choice((2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 20))), operand(rng, rng.randint(1, 3), 0)
    return {"a": plain(b * quotient), "b": plain(b)}, plain(quotient)


def percentage(rng):
    a, b = Decimal(rng.choice((2, 5, 10, 12, 15, 20, 25, 30, 40, 50, 75, 80))), Decimal(rng.randint(1, 90) * rng.choice((1, 10, 10)))
    return {"a": plain(a), "b": plain(b)}, plain(a * b / 100)


def powered(rng):
    a = rng.randint(3, 60)
    return {"a": a}, str(a * a)


def rooted(rng):
    a = rng.randint(2, 25)
    return {"a": a * a}, str(a)


def lettered(rng):
    w, c = rng.choice(WORDS), rng.choice(LETTERS)
    c = rng.choice(w) if rng.random() < 0.85 else c
    return {"w": w, "c": c}, str(w.count(c))


def worded(answer):
    def drawn(rng):
        w = rng.choice(WORDS)
        return {"w": w}, answer(w)
    return drawn


def nth(rng):
    w = rng.choice(WORDS)
    i = rng.randrange(len(NTH)) if len(w) > len(NTH) else rng.randrange(len(w))
    return {"w": w, "n": "last" if i == len(w) - 1 else NTH[i]}, w[i]


def numbers(rng):
    places = rng.choice((0, 0, 1))
    return list(dict.fromkeys(Decimal(rng.randint(-99 if rng.random() < 0.25 else 1, 999)).scaleb(-places) for _ in range(rng.randint(3, 7))))


def arranged(rng, down):
    items = numbers(rng)
    return {"l": ", ".join(map(plain, items))}, ", ".join(map(plain, sorted(items, reverse=down)))


def extreme(rng, which):
    items = numbers(rng)
    return {"l": ", ".join(map(plain, items))}, plain(which(items))


def listed(rng, order):
    items = rng.sample(WORDS, rng.randint(3, 6))
    return {"l": ", ".join(items)}, ", ".join(order(items))


def counted(rng, down=False, by=False):
    step = rng.choice((2, 3, 4, 5, 10)) if by else 1
    low = rng.choice((0, 1, rng.randint(2, 40), rng.randint(41, 400)))
    row = list(range(low, low + step * rng.randint(3, STEPS_MAX) + 1, step))
    row = row[::-1] if down else row
    return {"a": row[0], "b": row[-1], "s": step}, ", ".join(map(str, row))


# kind: (how often it is asked, how one is drawn -> fields and answer, rule)
KINDS = {
    "add": (10, added, "number"), "sub": (10, subtracted, "number"), "mul": (9, multiplied, "number"), "div": (8, divided, "number"),
    "percent": (8, percentage, "number"), "power": (3, powered, "number"), "root": (5, rooted, "number"),
    "letter": (10, lettered, "part"), "length": (5, worded(lambda w: str(len(w))), "part"), "backwards": (5, worded(lambda w: w[::-1]), "text"),
    "spell": (4, worded("-".join), "text"), "nth": (4, nth, "last"), "upper": (2, worded(str.upper), "exact"),
    "numbers_up": (5, lambda r: arranged(r, False), "text"), "numbers_down": (5, lambda r: arranged(r, True), "text"),
    "words_up": (6, lambda r: listed(r, sorted), "text"), "largest": (3, lambda r: extreme(r, max), "number"), "smallest": (3, lambda r: extreme(r, min), "number"),
    "reverse": (3, lambda r: listed(r, lambda items: items[::-1]), "text"), "count_up": (5, counted, "text"),
    "count_down": (4, lambda r: counted(r, down=True), "text"), "count_by": (3, lambda r: counted(r, by=True), "text"),
}


def make(rng, thinking=None, kind=None):
    kind = kind or rng.choices(list(KINDS), [often for often, _, _ in KINDS.values()])[0]
    _, drawn, rule = KINDS[kind]
    fields, answer = drawn(rng)
    ask = rng.choice(GREETED) + rng.choice(ASK[kind]).format(**fields)
    return Sample(rule, ask, [user(ask), assistant(answer)], rng.random() < 0.8 if thinking is None else thinking, expect=answer)
