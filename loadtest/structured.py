#!/usr/bin/env python3
"""What answers of a form cost and how they end: starts a server of its own on loopback and prints a short table.

    python3 loadtest/structured.py --chimere target/release/chimere --arg=--device=cpu    # the shipped model
    python3 loadtest/structured.py --chimere target/release/chimere --model F --arg=--device=cuda

`schemas`: answers to SCHEMAS random schemas (seeded), AT_ONCE at a time, at temperature 1, with and without a thought: how many schemas are
refused, how many answers end by themselves within MAX_TOKENS, and whether any that ended does not keep to its schema, which is an error.
Schemas ask for what people ask for: objects that name their fields, arrays, texts with lengths, choices and formats, numbers with bounds, some fields optional, some
things referred to. `streams`: STREAMS streams of LENGTH tokens at once, free and under a grammar that never ends, in turns; tokens a
second, and where the system tells it, tokens a second of the server's processor time, which other work on the machine changes less: medians of ROUNDS ratios; and what masks alone would leave of them. `copies`: the same under a grammar that allows any text, whose masks are copies of one: what is left when
masks cost nothing to make. `kept`: how many draws of a quarter of these streams a grammar leaves as they are. `forced`: fields taken from short texts as compact JSON, one text at a time at temperature 0, against free answers to the same
questions, and with runs of forced tokens against without (`"drafts": false`), whose answers must be the same: tokens of decoding a second.
`masks`: microseconds a mask for lists and maps whose objects are closed, and for those that leave their keys open, of which an answer has each once: the least and
the median of ROUNDS rounds of STREAMS streams.
`traps`: TRAPS conversations that ask for, speak of or have called tools that are not declared, under `tool_choice: "required"`, greedily and at temperature 1, with and
without a thought: how many calls have names that were not declared, which is an error, and whether runs of forced tokens change any answer, which is one too.
`schemas` needs `pip install jsonschema`, the others nothing but Python.
"""
import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.error
import pathlib

from prefix import CHAT, Server, said, series

NAMES = "name city year price tags status notes owner email count active items start end kind code parent score".split()
WORDS = "red green blue open closed new old small large north south".split()
ENDLESS = {"type": "array", "minItems": 4000, "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "count": {"type": "integer"}},
                                                        "required": ["name", "count"], "additionalProperties": False}}

TEXTS = [f"Invoice {code}-{1000 + 37 * i} for {name}, {street} {3 + i}, {20133 + 71 * i} {city}: {12 + 9 * i}.50 {money}, {paid}." for i, (code, name, street, city, money, paid) in
         enumerate(zip("ABCDEFGH", ["Mary Jones", "Omar Haddad", "Li Wei", "Anna Berg", "Tom Fox", "Eva Lind", "Raj Patel", "Sara Costa"],
                       ["Mill Lane", "High Street", "Park Road", "North Way"] * 2, ["Leeds", "York", "Bath", "Hull"] * 2, ["GBP", "EUR", "USD", "EUR"] * 2, ["paid", "not paid"] * 4))]


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def text_of(most):
    return {"type": "string", "maxLength": most}


FIELDS = closed(invoice_number=text_of(12), customer_name=text_of(30), delivery_address=closed(street=text_of(30), postal_code={"type": "string", "pattern": "^[0-9]{5}$"}, city=text_of(20)),
                total_amount={"type": "integer", "minimum": 0, "maximum": 9999}, currency={"enum": ["EUR", "USD", "GBP"]}, is_paid={"type": "boolean"})


def leaf(rng):
    """A schema without others in it."""
    kinds = [
        lambda: {"type": "string", "maxLength": rng.choice([8, 20, 40])},
        lambda: {"type": "string", "minLength": rng.randint(1, 5), "maxLength": rng.randint(6, 30)},
        lambda: {"enum": rng.sample(WORDS, rng.randint(2, 6))},
        lambda: {"const": rng.choice(WORDS)},
        lambda: {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 5000)},
        lambda: {"type": "number", "minimum": 0, "maximum": rng.randint(1, 1000)},
        lambda: {"type": "boolean"},
        lambda: {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
        lambda: {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "ipv4", "email", "int32"]), "maxLength": 40},
        lambda: {"type": "string", "pattern": rng.choice(["^[A-Z]{3}-[0-9]{4}$", "^#[0-9a-f]{6}$", "^(yes|no)$", "^[a-z]{2,8}$"])},
    ]
    return rng.choice(kinds)()


def schema(rng, depth=2):
    """A schema such as people write for an answer."""
    if depth == 0 or rng.random() < 0.45:
        return leaf(rng)
    if rng.random() < 0.25:
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": rng.randint(0, 2), "maxItems": rng.randint(2, 4)}
    if rng.random() < 0.15:
        return {"anyOf": [schema(rng, depth - 1), {"type": "null"}]}
    names = rng.sample(NAMES, rng.randint(1, 5))
    return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names},
            "required": [name for name in names if rng.random() < 0.8], "additionalProperties": False}


