"""Conversations whose last question refers back: to a result, a list, a word, a person, a form. An author brings the wording, FOLLOW and FIRST."""
import json
from decimal import Decimal

from tasks.sample import Sample, assistant, user

from . import exercise, solve, values, words
from .made import frames
from .relations import World

CHAIN_MAX = 2               # steps before the last one
RESULT_MAX = 9999
EVEN = 0.12                 # of whole results are asked about being even


def follow(rng, author, kind, **fields):
    form = rng.choice(author.FOLLOW[kind]).format(**fields)
    if author.AHEAD and rng.random() < 0.3:
        named = any(form.startswith(str(value)) for value in fields.values())
        form = (rng.choice(author.AHEAD) if rng.random() < 0.8 else frames.lead(rng)) + (form if named or rng.random() < 0.3 else form[0].lower() + form[1:])
    return form[0].lower() + form[1:] if rng.random() < 0.1 else form.rstrip(".?") if rng.random() < 0.1 else form


def step(rng, author, result):
    """One more operation on a result -> question, thought, answer, result."""
    fine = solve.places(result) < 2
    kind = rng.choice([k for k in ("add", "sub", "mul", "div", "percent", "double", "half", "square", "negate") if k in author.FOLLOW and (
        abs(result) <= RESULT_MAX or k in ("sub", "div", "half")) and (fine or k in ("add", "sub")) and (k != "square" or abs(result) < 100) and (k != "percent" or 0 < result < 1000)])
    c = Decimal(rng.randint(2, 12) if kind in ("mul", "div") else rng.choice((5, 10, 20, 25, 50)) if kind == "percent" else rng.randint(1, 500))
    if kind in ("add", "sub") and rng.random() < 0.2:
        c = Decimal(rng.randint(1, 99)).scaleb(-1)
    ask = follow(rng, author, kind, c=solve.shown(c), n=words.NUMBER_WORDS[int(c)] if c == int(c) and c < 13 and rng.random() < 0.3 else solve.shown(c))
    if kind == "percent":
        thought, out = solve.percentage(c, result)
        return ask, thought, f"{solve.shown(c)} % of {solve.shown(result)} is {solve.shown(out)}.", out
    if kind == "negate":
        return ask, f"The sign of {solve.shown(result)} is turned.", f"{solve.shown(-result)}", -result
    op, c = {"double": ("mul", Decimal(2)), "half": ("div", Decimal(2)), "square": ("mul", result)}.get(kind, (kind, c))
    thought, out = solve.calculated(op, result, c)
    return ask, thought, solve.equation(op, result, c, out), out


def of_result(rng, author):
    op = rng.choice(("add", "sub", "mul", "div", "add"))
    a, b = (exercise.number(rng, 2 if op == "mul" else 3, 0.05, 0.15) for _ in "ab")
    b = Decimal(rng.randint(2, 9)) if op == "div" else b
    a = a * b if op == "div" else a
    _, result = solve.calculated(op, a, b)
    messages = [user(rng.choice(author.FIRST[op]).format(a=solve.shown(a), b=solve.shown(b))), assistant(solve.equation(op, a, b, result))]
    for _ in range(rng.randint(1, CHAIN_MAX)):
        ask, thought, answer, result = step(rng, author, result)
        messages += [user(ask), assistant(answer)]
    if "even" in author.FOLLOW and result == int(result) and rng.random() < EVEN:
        ask, thought, answer = even(rng, author, int(result))
        return [*messages, user(ask), assistant(answer)], thought, answer, "text"
    return messages, thought, solve.shown(result), "number"


def even(rng, author, result):
    """Whether it is even, or odd."""
    asked = rng.choice(("even", "odd"))
    found = "odd" if result % 2 else "even"
    return follow(rng, author, asked), f"{result} ends with {abs(result) % 10}: {found}.", f"{'Yes' if asked == found else 'No'}, {result} is {found}."


def of_list(rng, author):
    """A list that was sorted, counted or told, then asked about again."""
    kind = rng.choice([k for k in ("words", "numbers", "count", "told") if k in author.FIRST])
    if kind == "count":
        a = rng.randint(1, 20)
        items = [str(i) for i in range(a, a + rng.randint(3, 9))]
        first, answer = rng.choice(author.FIRST[kind]).format(a=items[0], b=items[-1]), ", ".join(items)
    elif kind == "numbers":
        drawn = exercise.numbers(rng)
        _, answer = solve.sorted_numbers(drawn)
        first, items = rng.choice(author.FIRST[kind]).format(l=", ".join(map(solve.shown, drawn))), answer.split(", ")
    else:
        drawn = list(dict.fromkeys(exercise.word(rng).lower() for _ in range(rng.randint(3, 6))))
        items = sorted(drawn) if kind == "words" else drawn
        first = rng.choice(author.FIRST[kind]).format(l=", ".join(drawn))
        answer = ", ".join(items) if kind == "words" else f"I noted {len(items)} items."
    ask, thought, told, expect, rule = of_items(rng, author, items)
    return [user(first), assistant(answer), user(ask), assistant(told)], thought, expect, rule


