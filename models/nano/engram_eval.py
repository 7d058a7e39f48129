#!/usr/bin/env python3
"""What a table does over HTTP: facts that the model never saw, and every other family of questions with the same table on.

    python3 engram_texts.py --out texts
    chimere engram build --from texts/answers.jsonl --markup --orders 6-8 --out tables/facts.engr
    CHIMERE_ENGRAM__DIRECTORY=tables chimere &
    python3 engram_eval.py --table facts --lambda 0.6 --questions 1500 --json result.json

Each question is asked without and with the table, greedy. A difference is paired, question by question; its interval is the mean's,
1.96 standard errors to each side. Nothing but the standard library is needed.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import sys

from eval import TASKS, Server, ask

LEFT_OUT = ("context, 1,024 tokens", "context, 3,000 tokens")     # minutes of prompt for what "context, 256 tokens" tells


class Guided(Server):
    """A server that is asked with a table."""

    def __init__(self, plain, engram):
        self.url, self.timeout, self.model, self.engram = plain.url, plain.timeout, plain.model, engram
        self.changed = self.tokens = 0

    def call(self, path, body=None):
        if not path.endswith("/completions"):
            return super().call(path, body)
        answer = super().call(path, dict(body, engram=self.engram))
        self.changed += answer["timings"]["engram"]["changed_tokens"] or 0
        self.tokens += answer["usage"]["completion_tokens"]
        return answer


def interval(values):
    """-> mean, and half the width of its 95 % interval."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)
    return mean, 1.96 * math.sqrt(variance / len(values))


def measure(plain, guided, label, make, args):
    rng = random.Random(f"{args.seed} {label}")
    samples = [make(rng) for _ in range(args.questions)]
    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        pairs = list(pool.map(lambda s: (ask(plain, label, s)[0], ask(guided, label, s)[0]), samples))
    without, with_table = ([float(p[i]) for p in pairs] for i in (0, 1))
    mean, half = interval([b - a for a, b in zip(without, with_table)])
    row = dict(questions=len(pairs), without=sum(without) / len(pairs), with_table=interval(with_table)[0],
               with_table_half_width=interval(with_table)[1], difference=mean, difference_half_width=half)
    print(f"{label:24} {row['questions']:5} {100 * row['without']:6.1f} {100 * row['with_table']:6.1f} +- {100 * row['with_table_half_width']:.1f}"
          f"   {100 * mean:+.2f} ({100 * (mean - half):+.2f} to {100 * (mean + half):+.2f})", flush=True)
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--table", required=True, action="append", help="a table's name; may be given several times")
    ap.add_argument("--lambda", dest="share", type=float, help="share of a mixture; without it and --alpha the service's own strength")
    ap.add_argument("--alpha", type=float, help="strength of a bias")
    ap.add_argument("--questions", type=int, default=1500, help="for each family")
    ap.add_argument("--only", help="families whose names contain this")
    ap.add_argument("--concurrency", type=int, default=16)
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--json", type=pathlib.Path)
    args = ap.parse_args()
    strength = {k: v for k, v in (("lambda", args.share), ("alpha", args.alpha)) if v is not None}
    plain = Server(args.url, None, 600)
    guided = Guided(plain, dict(tables=args.table, **strength))
    print(f"{'family':24} {'asked':>5} {'off %':>6} {'on %':>6}          difference in points, 95 %")
    results = {}
    for label, (_, make, _, _) in TASKS.items():
        if label not in LEFT_OUT and (not args.only or args.only in label):
            results[label] = measure(plain, guided, label, make, args)
    share = guided.changed / max(1, guided.tokens)
    print(f"the table changed {guided.changed} of {guided.tokens} tokens ({100 * share:.2f} %)")
    if args.json:
        args.json.write_text(json.dumps(dict(engram=guided.engram, changed=guided.changed, tokens=guided.tokens, families=results), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
