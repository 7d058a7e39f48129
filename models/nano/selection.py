#!/usr/bin/env python3
"""Asks a running server the questions of generators/held_out, which choose between trainings. The standard library alone.

    chimere &
    python3 models/nano/selection.py --prose prose.txt.xz --scale 0.5 --wrong
"""
import argparse
import json
import pathlib
import random

import generators
from asking import asked
from eval import Server, as_sent, faults
from generators.grade import right


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--model", help="default: the first that /v1/models lists")
    ap.add_argument("--prose", required=True)
    ap.add_argument("--concurrency", type=int, default=8)
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--only", default="")
    ap.add_argument("--temperature", type=float, default=0.0)
    ap.add_argument("--timeout", type=float, default=600)
    ap.add_argument("--wrong", action="store_true")
    ap.add_argument("--json")
    args = ap.parse_args()
    generators.load(args.prose)
    server, results = Server(args.url, args.model, args.timeout), {}
    server.temperature = args.temperature
    for label, (count, make, aim) in generators.ROWS.items():
        if args.only not in label:
            continue
        rng = random.Random(f"{args.seed} {label}")
        samples = [make(rng) for _ in range(max(1, round(count * args.scale)))]

        def ask(i):
            sample = samples[i]
            content, calls, _ = server.chat(as_sent(sample.prompt()), sample.thinking, sample.tools)
            return right(sample, content, calls), content or str(calls), faults(content, calls, sample)

        answers = asked(ask, range(len(samples)), args.concurrency)
        good = sum(answers[i][0] for i in answers)
        refused, empty = (sum(answers[i][2][fault] for i in answers) for fault in ("refused", "empty"))
        results[label] = dict(right=good, asked=len(samples), refused=refused, empty=empty)
        print(f"{label:26} {good:4}/{len(samples):<4} {good / len(samples):7.1%}  aim {aim:4.0%}  refused {refused}  empty {empty}", flush=True)
        for i, sample in enumerate(samples) if args.wrong else ():
            if not answers[i][0]:
                print(f"  wrong: {sample.prompt()[-1]['content'][-160:]!r} wanted {str(sample.expect)[:120]!r} got {answers[i][1][-160:]!r}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
