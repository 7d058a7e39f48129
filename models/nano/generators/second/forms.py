"""Extraction from records, mails, tables and logs into forms with nested objects, lists and keys that nobody knows."""
import json
import sys

from tasks.sample import Sample, assistant, user

from .. import filling, solve, values, words

KINDS = sorted(values.KINDS)
KNOWN = """id title owner status region team score batch author label channel device operator branch warehouse deadline contact budget route vendor model rating
subject patient student flight gate seat invoice amount currency tags members priority language brand shelf sensor""".split()
TASKS = ["Produce JSON from the record below.\nKeys wanted: {f}\n\n{t}", "{t}\n\nWhich JSON object has these keys: {f}?", "Parse this.\n{t}\n\nReturn only {f}.", "JSON please ({f}):\n{t}",
         "RECORD\n{t}\n\nTASK\nEmit a JSON object with {f}.", "{f} <- {t}", "I need {f} in machine-readable JSON.\n---\n{t}\n---", "Map the following to JSON. Properties: {f}.\n\n{t}"]
SHAPED = ["Target type:\n{f}\n\nInput:\n{t}\n\nOutput:", "{t}\n\nconforming to\n{f}", "Make an object of this type from the record.\n{f}\n\n{t}", "Use exactly these properties: {f}\n\n{t}",
          "{f}\n\n^ that is the structure. Data:\n{t}", "The reply must validate against {f}\nRecord: {t}"]
TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "date": "string /* YYYY-MM-DD */", "strings": "string[]", "integers": "number[]"}
ORDERS = {"named": ["Emit JSON: {f}", "keys = {f}", "Object wanted with {f}", "json({f})", "Map to JSON with the properties {f}.", "reply with JSON holding {f}"],
          "shaped": ["Target: {f}", "Emit an object like {f}", "type:\n{f}", "structure\n{f}", "validate against {f}", "to JSON, fields as below\n{f}", "{f}\n^ fill", "serialize as {f}", "expected shape is {f}",
                     "interface to satisfy:\n{f}"]}
MAILS = ["Hi {a},\n\n{b}\n\nBest,\n{c}", "Dear team,\n{b}\nRegards, {c}", "From: {c}\nTo: {a}\n\n{b}", "[{c}] {b}"]


def key(rng, style):
    some = [rng.choice(KNOWN) if rng.random() < 0.5 else words.rare(rng) for _ in range(rng.choice((1, 1, 2)))]
    some = list(dict.fromkeys(some))
    return "_".join(some) if style == 0 else some[0] + "".join(w.capitalize() for w in some[1:]) if style == 1 else "-".join(some)


def drawn(rng):
    """-> [(key, kind, value, said)] with different keys."""
    style, found = rng.choice((0, 0, 0, 1, 1, 2)), {}
    for _ in range(rng.randint(2, 7)):
        kind = rng.choice(KINDS)
        found[key(rng, style)] = (kind, *values.draw(rng, kind))
    return [(k, *v) for k, v in found.items()]


def label(rng, k):
    spoken = "".join(f" {c.lower()}" if c.isupper() else c for c in k.replace("_", " ").replace("-", " "))
    return rng.choice((k, spoken, spoken.capitalize(), spoken.title()))


def record(rng, rows):
    """The text that has all of it."""
    labels = [(label(rng, k), said) for k, _, _, said in rows]
    chance = rng.random()
    if chance < 0.3:
        return "\n".join(f"{k}: {v}" for k, v in labels)
    if chance < 0.42:
        return "; ".join(f"{k} = {v}" for k, v in labels)
    if chance < 0.54:
        return "\n".join(f"| {k} | {v} |" for k, v in labels)
    if chance < 0.64:
        return " | ".join(k for k, _ in labels) + "\n" + " | ".join(v for _, v in labels)
    if chance < 0.78:
        body = " ".join(rng.choice(("The {k} is {v}.", "{k}: {v}.", "As {k} we have {v}.", "We set the {k} to {v}.", "{v} is the {k}.")).format(k=k, v=v) for k, v in labels)
        return rng.choice(MAILS).format(a=words.first(rng), b=body, c=words.first(rng))
    if chance < 0.9:
        return ", ".join(f"{k} {v}" for k, v in labels) + "."
    return "\n".join(f"- {k}: {v}" for k, v in labels)


def nested(rng, rows):
    """-> the value, and its kinds; at times some keys are inside an object, or several records are a list."""
    value, kinds = {k: v for k, _, v, _ in rows}, {k: kind for k, kind, _, _ in rows}
    if len(rows) > 3 and rng.random() < 0.3:
        inside, outer = [r[0] for r in rows[-2:]], key(rng, 0)
        if outer not in value:
            value = {k: v for k, v in value.items() if k not in inside} | {outer: {k: value[k] for k in inside}}
            kinds = {k: v for k, v in kinds.items() if k not in inside} | {outer: {k: kinds[k] for k in inside}}
    return value, kinds


def typed(kinds):
    return "{ " + "; ".join(f"{json.dumps(k) if '-' in k else k}: {typed(v) if isinstance(v, dict) else TYPES[values.type_of(v)]}" for k, v in kinds.items()) + " }"


def shaped(rng, kinds):
    chance = rng.random()
    if chance < 0.5:
        return json.dumps(values.object_schema(rng, kinds))
    return f"interface {words.made_up(rng).capitalize()} {typed(kinds)}" if chance < 0.75 else typed(kinds)


def make(rng, thinking=None, test=False):
    rows = drawn(rng)
    text = record(rng, rows)
    kept = [r for r in rows if rng.random() < 0.7] or rows
    value, kinds = nested(rng, kept)
    plain = not any(isinstance(v, dict) or v == "iso" for v in kinds.values())
    if plain and rng.random() < 0.45:
        ask = rng.choice(TASKS).format(f=rng.choice((", ", " / ", " + ")).join(value), t=text)
    else:
        ask = rng.choice(SHAPED).format(f=shaped(rng, kinds), t=text)
    thinking = rng.random() < 0.4 if thinking is None else thinking
    return Sample("form", ask, [user(ask), assistant(solve.value_text(value), solve.fields(value) if thinking else None)], thinking, expect=value)


def filled(rng, thinking=None):
    """The same task with texts and forms that are made by rule."""
    return filling.make(rng, sys.modules[__name__], thinking)
