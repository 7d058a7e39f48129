#!/usr/bin/env python3
"""Measures the model against a running server, over HTTP, with nothing but the standard library.

    chimere &                                   # serves models/nano by default
    python3 models/nano/eval.py --url http://127.0.0.1:8080 --json result.json

Test instances come from the generator's held-out split and a seed: the same seed asks the same questions. Exits with 1 when a
figure is under its floor, with 2 when the server does not answer.
"""
import argparse
import collections
import json
import math
import pathlib
import random
import sys
import time

from asking import Client, asked
from tasks import arithmetic, context, extract, facts, strings, tools
from tasks.grade import parse_calls, right
from tasks.talk import make as talk

HERE = pathlib.Path(__file__).parent
PAGE_RULE = "\n" + "=" * 72 + "\n"
PAGE_CHARACTERS_MAX = 9000      # stays inside 4,096 tokens

# label -> (instances, how one is made, floor to ship or None, aim or None)
TASKS = {
    "arithmetic, thinking": (200, lambda r: arithmetic.make(r, True, True), 0.90, 0.95),
    "arithmetic, direct": (200, lambda r: arithmetic.make(r, True, False), None, None),
    "arithmetic, 3 x 3 digits": (50, lambda r: products(r), None, 0.95),
    "strings": (160, lambda r: strings.make(r, True, True), 0.80, 0.90),
    "strings, direct": (80, lambda r: strings.make(r, True, False), None, None),
    "context, 256 tokens": (80, lambda r: context.make(r, True, tokens=256), 0.95, 0.98),
    "context, 1,024 tokens": (60, lambda r: context.make(r, True, tokens=1024), None, 0.95),
    "context, 3,000 tokens": (40, lambda r: context.make(r, True, tokens=3000), None, 0.90),
    "tool calls": (120, lambda r: tools.make(r, True), 0.90, 0.97),
    "answers from a tool": (60, lambda r: tools.make(r, True), None, None),
    "JSON to schema": (120, lambda r: extract.make(r, True), None, 0.95),
    "facts, trained": (120, lambda r: facts.make(r, True, row=r.choice(facts.TRAINED)), None, 0.95),
    "facts, withheld": (120, lambda r: facts.make(r, True, row=r.choice(facts.WITHHELD)), None, None),
    "several turns": (80, lambda r: talk(r, True), None, None),
}


def products(rng):
    while True:
        sample = arithmetic.make(rng, True, True, "mul")
        _, _, a, b = sample.key.split()
        if len(a) == len(b) == 3:
            return sample


