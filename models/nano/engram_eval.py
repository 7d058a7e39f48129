#!/usr/bin/env python3
"""What a table does over HTTP: facts that the model never saw, and every other family of questions with the same table on.

    python3 engram_texts.py --out texts
    chimere engram build --from texts/answers.jsonl --markup --orders 6-8 --out tables/facts.engr
    CHIMERE_ENGRAM__DIRECTORY=tables chimere &
    python3 engram_eval.py --table facts --lambda 0.6 --questions 1500 --concurrency 64 --json result.json

Each question is asked without and with the table, greedy; a difference is paired, question by question (asking.py has its interval). What
was answered is in the JSON, question by question, so that the same command goes on where it was stopped, or where --seconds ended it. The
table at the end is that of docs/using/engram.md. Nothing but the standard library is needed.
"""
import argparse
import json
import pathlib
import random
import sys

from asking import asked, difference, wilson
from eval import TASKS, Server, ask

NOT_ASKED = "."


class Guided(Server):
    """A server that is asked with a table, and what the last reply said of it."""

    def __init__(self, plain, engram):
        super().__init__(plain.url, plain.model, plain.timeout)
        self.engram = engram

    def call(self, path, body=None):
        answer = super().call(path, dict(body, engram=self.engram))
        self.local.changed = answer["timings"]["engram"]["changed_tokens"]
        return answer


def question(plain, guided, label, make, args):
    """-> what asks the question of a number: right without, right with, tokens changed (None where the device cannot tell), another answer?"""
    def work(i):
        sample = make(random.Random(f"{args.seed} {label} {i}"))
        without, with_table = ask(plain, label, sample), ask(guided, label, sample)
        return without[0], with_table[0], guided.local.changed, with_table[1], without[2] != with_table[2]
    return work


def measure(plain, guided, label, make, args, before):
    """Asks what `before` lacks of a family; -> the same with the new answers."""
    row = before or dict(without=NOT_ASKED * args.questions, with_table=NOT_ASKED * args.questions, changed=0, tokens=0, other_answers=0)
    missing = [i for i, mark in enumerate(row["without"]) if mark == NOT_ASKED]
    without, with_table = list(row["without"]), list(row["with_table"])
    for i, (off, on, changed, tokens, other) in asked(question(plain, guided, label, make, args), missing, args.concurrency, args.seconds).items():
        without[i], with_table[i] = str(int(off)), str(int(on))
        row["changed"] = None if row["changed"] is None or changed is None else row["changed"] + changed
        row["tokens"] += tokens
        row["other_answers"] += other
    return row | dict(without="".join(without), with_table="".join(with_table))


def told(label, row):
    """-> a line of the table."""
    without, with_table = ([int(mark) for mark in row[name] if mark != NOT_ASKED] for name in ("without", "with_table"))
    n = len(without)
    if n == 0:
        return f"| {label} | 0 | | | |"
    d, low, high = difference(with_table, without)
    what = "0, no token changed" if row["changed"] == 0 else f"{100 * d:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
    low, high = wilson(sum(with_table), n)
    return f"| {label} | {n:,} | {100 * sum(without) / n:.1f} | {100 * sum(with_table) / n:.1f} [{100 * low:.1f}, {100 * high:.1f}] | {what} |"


def earlier(file, settings):
    """What an earlier run with the same settings has answered."""
    if file is None or not file.exists():
        return {}
    kept = json.loads(file.read_text())
    if kept["settings"] != settings:
        sys.exit(f"{file} has answers to other questions ({kept['settings']}); move it away")
    return kept["families"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--table", required=True, action="append", help="a table's name; may be given several times")
    ap.add_argument("--lambda", dest="share", type=float, help="share of a mixture; without it and --alpha the service's own strength")
    ap.add_argument("--alpha", type=float, help="strength of a bias")
    ap.add_argument("--questions", type=int, default=1500, help="for each family")
    ap.add_argument("--only", action="append", help="families whose names contain this; may be given several times")
    ap.add_argument("--concurrency", type=int, default=16)
    ap.add_argument("--seconds", type=float, default=600, help="most that a family may take; what is left is told as not asked")
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--json", type=pathlib.Path)
    args = ap.parse_args()
    strength = {k: v for k, v in (("lambda", args.share), ("alpha", args.alpha)) if v is not None}
    plain = Server(args.url, None, 600)
    guided = Guided(plain, dict(tables=args.table, **strength))
    settings = dict(engram=guided.engram, questions=args.questions, seed=args.seed, model=plain.model)
    families = earlier(args.json, settings)
    print("| family | asked | without, % | with, % | difference, 95 % |\n| --- | --- | --- | --- | --- |")
    for label, (_, make, _, _) in TASKS.items():
        if not args.only or any(part in label for part in args.only):
            families[label] = measure(plain, guided, label, make, args, families.get(label))
            print(told(label, families[label]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(dict(settings=settings, families=families), indent=1) + "\n")
    tokens, changed = (sum(row[name] or 0 for row in families.values()) for name in ("tokens", "changed"))
    known = all(row["changed"] is not None for row in families.values())
    print(f"\n{tokens} tokens with the table, " + (f"{changed} changed by it, " if known else "")
          + f"{sum(row['other_answers'] for row in families.values())} answers read otherwise with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
