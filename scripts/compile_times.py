#!/usr/bin/env python3
"""Says how long each kernel took to compile, from when its file was written: what a first start waits for.

Usage: scripts/compile_times.py DIR [LINES]

DIR is an empty directory before, filled by one core, which compiles one program after another:

    taskset -c 0 chimere kernels build --arch sm_90a --model MODEL --dir DIR

It has the kernels of every way in which the model can be served; a start compiles those of one.
"""

import collections
import pathlib
import re
import sys


def times(folder):
    """Name of the program and seconds, in order; of the first only the name, for nobody knows when it was begun."""
    files = sorted(pathlib.Path(folder).glob("*.cubin"), key=lambda file: file.stat().st_mtime_ns)
    for before, file in zip([None, *files], files):
        name = re.sub(r"-sm_\w+-[0-9a-f]{32}$", "", file.stem)
        yield name, (file.stat().st_mtime_ns - before.stat().st_mtime_ns) / 1e9 if before else 0.0


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    kinds = collections.defaultdict(list)
    for name, seconds in times(sys.argv[1]):
        kinds[name].append(seconds)
    if not kinds:
        sys.exit(f"{sys.argv[1]}: no compiled kernels")
    print(f"{sum(map(len, kinds.values()))} programs, {sum(map(sum, kinds.values())):.1f} s")
    print(f"{'program':24}{'times':>7}{'sum s':>9}{'longest s':>11}")
    order = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))
    for name, seconds in order[: int(sys.argv[2]) if len(sys.argv) > 2 else 20]:
        print(f"{name:24}{len(seconds):>7}{sum(seconds):>9.2f}{max(seconds):>11.2f}")


if __name__ == "__main__":
    main()
