#!/usr/bin/env python3
"""Says what each kernel takes of a decode step, from what scripts/step_trace.c wrote down.

Usage: scripts/step_trace.py TRACE [LINES]

A step begins with `embed`; steps of as many rows and launches are one table. `each`: from start to end of a launch,
which may begin before the one ahead of it ends. `own`: what of a step no launch that began before covers.
"""

import collections
import statistics
import sys


def launches(path):
    """(start, end, (kernel, grid, threads)) in order."""
    with open(path) as file:
        rows = [line.split() for line in file]
    return sorted((int(row[0]), int(row[1]), tuple(row[2:5])) for row in rows if len(row) >= 5)


def steps(rows):
    """Steps by rows and launches, without the first of each, which warms up."""
    begins = [i for i, row in enumerate(rows) if row[2][0] == "embed"]
    kinds = collections.OrderedDict()
    for begin, end in zip(begins, begins[1:]):
        kinds.setdefault((rows[begin][2][1], end - begin), []).append(rows[begin:end])
    return {kind: all_[1:] for kind, all_ in kinds.items() if len(all_) > 2}


def own_times(step):
    """By kernel: launches, time from start to end, and what of it no earlier launch covers."""
    times, covered = collections.defaultdict(lambda: [0, 0, 0]), step[0][0]
    for start, end, kernel in step:
        time = times[kernel]
        time[0] += 1
        time[1] += end - start
        time[2] += max(0, end - max(start, covered))
        covered = max(covered, end)
    return times


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    for (grid, count), of_kind in steps(launches(sys.argv[1])).items():
        step = statistics.median(b[0][0] - a[0][0] for a, b in zip(of_kind, of_kind[1:]))
        print(f"\nembed of {grid}, {count} launches, {len(of_kind)} steps of {step / 1e3:.0f} us\n")
        print("| kernel | grid x threads | launches | each, us | own, us a step | share |")
        print("| --- | --- | --- | --- | --- | --- |")
        kernels = collections.defaultdict(list)
        for times in map(own_times, of_kind):
            for kernel, time in times.items():
                kernels[kernel].append(time)
        mean = {kernel: [statistics.mean(part) for part in zip(*times)] for kernel, times in kernels.items()}
        for (name, blocks, threads), (n, spent, own) in sorted(mean.items(), key=lambda k: -k[1][2])[:most]:
            print(
                f"| {name} | {blocks} x {threads} | {n:.0f} | {spent / n / 1e3:.2f} | {own / 1e3:.0f} "
                f"| {own / step:.1%} |"
            )


if __name__ == "__main__":
    main()
