"""Tools nobody has seen, requests that one of them serves, and requests that none does. An author brings verbs, nouns, parameters and frames."""
import collections
import json

from tasks import toolbox
from tasks.sample import Sample, assistant, user

from . import solve, values, words
from .made import frames

# A parameter as it is said: `phrase` has {v}; `schema` what the declaration has of it; `draw` gives the value and how it is said.
Parameter = collections.namedtuple("Parameter", "name phrase schema draw")
Tool = collections.namedtuple("Tool", "declaration verb noun parameters required")
UNSERVED_ONE_IN, ASIDE_ONE_IN = 5, 16


def camel(parts):
    return parts[0] + "".join(p.capitalize() for p in parts[1:])


def named(rng, parts):
    """A name in one of the ways that programs have."""
    return rng.choice(("_".join, "_".join, "_".join, "_".join, camel, camel, "-".join, ".".join, lambda p: "".join(x.capitalize() for x in p), "_".join))(parts)


def parameter(rng, names, kind, phrases, description=None, schema=None, draw=None):
    """One of the author's parameters under one of its names, described or not."""
    schema = dict(schema or values.schema(kind))
    if description and rng.random() < 0.5:
        schema["description"] = description
    name = rng.choice(names.split())
    name = camel(name.split("_")) if rng.random() < 0.2 else name
    return Parameter(name, rng.choice(phrases), schema, draw or (lambda r: values.draw(r, kind)))


def chosen(rng, enum):
    """A parameter's schema and values where it has a few words to choose from."""
    def draw(r):
        value = r.choice(enum)
        return value, value.replace("_", " ") if r.random() < 0.8 else value
    return {"type": "string", "enum": enum}, draw


def declare(rng, name, description, parameters, required):
    order = rng.sample(parameters, len(parameters)) if rng.random() < 0.5 else parameters
    schema = {"type": "object", "properties": {p.name: p.schema for p in order}, "required": [p.name for p in order if p.name in required]}
    if rng.random() < 0.2:
        schema["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def drawn(rng, author, verb=None, noun=None):
    """-> a tool of an author's words."""
    verb, noun = verb or author.verb(rng), noun or author.noun(rng)
    parameters, count = {}, rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
    for p in author.parameters(rng, count) if hasattr(author, "parameters") else (author.parameter(rng, noun) for _ in range(count)):
        parameters[p.name] = p
    parameters = list(parameters.values())
    required = {p.name for p in parameters if rng.random() < 0.7}
    return Tool(declare(rng, author.tool_name(rng, verb, noun), author.description(rng, verb, noun), parameters, required), verb, noun, parameters, required)


def toolset(rng, author):
    """-> tools of different names; some share the first one's verb or noun."""
    found = [drawn(rng, author)]
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5))):
        near = rng.random()
        found.append(drawn(rng, author, found[0].verb if near < 0.2 else None, found[0].noun if 0.2 <= near < 0.4 else None))
    names, pairs = {t.declaration["function"]["name"] for t in found}, {(t.verb, t.noun) for t in found}
    return found if len(names) == len(pairs) == len(found) else toolset(rng, author)


def said(rng, author, tool):
    """-> a request that the tool serves, its verb in the request's words, the arguments in the order of the request."""
    told = [p for p in tool.parameters if p.name in tool.required or rng.random() < 0.5]
    rng.shuffle(told)
    arguments, phrases = {}, []
    for p in told:
        arguments[p.name], spoken = p.draw(rng)
        phrases.append(p.phrase.format(v=spoken, n=p.name.replace("_", " ")))
    verb, what = author.goal(rng, tool.verb, tool.noun)
    goal = f"{verb} {what}"
    text = author.sentence(rng, goal[0].upper() + goal[1:] if rng.random() < 0.7 else goal, phrases)
    if author.LEADS_SHARE and rng.random() < author.LEADS_SHARE:
        begin = frames.lead(rng) if rng.random() < 0.5 else rng.choice(author.OPENERS)
        text = begin + (text if rng.random() < 0.3 else text[0].lower() + text[1:])
    if author.LEADS_SHARE and not phrases and rng.random() < 0.1:
        text += frames.tail(rng)
    return text, verb if goal in text else verb[0].upper() + verb[1:], arguments


