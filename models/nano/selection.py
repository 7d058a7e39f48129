#!/usr/bin/env python3
"""Asks a running server the questions of an author whom training never reads. The standard library alone.

The author `held_out` chooses between trainings; `unseen` is the exam of a finished model, and needs no prose.

    chimere &
    python3 models/nano/selection.py --prose prose.txt.xz --scale 0.5 --wrong
    python3 models/nano/selection.py --author unseen --json unseen.json
    python3 models/nano/selection.py --author unseen --temperature 0.7
    python3 models/nano/selection.py --author unseen --own-answers      # no server: the author's own answers must be right
"""
import argparse
import json
import pathlib
import random

import generators
from asking import asked
from eval import Server, as_sent, faults
from generators.grade import right


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--author", choices=generators.ASKING, default=generators.ASKING[0])
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--model", help="default: the first that /v1/models lists")
    ap.add_argument("--prose", help="passages of prose.py, which held_out asks about")
    ap.add_argument("--concurrency", type=int, default=8)
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--temperature", type=float, default=0)
    ap.add_argument("--only", default="")
    ap.add_argument("--timeout", type=float, default=600)
    ap.add_argument("--wrong", action="store_true")
    ap.add_argument("--own-answers", action="store_true", help="grades the author's answers instead of a model's")
    ap.add_argument("--json")
    args = ap.parse_args()
    if args.author == "held_out" and not args.prose:
        ap.error("--author held_out needs --prose")
    return args


def own_answer(sample):
    answer = sample.messages[-1]
    return answer["content"], [(c["function"]["name"], c["function"]["arguments"]) for c in answer.get("tool_calls", ())]


def answered(args):
    """-> how a sample is answered: content and calls."""
    if args.own_answers:
        return own_answer
    server = Server(args.url, args.model, args.timeout)
    server.temperature = args.temperature
    return lambda sample: server.chat(as_sent(sample.prompt()), sample.thinking, sample.tools)[:2]


def main():
    args = arguments()
    if args.prose:
        generators.load(args.prose)
    answer, results = answered(args), {}
    for label, (count, make, aim) in generators.rows(args.author).items():
        if args.only not in label:
            continue
        rng = random.Random(f"{args.seed} {label}")
        samples = [make(rng) for _ in range(max(1, round(count * args.scale)))]

        def ask(i):
            sample = samples[i]
            content, calls = answer(sample)
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
