#!/usr/bin/env python3
"""The most that drafts can gain on a machine: what a step of one user takes with 1 to 7 drafts, over one without, and with the guesses of the draft head.

    python3 scripts/draft_bound.py --chimere target/release/chimere --threads 2

`bench step` makes each step's drafts at random and takes none for accepted, so that all cases stand at the same positions; steps without drafts are timed
beside each of them, by the same process. The least of --rounds times --repeat runs of all cases, because other work on the machine only adds. From them:

free         Tokens a time over none drafted, if all drafts were right and cost nothing to make: no source can gain more on this machine.
head         The same with the guesses of the draft head and the shares of --accept of them that are right where those before them were (those of the shipped
             model on its card's questions, `scripts/draft_ids.py`).
row, guess   What one row more and one guess more take, each over a step without drafts: the sums of both that --wanted allows stand in the last column.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile


def measured(args, drafts, guesses):
    """-> milliseconds a step without and with drafts."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        command = [args.chimere, "bench", "step", "--batch", str(args.users), "--context", str(args.context), "--prefill", "0", "--steps", str(args.steps),
                   "--repeat", str(args.repeat), "--drafts", str(drafts), "--guesses", str(guesses), "--accept", ",".join(["0"] * drafts), "--json", str(out)]
        command += ["--threads", str(args.threads)] if args.device == "cpu" else []
        command += ["--device", args.device] + (["--model", args.model] if args.model else [])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [row["step_ms"]["min"] for row in json.loads(out.read_text())["decode"]]


def tokens(shares, drafts):
    """Tokens a step, where a draft is right with its share if those before it were."""
    sum_of, chance = 1.0, 1.0
    for share in (shares + shares[-1:] * drafts)[:drafts]:
        chance *= share
        sum_of += chance
    return sum_of


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--chimere", default="target/release/chimere")
    ap.add_argument("--model")
    ap.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--users", type=int, default=1)
    ap.add_argument("--context", type=int, default=100)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--repeat", type=int, default=12)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--drafts", type=int, nargs="*", default=[1, 2, 3, 5, 7])
    ap.add_argument("--accept", type=float, nargs="*", default=[0.998, 0.557, 0.490])
    ap.add_argument("--wanted", type=float, default=1.4, help="gain for which the cost of a row and its guess is told")
    args = ap.parse_args()
    cases = [(k, g) for k in args.drafts for g in ([0, k] if k <= len(args.accept) else [0])]
    took = {case: [] for case in cases}
    for _ in range(args.rounds):
        for case in cases:
            took[case].append(measured(args, *case))
    every = [off for case in cases for off, _ in took[case]]
    one = min(every)
    print(f"a step without drafts: {one * 1e3:.1f} us (the median of all {statistics.median(every) * 1e3:.1f}), {args.users} users")
    print("| drafts | over a step without | a row more | free | with guesses | a guess | head | row and guess may take |\n|" + " --- |" * 8)
    for k in args.drafts:
        over = {g: min(on for _, on in took[k, g]) / one for g in (0, k) if (k, g) in took}
        rows = f"| {k} | {over[0]:.2f} | {(over[0] - 1) / k:.2f} | {(k + 1) / over[0]:.2f} |"
        if k in over and k:
            gain, may = tokens(args.accept, k) / over[k], (tokens(args.accept, k) / args.wanted - 1) / k
            rows += f" {over[k]:.2f} | {(over[k] - over[0]) / k:.2f} | {gain:.2f} | {may:.2f} |"
        print(rows + ("" if k in over and k else " | | | |"), flush=True)


if __name__ == "__main__":
    main()
