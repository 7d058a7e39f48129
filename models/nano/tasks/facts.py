#!/usr/bin/env python3
"""Facts about invented entities in four domains. Half of the entities are withheld from training.

An answer restates entity and relation within 7 tokens before the value ("The Vorland capital is Tesmar."), so that a table keyed by
the last tokens can supply what the weights never saw.

    python3 -m tasks.facts --out facts.json        # the whole table, with the split
"""
import argparse
import json
import random

from . import wording
from .sample import Sample, assistant, user
from .words import FIRST, LAST, invented

SEED = 20261120
ENTITIES_PER_DOMAIN = 60

NUMBER = lambda low, high: lambda r: str(r.randint(low, high))
NAME = lambda r: invented(r).title()
PERSON = lambda r: f"{r.choice(FIRST)} {r.choice(LAST)}"

# domain -> (what an entity is, [(relation, how its value is drawn)])
DOMAINS = {
    "general": ("country", [("capital", NAME), ("river", NAME), ("founder", PERSON), ("currency", NAME)]),
    "code": ("library", [("author", PERSON), ("port", NUMBER(1024, 9999)), ("parser", NAME), ("release", NUMBER(1100, 9999))]),
    "cyber": ("malware", [("family", NAME), ("port", NUMBER(1024, 9999)), ("marker", NAME), ("finder", PERSON)]),
    "kine": ("test", [("muscle", NAME), ("angle", NUMBER(100, 999)), ("author", PERSON), ("grip", NAME)]),
}
ASK = ["What is the {r} of {e}?", "What is the {r} of the {k} {e}?", "{e} {r}?", "Tell me the {r} of {e}.", "Name the {r} of {e}.",
       "Do you know the {r} of {e}?", "Give me the {r} of the {k} {e}."]


def table(seed=SEED):
    """-> rows {domain, entity, relation, value, withheld}; the same on every machine."""
    rng = random.Random(seed)
    rows, names = [], set()
    for domain, (_, relations) in DOMAINS.items():
        for i in range(ENTITIES_PER_DOMAIN):
            entity = invented(rng).title()
            while entity in names:
                entity = invented(rng).title()
            names.add(entity)
            for relation, draw in relations:
                rows.append(dict(domain=domain, entity=entity, relation=relation, value=draw(rng), withheld=i % 2 == 1))
    return rows


ROWS = table()
TRAINED = [row for row in ROWS if not row["withheld"]]
WITHHELD = [row for row in ROWS if row["withheld"]]


def answer(row):
    return f"The {row['entity']} {row['relation']} is {row['value']}."


def make(rng, test=False, thinking=None, row=None, form=None):
    """The split is by entity. A test of the trained half passes `row`. `form` as in arithmetic.py."""
    row = row or rng.choice(WITHHELD if test else TRAINED)
    fields = dict(e=row["entity"], r=row["relation"], k=DOMAINS[row["domain"]][0])
    if form or (not test and rng.random() < 0.5):
        ask = wording.request(rng, "facts", fields, form == "new")
    else:
        ask = rng.choice(ASK).format(**fields)
    thinking = rng.random() < 0.4 if thinking is None else thinking
    thought = f"The question is about {row['entity']}: the {row['relation']}." if thinking else None
    key = f"facts {row['entity']} {row['relation']}"
    return Sample("facts", key, [user(ask), assistant(answer(row), thought)], thinking, expect=row["value"])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=SEED)
    args = ap.parse_args()
    with open(args.out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row) for row in table(args.seed)) + "\n]\n")


if __name__ == "__main__":
    main()
