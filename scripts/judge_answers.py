#!/usr/bin/env python3
"""Random schemas, and whether random answers under their grammars keep to them.

    python3 scripts/judge_answers.py --write 10000 --seed 1 > schemas.jsonl
    CHIMERE_SCHEMAS=$PWD/schemas.jsonl CHIMERE_ANSWERS=$PWD/answers.jsonl \\
        cargo test -p chimere --lib random_answers -- --ignored
    python3 scripts/judge_answers.py answers.jsonl

Schemas ask for objects with open keys (`patternProperties`, maps, `propertyNames`, counts of keys), numbers with many
digits and at the ends of 64 bits, conditions, `not`, and for what loadtest/structured.py has. An answer that ended is
judged by `jsonschema` with numbers as exact decimals, and the keys of each of its objects have to be distinct.
"""
import argparse
import decimal
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "loadtest"))

BIG = [2**53 + 1, 2**63 - 1, -2**63, 2**64 - 1, 2**64 + 1, 12345678901234567890123, -(2**53) - 1, 10**30 + 7]
PATTERNS = ["^[ab]$", "^(a|ab|b|c)$", "^[a-z]{1,2}$", "^x-", "^[a-c]{0,2}$", "[0-9]$", "^(red|green|blue)$"]
TYPES = ["string", "integer", "number", "boolean", "null"]


def distinct(pairs):
    """An object whose keys are distinct."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError(f"a key stands twice: {pairs}")
    return dict(pairs)


def small(rng):
    """A schema with few values."""
    return rng.choice([{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}, {"enum": ["x", "y"]}])


def open_object(rng):
    """An object whose keys the schema does not list."""
    schema = {"type": "object"}
    kind = rng.randrange(5)
    if kind == 0:
        schema |= {"patternProperties": {rng.choice(PATTERNS): small(rng)}, "additionalProperties": False}
    elif kind == 1:
        schema |= {"patternProperties": {pattern: small(rng) for pattern in rng.sample(["^[ab]$", "^x-", "^(red|green|blue)$"], 2)},
                   "additionalProperties": rng.choice([False, {"type": "null"}])}
    elif kind == 2:
        schema |= {"additionalProperties": rng.choice([small(rng), True, open_object(rng)])}
    elif kind == 3:
        schema |= {"propertyNames": rng.choice([{"pattern": rng.choice(PATTERNS)}, {"enum": ["a", "b", "c"]}]),
                   "additionalProperties": small(rng)}
    if rng.random() < 0.5 and kind != 3:
        schema["properties"] = {name: small(rng) for name in rng.sample(["a", "b", "name", "id"], rng.randint(1, 2))}
        schema["required"] = list(schema["properties"])
    if rng.random() < 0.4 and kind != 3:
        least = rng.randint(0, 2) + len(schema.get("required", []))
        schema |= {"minProperties": least, "maxProperties": least + rng.randint(0, 2)}
    return schema


def number(rng):
    """A schema of numbers whose digits count."""
    big = rng.choice(BIG)
    return rng.choice([
        {"const": big}, {"enum": rng.sample(BIG, 3)}, {"type": "integer", "enum": [1, big]},
        {"const": {"id": big}}, {"type": "integer", "minimum": -2**63, "maximum": 2**63 - 1},
        {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 5}, {"type": "number", "minimum": -1e308, "maximum": 1e308},
        {"type": "integer", "minimum": -2**53 - 9, "maximum": -2**53 - 1}, {"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.3},
        {"type": "integer", "exclusiveMinimum": 2**62, "maximum": 2**62 + 5000},
    ])


def excluded(rng):
    """A schema with `not` or a condition."""
    return rng.choice([
        {"type": "boolean", "not": {"const": rng.random() < 0.5}},
        {"type": "integer", "minimum": 0, "maximum": 9, "not": {"enum": rng.sample(range(10), 3)}},
        {"type": "number", "minimum": 0, "not": {"minimum": rng.randint(1, 9)}},
        {"type": "object", "properties": {"a": small(rng), "b": small(rng)}, "additionalProperties": False, "not": {"required": ["a"]}},
        {"type": ["string", "integer", "null"], "not": {"type": rng.choice(["string", "null"])}},
        {"type": "object", "properties": {"kind": {"type": "string"}, "x": small(rng), "y": small(rng)}, "additionalProperties": False,
         "allOf": [{"if": {"properties": {"kind": {"const": word}}} | rng.choice([{}, {"required": ["kind"]}]),
                    "then": {"required": [rng.choice("xy")]}, "else": rng.choice([True, {"properties": {rng.choice("xy"): False}}])}
                   for word in ("a", "ab", "b")]},
        {"type": "object", "properties": {"n": {"type": "integer"}, "x": small(rng)}, "required": ["n"], "additionalProperties": False,
         "if": {"properties": {"n": rng.choice([{"minimum": 5}, {"maximum": 2}, {"enum": [1, 2, 7]}])}}, "then": {"required": ["x"]}},
        {"type": "string", "maxLength": 3, "not": {"enum": ["a", "ab", ""]}}, {"type": "number", "exclusiveMinimum": 2, "maximum": 2.5},
        {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}}, "required": ["kind"], "additionalProperties": False,
         "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"not": {"required": ["x"]}}},
    ])


def random_schema(rng):
    """A schema of one of these kinds, or an object of several."""
    import structured
    kinds = [open_object, open_object, number, excluded, structured.answer_schema]
    if rng.random() < 0.3:
        return {"type": "object", "properties": {name: rng.choice(kinds[:4])(rng) for name in ("p", "q")},
                "required": ["p", "q"], "additionalProperties": False}
    return rng.choice(kinds)(rng)


def judge(path):
    """How many answers of a file ended, and those of them that are wrong."""
    import jsonschema
    counts = dict.fromkeys(("valid", "INVALID", "cut", "refused", "error"), 0)
    exact = dict(parse_float=decimal.Decimal)
    for line in open(path, encoding="utf-8"):
        schema, answer = json.loads(line, **exact)
        if answer is None:
            what = "cut"
        elif isinstance(answer, dict):
            what = next(iter(answer))
        else:
            try:
                value = json.loads(answer, object_pairs_hook=distinct, **exact)
                jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(value)
                what = "valid"
            except (ValueError, jsonschema.ValidationError) as error:
                what, answer = "INVALID", f"{answer!r}: {error}"
        counts[what] += 1
        if what in ("INVALID", "error", "refused") and counts[what] <= 8:
            print(f"{what}: {schema}: {answer}")
    print(counts)
    return counts["INVALID"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", nargs="?")
    parser.add_argument("--write", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.write:
        rng = random.Random(args.seed)
        for _ in range(args.write):
            print(json.dumps(random_schema(rng)))
        return 0
    return 1 if judge(args.answers) else 0


if __name__ == "__main__":
    sys.exit(main())
