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
from rows import BEHAVIOUR, CONVERSATIONS, INSIDE, REFUSED_MAX, TASKS, TOOL_ROWS, UNDECLARED_MAX, instances
from tasks.beyond import REFUSAL
from tasks.grade import parse_calls, right, undeclared

HERE = pathlib.Path(__file__).parent
PAGE_RULE = "\n" + "=" * 72 + "\n"
PAGE_CHARACTERS_MAX = 9000      # stays inside 4,096 tokens
DRAFT_COUNTERS = {"chimere_drafted_tokens_total": "drafted", "chimere_accepted_tokens_total": "accepted"}


class Server(Client):
    """A server and which of its models is asked."""

    temperature, strict = 0, False

    def __init__(self, url, model, timeout):
        super().__init__(url, timeout)
        self.model = model or self.call("/v1/models")["data"][0]["id"]

    def chat(self, messages, thinking, declared=None, max_tokens=1400):
        """-> content, calls, tokens."""
        body = dict(model=self.model, messages=messages, temperature=self.temperature, max_tokens=max_tokens, seed=7,
                    chat_template_kwargs={"enable_thinking": thinking})
        if declared:
            body["tools"] = [dict(t, function=dict(t["function"], strict=True)) for t in declared] if self.strict else declared
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
    """-> right?, tokens, what came, what else was wrong with it."""
    if label.startswith("answers from a tool"):
        content, calls, tokens = server.chat(as_sent(sample.messages[:-1]), sample.thinking, sample.tools)
        return content.strip() == sample.expect[1], tokens, content, faults(content, calls, sample)
    content, calls, tokens = server.chat(as_sent(sample.prompt()), sample.thinking, sample.tools)
    came = content if not calls else f"{content}{calls}"
    return right(sample, content, calls), tokens, came, faults(content, calls, sample)


def faults(content, calls, sample):
    """An answer of nothing, one that refuses, one that calls what nobody declared."""
    return dict(empty=not content.strip() and not calls, refused=REFUSAL in content and REFUSAL not in sample.messages[-1]["content"],
                undeclared=bool(undeclared(calls, sample.tools)))


def converse(server, samples):
    """Asks the samples one after another in one conversation; -> what `ask` does, for each."""
    messages, answers = [], []
    for sample in samples:
        messages += sample.prompt()
        content, calls, tokens = server.chat(messages, sample.thinking)
        messages.append(dict(role="assistant", content=content))
        answers.append((right(sample, content, calls), tokens, content, faults(content, calls, sample)))
    return answers


def measure(server, label, count, args):
    rng = random.Random(f"{args.seed} {label}")
    made = instances(rng, label, max(1, round(count * args.scale)))
    started = time.time()
    if label in CONVERSATIONS:
        found = asked(lambda i: converse(server, made[i]), range(len(made)), args.concurrency)
        samples, answers = [s for samples in made for s in samples], [a for i in range(len(made)) for a in found[i]]
    else:
        found = asked(lambda i: ask(server, label, made[i]), range(len(made)), args.concurrency)
        samples, answers = made, [found[i] for i in range(len(made))]
    if args.wrong:
        for sample, (ok, _, came, _) in zip(samples, answers):
            if not ok:
                print(f"  wrong: {sample.prompt()[-1]['content'][-160:]!r} wanted {str(sample.expect)[:160]!r} got {came[-160:]!r}")
    good, tokens = sum(ok for ok, *_ in answers), sum(answer[1] for answer in answers)
    found_faults = {name: sum(answer[3][name] for answer in answers) for name in ("empty", "refused", "undeclared")}
    return dict(right=good, asked=len(answers), share=good / len(answers), tokens=tokens, seconds=max(0.01, round(time.time() - started, 2)),
                **found_faults)


def told(results):
    """What holds over several rows; -> the rules that were broken."""
    rows = {label: r for label, r in results.items() if "asked" in r}
    empty = sum(r["empty"] for r in rows.values())
    inside = [r for label, r in rows.items() if label in INSIDE or label in CONVERSATIONS]
    calling = [r for label, r in rows.items() if label in TOOL_ROWS]
    refused, undeclared_calls = sum(r["refused"] for r in inside), sum(r["undeclared"] for r in calling)
    print(f"empty answers {empty} of {sum(r['asked'] for r in rows.values())}, refused inside the domain {refused} of {sum(r['asked'] for r in inside)}, "
          f"calls of what nobody declared {undeclared_calls} of {sum(r['asked'] for r in calling)}")
    broken = ["empty answers"] if empty else []
    broken += ["refused inside the domain"] if refused > REFUSED_MAX * sum(r["asked"] for r in inside) else []
    return broken + (["undeclared calls"] if undeclared_calls > UNDECLARED_MAX * sum(r["asked"] for r in calling) else [])


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
        if counted := DRAFT_COUNTERS.get(name.split("{")[0]):
            counters[counted] += float(value)
    return counters


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--model", help="default: the first that /v1/models lists")
    ap.add_argument("--concurrency", type=int, default=8)
    ap.add_argument("--scale", type=float, default=1.0, help="share of the instances to ask, e.g. 0.1 for a quick look")
    ap.add_argument("--only", help="only tasks whose label contains this; 'perplexity' for that alone")
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--temperature", type=float, default=0.0)
    ap.add_argument("--strict", action="store_true", help="declare tools with `strict`, which holds calls to their schemas")
    ap.add_argument("--timeout", type=float, default=600, help="seconds a request")
    ap.add_argument("--wrong", action="store_true", help="print every wrong answer")
    ap.add_argument("--json", help="write the figures here")
    return ap.parse_args()


def main():
    args = arguments()
    try:
        server = Server(args.url, args.model, args.timeout)
        server.temperature, server.strict = args.temperature, args.strict
    except (OSError, RuntimeError) as error:
        print(f"no server answers at {args.url}: {error}", file=sys.stderr)
        return 2
    before, results, missed = draft_counters(server), {}, []
    print(f"{'task':28} {'right':>9} {'share':>7} {'floor':>6} {'aim':>6} {'tokens/s':>9}")
    for label, (count, _, floor, aim) in (TASKS | BEHAVIOUR | CONVERSATIONS).items():
        if args.only and args.only not in label:
            continue
        r = results[label] = measure(server, label, count, args)
        show = lambda x: "" if x is None else f"{x:.0%}"
        print(f"{label:28} {r['right']:4}/{r['asked']:<4} {r['share']:7.1%} {show(floor):>6} {show(aim):>6} {r['tokens'] / r['seconds']:9.0f}",
              flush=True)
        if floor is not None and r["share"] < floor:
            missed.append(label)
    if results:
        missed += told(results)
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
