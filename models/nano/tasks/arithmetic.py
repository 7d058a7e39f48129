"""Sums, differences and products, worked digit by digit in the thought; answered at once when thinking is off.

A small model learns exactly what it can copy or look up one step at a time, so the thought writes both numbers least significant
digit first, gives each column as a two-digit result (the first digit is the carry) and reverses once at the end.
"""
from . import wording
from .sample import Sample, assistant, go_on, held_out, loosely, user
from .words import FIRST, FRUIT

SIGN = {"add": "+", "sub": "-", "mul": "*"}
ASK = {
    "add": ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}=?", "Add {a} and {b}.", "Compute {a} + {b}.", "What is the sum of {a} and {b}?",
            "How much is {a} plus {b}?", "Please calculate {a}+{b}.", "What is {a} plus {b}?"],
    "sub": ["What is {a} - {b}?", "{a} - {b}", "{a}-{b}=?", "Subtract {b} from {a}.", "Compute {a} - {b}.", "How much is {a} minus {b}?",
            "What is the difference {a} - {b}?", "Please calculate {a}-{b}.", "What is {a} minus {b}?"],
    "mul": ["What is {a} * {b}?", "{a} * {b}", "{a}*{b}=?", "Multiply {a} by {b}.", "Compute {a} * {b}.", "How much is {a} times {b}?",
            "What is the product of {a} and {b}?", "Please calculate {a}*{b}.", "What is {a} times {b}?", "What is {a} x {b}?"],
}
STORY = {
    "add": ["{n} has {a} {f} and gets {b} more. How many {f} does {n} have now?",
            "There are {a} {f} in one box and {b} in another. How many {f} are there in all?"],
    "sub": ["{n} has {a} {f} and gives away {b}. How many {f} are left?",
            "A shop had {a} {f} and sold {b} of them. How many {f} remain?"],
    "mul": ["{n} packs {a} boxes with {b} {f} each. How many {f} is that?",
            "A crate holds {a} {f}. How many {f} are in {b} crates?"],
}


def apply(op, a, b):
    return a + b if op == "add" else a - b if op == "sub" else a * b


def backwards(n, width=0):
    return str(n)[::-1].ljust(width, "0")


def column_sum(rows):
    """Rows are digits, least significant first, of one width. -> (worked columns, digits of the sum)."""
    steps, out, carry = [], "", 0
    for column in zip(*rows):
        total = sum(map(int, column)) + carry
        steps.append("+".join(column) + f"+{carry}={total:02d}")
        out += str(total % 10)
        carry = total // 10
    return ", ".join(steps), out + (str(carry) if carry else "")


def column_difference(x, y):
    steps, out, borrow = [], "", 0
    for a, b in zip(x, y):
        t = int(a) - int(b) - borrow
        steps.append(f"{a}-{b}-{borrow}={t}" + (f"+10={t + 10}" if t < 0 else ""))
        borrow = int(t < 0)
        out += str(t % 10)
    return ", ".join(steps), out


def partial_product(x, digit):
    steps, out, carry = [], "", 0
    for a in x:
        product = int(a) * int(digit)
        total = product + carry
        steps.append(f"{a}*{digit}+{carry}={product}+{carry}={total:02d}")
        out += str(total % 10)
        carry = total // 10
    return ", ".join(steps), out + (str(carry) if carry else "")


def compare(a, b):
    """Which is larger, by the number of digits or by the first digit that differs."""
    x, y = str(a), str(b)
    if len(x) != len(y):
        steps = f"{len(x)} digits and {len(y)} digits"
    else:
        steps = " ".join(f"{p}{'=' if p == q else '>' if p > q else '<'}{q}" for p, q in zip(x[:differs(x, y) + 1], y))
    return f"Compare: {steps}, so {a}{'<' if a < b else '>' if a > b else '='}{b}."


def differs(x, y):
    return next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), len(x))


def derive(op, a, b, compared=False):
    """-> the worked thought; its last line states the result."""
    head = f"{a}{SIGN[op]}{b}. "
    result = f"So {a}{SIGN[op]}{b}={apply(op, a, b)}."
    if op == "sub" and not compared:
        head += compare(a, b) + " "
        if a < b:
            return f"{head}So it is -({b}-{a}).\n" + derive("sub", b, a, True) + f"\n{result}"
    width = max(len(str(a)), len(str(b)))
    if op != "mul":
        x, y = backwards(a, width), backwards(b, width)
        steps, out = column_sum([x, y]) if op == "add" else column_difference(x, y)
        return f"{head}Reversed {x} and {y}.\n{steps} -> {out}\n{result}"
    x, y = backwards(a), backwards(b)
    lines, rows, width = [f"{head}Reversed {x} and {y}."], [], len(x) + len(y)
    for shift, digit in enumerate(y):
        steps, out = partial_product(x, digit)
        rows.append(("0" * shift + out).ljust(width, "0"))
        lines.append(f"{x}*{digit}: {steps} -> {rows[-1]}")
    if len(rows) > 1:
        steps, out = column_sum(rows)
        lines.append(f"Sum: {steps} -> {out}")
    return "\n".join(lines + [result])


def number(rng, digits):
    return rng.randint(10 ** (digits - 1) if digits > 1 else 0, 10 ** digits - 1)


def operands(rng, op):
    most = 3 if op == "mul" else 4
    # The longest cases fail first, so they are seen most.
    digits = [rng.choice(range(1, most + 1)) if rng.random() < 0.6 else rng.choice((most - 1, most)) for _ in "ab"]
    if op != "mul" and rng.random() < 0.08:
        digits = [rng.randint(3, 6) for _ in "ab"]
    return number(rng, digits[0]), number(rng, digits[1])


def instance(rng, test):
    """-> op, a, b of the wanted split. One-digit tables are never held out: a table that is not shown cannot be known."""
    while True:
        op = rng.choice(("add", "sub", "mul", "mul"))
        a, b = operands(rng, op)
        x, y = (a, b) if op == "sub" else sorted((a, b))
        key = f"arithmetic {op} {x} {y}"
        if (max(a, b) > 9 and held_out(key)) == test:
            return op, a, b, key


def ask_for(rng, kind, a, b, test, form):
    """`form`: "trained" or "new" asks in a way of phrases.py; None as the card's rows do, and in training in either."""
    if form or (not test and rng.random() < 0.5):
        return wording.request(rng, kind, dict(a=a, b=b), form == "new")
    story = rng.random() < 0.12 and (kind != "sub" or a >= b) and not test
    ask = rng.choice((STORY if story else ASK)[kind]).format(a=a, b=b, n=rng.choice(FIRST), f=rng.choice(FRUIT))
    return loosely(rng, ask) if not test else ask


def make(rng, test=False, thinking=None, op=None, form=None):
    while True:
        kind, a, b, key = instance(rng, test)
        if op in (None, kind):
            break
    # Seldom without a thought: direct sums are to stay what a thought improves.
    thinking = rng.random() < 0.86 if thinking is None else thinking
    ask = ask_for(rng, kind, a, b, test, form)
    result = apply(kind, a, b)
    thought = None
    if thinking:
        steps = derive(kind, a, b)
        thought = go_on(rng, steps, steps, result)
    answer = assistant(f"{a} {SIGN[kind]} {b} = {result}.", thought)
    return Sample("arithmetic", key, [user(ask), answer], thinking, expect=result)
