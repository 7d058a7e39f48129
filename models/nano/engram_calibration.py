#!/usr/bin/env python3
"""Writes what the shipped strengths of Engram's `mode: "auto"` are fitted to.

    python3 docs.py --out docs.txt.xz --heldout docs-heldout.txt
    python3 engram_calibration.py --docs docs.txt.xz --out calibration
    cd calibration
    chimere engram build --from docs.jsonl --out docs.engr
    chimere engram build --from facts.jsonl --out facts.engr
    chimere engram calibrate --on on --table docs.engr --table facts.engr --markup --keep-documents --judge-one-in 4 \\
        --weight trained=8 --weight tables=2 --out strengths.txt

Nothing of it is asked by engram_auto.py: the facts are about other invented entities (another seed), in other words, the tasks are of the
generators' other split, and no page of heldout.txt is used. What the model knows (`trained`) is what engram_auto.py asks too, beside other
documents.

on/answers.jsonl        questions about facts, answered, beside documents that have the answer, that have others, and that say it in other words
on/contradicted.jsonl   the same beside two documents that differ; the later one is right
on/tables.jsonl         the same questions beside a table that has them, and beside one of documentation too
on/trained.jsonl        what the model knows, asked beside documents and tables about others
on/tasks.jsonl          the other tasks of the card, solved, beside documents and tables about facts
on/pages.jsonl          documentation that is in no table, beside a table of other documentation
on/elsewhere.jsonl      the same beside a table of something else

and where nobody asks a question, which the strengths of documents are not fitted to (docs/measurements/engram.md):

running/statements.jsonl    facts one after the other, some of them in documents
running/halves.jsonl        the second half of a page beside paragraphs of the first, as documents
"""
import argparse
import json
import lzma
import pathlib
import random
import re

from chat import pieces
from docs import SEPARATOR, without
from eval import HERE, PAGE_RULE
from tasks import arithmetic, context, extract, facts, followup, passages, strings, talk, tools
from tasks.sample import LETTERS_OPEN, plain

SEED = 77
ROWS = 700
TASKS = 60                  # samples of each family
DOCUMENTS = 256             # the most that a request takes
# None of these is a form of engram_auto.py.
FORMS = ["{v} is what they call the {r} of {e}.", "For {e}, the {r} has always been {v}.", "The {r} that belongs to {e}: {v}.",
         "It is said that the {e} {r} is {v} these days.", "{e} chose {v} for its {r}.", "{v} serves {e} as {r}.", "{e} - {r} - {v}"]
STATEMENT = "The {e} {r} is {v}."
FAMILIES = [lambda r: arithmetic.make(r, False, True), lambda r: arithmetic.make(r, False, False), lambda r: strings.make(r, False, True),
            lambda r: strings.make(r, False, False), lambda r: context.make(r, False, tokens=256), lambda r: context.make(r, False, tokens=1024),
            tools.make, extract.make, talk.make, followup.make, passages.make]
PAGES_ONE_IN = 28           # this many pages are in no table
# A page is a copy of others if so much of its words stand in them after the same eight.
COPIED_WORDS, COPIED_MAX = 8, 0.35
WORD = re.compile(r"\w+|[^\w\s]")