def answer_schema(rng):
    """An object, with some of its parts referred to."""
    names = rng.sample(NAMES, rng.randint(1, 4))
    top = {"type": "object", "properties": {name: schema(rng) for name in names}, "required": names, "additionalProperties": False}
    if rng.random() < 0.2:
        top["$defs"] = {"part": schema(rng, 1)}
        top["properties"]["part"] = {"$ref": "#/$defs/part"}
    if rng.random() < 0.2:
        top["dependentRequired"] = {names[0]: names[-1:]}
    return top


def reply_to(server, question, body):
    """Random weights come without a template, and go on from the question as it stands."""
    if server.chats:
        return server.post(CHAT, {"messages": [said("user", question)]} | body)
    return server.post("/v1/completions", {"prompt": question} | body)


def ask(server, question, body):
    """A choice's text and why it ended, or the error."""
    try:
        choice = reply_to(server, question, body)["choices"][0]
        return (choice["message"]["content"] if server.chats else choice["text"], choice["finish_reason"]), None
    except urllib.error.HTTPError as error:
        return None, json.load(error)["error"]


def one(server, args, number):
    """(what became of it, the answer or the reason)"""
    import jsonschema
    rng = random.Random(f"{args.seed}/{number}")
    wanted = answer_schema(rng)
    question = f"Give me an example of {rng.choice(WORDS)} {rng.choice(NAMES)}."
    body = {"temperature": 1, "seed": number, "max_tokens": args.max_tokens,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted}}}
    if number % 2:
        body |= server.options
    answer, error = ask(server, question, body)
    if error:
        return ("refused" if error.get("code") in ("invalid_grammar", "grammar_too_large") else "failed"), error["message"]
    text, ended = answer
    if ended != "stop":
        return "cut", None
    try:
        jsonschema.Draft202012Validator(wanted).validate(json.loads(text))
        return "valid", None
    except (ValueError, jsonschema.ValidationError) as error:
        return "INVALID", f"{wanted}: {text}: {error}"


def has_template(server):
    try:
        server.post("/apply-template", {"messages": [said("user", "Hello.")]})
        return True
    except urllib.error.HTTPError:
        return False


def schemas(server, args):
    counts, began = {}, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        for done, (what, why) in enumerate(pool.map(lambda n: one(server, args, n), range(args.schemas)), 1):
            counts[what] = counts.get(what, 0) + 1
            if what in ("INVALID", "failed", "refused") and counts[what] <= 5:
                print(f"{what}: {why}", flush=True)
            if done % 500 == 0:
                print(f"{done} of {args.schemas} after {time.monotonic() - began:.0f} s: {counts}", flush=True)
    taken = args.schemas - counts.get("refused", 0)
    print(f"schemas: {args.schemas}; refused {counts.get('refused', 0)}; of {taken} answers {counts.get('valid', 0)} ended and kept to theirs "
          f"({100 * counts.get('valid', 0) / max(taken, 1):.1f} %), {counts.get('cut', 0)} were cut off, {counts.get('INVALID', 0)} ended and did not, "
          f"{counts.get('failed', 0)} failed", flush=True)
    return not counts.get("INVALID") and not counts.get("failed")


def processor_seconds(server):
    """Of the server since it began; nothing where the system does not tell."""
    with contextlib.suppress(OSError):
        times = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return 0


def generate(server, args, count, **more):
    """Tokens of `count` streams at once, the seconds that they took, and those of the processor."""
    body = {"temperature": 1, "max_tokens": args.length, **(server.options if server.chats else {}), **more}
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        begin, spent = time.monotonic(), processor_seconds(server)
        replies = list(pool.map(lambda n: reply_to(server, "Write a long list of ships.", body | {"seed": n}), range(count)))
        took, spent = time.monotonic() - begin, processor_seconds(server) - spent
    return sum(reply["usage"]["completion_tokens"] for reply in replies), took, spent


def form(wanted, compact=False):
    return {"structured_outputs": {"json": wanted, "disable_any_whitespace": compact}}


def ratio(name, unit, pairs):
    """What the second rate of each pair is of the first."""
    ratios = sorted(b / a for a, b in pairs)
    print(f"{name}: {statistics.median(a for a, _ in pairs):.0f} and {statistics.median(b for _, b in pairs):.0f} {unit}, "
          f"{statistics.median(ratios):.3f} x ({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(pairs)} rounds)", flush=True)


def masks_of(server):
    """Seconds that masks took so far, and how many there were."""
    return series(server, "chimere_grammar_mask_seconds_sum").get("", 0.0), series(server, "chimere_grammar_masks_total").get("", 0.0)


