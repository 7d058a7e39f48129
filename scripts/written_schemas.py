#!/usr/bin/env python3
"""200 schemas in the ways in which people and their programs write them, to see which share is taken.

    python3 scripts/written_schemas.py > schemas.jsonl
    CHIMERE_SCHEMAS=$PWD/schemas.jsonl CHIMERE_ANSWERS=$PWD/answers.jsonl \\
        cargo test -p chimere --lib random_answers -- --ignored
    python3 scripts/judge_answers.py answers.jsonl

A set to look back at, not to develop against: it has what a style has as often as the style has it, also what is
refused (`uniqueItems`, expressions with lookahead). Styles: files of editors, OpenAPI, zod 4, pydantic, TypeBox, tools
of MCP servers. Another `--seed` is another set.
"""
import argparse
import json
import random

WORDS = "alpha beta gamma delta omega north south east west main test build deploy review".split()
FIELDS = "name id title status owner region path limit retries enabled tags version label source target".split()


def some(rng, options, least=1, most=4):
    return rng.sample(options, rng.randint(least, most))


def optional(rng, share, **keywords):
    """The keywords, in this share of schemas."""
    return keywords if rng.random() < share else {}


def by_kind(rng, kinds, fields, written):
    """Conditions on the kind of an object."""
    def condition(kind):
        asks = {"properties": {"type": rng.choice([{"const": kind}, {"enum": [kind]}])}} | optional(rng, 0.6, required=["type"])
        return {"if": asks, "then": {"required": [rng.choice(fields)]} | optional(rng, 0.4, properties={fields[0]: written})}
    conditions = [condition(kind) for kind in kinds]
    return {"allOf": conditions} if len(conditions) > 1 else conditions[0] | optional(rng, 0.5, **{"else": {"required": [fields[-1]]}})


def editor_leaf(rng):
    return rng.choice([
        {"type": "string"}, {"type": "string", "enum": some(rng, WORDS, 2, 5)}, {"type": "boolean", "default": rng.random() < 0.5},
        {"type": "integer", "minimum": 0}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string", "minLength": 1},
        {"type": "string", "pattern": rng.choice(["^[a-z][a-z0-9-]*$", "^v?[0-9]+\\.[0-9]+$", "^\\$\\{.+\\}$"])},
        {"type": ["string", "null"]}, {"type": ["string", "boolean"]}, {"type": "string", "format": rng.choice(["uri", "email", "date"])},
        {"type": "array", "items": {"type": "string"}} | optional(rng, 0.15, uniqueItems=True),
        {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^[A-Z_]+$": {"type": "string"}}, "additionalProperties": False},
    ]) | optional(rng, 0.6, description=f"The {rng.choice(WORDS)} one.")


def editor_file(rng):
    fields = some(rng, FIELDS, 3, 7)
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"{rng.choice(WORDS)} configuration", "type": "object",
              "properties": {name: editor_leaf(rng) for name in fields}} | optional(rng, 0.6, additionalProperties=False)
    schema |= optional(rng, 0.7, required=fields[:2])
    more = rng.random()
    if more < 0.25:
        kinds = some(rng, WORDS, 1, 4)
        schema["properties"]["type"] = rng.choice([{"type": "string"}, {"enum": kinds + ["other"]}, {"type": "string", "enum": kinds + ["other"]}])
        schema |= by_kind(rng, kinds, fields, {"type": "string"})
    elif more < 0.35:
        schema["anyOf"] = [{"required": [name]} for name in fields[:2]]
    elif more < 0.42:
        schema["not"] = {"required": fields[-2:]}
    elif more < 0.5:
        schema["dependencies"] = {fields[-1]: [fields[0]]}
    elif more < 0.6:
        schema["properties"]["extends"] = {"$ref": "#/definitions/part"}
        schema["definitions"] = {"part": {"type": "object", "properties": {"part": {"$ref": "#/definitions/part"}, "use": editor_leaf(rng)}}}
    elif more < 0.65:
        name = fields[0]
        schema["if"] = {"properties": {name: {"type": "string"}}, "required": [name]}
        schema["then"] = {"required": [fields[1]]}
    elif more < 0.68:
        schema["properties"]["rules"] = {"type": "array", "items": {"type": "string", "not": {"enum": some(rng, WORDS)}}}
    return schema


