"""Is this reply right? One rule a family, shared by the evaluation during training and by eval.py."""
import json
import re

from . import arithmetic, context, extract, facts, strings, talk, tools

FAMILIES = {"arithmetic": arithmetic, "strings": strings, "context": context, "extract": extract, "tools": tools, "facts": facts,
            "talk": talk}


def numbers(text):
    return [int(n) for n in re.findall(r"-?\d+", text)]


def right(sample, content, calls=()):
    """content: the reply after the thought, without tool calls; calls: [(name, arguments)]."""
    content, expect = content.strip(), sample.expect
    if sample.family == "arithmetic":
        return numbers(content)[-1:] == [expect]
    if sample.family == "strings":
        kind, value = expect
        if isinstance(value, int):
            return value in numbers(content)
        return content.rstrip(".").strip('"') == value
    if sample.family == "extract":
        try:
            return json.loads(content) == expect[0]
        except ValueError:
            return False
    if sample.family == "tools":
        return [tuple(c) for c in calls] == [tuple(c) for c in expect[0]]
    if sample.family == "talk" and isinstance(expect, int):
        return numbers(content)[-1:] == [expect]
    return re.search(rf"(?<!\w){re.escape(str(expect))}(?!\w)", content) is not None


def parse_value(text, schema):
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_calls(text, declared):
    """The family's XML call format -> (text before the calls, [(name, arguments)])."""
    schemas = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in declared or []}
    calls = []
    for name, body in re.findall(r"<function=([^>\n]+)>\n(.*?)</function>", text, re.S):
        pairs = re.findall(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>", body, re.S)
        calls.append((name, {k: parse_value(v, schemas.get(name, {}).get(k, {"type": "string"})) for k, v in pairs}))
    return text.split("<tool_call>")[0], calls
