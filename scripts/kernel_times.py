#!/usr/bin/env python3
"""Sums up what Nsight Compute measured of a step's kernels: launches, median time, share of all, bytes and their rate.

Usage: scripts/kernel_times.py FILE [LINES]

FILE is the output of

    ncu --graph-profiling node --cache-control none --clock-control none --csv --page raw \\
        --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum \\
        --launch-skip 700 --launch-count 620 \\
        chimere bench step --model MODEL --device cuda --context 0 --steps 4 --repeat 1 --prefill 0 --batch 16

Kernels of one name are told apart by their grids. One runs at a time there, so their sum is more than a step takes.
"""

import collections
import csv
import statistics
import sys

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def launches(path):
    """(kernel, grid, threads), seconds and bytes of each."""
    with open(path, newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) > 10]
    if len(rows) < 3:
        sys.exit(f"{path}: no kernels, ncu's CSV begins with names and units")
    at = {name: i for i, name in enumerate(rows[0])}
    value = lambda row, name: float(row[at[name]].replace(",", "")) * UNITS[rows[1][at[name]]]
    for row in rows[2:]:
        what = tuple(row[at[name]].replace(" ", "") for name in ("Kernel Name", "Grid Size", "Block Size"))
        yield what, value(row, TIME), value(row, READ) + value(row, WRITTEN)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    kinds = collections.defaultdict(list)
    for what, seconds, size in launches(sys.argv[1]):
        kinds[what].append((seconds, size))
    total = sum(seconds for kind in kinds.values() for seconds, _ in kind)
    print(f"{sum(map(len, kinds.values()))} launches, {total * 1e6:.0f} us")
    print(f"{'kernel':24}{'grid':>14}{'block':>12}{'launches':>10}{'median us':>11}{'of all':>8}{'MB':>9}{'TB/s':>7}")
    order = sorted(kinds.items(), key=lambda kind: -sum(seconds for seconds, _ in kind[1]))
    for (name, grid, block), kind in order[: int(sys.argv[2]) if len(sys.argv) > 2 else 25]:
        seconds, size = (sum(column) for column in zip(*kind))
        median = statistics.median(s for s, _ in kind) * 1e6
        print(
            f"{name[:24]:24}{grid:>14}{block:>12}{len(kind):>10}{median:>11.2f}{seconds / total:>8.1%}"
            f"{size / len(kind) / 1e6:>9.2f}{size / seconds / 1e12:>7.2f}"
        )


if __name__ == "__main__":
    main()
