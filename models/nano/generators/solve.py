"""How the model works and answers, whoever asks: one form of thought and of reply for each task. The wording of questions is not here."""
import decimal
import json

from tasks import arithmetic, beyond, strings, talk
from tasks.context import NOT_THERE
from tasks.sample import alone, copied, letters
from tasks.tools import NONE

from . import library

Decimal = decimal.Decimal
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
PLACES_MAX = 4              # of a quotient that ends; one that does not is rounded to two
MULTIPLES_FROM = 13         # divisors from here on have their multiples written first


# ---- texts
def marked(question, text):
    """The words that a question is about, each with + where the text has it and - where not."""
    there = {library.stem(w) for w in library.keywords(text)}
    asked = list(dict.fromkeys(library.keywords(question)))[:12]
    return " ".join(f"{w} {'+' if library.stem(w) in there else '-'}" for w in asked)


def looked_up(question, text, sentence, number=None):
    """The thought of a question about a text; `sentence` None where nothing answers it."""
    begin = f"I look for: {marked(question, text)}\n"
    if sentence is None:
        return begin + "The text does not say it."
    where = f"\nThat is in passage {number}." if number is not None else ""
    return f"{begin}The text says: {copied(sentence)}{where}"


def quoted(sentence, number=None):
    if sentence is None:
        return NOT_THERE
    return copied(sentence) + (f" [{number}]" if number is not None else "")


# ---- JSON and calls
def value_text(value):
    """JSON with its strings marked as copies."""
    if isinstance(value, str) and value.isascii() and not set(value) & set('"\\\n'):
        return f'"{copied(value)}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return json.dumps(value)


def fields(value):
    return "The fields: " + "; ".join(f"{k} is {value_text(v)}" for k, v in value.items()) + "."


def wanted(said, verb, noun):
    """The wish in the request's tokens, then its words in each form that a declaration may have: next to each other they are found there, or not."""
    forms = " ".join(alone(word) for form in (verb, noun) for word in (form, form.capitalize()))
    return f"Wanted: {copied(said)} {noun}.\nWords: {verb} {noun} {forms}\n"


def called(description, name, arguments):
    """The description that fits, and the call in words."""
    told = "; ".join(f"{alone(k)} is {copied(v) if isinstance(v, str) else value_text(v)}" for k, v in arguments.items())
    return f"{copied(description)}: I call {alone(name)}" + (f": {told}." if told else ".")


def unserved(declared):
    return f"None of the tools does that: {names(declared)}."


def names(declared):
    found = [alone(d["function"]["name"]) for d in declared]
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " and " + found[-1]


def no_tool(declared):
    return NONE.format(names(declared))


def arguments_marked(arguments):
    """The values of a call as text that is cut into tokens as the request has it."""
    return {k: copied(v) if isinstance(v, str) and v else value_text(v) if isinstance(v, (list, dict)) else v for k, v in arguments.items()}


# ---- numbers
def places(number):
    return max(0, -Decimal(number).normalize().as_tuple().exponent)


def shown(number):
    """Without an exponent and without noughts at the end."""
    text = format(Decimal(number).normalize(), "f")
    return "0" if text in ("-0", "") else text


def scaled(number, by):
    return int(Decimal(number) * 10 ** by)


def signed(op, a, b):
    """Whole numbers of any sign -> the thought and the result."""
    if op == "mul":
        minus = (a < 0) != (b < 0)
        head = f"{'One' if minus else 'Two'} minus signs, so the product is {'negative' if minus else 'positive'}.\n" if a < 0 or (minus and b < 0) else ""
        return head + arithmetic.derive("mul", abs(a), abs(b)), a * b
    if b < 0:
        op, b = ("sub" if op == "add" else "add"), -b
    result = arithmetic.apply(op, a, b)
    if a >= 0:
        return arithmetic.derive(op, a, b), result
    a = -a      # -a + b = b - a; -a - b = -(a + b)
    if op == "add":
        return f"-{a}+{b} is {b}-{a}.\n" + arithmetic.derive("sub", b, a), result
    return f"-{a}-{b} is -({a}+{b}).\n" + arithmetic.derive("add", a, b), result