class Server(Client):
    """A server and which of its models is asked."""

    def __init__(self, url, model, timeout):
        super().__init__(url, timeout)
        self.model = model or self.call("/v1/models")["data"][0]["id"]

    def chat(self, messages, thinking, declared=None, max_tokens=1400):
        """-> content, calls, tokens."""
        body = dict(model=self.model, messages=messages, temperature=0, max_tokens=max_tokens, chat_template_kwargs={"enable_thinking": thinking})
        if declared:
            body["tools"] = declared
        answer = self.call("/v1/chat/completions", body)
        message = answer["choices"][0]["message"]
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"] or "{}")) for c in message.get("tool_calls") or []]
        content = message.get("content") or ""
        if declared and not calls and "<function=" in content:      # a server that does not parse calls
            content, calls = parse_calls(content, declared)
        return content, calls, answer["usage"]["completion_tokens"]

    def log_probabilities(self, text):
        body = dict(model=self.model, prompt=text, max_tokens=0, echo=True, logprobs=0, temperature=0)
        scored = self.call("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
        return [x for x in scored if x is not None]


def as_sent(messages):
    """OpenAI wants the arguments of a call as a JSON string, and a tool's reply to name the call."""
    out, open_calls = [], []
    for m in messages:
        m = dict(m)
        if m.get("tool_calls"):
            m["tool_calls"] = [dict(c, id=f"call_{i}", function=dict(c["function"], arguments=json.dumps(c["function"]["arguments"])))
                               for i, c in enumerate(m["tool_calls"])]
            open_calls = [c["id"] for c in m["tool_calls"]]
        elif m["role"] == "tool":
            m["tool_call_id"] = open_calls.pop(0)
        out.append(m)
    return out


def ask(server, label, sample):
    """-> right?, tokens, what came."""
    if label == "answers from a tool":
        content, calls, tokens = server.chat(as_sent(sample.messages[:-1]), sample.thinking, sample.tools)
        return content.strip() == sample.expect[1], tokens, content
    content, calls, tokens = server.chat(sample.prompt(), sample.thinking, sample.tools)
    return right(sample, content, calls), tokens, content if not calls else f"{content}{calls}"


def measure(server, label, count, make, args):
    rng = random.Random(f"{args.seed} {label}")
    samples = [make(rng) for _ in range(max(1, round(count * args.scale)))]
    started = time.time()
    found = asked(lambda i: ask(server, label, samples[i]), range(len(samples)), args.concurrency)
    answers = [found[i] for i in range(len(samples))]
    if args.wrong:
        for sample, (ok, _, came) in zip(samples, answers):
            if not ok:
                print(f"  wrong: {sample.prompt()[-1]['content'][-160:]!r} wanted {str(sample.expect)[:160]!r} got {came[-160:]!r}")
    good, tokens = sum(ok for ok, _, _ in answers), sum(n for _, n, _ in answers)
    return dict(right=good, asked=len(answers), share=good / len(answers), tokens=tokens, seconds=max(0.01, round(time.time() - started, 2)))


def perplexity(server, args):
    pages = (HERE / "heldout.txt").read_text().split(PAGE_RULE)[:max(1, round(18 * args.scale))]
    found = asked(lambda i: server.log_probabilities(pages[i][:PAGE_CHARACTERS_MAX]), range(len(pages)), args.concurrency)
    scored = [x for page in found.values() for x in page]
    return dict(perplexity=math.exp(-sum(scored) / len(scored)), tokens=len(scored))


def draft_counters(server):
    """Drafted and accepted tokens so far, from the server's metrics if it counts them."""
    counters = collections.Counter()
    try:
        lines = server.text("/metrics").splitlines()
    except (OSError, RuntimeError):
        return counters
    for line in lines:
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and "draft" in name and name.split("{")[0].endswith("_total"):
            counters["accepted" if "accept" in name else "drafted"] += float(value)
    return counters


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--model", help="default: the first that /v1/models lists")
    ap.add_argument("--concurrency", type=int, default=8)
    ap.add_argument("--scale", type=float, default=1.0, help="share of the instances to ask, e.g. 0.1 for a quick look")
    ap.add_argument("--only", help="only tasks whose label contains this; 'perplexity' for that alone")
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--timeout", type=float, default=600, help="seconds a request")
    ap.add_argument("--wrong", action="store_true", help="print every wrong answer")
    ap.add_argument("--json", help="write the figures here")
    return ap.parse_args()


def main():
    args = arguments()
    try:
        server = Server(args.url, args.model, args.timeout)
    except (OSError, RuntimeError) as error:
        print(f"no server answers at {args.url}: {error}", file=sys.stderr)
        return 2
    before, results, missed = draft_counters(server), {}, []
    print(f"{'task':28} {'right':>9} {'share':>7} {'floor':>6} {'aim':>6} {'tokens/s':>9}")
    for label, (count, make, floor, aim) in TASKS.items():
        if args.only and args.only not in label:
            continue
        r = results[label] = measure(server, label, count, make, args)
        show = lambda x: "" if x is None else f"{x:.0%}"
        print(f"{label:28} {r['right']:4}/{r['asked']:<4} {r['share']:7.1%} {show(floor):>6} {show(aim):>6} {r['tokens'] / r['seconds']:9.0f}",
              flush=True)
        if floor is not None and r["share"] < floor:
            missed.append(label)
    if not args.only or args.only in "perplexity":
        results["perplexity"] = r = perplexity(server, args)
        print(f"perplexity of held-out documentation {r['perplexity']:.2f} over {r['tokens']} tokens")
    after = draft_counters(server)
    if drafted := after["drafted"] - before["drafted"]:
        results["draft acceptance"] = (after["accepted"] - before["accepted"]) / drafted
        print(f"drafted tokens accepted {results['draft acceptance']:.1%}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(seed=args.seed, scale=args.scale, model=server.model, results=results), indent=1) + "\n")
    if missed:
        print("under the floor: " + ", ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
