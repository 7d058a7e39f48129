"""Requests to forty tools: one of the declared ones fits, or none does."""
import json

from tasks.sample import Sample, assistant, user

from . import chatter, figures
from .slots import Filler, blocks

DECLARED_MAX = 5
SYSTEM_SHARE = 0.2
BEFORE_SHARE = 0.15         # of the conversations have called a tool already
TALK_SHARE = 0.4            # of the requests that no tool fits want no tool at all
ITEMS = {"strings": {"type": "string"}, "integers": {"type": "integer"}}
SYSTEM = ["You are an assistant with tools. Call one if it fits, otherwise answer in words.", "You help around the house, the office and the workshop.",
          "Only call a tool when the user's request needs it."]
DONE = ["Done.", "That is done.", "It worked.", "All right, done."]
NO_TOOL = "None of my tools can do that."


def property_of(words, description):
    kind, choices = words[2], words[3].split(",") if len(words) > 3 else None
    shape = {"type": "array", "items": ITEMS[kind]} if kind in ITEMS else {"type": kind}
    if kind == "object":
        shape |= {"properties": {}, "required": []}
    return shape | {"description": description} | ({"enum": choices} if choices else {})


def declared(name, description, lines):
    """The declaration as OpenAI's API has it."""
    top = {"type": "object", "properties": {}, "required": []}
    for line in lines:
        if line[0] not in "*-":
            continue
        head, said = line.split(" | ")
        words = head.split()
        *outer, field = words[1].split(".")
        owner = top["properties"][outer[0]] if outer else top
        owner["properties"][field] = property_of(words, said)
        if line[0] == "*":
            owner["required"].append(field)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": top}}


def nested(values):
    """{"guest.name": x} -> {"guest": {"name": x}}"""
    out = {}
    for path, value in values.items():
        *outer, field = path.split(".")
        (out.setdefault(outer[0], {}) if outer else out)[field] = value
    return out


class Tool:
    def __init__(self, head, lines):
        self.name, description = head.split(" | ")
        self.declaration = declared(self.name, description, lines)
        self.requests = [line[2:] for line in lines if line[0] == ">"]

    def asked(self, rng):
        """-> a request and the arguments that it gives."""
        filler = Filler(rng)
        text = filler.filled(filler.trimmed(rng.choice(self.requests)))
        return text, nested(filler.values)


TOOLS = [Tool(head, lines) for head, lines in blocks("tools.txt")]


def idle(rng):
    """A request that wants no tool."""
    sample = rng.choice((figures.make, chatter.talk))(rng, False)
    return sample.messages[-2]["content"]


def before(rng, tool):
    """A request to a tool that has been met."""
    text, arguments = tool.asked(rng)
    result = {"role": "tool", "content": json.dumps({"status": "ok"})}
    return [user(text), assistant("", calls=[(tool.name, arguments)]), result, assistant(rng.choice(DONE))]


def make(rng, thinking=None, fitting=None):
    fitting = rng.random() < 0.7 if fitting is None else fitting
    tools = rng.sample(TOOLS, rng.randint(1, DECLARED_MAX) + 1)
    other, shown = tools[0], tools[1:]
    calls = []
    if fitting:
        tool = rng.choice(shown)
        text, arguments = tool.asked(rng)
        calls = [(tool.name, arguments)]
    else:
        text = idle(rng) if rng.random() < TALK_SHARE else other.asked(rng)[0]
    messages = [{"role": "system", "content": rng.choice(SYSTEM)}] if rng.random() < SYSTEM_SHARE else []
    if rng.random() < BEFORE_SHARE:
        messages += before(rng, rng.choice(shown))
    thinking = rng.random() < 0.7 if thinking is None else thinking
    answer = assistant("", calls=calls) if calls else assistant(NO_TOOL)
    return Sample("call", text, messages + [user(text), answer], thinking, expect=calls, tools=[t.declaration for t in shown])