def served(rng, author, tool, thinking):
    text, verb, arguments = said(rng, author, tool)
    function = tool.declaration["function"]
    thought = None
    if thinking:
        thought = solve.wanted(verb, tool.verb, tool.noun) + solve.called(function["description"], function["name"], arguments)
    reply = assistant("", thought, [(function["name"], solve.arguments_marked(arguments))])
    return [user(text), reply], [(function["name"], arguments)]


def unserved(rng, author, tools, declared, thinking):
    """A request for a tool that is not there: with the verb or the noun of one that is, at times."""
    while True:
        near = rng.random()
        other = drawn(rng, author, tools[0].verb if near < 0.25 else None, tools[0].noun if 0.25 <= near < 0.5 else None)
        if all((other.verb, other.noun) != (t.verb, t.noun) and (other.noun != t.noun or other.verb[:3] != t.verb[:3]) for t in tools) \
                and (near < 0.5 or all(other.noun != t.noun and other.verb != t.verb for t in tools)):
            break
    text, verb, _ = said(rng, author, other)
    thought = solve.wanted(verb, other.verb, other.noun) + solve.unserved(declared) if thinking else None
    return [user(text), assistant(solve.no_tool(declared), thought)]


def before(rng, author, tools):
    """Earlier calls of the same tools with what came back."""
    messages = []
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        turn, _ = served(rng, author, rng.choice(tools), False)
        response, told = toolbox.reply_of(rng)
        messages += [*turn, {"role": "tool", "content": response}, assistant(told)]
    return messages


def make(rng, author, thinking=None, fitting=None, aside=None):
    """`fitting`: whether a tool serves the request; `aside`: makes a sample that has nothing to do with tools."""
    tools = toolset(rng, author)
    declared = [t.declaration for t in rng.sample(tools, len(tools))]
    if rng.random() < 0.2:
        declared = json.loads(json.dumps(declared, sort_keys=True))
    thinking = rng.random() < 0.65 if thinking is None else thinking
    if aside and fitting is None and rng.randrange(ASIDE_ONE_IN) == 0:
        other = aside(rng, thinking)
        return Sample("call", other.key, other.messages, other.thinking, expect=[], tools=declared, learn_history=True)
    if fitting or (fitting is None and rng.randrange(UNSERVED_ONE_IN)):
        messages, expect = served(rng, author, tools[0], thinking)
    else:
        messages, expect = unserved(rng, author, tools, declared, thinking), []
    earlier = before(rng, author, tools) if fitting is None else []
    if fitting is None and rng.random() < 0.12:
        earlier.insert(0, {"role": "system", "content": rng.choice(author.SYSTEM)})
    return Sample("call", messages[0]["content"], earlier + messages, thinking, expect=expect, tools=declared, learn_history=True)



def place(rng):
    """A nested object: a street and a town."""
    value = {"street": f"{words.made_up(rng).capitalize()} {rng.randint(1, 99)}", "city": words.town(rng)}
    return value, f"{value['street']} in {value['city']}"


def detailed(rng, details):
    """One of a few words about a part of the thing: the schema and values, and how it is said."""
    noun = rng.choice(details[0])
    enum = rng.sample(details[1], rng.randint(2, 4))
    schema, draw = chosen(rng, enum)
    joint = rng.choice((f"with a {{v}} {noun}", f"with {{v}} {noun}", f"in {{v}} {noun}", f"of {{v}} {noun}", f"{noun} {{v}}", f"{noun}: {{v}}", f"with the {noun} {{v}}", f"having a {{v}} {noun}", f"to a {{v}} {noun}"))
    name = rng.choice((noun, noun, f"{noun}_type", f"{noun}_kind"))
    return parameter(rng, name, None, (joint,), f"The {noun}", schema, draw)


PLACE = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}, "required": ["street", "city"]}


def span(rng):
    a, b = sorted((rng.randint(1, 500), rng.randint(501, 1000)))
    return {"from": a, "to": b}, f"{a} to {b}"


SPAN = {"type": "object", "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}}, "required": ["from", "to"]}


def flag(rng):
    value = rng.random() < 0.5
    return value, rng.choice(("yes", "true", "on") if value else ("no", "false", "off"))
