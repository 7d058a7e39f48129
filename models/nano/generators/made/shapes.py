"""Forms as people write them down: schemas, examples, types of programs, lists and tables of keys."""
import json

from .. import values, words

PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "date": "date as YYYY-MM-DD", "strings": "list of texts", "integers": "list of numbers"}
PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "date": "str  # YYYY-MM-DD", "strings": "list[str]", "integers": "list[int]"}
SQL = {"string": "TEXT", "integer": "INTEGER", "number": "REAL", "boolean": "BOOLEAN", "date": "DATE", "strings": "TEXT[]", "integers": "INTEGER[]"}
EMPTY = {"string": "", "integer": 0, "number": 0.0, "boolean": False, "date": "YYYY-MM-DD", "strings": [], "integers": []}


def spoken(key):
    return key.replace("_", " ").replace("-", " ")


def schema(rng, kinds):
    found = values.object_schema(rng, kinds)
    if rng.random() < 0.25:
        found = {"title": words.made_up(rng).capitalize()} | found
    if rng.random() < 0.3:
        for key in found["properties"]:
            found["properties"][key]["description"] = rng.choice((f"the {spoken(key)}", spoken(key).capitalize(), f"{spoken(key)} from the text"))
    if rng.random() < 0.15:
        found = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found
    if rng.random() < 0.2:
        found = {k: found[k] for k in rng.sample(list(found), len(found))}
    return json.dumps(found, indent=rng.choice((None, None, None, 2)))


def shape(rng, kinds):
    """One way to write the form {key: kind}."""
    types = {k: values.type_of(kind) for k, kind in kinds.items()}
    name = words.made_up(rng).capitalize()
    dash = rng.choice(("- ", "* ", "", "  "))
    return rng.choice((
        lambda: schema(rng, kinds), lambda: schema(rng, kinds), lambda: schema(rng, kinds),
        lambda: json.dumps({k: EMPTY[t] for k, t in types.items()}), lambda: json.dumps({k: PLAIN[t] for k, t in types.items()}), lambda: json.dumps({k: None for k in types}).replace("null", "?"),
        lambda: "{" + ", ".join(f'"{k}": ...' for k in types) + "}", lambda: "{" + ", ".join(f'"{k}": <{t}>' for k, t in types.items()) + "}",
        lambda: "\n".join(f"{dash}{k}: {PLAIN[t]}" for k, t in types.items()), lambda: "\n".join(f"{dash}{k} ({t})" for k, t in types.items()),
        lambda: "; ".join(f"{k} ({PLAIN[t]})" for k, t in types.items()), lambda: f"class {name}:\n" + "\n".join(f"    {k}: {PYTHON[t]}" for k, t in types.items()),
        lambda: f"CREATE TABLE {name.lower()} (" + ", ".join(f"{k} {SQL[t]}" for k, t in types.items()) + ")", lambda: "| key | type |\n" + "\n".join(f"| {k} | {t} |" for k, t in types.items()),
        lambda: "\n".join(f"{i}. {k}, a {PLAIN[t]}" for i, (k, t) in enumerate(types.items(), 1)), lambda: json.dumps(list(types))))()
