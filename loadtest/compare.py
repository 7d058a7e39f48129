#!/usr/bin/env python3
"""Measures one load with `chimere bench serve` and with k6, taking turns against one server, and prints both side by side.

    python3 loadtest/compare.py --chimere target/release/chimere --k6 k6 --rounds 3

The two look from different sides: k6 reads the service's own `timings` and times whole replies, the bench times the pieces of streams as
they arrive, from when a request was due. Exits with 1 where one of them has no figures, or they are not ordered as they must be: the median no
more than the p95, the first token no later than the end, and nothing that the service counted longer than the client waited for it.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import run

# Row, the bench's figure, k6's figure.
ROWS = [("first token", "ttft_ms", "ttft"), ("whole request", "e2e_ms", "total")]


def bench(args, url, folder):
    out = folder / "bench.json"
    subprocess.run([args.chimere, "bench", "serve", "--url", url, "--rate", str(args.rate), "--requests", str(args.rate * args.seconds),
                    "--prompt-tokens", "128", "--max-tokens", "64", "--json", out], check=True, capture_output=True)
    report = json.loads(out.read_text())
    return {row: (report[name]["p50"], report[name]["p95"]) for row, name, _ in ROWS}


def k6(args, url, folder):
    os.environ["RATE"] = str(args.rate)
    args.out, args.prometheus = folder, None
    held = run.k6(args, "open", url)
    metrics = json.loads((folder / "open.json").read_text())["metrics"]
    return {row: (metrics[name]["med"], metrics[name]["p(95)"]) for row, _, name in ROWS}, held


def unordered(name, figures):
    """What cannot be."""
    for row, (median, p95) in figures.items():
        if not 0 < median <= p95:
            yield f"{name}: {row}: median {median:.1f} ms, p95 {p95:.1f} ms"
    if figures["first token"][0] > figures["whole request"][0]:
        yield f"{name}: the first token comes after the end"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--k6", default=shutil.which("k6") or "k6")
    parser.add_argument("--rate", type=int, default=4, help="arrivals a second")
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    args.chimere, found, pairs = args.chimere.resolve(), [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with run.server(args.chimere, "open", args.model, folder) as url:
            for _ in range(args.rounds):
                ours = bench(args, url, folder)
                theirs, held = k6(args, url, folder)
                found += [*unordered("bench", ours), *unordered("k6", theirs), *([] if held else ["k6: a threshold was missed"])]
                pairs.append((ours, theirs))
    print(f"{'ms, median of ' + str(args.rounds):24} {'bench p50':>10} {'bench p95':>10} {'k6 p50':>10} {'k6 p95':>10} {'ratio p50':>10}")
    for row, *_ in ROWS:
        figures = [statistics.median(pair[who][row][at] for pair in pairs) for who in (0, 1) for at in (0, 1)]
        ratio = statistics.median(theirs[row][0] / ours[row][0] for ours, theirs in pairs)
        print(f"{row:24} " + " ".join(f"{value:10.1f}" for value in figures) + f" {ratio:10.2f}")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