def openapi(rng, depth=1):
    leaf = lambda: rng.choice([
        {"type": "integer", "format": rng.choice(["int32", "int64"]), "minimum": 1, "maximum": 100, "default": 20},
        {"type": "string", "format": rng.choice(["uuid", "date-time", "password", "byte", "uri"])}, {"type": "number", "format": "double"},
        {"type": "string", "enum": some(rng, WORDS, 2, 4), "example": "x"}, {"type": "string", "minLength": 3, "maxLength": 40},
        {"type": "array", "items": {"type": "string", "enum": some(rng, WORDS, 2, 4)}, "maxItems": 10} | optional(rng, 0.1, uniqueItems=True),
        {"type": "boolean"}, {"$ref": "#/components/schemas/Page"}, {"type": ["string", "null"], "format": "date"},
        {"allOf": [{"$ref": "#/components/schemas/Page"}], "description": "Where to begin."},
        {"type": "integer", "format": "int64", "minimum": -2**63, "maximum": 2**63 - 1}, {"type": "string", "readOnly": True, "deprecated": True},
    ])
    names = some(rng, [name for name in FIELDS if depth or name != "id"], 2, 6)
    schema = {"type": "object", "properties": {name: leaf() for name in names}, "required": names[:2]}
    if depth and rng.random() < 0.4:
        schema = {"allOf": [{"$ref": "#/components/schemas/Base"}, openapi(rng, 0)]}
    page = {"type": "object", "properties": {"cursor": {"type": "string"}, "size": {"type": "integer", "format": "int32"}}}
    base = {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]}
    return schema | ({"components": {"schemas": {"Page": page, "Base": base}}} if depth else {})