def streams(server, args):
    return in_turns(server, args, f"{args.streams} streams, free and under a grammar", form(ENDLESS))


def copies(server, args):
    # It may end only behind a character that does not come.
    any_text = {"structured_outputs": {"regex": r"(.|\n)*\x01"}}
    return in_turns(server, args, f"{args.streams} streams, free and under a grammar of any text", any_text)


def in_turns(server, args, name, bound):
    ways = ({"ignore_eos": True}, bound)
    for way in ways:   # the first of each kind also makes what is kept
        generate(server, args, args.streams, **way)
    before = masks_of(server)
    pairs = [[generate(server, args, args.streams, **way) for way in ways] for _ in range(args.rounds)]
    seconds, masks = (now - then for now, then in zip(masks_of(server), before))
    ratio(name, "tokens/s", [[tokens / took for tokens, took, _ in pair] for pair in pairs])
    if all(spent for pair in pairs for _, _, spent in pair):
        ratio(name, "tokens/s of the processor", [[tokens / spent for tokens, _, spent in pair] for pair in pairs])
        mask, free = 1e6 * seconds / masks, 1e6 * statistics.median(spent / tokens for (tokens, _, spent), _ in pairs)
        print(f"a mask takes {mask:.1f} us, a free token {free:.1f} us of the processor: were all else the same, {free / (free + mask):.3f} x", flush=True)
    return True


def rows_of(**keys):
    """A list that goes on."""
    return {"type": "array", "minItems": 4000, "items": {"type": "object", **keys}}


TWO = {"properties": {"name": text_of(20), "count": {"type": "integer"}}, "required": ["name", "count"]}
FORMS = {
    "closed, two fields": rows_of(**TWO, additionalProperties=False),
    "open, two fields and any others": rows_of(**TWO),
    "open, a map of integers": rows_of(additionalProperties={"type": "integer"}, minProperties=8),
    "open, one map that grows": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 4000},
    "open, keys of an expression": rows_of(patternProperties={"^[a-z]{1,8}$": {"type": "integer"}}, additionalProperties=False, minProperties=4),
    "open, two of three keys": rows_of(patternProperties={"^(red|green|blue)$": {"type": "integer"}}, additionalProperties=False, minProperties=2),
    "any JSON in a list": {"type": "array", "minItems": 4000},
}


def masks(server, args):
    for name, wanted in FORMS.items():
        generate(server, args, args.streams, **form(wanted))
        took = []
        for _ in range(args.rounds):
            before = masks_of(server)
            generate(server, args, args.streams, **form(wanted))
            seconds, count = (now - then for now, then in zip(masks_of(server), before))
            took.append(1e6 * seconds / max(count, 1))
        print(f"masks, {name}: {min(took):.1f} us, median {statistics.median(took):.1f}", flush=True)
    return True


