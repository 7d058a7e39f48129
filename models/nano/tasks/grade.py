"""Is this reply right? One rule a family, shared by the evaluation during training and by eval.py."""
import json
import re

from . import arithmetic, beyond, context, conversation, extract, facts, followup, forms, passages, strings, talk, toolbox, tools

FAMILIES = {"arithmetic": arithmetic, "strings": strings, "context": context, "extract": extract, "tools": tools, "facts": facts,
            "talk": talk, "beyond": beyond, "conversation": conversation, "followup": followup, "passages": passages, "toolbox": toolbox, "forms": forms}


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
        return [tuple(c) for c in calls] == [tuple(c) for c in expect[0]] and (bool(calls) or honest(content, expect[1]))
    if sample.family == "beyond":
        return beyond.MARK in content and not calls
    if sample.family == "passages":
        return cites(content, *expect)
    if sample.family == "talk" and isinstance(expect, int):
        return numbers(content)[-1:] == [expect]
    return re.search(rf"(?<!\w){re.escape(str(expect))}(?!\w)", content) is not None


def honest(content, said):
    """Where no tool is to be called: what is said then, either that none serves or what there is to say without one."""
    if "no tool for that" in str(said):
        return "no tool for that" in content or beyond.MARK in content
    return bool(content)


def cites(content, value, number):
    """The value, and the number of its passage and of no other; where there is none, that it is not in the text."""
    numbers_cited = re.findall(r"\[(\d+)\]", content)
    if value is None:
        return "not in the text" in content and not numbers_cited
    return numbers_cited == [str(number)] and re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", content) is not None


def undeclared(calls, declared):
    """The calls whose name or whose parameters nothing declares."""
    known = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in declared or []}
    return [name for name, arguments in calls if name not in known or not set(arguments) <= set(known[name])]


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
