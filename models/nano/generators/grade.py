"""Is a reply to a generated question right? One rule a kind; `expect` of a sample is what the rule compares with."""
import decimal
import json
import re

from tasks.beyond import REFUSAL


def right(sample, content, calls=()):
    return RULES[sample.family](content.strip(), sample.expect, calls)


def normal(text):
    return re.sub(r"\s+", " ", text).strip().lower()


def passage(content, expect, _):
    """(value, number): the value is in the answer, with the number of its passage and no other; (None, None): it is said not to be there."""
    value, number = expect
    cited = re.findall(r"\[(\d+)\]", content)
    if value is None:
        return "not in the text" in content and not cited
    numbers_right = set(cited) == ({str(number)} if number is not None else set())
    return numbers_right and re.search(rf"(?<!\w){re.escape(normal(value))}(?!\w)", normal(content)) is not None


def form(content, expect, _):
    fenced = re.match(r"```(?:json)?\n(.*)\n```$", content, re.S)
    try:
        return json.loads(fenced.group(1) if fenced else content) == expect
    except ValueError:
        return False


def call(content, expect, calls):
    if not expect:
        return not calls and bool(content)
    return [(n, a) for n, a in calls] == [(n, a) for n, a in expect]


def number(content, expect, _):
    found = re.findall(r"-?\d+(?:\.\d+)?", content.replace(",", "") if "," in content and ", " not in content else content)
    return bool(found) and decimal.Decimal(found[-1]) == decimal.Decimal(expect)


def text(content, expect, _):
    """The text itself, with what stands around a word."""
    return normal(content).rstrip(".").strip('"') == normal(expect).rstrip(".").strip('"')


def exact(content, expect, _):
    """Capitals count."""
    return content.rstrip(".") == expect.rstrip(".")


def part(content, expect, _):
    return re.search(rf"(?<!\w){re.escape(normal(expect))}(?!\w)", normal(content)) is not None


def last(content, expect, _):
    """The last word."""
    found = re.findall(r"[\w.-]+", normal(content).rstrip("."))
    return bool(found) and found[-1] == normal(expect)


def said(content, expect, calls):
    return bool(content) and not calls and REFUSAL not in content and (expect is None or expect in content)


def outside(content, _, calls):
    return REFUSAL in content and not calls


RULES = {"passage": passage, "form": form, "call": call, "number": number, "text": text, "exact": exact, "part": part, "last": last, "said": said, "outside": outside}
