#!/usr/bin/env python3
"""What Engram does as it comes, over HTTP: no strength, no orders, no mode is given anywhere.

    python3 engram_auto.py --facts tables/facts.jsonl                    # the text of the table
    chimere engram build --from tables/facts.jsonl --out tables/facts.engr
    CHIMERE_ENGRAM__DIRECTORY=tables chimere &
    python3 engram_auto.py --table facts --questions 500 --json result.json

Greedy, without thinking unless a family has it. Each question is asked without and with; a difference is paired, question by question
(asking.py has its interval). The rows:

    documents       withheld facts; 256 sentences as documents, the asked one among them once, as an answer says it
    other words     the same, every sentence in one of ten forms in which no answer says it
    one document    the same ten forms, the asked one alone
    trained         what the model knows, beside 256 documents about withheld entities
    contradicted    two documents that differ; the later one counts as right
    table           withheld facts, with the table of all 960, each once
    table, trained  what the model knows, with the same table
    FAMILY          each other family of the card, beside 256 documents; with --table beside the table too

What was answered is in the JSON, question by question, so that the same command goes on where it was stopped or where --seconds ended it.
Nothing but the standard library is needed.
"""
import argparse
import json
import pathlib
import random
import sys

from asking import asked, difference, wilson
from eval import HERE, PAGE_RULE, TASKS, Server, ask
from tasks import facts

DOCUMENTS = 256
NOT_ASKED = "."
# Nothing here was trained, and engram_calibration.py has none of them.
FORMS = ["Travellers know that the {e} {r} is {v}, and it has been so for years.", "{v} is the {r} of {e}.", "The {r} of {e} is {v}.",
         "{e}'s {r} is {v}.", "As for {e}: its {r} is called {v}.", "If you ask about the {r} of {e}, people will say {v}.",
         "We found {v} listed as {r} of {e}.", "{e} has {v} as its {r}.", "In the old books {v} appears as the {r} of {e}.",
         "Everyone agrees on the {r} of {e}, namely {v}."]


def told(row, form="The {e} {r} is {v}.", value=None):
    return form.format(e=row["entity"], r=row["relation"], v=value or row["value"])


def among(rng, sentence, rows, form):
    """A sentence somewhere among those of other rows."""
    documents = [told(row, form(rng)) for row in rng.sample(rows, DOCUMENTS - len(sentence))]
    for s in sentence:
        documents.insert(rng.randint(0, len(documents)), s)
    return documents


def plain(_):
    return "The {e} {r} is {v}."


def others(row):
    """Withheld facts about other things."""
    return [r for r in facts.WITHHELD if r["entity"] != row["entity"]]


def documents_row(rng, i):
    row = facts.WITHHELD[i % len(facts.WITHHELD)]
    rest = [r for r in facts.WITHHELD if r is not row]
    return row, among(rng, [told(row)], rest, plain)


def words_row(rng, i):
    row = facts.WITHHELD[i % len(facts.WITHHELD)]
    rest = [r for r in facts.WITHHELD if r is not row]
    return row, among(rng, [told(row, FORMS[i % len(FORMS)])], rest, lambda r: r.choice(FORMS))


def one_row(rng, i):
    row = facts.WITHHELD[i % len(facts.WITHHELD)]
    return row, [told(row, FORMS[i % len(FORMS)])]


def trained_row(rng, i):
    row = facts.TRAINED[i % len(facts.TRAINED)]
    return row, among(rng, [], facts.WITHHELD, plain)


def contradicted_row(rng, i):
    row = facts.WITHHELD[i % len(facts.WITHHELD)]
    same = [r["value"] for r in facts.WITHHELD if r["relation"] == row["relation"] and r["value"] != row["value"]]
    form = FORMS[i % len(FORMS)] if i % 2 else plain(rng)
    return row, [told(row, form, rng.choice(same)), told(row, form)]


ROWS = {"documents": documents_row, "other words": words_row, "one document": one_row, "trained": trained_row, "contradicted": contradicted_row}


class Guided(Server):
    """A server that is asked with what a thread has put beside."""

    def __init__(self, plain_server, phase):
        super().__init__(plain_server.url, plain_server.model, plain_server.timeout)
        self.phase = phase

    def call(self, path, body=None):
        answer = super().call(path, dict(body, engram=self.local.engram | dict(phase=self.phase)))
        self.local.changed = answer["timings"]["engram"]["changed_tokens"]
        return answer


