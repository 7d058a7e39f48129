#!/usr/bin/env python3
"""Does the model's own certainty belong into the strengths of Engram? Fits them with and without it.

    chimere engram calibrate --on pages.jsonl --table rest.engr --out strengths.txt --rows pages.rows
    chimere engram calibrate --on heldout.jsonl --table rest.engr --out strengths.txt --rows heldout.rows
    python3 scripts/engram_certainty.py --rows pages.rows --judge heldout.rows

The strengths are fitted by expectation-maximisation to every second passage of --rows, once with a lambda a cell as they
ship, then with one for each cell and bucket of the model's best probability, where a cell that was seen seldom leans on
what is known of it over all buckets. Nats a token are told of the passages that were fitted to, of the others, and of
each file of --judge. The standard library is enough.
"""
import argparse
import collections
import math
import pathlib
import sys

REST_MIN = 0.02             # what the model keeps of every position, as in engine/src/engram/fit/auto.rs
RARENESSES = 4              # cells in a row that differ by rareness alone
ROUNDS = 40
DOUBT = 0.5                 # as in engine/src/engram/fit/calibration.rs
EDGES = [[], [0.5], [0.3, 0.7], [0.2, 0.5, 0.8], [0.1, 0.25, 0.5, 0.75, 0.9, 0.97]]

Position = collections.namedtuple("Position", "passage model best matches")      # matches: [(cell, p, lambda that ships)]


def read(path):
    """-> positions of a file of rows."""
    positions = []
    for line in path.open():
        passage, model, best, *matches = line.split()
        matches = [tuple(map(float, match.split(":"))) for match in matches]
        positions.append(Position(int(passage), float(model), float(best), [(int(c), p, shipped) for c, p, shipped in matches]))
    return positions


def nats(positions, strength):
    """Mean surprise where `strength(position, match)` is a match's lambda."""
    total = 0.0
    for position in positions:
        rest, p = 1.0, 0.0
        for match in position.matches:
            share = max(0.0, min(rest * strength(position, match), rest - REST_MIN))
            p, rest = p + share * match[1], rest - share
        total -= math.log(max(p + rest * position.model, 1e-300))
    return total / max(1, len(positions))


def fit(positions, key, parent, weight):
    """Lambda of each key; one that was seen seldom leans on `parent(key)`, as if that had been seen `weight` times."""
    strengths = {}
    for _ in range(ROUNDS):
        counts = collections.defaultdict(lambda: [0.0, 0.0])
        for position in positions:
            rest, total, shares = 1.0, 0.0, []
            for match in position.matches:
                at = key(position, match)
                strength = strengths.get(at, 0.5)
                shares.append((at, rest * strength * match[1]))
                total, rest = total + shares[-1][1], rest * (1.0 - strength)
            total += rest * position.model
            left = 1.0
            for at, share in shares if total > 0.0 else ():
                count = counts[at]
                count[0], count[1] = count[0] + share / total, count[1] + left
                left -= share / total
        strengths = {at: (taken + weight * parent(at)) / (asked + weight + DOUBT) for at, (taken, asked) in counts.items()}
    return strengths


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rows", type=pathlib.Path, required=True)
    ap.add_argument("--judge", type=pathlib.Path, action="append", default=[])
    ap.add_argument("--weight", type=float, default=8.0, help="positions that what is known of a cell counts for in each bucket")
    args = ap.parse_args()
    rows = read(args.rows)
    sets = {"fitted to": [r for r in rows if r.passage % 2 == 0], "other passages": [r for r in rows if r.passage % 2 == 1]}
    sets |= {path.name: read(path) for path in args.judge}
    if not all(sets.values()):
        sys.exit(f"wanted positions of two passages or more, and of each file of --judge, got {[len(s) for s in sets.values()]}")
    print(f"{'nats a token':<34}" + "".join(f"{name + f' ({len(s):,})':>28}" for name, s in sets.items()))

    def show(name, strength):
        print(f"{name:<34}" + "".join(f"{nats(positions, strength):>28.4f}" for positions in sets.values()), flush=True)

    show("the model", lambda position, match: 0.0)
    show("strengths that ship", lambda position, match: match[2])
    row = fit(sets["fitted to"], lambda position, match: match[0] // RARENESSES, lambda at: 0.5, 2.0)
    cell = fit(sets["fitted to"], lambda position, match: match[0], lambda at: row.get(at // RARENESSES, 0.5), 2.0)
    for edges in EDGES:
        bucket = {id(p): sum(p.best >= edge for edge in edges) for positions in sets.values() for p in positions}
        both = cell
        if edges:
            both = fit(sets["fitted to"], lambda p, m: (m[0], bucket[id(p)]), lambda at: cell.get(at[0], 0.5), args.weight)
        name = f"a lambda a cell and best {edges}" if edges else "a lambda a cell"
        show(name, lambda p, m: both.get((m[0], bucket[id(p)]) if edges else m[0], cell.get(m[0], m[2])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
