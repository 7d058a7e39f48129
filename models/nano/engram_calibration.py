#!/usr/bin/env python3
"""Writes what the shipped strengths of Engram's `mode: "auto"` are fitted to: `chimere engram calibrate --on texts --table ..`.

    python3 docs.py --out docs.txt.xz --heldout docs-heldout.txt
    python3 engram_calibration.py --docs docs.txt.xz --out calibration
    chimere engram build --from calibration/docs.jsonl --out calibration/docs.engr
    chimere engram build --from calibration/facts.jsonl --out calibration/facts.engr
    chimere engram calibrate --on calibration/on --table calibration/docs.engr --table calibration/facts.engr --markup --out strengths.txt

Nothing of it is asked by engram_auto.py: the facts are about other invented entities (another seed), in other words, and of the pages of
heldout.txt every second one is used here (engram_auto.py --pages writes the others).

on/answers.jsonl    questions about facts, answered, beside documents that have the answer, that have others, and that say it in other words
on/tables.jsonl     the same questions beside tables that have half of the facts
on/trained.jsonl    what the model knows, asked beside documents and tables about others
on/pages.jsonl      documentation that is in no table
"""
import argparse
import json
import lzma
import pathlib
import random

from docs import SEPARATOR, without
from eval import HERE, PAGE_RULE
from tasks import facts

SEED = 77
ROWS = 700
# None of these is a form of engram_auto.py.
FORMS = ["{v} is what they call the {r} of {e}.", "For {e}, the {r} has always been {v}.", "The {r} that belongs to {e}: {v}.",
         "It is said that the {e} {r} is {v} these days.", "{e} chose {v} for its {r}.", "{v} serves {e} as {r}.", "{e} - {r} - {v}"]


def prompt(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def question(rng, row):
    return rng.choice(facts.ASK).format(e=row["entity"], r=row["relation"], k=facts.DOMAINS[row["domain"]][0])


def said(rng, row, plain):
    form = "The {e} {r} is {v}." if rng.random() < plain else rng.choice(FORMS)
    return form.format(e=row["entity"], r=row["relation"], v=row["value"])


def sample(rng, row, others, with_answer):
    """A question about a fact beside documents about some others, and perhaps about it."""
    chosen = rng.sample(others, rng.choice([1, 3, 20, 100]))
    # Another fact of the same entity is what is most easily mistaken for it.
    chosen += [r for r in others if r["entity"] == row["entity"] and r is not row and rng.random() < 0.3]
    chosen = [r for r in chosen if r is not row and (r["entity"], r["relation"]) != (row["entity"], row["relation"])]
    plain = rng.choice([0.0, 1.0])
    documents = [said(rng, r, plain) for r in chosen]
    if with_answer:
        documents.insert(rng.randint(0, len(documents)), said(rng, row, plain))
    return dict(prompt=prompt(question(rng, row)), text=facts.answer(row) + "<|im_end|>", documents=documents)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{path}: {len(rows)} lines")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--docs", help="what docs.py wrote; without it there is no docs.jsonl")
    ap.add_argument("--out", required=True, type=pathlib.Path)
    args = ap.parse_args()
    (args.out / "on").mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    known = {row["entity"] for row in facts.ROWS}
    new = [row for row in facts.table(SEED) if row["entity"] not in known]
    half = len(new) // 2
    write(args.out / "facts.jsonl", [dict(text=facts.answer(row)) for row in new[:half]])
    write(args.out / "on" / "answers.jsonl", [sample(rng, rng.choice(new[half:]), new[half:], True) for _ in range(ROWS)])
    write(args.out / "on" / "tables.jsonl", [dict(prompt=prompt(question(rng, row)), text=facts.answer(row) + "<|im_end|>")
                                             for row in rng.sample(new[:half], ROWS // 3)])
    write(args.out / "on" / "trained.jsonl", [sample(rng, rng.choice(facts.TRAINED), new, False) for _ in range(ROWS)])
    heldout = (HERE / "heldout.txt").read_text().split(PAGE_RULE)
    write(args.out / "on" / "pages.jsonl", [dict(text=text) for text in heldout[::2]])
    if args.docs:
        forbidden = {line.strip() for page in heldout for line in page.split("\n") if len(line.strip()) > 30}
        with lzma.open(args.docs, "rt") as f:
            write(args.out / "docs.jsonl", [dict(text=without(text, forbidden)) for text in f.read().split(SEPARATOR)])


if __name__ == "__main__":
    main()