def work(server, guided, label, seed, table, facts_only=True):
    """-> what asks the question of a number: right without, right with, tokens changed."""
    def of_facts(i):
        rng = random.Random(f"{seed} {label} {i}")
        if label.startswith("table"):
            rows = facts.TRAINED if "trained" in label else facts.WITHHELD
            row, engram = rows[i % len(rows)], dict(tables=[table])
        else:
            row, documents = ROWS[label](rng, i)
            engram = dict(documents=documents)
        return facts.make(rng, True, False, row), engram

    def of_family(i):
        rng = random.Random(f"{seed} {label} {i}")
        sample = TASKS[label.removesuffix(" (table)")][1](rng)
        documents = among(rng, [], facts.WITHHELD, plain)
        return sample, dict(tables=[table]) if label.endswith("(table)") else dict(documents=documents)

    def one(i):
        sample, engram = (of_facts if facts_only else of_family)(i)
        name = "facts" if facts_only else label.removesuffix(" (table)")
        without = ask(server, name, sample)[0]
        guided.local.engram = engram
        right = ask(guided, name, sample)
        return without, right[0], guided.local.changed, right[2]
    return one


def measure(question, args, before):
    """Asks what `before` lacks; -> the same with the new answers."""
    row = before or dict(without=NOT_ASKED * args.questions, with_engram=NOT_ASKED * args.questions, changed=0, wrong=[])
    missing = [i for i, mark in enumerate(row["without"]) if mark == NOT_ASKED]
    without, with_engram = list(row["without"]), list(row["with_engram"])
    for i, (off, on, changed, said) in asked(question, missing, args.concurrency, args.seconds).items():
        without[i], with_engram[i] = str(int(off)), str(int(on))
        row["changed"] = None if row["changed"] is None or changed is None else row["changed"] + changed
        if not on:
            row["wrong"].append((i, said[-80:]))
    return row | dict(without="".join(without), with_engram="".join(with_engram))


def line(label, row):
    """-> a line of the table."""
    without, on = ([int(mark) for mark in row[name] if mark != NOT_ASKED] for name in ("without", "with_engram"))
    if not on:
        return f"| {label} | 0 | | | | |"
    n, (d, low, high), (least, most) = len(on), difference(on, without), wilson(sum(on), len(on))
    return (f"| {label} | {n:,} | {100 * sum(without) / n:.1f} | {100 * sum(on) / n:.1f} [{100 * least:.1f}, {100 * most:.1f}] | "
            f"{100 * d:+.2f} ({100 * low:+.2f} to {100 * high:+.2f}) | {row['changed']} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--facts", type=pathlib.Path, help="write the text of the table of all facts, and do nothing else")
    ap.add_argument("--pages", type=pathlib.Path, help="write the pages that nothing was fitted to, and do nothing else")
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--table", help="name of the table of all facts")
    ap.add_argument("--questions", type=int, default=500, help="for each row")
    ap.add_argument("--only", action="append", help="rows whose names contain this; may be given several times")
    ap.add_argument("--families", action="store_true", help="ask the other families of the card too")
    ap.add_argument("--phase", default="answer", choices=("answer", "all"), help="all: inside thoughts too")
    ap.add_argument("--concurrency", type=int, default=8)
    ap.add_argument("--seconds", type=float, default=600, help="most that a row may take; what is left is told as not asked")
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--json", type=pathlib.Path)
    args = ap.parse_args()
    if args.facts or args.pages:
        texts = [told(row) for row in facts.ROWS] if args.facts else (HERE / "heldout.txt").read_text().split(PAGE_RULE)[1::2]
        (args.facts or args.pages).write_text("".join(json.dumps(dict(text=text)) + "\n" for text in texts))
        return 0
    server = Server(args.url, None, 600)
    guided = Guided(server, args.phase)
    settings = dict(questions=args.questions, seed=args.seed, model=server.model)
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else dict(settings=settings, rows={})
    if kept["settings"] != settings:
        sys.exit(f"{args.json} has answers to other questions ({kept['settings']}); move it away")
    rows = dict.fromkeys(ROWS, True) | ({"table": True, "table, trained": True} if args.table else {})
    if args.families:
        families = [label for label in TASKS if not label.startswith("facts")]
        rows |= dict.fromkeys(families, False) | (dict.fromkeys([f"{label} (table)" for label in families], False) if args.table else {})
    print("| row | asked | without, % | with, % | difference, 95 % | tokens changed |\n| --- | --- | --- | --- | --- | --- |")
    for label, of_facts in rows.items():
        if args.only and not any(part in label for part in args.only):
            continue
        kept["rows"][label] = measure(work(server, guided, label, args.seed, args.table, of_facts), args, kept["rows"].get(label))
        print(line(label, kept["rows"][label]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