def zod(rng, depth=2):
    if depth == 0 or rng.random() < 0.5:
        return rng.choice([
            {"type": "string"}, {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, {"type": "number", "exclusiveMinimum": 0},
            {"type": "boolean"}, {"type": "string", "enum": some(rng, WORDS, 2, 4)}, {"type": "string", "const": rng.choice(WORDS)}, {},
            {"type": "string", "format": "uri"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "number", "const": 3},
            {"type": "string", "format": "uuid", "pattern": "^([0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$"},
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, {"type": "string", "minLength": 1, "maxLength": 80},
            {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
            {"type": "object", "propertyNames": {"type": "string", "enum": ["x", "y"]}, "additionalProperties": {"type": "string"}, "required": ["x", "y"]},
        ] + [{"type": "string", "format": "email", "pattern": "^(?!\\.)[a-z0-9._-]+@[a-z0-9-]+(\\.[a-z]{2,})+$"}] * (rng.random() < 0.25))
    if rng.random() < 0.25:
        return {"type": "array", "items": zod(rng, depth - 1)}
    if rng.random() < 0.25:
        one = lambda kind: zod_object(rng, depth - 1, {"kind": {"type": "string", "const": kind}})
        return {rng.choice(["anyOf", "oneOf"]): [one(kind) for kind in some(rng, WORDS, 2, 3)]}
    return zod_object(rng, depth - 1, {})


def zod_object(rng, depth, first):
    properties = first | {name: zod(rng, depth) for name in some(rng, FIELDS)}
    return {"type": "object", "properties": properties, "required": [name for name in properties if name in first or rng.random() < 0.7], "additionalProperties": False}


def pydantic(rng):
    decimal = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*[0-9]*\\.?[0-9]*$"}]}
    leaf = lambda: rng.choice([
        {"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean", "default": False},
        {"format": "date-time", "type": "string"}, {"format": "uuid", "type": "string"}, {"format": "duration", "type": "string"}, {"$ref": "#/$defs/Level"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, {"additionalProperties": {"type": "integer"}, "type": "object"},
        {"items": {"$ref": "#/$defs/Item"}, "type": "array"}, {"const": rng.choice(WORDS), "type": "string"}, {"additionalProperties": True, "type": "object"},
        {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"}, {"format": "path", "type": "string"},
        {"discriminator": {"mapping": {"a": "#/$defs/A", "b": "#/$defs/B"}, "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
    ] + [{"items": {"type": "string"}, "type": "array", "uniqueItems": True}] * (rng.random() < 0.3) + [decimal] * (rng.random() < 0.3))
    names = some(rng, FIELDS, 2, 6)
    kind = lambda kind: {"properties": {"kind": {"const": kind, "title": "Kind", "type": "string"}, "n": {"title": "N", "type": "integer"}}, "required": ["kind"], "title": kind, "type": "object"}
    item = {"properties": {"sku": {"title": "Sku", "type": "string"}, "items": {"items": {"$ref": "#/$defs/Item"}, "type": "array"}}, "required": ["sku"], "type": "object"}
    return {"$defs": {"Level": {"enum": ["low", "high"], "title": "Level", "type": "string"}, "Item": item, "A": kind("a"), "B": kind("b")},
            "properties": {name: {"title": name.title()} | leaf() for name in names}, "required": names[:1], "title": "Model", "type": "object"} | optional(rng, 0.3, additionalProperties=False)


def typebox(rng, depth=2):
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([
            {"type": "string"}, {"type": "integer"}, {"type": "number", "multipleOf": 0.5}, {"type": "null"}, {"const": rng.choice(WORDS), "type": "string"},
            {"anyOf": [{"const": word, "type": "string"} for word in some(rng, WORDS, 2, 4)]}, {"type": "object", "patternProperties": {"^(.*)$": {"type": "number"}}},
            {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False, "minItems": 2, "maxItems": 2},
            {"not": {"type": "string"}}, {"type": "string", "format": "date-time"}, {"type": "array", "items": {"type": "boolean"}, "minItems": 1}])
    if rng.random() < 0.2:
        halves = (FIELDS[:8], FIELDS[8:])
        return {"allOf": [typebox_object(rng, depth - 1, half) for half in halves]} | optional(rng, 0.2, unevaluatedProperties=False)
    return typebox_object(rng, depth - 1)


def typebox_object(rng, depth, fields=None):
    names = some(rng, fields or FIELDS)
    schema = {"type": "object", "properties": {name: typebox(rng, depth) for name in names}, "required": names[:2]}
    return schema | (optional(rng, 0.3, additionalProperties=False) if fields is None else {})


def tool(rng):
    names = some(rng, FIELDS, 1, 5)
    leaf = lambda: rng.choice([
        {"type": "string"}, {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}, {"type": "boolean", "default": True}, {"type": "array", "items": {"type": "string"}},
        {"type": "string", "enum": some(rng, WORDS, 2, 4)}, {"type": "object", "properties": {"from": {"type": "string"}, "to": {"type": "string"}}}, {"type": "object"},
        {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string"}, "value": {}}, "required": ["key"]}}, {"type": ["string", "number"]},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}]) | {"description": f"Which {rng.choice(WORDS)} to take."}
    schema = {"type": "object", "properties": {name: leaf() for name in names}} | optional(rng, 0.7, required=names[:1]) | optional(rng, 0.4, additionalProperties=False)
    if rng.random() < 0.15:
        actions = some(rng, WORDS, 2, 3)
        schema["properties"]["type"] = {"type": "string", "enum": actions, "description": "The action."}
        schema |= by_kind(rng, actions[1:], names, {"type": "string", "minLength": 1})
    elif rng.random() < 0.1:
        schema["oneOf"] = [{"required": [name]} for name in names[:2]]
    elif rng.random() < 0.1:
        schema |= {"minProperties": 1}
    return schema


STYLES = [editor_file, editor_file, openapi, zod, pydantic, typebox, tool]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=54)
    args = parser.parse_args()
    for number in range(args.count):
        rng = random.Random(f"{args.seed}/{number}")
        style = STYLES[number % len(STYLES)]
        # TypeBox writes `items` as older drafts do.
        draft = {"$schema": "http://json-schema.org/draft-07/schema#"} if style is typebox else {}
        print(json.dumps(draft | style(rng)))


if __name__ == "__main__":
    main()