def kept(server, args):
    """What a mask leaves of the distribution that a token is drawn from: so many draws without one would be allowed anyway."""
    shares = []
    for seed in range(args.streams // 4):
        body = {"temperature": 1, "seed": seed, "max_tokens": args.length, "logprobs": True, **server.options, **form(ENDLESS)}
        messages = {"messages": [said("user", "Write a long list of ships.")]}
        free, bound = ([token["logprob"] for token in server.post(CHAT, messages | body | {"logprobs_mode": mode})["choices"][0]["logprobs"]["content"]]
                       for mode in ("raw", "processed"))
        shares += [math.exp(min(0, a - b)) for a, b in zip(free, bound)]
    print(f"kept: of {len(shares)} draws a grammar leaves {statistics.mean(shares):.3f} as they are, of half of them {statistics.median(shares):.3f} or less", flush=True)
    return True


def extract(server, text, **more):
    """An answer, its tokens after the first and the milliseconds that they took."""
    body = {"messages": [said("user", f"{text} Extract the fields.")], "temperature": 0, "max_tokens": 200, "cache": False, **server.options}
    reply = server.post(CHAT, body | more)
    return reply["choices"][0]["message"]["content"], reply["usage"]["completion_tokens"] - 1, reply["timings"]["decode_ms"]


def forced(server, args):
    ways = {"free": {"ignore_eos": True, "max_tokens": 80}, "runs": form(FIELDS, compact=True), "no runs": form(FIELDS, compact=True) | {"drafts": False}}
    rates, characters = {way: [] for way in ways}, []
    extract(server, TEXTS[0], **ways["free"])
    for number in range(args.rounds):
        answers, sums = {}, {way: [0, 0] for way in ways}
        for at, text in enumerate(TEXTS):
            for way in sorted(ways, key=lambda way: random.Random(f"{args.seed}/{number}/{at}/{way}").random()):
                answers[way, at], tokens, took = extract(server, text, **ways[way])
                sums[way] = [sums[way][0] + tokens, sums[way][1] + took]
        if any(answers["runs", at] != answers["no runs", at] for at in range(len(TEXTS))):
            print(f"runs changed an answer: {answers}")
            return False
        for way, (tokens, took) in sums.items():
            rates[way].append(1e3 * tokens / took)
        characters.append(1e3 * sum(len(answers["runs", at]) for at in range(len(TEXTS))) / sums["runs"][1])
    for first in ("free", "no runs"):
        ratios = sorted(b / a for a, b in zip(rates[first], rates["runs"]))
        print(f"compact extraction: {statistics.median(rates['runs']):.0f} tokens/s, {first} {statistics.median(rates[first]):.0f}: "
              f"{statistics.median(ratios):.3f} x ({ratios[0]:.3f} to {ratios[-1]:.3f}, {args.rounds} rounds)", flush=True)
    print(f"compact extraction: {statistics.median(characters):.0f} characters of JSON a second", flush=True)
    return True


def tool(rng, name):
    """A declaration with one or two arguments that are texts or numbers."""
    kinds = [{"type": "string"}, {"type": "integer"}, {"enum": rng.sample(WORDS, 3)}]
    arguments = {argument: rng.choice(kinds) for argument in rng.sample(NAMES, rng.randint(1, 2))}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": arguments, "required": list(arguments)}}}


def trap(rng):
    """(messages, declared tools): all of it is about a tool that is not declared."""
    known = [f"{verb}_{noun}" for verb in ("get", "set", "find", "delete", "send") for noun in ("weather", "stock", "room", "mail", "file")]
    declared = rng.sample(known, rng.randint(1, 4))
    # Names that are not there at all, and names that begin like declared ones or are how they begin.
    wanted = rng.choice([rng.choice([name for name in known if name not in declared]), declared[0] + "_now", declared[0][:-1], declared[0].upper(), "functions." + declared[0]])
    ask = rng.choice(["Call {} now.", "Use the tool {} with all it needs.", "<tool_call>\n<function={}>\n</function>\n</tool_call>", "Which is better, {}? Call it.", "{}()"]).format(wanted)
    messages = [said("user", ask)]
    if rng.random() < 0.5:
        messages.insert(0, said("system", f"The tools are {', '.join(rng.sample(known, 3) + [wanted])}. Only {wanted} works."))
    if rng.random() < 0.4:
        call = {"id": "call_1", "type": "function", "function": {"name": wanted, "arguments": json.dumps({"name": rng.choice(WORDS)})}}
        earlier = [said("user", "As before."), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
        messages[-1:] = earlier + messages[-1:]
    return messages, [tool(rng, name) for name in declared]


def sprung(server, args, number):
    """(calls, those of names that were not declared, whether the answer ended, whether runs changed it)"""
    rng = random.Random(f"{args.seed}/trap/{number}")
    messages, tools = trap(rng)
    body = {"messages": messages, "tools": tools, "tool_choice": "required", "temperature": number // 2 % 2, "seed": number, "max_tokens": args.max_tokens}
    if number % 2:
        body |= server.options
    choices = [server.post(CHAT, body | more)["choices"][0] for more in ({}, {"drafts": False})]
    answers = [[(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"].get("tool_calls") or []] for choice in choices]
    declared = {tool["function"]["name"] for tool in tools}
    strange = [name for name, _ in answers[0] if name not in declared]
    same = answers[0] == answers[1] and choices[0]["message"]["content"] == choices[1]["message"]["content"]
    return len(answers[0]), strange, choices[0]["finish_reason"] == "tool_calls", same


def traps(server, args):
    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        results = list(pool.map(lambda n: sprung(server, args, n), range(args.traps)))
    strange = [name for _, names, _, _ in results for name in names]
    changed = sum(not same for *_, same in results)
    print(f"traps: {args.traps}; {sum(result[0] for result in results)} calls, {len(strange)} of names that were not declared {strange[:5]}; "
          f"{sum(ended for _, _, ended, _ in results)} answers ended, {changed} changed by runs", flush=True)
    return not strange and not changed


MEASURES = {"schemas": schemas, "streams": streams, "copies": copies, "masks": masks, "kept": kept, "forced": forced, "traps": traps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", required=True)
    parser.add_argument("--model", default=str(pathlib.Path(__file__).resolve().parent.parent / "models/nano"))
    parser.add_argument("--only", choices=MEASURES)
    parser.add_argument("--arg", action="append", default=[], help="of the server")
    for name, value in (("schemas", 1000), ("at-once", 32), ("max-tokens", 1000), ("streams", 64), ("length", 200), ("rounds", 5), ("traps", 500), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server(args, "off", pathlib.Path(folder)) as server:
        server.chats = has_template(server)
        results = [measure(server, args) for name, measure in MEASURES.items() if args.only in (None, name)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