def prompt(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def question(rng, row):
    return rng.choice(facts.ASK).format(e=row["entity"], r=row["relation"], k=facts.DOMAINS[row["domain"]][0])


def said(rng, row, statements):
    form = STATEMENT if rng.random() < statements else rng.choice(FORMS)
    return form.format(e=row["entity"], r=row["relation"], v=row["value"])


def asked(rng, row, documents=None, tables=None):
    """A question about a fact and its answer; `tables` beside it, all if None."""
    line = dict(prompt=prompt(question(rng, row)), text=facts.answer(row) + "<|im_end|>", documents=documents, tables=tables)
    return {name: value for name, value in line.items() if value is not None}


def among(rng, row, others, with_answer):
    """A question about a fact beside documents about some others, and perhaps about it."""
    chosen = rng.sample(others, rng.choice([1, 3, 20, 100]))
    # Another fact of the same entity is what is most easily mistaken for it.
    chosen += [r for r in others if r["entity"] == row["entity"] and r is not row and rng.random() < 0.3]
    chosen = [r for r in chosen if r is not row and (r["entity"], r["relation"]) != (row["entity"], row["relation"])]
    statements = rng.choice([0.0, 1.0])
    documents = [said(rng, r, statements) for r in chosen]
    if with_answer:
        documents.insert(rng.randint(0, len(documents)), said(rng, row, statements))
    return asked(rng, row, documents)


def contradicted(rng, row, others):
    """A question about a fact of which an earlier document says something else."""
    same = [r["value"] for r in others if r["relation"] == row["relation"] and r["value"] != row["value"]]
    statements = rng.choice([0.0, 1.0])
    return asked(rng, row, [said(rng, dict(row, value=rng.choice(same)), statements), said(rng, row, statements)])


def stated(rng, others):
    """Some facts one after the other, of which documents say some, without a question."""
    rows = rng.sample(others, 4)
    told = [r for r in rows if rng.random() < 0.5]
    documents = [facts.answer(r) for r in told + rng.sample([r for r in others if r not in rows], rng.choice([1, 3, 20, 100]))]
    return dict(text=" ".join(map(facts.answer, rows)), documents=rng.sample(documents, len(documents)))


def solved(rng, make, others, with_documents):
    """A task of another family with its thought and answer, beside documents or all tables, which have nothing to do with it."""
    while LETTERS_OPEN in str((sample := make(rng)).messages):
        pass                # such words are cut into letters, which a text does not say
    parts = pieces(sample.messages, sample.tools)
    parts = parts[:-1] if parts[-1][0] == "prompt" else parts
    first = max(i for i, part in enumerate(parts) if part[0] == "prompt") + 1
    before, text = ("".join(text for _, text in some) for some in (parts[:first], parts[first:]))
    documents = [said(rng, r, 1.0) for r in rng.sample(others, DOCUMENTS)]
    beside = dict(documents=documents, tables=[]) if with_documents else {}
    return dict(prompt=plain(before), text=plain(text), **beside)


def grams(text):
    """Each word of a text with the eight before it."""
    words = WORD.findall(text)
    return [tuple(words[i - COPIED_WORDS:i + 1]) for i in range(COPIED_WORDS, len(words))]


def halves(page):
    """The second half of a page, and paragraphs of the first; None if it repeats them."""
    paragraphs = page.split("\n\n")
    first, second = paragraphs[:len(paragraphs) // 2][-DOCUMENTS:], "\n\n".join(paragraphs[len(paragraphs) // 2:])
    known, own = set(grams("\n\n".join(first))), grams(second)
    copied = sum(gram in known for gram in own)
    return dict(text=second, documents=first, tables=[]) if first and own and copied < COPIED_MAX * len(own) else None


def apart(pages):
    """-> pages for a table, pages that are in none, less those that are mostly copies of the others."""
    kept, taken = [p for i, p in enumerate(pages) if i % PAGES_ONE_IN], pages[::PAGES_ONE_IN]
    wanted, found = set(gram for page in taken for gram in grams(page)), set()
    for page in kept:
        found.update(wanted.intersection(grams(page)))
    own = [(page, grams(page)) for page in taken]
    return kept, [page for page, all_ in own if all_ and sum(gram in found for gram in all_) < COPIED_MAX * len(all_)]


def write(path, rows):
    rows = list(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{path}: {len(rows)} lines")


def write_facts(rng, out):
    """-> facts about entities that nobody knows, half of which are in a table."""
    known = {row["entity"] for row in facts.ROWS}
    new = [row for row in facts.table(SEED) if row["entity"] not in known]
    told, untold = [r for r in new if r["withheld"]], [r for r in new if not r["withheld"]]
    write(out / "facts.jsonl", [dict(text=facts.answer(row)) for row in told])
    on = out / "on"
    write(on / "answers.jsonl", [among(rng, rng.choice(untold), untold, True) for _ in range(ROWS)])
    write(on / "contradicted.jsonl", [contradicted(rng, rng.choice(untold), untold) for _ in range(ROWS // 3)])
    write(out / "running" / "statements.jsonl", [stated(random.Random(f"{SEED} {i}"), untold) for i in range(ROWS)])
    write(on / "tables.jsonl", [asked(rng, row, tables=tables) for row in told for tables in (["facts"], None)])
    write(on / "trained.jsonl", [among(rng, rng.choice(facts.TRAINED), new, False) for _ in range(ROWS)]
          + [asked(rng, row, tables=["facts"]) for row in facts.TRAINED[::2]])
    return new


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--docs", required=True, help="what docs.py wrote")
    ap.add_argument("--out", required=True, type=pathlib.Path)
    args = ap.parse_args()
    on = args.out / "on"
    for folder in (on, args.out / "running"):
        folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    new = write_facts(rng, args.out)
    write(on / "tasks.jsonl", [solved(rng, make, new, i % 3 == 0) for make in FAMILIES for i in range(TASKS)])
    heldout = (HERE / "heldout.txt").read_text().split(PAGE_RULE)
    forbidden = {line.strip() for page in heldout for line in page.split("\n") if len(line.strip()) > 30}
    with lzma.open(args.docs, "rt") as f:
        kept, taken = apart([without(text, forbidden) for text in f.read().split(SEPARATOR)])
    write(args.out / "docs.jsonl", [dict(text=text) for text in kept])
    write(on / "pages.jsonl", [dict(text=text, tables=["docs"]) for text in taken])
    write(on / "elsewhere.jsonl", [dict(text=text, tables=["facts"]) for text in taken])
    write(args.out / "running" / "halves.jsonl", filter(None, map(halves, taken)))


if __name__ == "__main__":
    main()
