#!/usr/bin/env python3
"""Writes texts for `chimere engram build` and `eval` as .jsonl files, one text a line.

    python3 docs.py --out docs.txt.xz --heldout docs-heldout.txt
    python3 engram_texts.py --docs docs.txt.xz --out texts

docs.jsonl          documentation that the model was trained on
heldout.jsonl       documentation that it was not trained on (heldout.txt here)
facts.jsonl         the withheld facts as plain sentences
answers.jsonl       the same as an answer begins with them, several times each: for tables of long contexts, built with --markup
"""
import argparse
import json
import lzma
import pathlib

from docs import SEPARATOR, without
from eval import HERE, PAGE_RULE
from tasks import facts


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    print(f"{path}: {len(texts)} texts")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--docs", help="what docs.py wrote; without it there is no docs.jsonl")
    ap.add_argument("--out", required=True, type=pathlib.Path)
    ap.add_argument("--times", type=int, default=8, help="how often each answer is written")
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    heldout = (HERE / "heldout.txt").read_text().split(PAGE_RULE)
    if args.docs:
        # As docs.py does it for sources, once more: the pages kept apart may be others than those of that run.
        forbidden = {line.strip() for page in heldout for line in page.split("\n") if len(line.strip()) > 30}
        with lzma.open(args.docs, "rt") as f:
            write(args.out / "docs.jsonl", [without(text, forbidden) for text in f.read().split(SEPARATOR)])
    write(args.out / "heldout.jsonl", heldout)
    answers = [facts.answer(row) for row in facts.WITHHELD]
    write(args.out / "facts.jsonl", answers)
    write(args.out / "answers.jsonl", [f"</think>\n\n{answer}" for answer in answers] * args.times)


if __name__ == "__main__":
    main()
