"""Compares chat templates and expressions as the service renders them with Jinja2 as Hugging Face's tools set it up.

    python3 -m venv target/jinja && target/jinja/bin/pip install jinja2
    cargo build -p chimere --example render_template
    target/jinja/bin/python scripts/templates.py target/debug/examples/render_template FOLDER...

Each folder holds templates (`*.jinja`), such as `models/templates` of llama.cpp. Each template renders eight
conversations, each with and without the opening of the assistant's turn. A template is equal when every rendering is,
where a refusal of both counts as equal. Without folders only the expressions are compared. The exit status is 1 where an
expression differs.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1769904000
BOS, EOS = "<s>", "</s>"

EXPRESSIONS = pathlib.Path(__file__).with_name("template_expressions.txt")


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, as transformers' AssistantTracker parses it, without the tracking."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def reference():
    """The environment of `transformers.utils.chat_template_utils`, with a clock that stands still."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def call(name, arguments):
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city, \"quoted\" <b>"},
                    "days": {"type": "integer", "enum": [1, 2, 3]},
                },
                "required": ["city"],
            },
        },
    }
]


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def conversations():
    """Name, messages and tools. Parts of text are joined, as the service joins them before a template sees them."""
    system, user = said("system", "You are kind."), said("user", "Hello, \u00e9t\u00e9!\nHow are you?")
    answer = said("assistant", "I am well.")
    asks = said("assistant", "", tool_calls=[call("get_weather", {"city": "Paris", "days": 2})])
    result = said("tool", '{"sky": "blue"}', tool_call_id="call00001", name="get_weather")
    thought = said("assistant", "Four.", reasoning_content="Two and two.")
    parts = said("user", [{"type": "text", "text": "First part."}, {"type": "text", "text": " Second part."}])
    return [
        ("plain", [user], []),
        ("system", [system, user], []),
        ("several turns", [system, user, answer, said("user", "And you?"), answer, said("user", "Bye")], []),
        ("tools", [system, user], TOOLS),
        ("tool call", [system, user, asks, result], TOOLS),
        ("empty content", [system, said("user", ""), said("assistant", ""), user], []),
        ("thinking", [user, thought, said("user", "And three and three?")], []),
        ("parts", [parts], []),
    ]


def joined(message):
    content = message["content"]
    return message | {"content": "".join(part["text"] for part in content)} if isinstance(content, list) else message


def cases(name, source):
    for conversation, messages, tools in conversations():
        for opened in (True, False):
            yield {
                "name": f"{name}: {conversation}, {'opened' if opened else 'closed'}",
                "template": source,
                "messages": [joined(message) for message in messages],
                "tools": tools,
                "open": opened,
                "options": {},
            }


def expected(environment, case):
    given = {"documents": None, "bos_token": BOS, "eos_token": EOS, **case["options"]}
    given |= {"messages": case["messages"], "tools": case["tools"] or None, "add_generation_prompt": case["open"]}
    try:
        return {"text": environment.from_string(case["template"]).render(given)}
    except Exception as error:  # Whatever a template does wrong in Python.
        return {"error": f"{type(error).__name__}: {error}"}


def rendered(command, cases):
    told = "".join(json.dumps(case | {"bos": BOS, "eos": EOS, "now": NOW}) + "\n" for case in cases)
    done = subprocess.run(command, input=told, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def is_equal(got, want):
    return got["text"] == want["text"] if "text" in got and "text" in want else "error" in got and "error" in want


def expressions():
    """One a line; `#` begins a comment. Values that they use are in `OPTIONS`."""
    lines = EXPRESSIONS.read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


OPTIONS = {
    "text": "Hello, World",
    "lines": " a b\n\tc\r\nd ",
    "empty": "",
    "number": 7,
    "negative": -7,
    "half": 2.5,
    "yes": True,
    "nothing": None,
    "items": [3, 1, 2, 3],
    "words": ["b", "a", "B", "c"],
    "map": {"b": 1, "a": [1, 2.0, None], "c": {"d": "\u00e9\u2028\U0001f600\"/"}},
    "people": [
        {"name": "Ann", "age": 30, "role": "user"},
        {"name": "Bob", "age": 25, "role": "tool"},
        {"name": "Cid", "age": None, "role": "user"},
    ],
}


def compare(environment, command, all_cases, verbose):
    """Names of the cases that differ."""
    different = []
    for case, got in zip(all_cases, rendered(command, all_cases), strict=True):
        want = expected(environment, case)
        if not is_equal(got, want):
            different.append(case["name"])
            if verbose:
                print(f"--- {case['name']}\n    jinja2:  {json.dumps(want)[:verbose]}\n    service: {json.dumps(got)[:verbose]}")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the example `render_template`")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--verbose", type=int, default=0, metavar="CHARACTERS", help="show so much of what differs")
    arguments = parser.parse_args()
    environment = reference()
    base = {"messages": [said("user", "hi")], "tools": [], "open": True, "options": OPTIONS}
    listed = [base | {"name": line, "template": line.replace("\\n", "\n")} for line in expressions()]
    different = compare(environment, arguments.command, listed, arguments.verbose)
    print(f"{len(listed) - len(different)} of {len(listed)} expressions are equal")
    equal, paths = 0, [path for folder in arguments.folders for path in sorted(folder.glob("*.jinja"))]
    for path in paths:
        found = compare(environment, arguments.command, list(cases(path.name, path.read_text())), arguments.verbose)
        equal += not found
        for name in found:
            print(f"differs: {name}")
    if paths:
        print(f"{equal} of {len(paths)} templates are equal")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