def calculated(op, a, b):
    """-> thought, result of a sum, difference, product or quotient of decimals."""
    a, b = Decimal(a), Decimal(b)
    if op == "div":
        return divided(a, b)
    n, m = places(a), places(b)
    if op != "mul":
        n = m = max(n, m)
    x, y = scaled(a, n), scaled(b, m)
    thought, result = signed(op, x, y)
    digits = n + m if op == "mul" else n
    result = Decimal(result).scaleb(-digits)
    if digits:
        thought = f"Without points: {x} and {y}, {digits} places.\n{thought}\nWith {digits} places: {shown(result)}."
    return thought, result


def divided(a, b):
    """Long division by a whole number, of a number that may have places."""
    by = places(b)
    y, x = scaled(abs(b), by), abs(a) * 10 ** by
    point = places(x)
    digits_of = str(scaled(x, point))
    lines = [f"By a whole number: {shown(x)}/{y}."] if by else []
    if point:
        lines.append(f"{shown(x)} is {digits_of}, places {point}.")
    if y >= MULTIPLES_FROM:
        lines.append(f"Times {y}: " + ", ".join(f"{i} {y * i}" for i in range(1, 10)))
    steps, digits, rest, after = [], "", 0, 0
    for digit in digits_of:
        rest = rest * 10 + int(digit)
        steps.append(f"{rest}/{y}={rest // y} rest {rest % y}")
        digits, rest = digits + str(rest // y), rest % y
    while rest and after + point < PLACES_MAX:
        rest, after = rest * 10, after + 1
        steps.append(f"{rest}/{y}={rest // y} rest {rest % y}")
        digits, rest = digits + str(rest // y), rest % y
    result = Decimal(int(digits)).scaleb(-after - point)
    lines.append(", ".join(steps) + f" -> {digits}, places {after + point}: {shown(result)}")
    if rest:
        result = result.quantize(Decimal("0.01"), decimal.ROUND_HALF_UP)
        lines.append(f"Rounded: {shown(result)}.")
    if (a < 0) != (b < 0) and result:
        result = -result
        lines.append(f"One minus sign: {shown(result)}.")
    return "\n".join(lines), result


def equation(op, a, b, result):
    return f"{shown(a)} {SIGNS[op]} {shown(b)} = {shown(result)}."


def percentage(p, of):
    thought, product = calculated("mul", p, of)
    result = product / 100
    return f"{shown(p)} % of {shown(of)} is {shown(p)}*{shown(of)}/100.\n{thought}\nBy 100: {shown(result)}.", result


def power(base, n):
    lines, result = [], base
    for _ in range(n - 1):
        lines.append(arithmetic.derive("mul", result, base))
        result *= base
    return "\n".join(lines), result


def root(n, k=2):
    base = round(n ** (1 / k))
    return f"{'*'.join([str(base)] * k)}={n}, so the root is {base}.", base


# ---- words and lists
def counted(letter, word):
    return strings.counting(letter.lower(), word.lower())


def sorted_numbers(numbers, down=False):
    """Each number with the digits before its point; then in order."""
    key = lambda n: f"{shown(n)} has {len(shown(abs(n)).split('.')[0])}{' and a minus' if n < 0 else ''}"
    ordered = sorted(numbers)
    thought = "; ".join(map(key, numbers)) + "\nIn order: " + ", ".join(map(shown, ordered))
    if down:
        ordered = ordered[::-1]
        thought += "\nFrom the largest: " + ", ".join(map(shown, ordered))
    return thought, ", ".join(map(shown, ordered))


def sorted_words(words, down=False):
    thought, answer, _ = strings.sorting(words)
    if down:
        answer = ", ".join(sorted(words, reverse=True))
        thought += f"\nBackwards: {answer}"
    return thought, answer


def counting(a, b, step=1):
    listed = list(range(a, b + (1 if b >= a else -1), step if b >= a else -step))
    return f"From {a} to {b}{'' if step == 1 else f' by {step}'}, {'up' if b >= a else 'down'}.", ", ".join(map(str, listed))


def numbered(items):
    return " ".join(f"{i} {x}" for i, x in enumerate(items, 1))


def backwards(word):
    return strings.reversing(word), letters(word[::-1])


# ---- talk
REPLIES = dict(zip(("hello", "who", "can", "feelings", "thanks", "bye", "size", "architecture", "maker", "senses", "human", "joke"),
                   (reply for _, reply in talk.ABOUT)))
TALK_THOUGHT = "The user talks to me. I answer in a friendly way."
CANNOT, CANNOT_THOUGHT = beyond.CANNOT, beyond.THOUGHT