def of_items(rng, author, items):
    kind = rng.choice([k for k in ("reverse_order", "nth_item", "last_item", "how_many", "without", "with_more", "upper_items", "first_items") if k in author.FOLLOW])
    joined = ", ".join
    if kind == "reverse_order":
        return follow(rng, author, kind), solve.numbered(items), joined(items[::-1]), joined(items[::-1]), "text"
    if kind in ("nth_item", "last_item"):
        i = rng.randrange(len(items)) if kind == "nth_item" else len(items) - 1
        return follow(rng, author, kind, n=exercise.NTH[i]), solve.numbered(items), f"The {exercise.NTH[i] if kind == 'nth_item' else 'last'} one is {items[i]}.", items[i], "last"
    if kind == "how_many":
        return follow(rng, author, kind), solve.numbered(items), f"There are {len(items)}.", str(len(items)), "number"
    if kind == "without":
        gone = rng.choice(items)
        left = joined(i for i in items if i != gone)
        return follow(rng, author, kind, x=gone), f"All but {gone}.", left, left, "text"
    if kind == "with_more":
        new = exercise.word(rng).lower() if not items[0].lstrip("-").replace(".", "").isdigit() else str(rng.randint(1, 999))
        return follow(rng, author, kind, x=new), f"The list, then {new}.", joined(items + [new]), joined(items + [new]), "text"
    if kind == "upper_items":
        return follow(rng, author, kind), solve.numbered(items), joined(items).upper(), joined(items).upper(), "exact"
    n = rng.randint(min(2, len(items)), len(items))
    return follow(rng, author, kind, n=words.NUMBER_WORDS[n] if rng.random() < 0.5 else n), solve.numbered(items[:n]), joined(items[:n]), joined(items[:n]), "text"


ON_WORD = ("letter", "length", "spell", "backwards", "upper")


def of_word(rng, author):
    """A word that was spelled, counted in or turned around, then something else with it."""
    w = exercise.word(rng, 4).lower()
    first = rng.choice([k for k in ON_WORD if k in author.FIRST])
    then = rng.choice([f"{k}_it" for k in ON_WORD if f"{k}_it" in author.FOLLOW and (k != first or k == "letter")])
    c = rng.choice(w)
    _, said, _, _ = on_word(first, w, c)
    d = rng.choice(w) if rng.random() < 0.8 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    thought, answer, expect, rule = on_word(then.removesuffix("_it"), w, d)
    return [user(rng.choice(author.FIRST[first]).format(w=w, c=c)), assistant(said), user(follow(rng, author, then, c=d)), assistant(answer)], thought, expect, rule


def on_word(kind, w, c):
    if kind == "letter":
        thought, answer, n = solve.counted(c, w)
        return thought, answer, str(n), "part"
    if kind == "length":
        return " ".join(f"{x}{i}" for i, x in enumerate(w, 1)), f"{w} has {len(w)} letters.", str(len(w)), "part"
    if kind == "backwards":
        return *solve.backwards(w), w[::-1], "text"
    spelled = "-".join(w) if kind == "spell" else w.upper()
    return f"{w}: " + " ".join(w), spelled, spelled, "text" if kind == "spell" else "exact"


def of_person(rng, author):
    """Facts told in the first turn; then a question, and one about the same person or about another."""
    world = World(rng, author.RELATIONS, rng.randint(3, 7))
    told = [t for t in world.told if author.RELATIONS[t[0]].subject in ("first", "person", "full")]
    if len(told) < 2:
        return of_person(rng, author)
    first = rng.choice(told)
    shown = " ".join(t[3] for t in world.told)
    messages = [user(rng.choice(author.FIRST["facts"]).format(t=shown, q=world.question(rng, first))), assistant(solve.quoted(first[3]))]
    others = [t for t in told if t[0] == first[0] and t[1] != first[1]]
    same = [t for t in told if t[1] == first[1] and t[0] != first[0]]
    if others and (not same or rng.random() < 0.5):
        then = rng.choice(others)
        ask = follow(rng, author, "other_person", s=then[1])
    elif same:
        then = rng.choice(same)
        ask = "And " + world.question(rng, then).replace(then[1] + "'s", rng.choice(("his", "her"))).replace(then[1], rng.choice(("he", "she", "this person")))
        ask = ask.replace("And W", "And w").replace("And H", "And h")
    else:
        return of_person(rng, author)
    return messages + [user(ask), assistant(solve.quoted(then[3]))], solve.looked_up(ask + " " + then[1], shown, then[3]), (then[2], None), "passage"


def of_form(rng, author):
    """A form, then fewer fields of it, or the same of another text."""
    kinds = {}
    for _ in range(rng.randint(2, 5)):
        kinds[rng.choice(author.KEYS)] = rng.choice(("person", "small", "town", "code", "date", "decimal", "email", "words"))

    def drawn():
        row = {k: values.draw(rng, kind) for k, kind in kinds.items()}
        return {k: v for k, (v, _) in row.items()}, ", ".join(f"{k} {said}" for k, (_, said) in row.items())

    value, text = drawn()
    messages = [user(rng.choice(author.FIRST["form"]).format(t=text, f=", ".join(kinds))), assistant(json.dumps(value))]
    if rng.random() < 0.5:
        kept = rng.sample(list(kinds), rng.randint(1, len(kinds)))
        new = {k: value[k] for k in kept}
        ask = follow(rng, author, "only_fields", f=" and ".join(kept))
    else:
        new, text = drawn()
        ask = rng.choice(author.FOLLOW["same_form"]).format(t=text)
    return messages + [user(ask), assistant(solve.value_text(new))], solve.fields(new), new, "form"


KINDS = [of_result, of_result, of_result, of_list, of_list, of_list, of_word, of_word, of_person, of_form]


def make(rng, author, thinking=None):
    messages, thought, expect, rule = rng.choice(KINDS)(rng, author)
    thinking = rng.random() < 0.75 if thinking is None else thinking
    if thinking:
        messages[-1] = assistant(messages[-1]["content"], thought)
    if rng.random() < 0.1:
        messages[:0] = rng.choice(author.OPENINGS)()
    return Sample(rule, json.dumps([m["content"] for m in messages[-3:]]), messages, thinking, expect=expect, learn_history=True)
