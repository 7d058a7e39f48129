#!/usr/bin/env python3
"""The share of answers that end within MAX_TOKENS, for 200 schemas as programs write them, with open and with closed objects.

    target/release/chimere serve --model models/nano --device cpu --port 8080 &
    python3 scripts/common_schemas.py --url http://127.0.0.1:8080

A schema is one of 40 things in one of five styles: zod's, pydantic's, parameters of a tool, OpenAPI's, and a bare one.
Nothing in it says `additionalProperties`. It is asked for four times, as `response_format` and as the parameters of a
tool that has to be called: with objects as they are written, and with `additionalProperties: false` in each object.
An answer that ended and is no JSON, names a key twice, or does not keep to its schema is an error.
"""
import argparse
import concurrent.futures
import copy
import json
import sys
import urllib.error
import urllib.request

# Fields: a name, a type, and `?` where it may be missing. `t` text, `i` integer, `n` number, `b` boolean, `d` date,
# `l` list of texts, `e` choice, `o` an object of its own.
THINGS = """
person: name t, age i, email t?, city t?
invoice: number t, total n, currency e, paid b, lines l
product: name t, price n, in_stock b, tags l, maker o?
meeting: title t, start d, attendees l, place t?, remote b
recipe: title t, servings i, ingredients l, steps l, minutes i?
review: rating i, summary t, mood e, would_return b
ticket: subject t, severity e, steps l, assignee o?, closed b
book: title t, author o, year i, pages i?, genre e
address: street t, city t, postcode t, country t
order: id t, customer o, items l, total n, note t?
flight: from_airport t, to_airport t, departure d, seats i, class e
weather: city t, temperature n, sky e, wind n?
movie: title t, director o, year i, cast l, score n?
song: title t, artist t, seconds i, genre e?
job: title t, company o, salary n?, skills l, remote b
contact: first_name t, last_name t, phone t?, company t?
event: name t, start d, end d?, guests i, public b
expense: amount n, category e, day d, reason t?
patient: name t, age i, symptoms l, urgent b, doctor o?
car: make t, model t, year i, mileage i?, electric b
hotel: name t, stars i, city t, price n, services l
lesson: subject t, level e, goals l, minutes i
article: headline t, author o, keywords l, words i, published d?
team: name t, members l, lead o, founded i?
payment: amount n, currency e, recipient o, reference t?
search: query t, limit i?, language e?, safe b
reminder: text t, at d, repeat e?, done b
file: path t, size i, kind e, hidden b?
sensor: id t, value n, unit e, at d
animal: species t, legs i, habitat e, wild b
course: code t, credits i, teacher o, topics l
match: home t, away t, home_goals i, away_goals i, stadium o?
parcel: tracking t, weight n, status e, route l
plant: name t, height n?, sun e, edible b
quiz: question t, options l, answer i, hint t?
server: host t, port i, up b, region e
task: title t, priority e, due d?, subtasks l, owner o?
translation: source t, target t, language e, formal b?
visit: country t, days i, purpose e, visa b
wine: name t, year i, grape e, region o
""".strip().splitlines()
CHOICES = ["low", "medium", "high", "other"]
STYLES = ["zod", "pydantic", "tool", "openapi", "bare"]


def leaf(kind, style):
    """The schema of a field that holds no object."""
    return {
        "t": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
        "d": {"type": "string"} if style == "bare" else {"type": "string", "format": "date-time"},
        "l": {"type": "array", "items": {"type": "string"}}, "e": {"type": "string", "enum": CHOICES},
    }[kind]


def common_schema(line, style):
    """A thing in a style."""
    thing, fields = line.split(": ")
    properties, required, definitions = {}, [], {}
    for field in fields.split(", "):
        name, kind = field.split()
        optional = kind.endswith("?")
        if kind[0] == "o":
            inner = {"type": "object", "properties": {"name": leaf("t", style), "id": leaf("i", style)},
                     "required": ["name"]}
            if style in ("pydantic", "openapi"):
                definitions[name.title()] = inner
                inner = {"$ref": f"#/$defs/{name.title()}"}
        else:
            inner = leaf(kind[0], style)
        if style == "pydantic":
            titled = {"title": name.replace("_", " ").title()}
            inner = inner if "$ref" in inner else titled | inner
            inner = {"anyOf": [inner, {"type": "null"}], "default": None} if optional else inner
        if style == "tool":
            inner = inner | {"description": f"The {name} of the {thing}."}
        if style == "openapi" and kind[0] in "in":
            inner = inner | {"minimum": 0, "format": "int32" if kind[0] == "i" else "double"}
        properties[name] = inner
        required += [] if optional else [name]
    top = {"type": "object", "properties": properties, "required": required}
    top |= {"zod": {"$schema": "http://json-schema.org/draft-07/schema#"}, "pydantic": {"title": thing.title()}}.get(style, {})
    return thing, top | ({"$defs": definitions} if definitions else {})


def closed(schema):
    """The schema with closed objects."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    return schema | {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else schema


def distinct(pairs):
    """An object whose keys are distinct."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError(f"a key stands twice: {pairs}")
    return dict(pairs)


def ask(args, number, thing, schema, tool):
    """Whether the answer ended, and what is wrong with it."""
    import jsonschema
    body = {"messages": [{"role": "user", "content": f"Give me an example of a {thing}."}], "temperature": args.temperature,
            "seed": number, "max_tokens": args.max_tokens, "chat_template_kwargs": {"enable_thinking": False}}
    if tool:
        body |= {"tools": [{"type": "function", "function": {"name": f"save_{thing}", "parameters": schema}}], "tool_choice": "required"}
    else:
        body |= {"response_format": {"type": "json_schema", "json_schema": {"name": thing, "schema": schema}}}
    request = urllib.request.Request(args.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        choice = json.load(urllib.request.urlopen(request))["choices"][0]
    except urllib.error.HTTPError as error:
        return False, f"refused: {error.read().decode()}"
    if choice["finish_reason"] == "length":
        return False, None
    message = choice["message"]
    text = message["tool_calls"][0]["function"]["arguments"] if tool else message["content"]
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text, object_pairs_hook=distinct))
    except (ValueError, jsonschema.ValidationError) as error:
        return True, f"{text}: {error}"
    return True, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=1)
    parser.add_argument("--at-once", type=int, default=16)
    args = parser.parse_args()
    common = [common_schema(line, style) for line in THINGS for style in STYLES]
    wrong = 0
    for tool in (False, True):
        for name, change in (("open", copy.deepcopy), ("closed", closed)):
            with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
                jobs = [pool.submit(ask, args, i, thing, change(schema), tool) for i, (thing, schema) in enumerate(common)]
                answers = [job.result() for job in jobs]
            broken = [why for _, why in answers if why]
            wrong += len(broken)
            print(f"{'tool' if tool else 'response_format'}, {name} objects: {sum(ended for ended, _ in answers)} of {len(common)} answers end, "
                  f"{len(broken)} are wrong {broken[:2]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
