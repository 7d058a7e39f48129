#!/usr/bin/env python3
"""Measures `chimere bench step` and llama.cpp side by side: the same file, the same threads, taking turns.

    python3 scripts/bench_compare.py --llama DIR --threads 2 models/nano/nano-q8_0.gguf

DIR holds llama-bench and llama-batched-bench (docs/reference/performance.md says how they were built). Prints a table of medians over the
rounds, with half the range as a share of the median, and the ratios with their aims. Exits with 1 when an aim is missed.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

PROMPT, SEQUENCES, FIRST = 512, 8, 16
ATTEMPTS = 4     # its AMX path crashes now and then at small batches
ROWS = ["decode 1", f"prefill {PROMPT}", f"decode {SEQUENCES}"]


class Bench:
    def __init__(self, args, model):
        self.args, self.model, self.under = args, model, shlex.split(args.under)

    def output(self, *command, attempts=1):
        """Its standard output; None if a signal ended it each time."""
        for _ in range(attempts):
            done = subprocess.run([*self.under, *map(str, command)], capture_output=True, text=True, timeout=self.args.timeout)
            if done.returncode == 0:
                return done.stdout
            if done.returncode > 0 and done.returncode < 128:
                break
        if attempts > 1:
            return None
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}: {done.stderr[-2000:]}")

    def chimere(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            self.output(self.args.chimere, "bench", "step", "--model", self.model, "--device", "cpu", "--threads", self.args.threads,
                        "--batch", f"1,{SEQUENCES}", "--context", FIRST, "--prefill", PROMPT, "--steps", self.args.tokens,
                        "--repeat", self.args.repeat, "--json", out)
            figures = json.loads(out.read_text())
        one, many = (case["tokens_per_s"]["p50"] for case in figures["decode"])
        return dict(zip(ROWS, [one, figures["prefill"][0]["tokens_per_s"]["p50"], many]))

    def llama(self):
        """The better of llama.cpp with and without repacked weights, figure by figure; a variant that crashes counts as none."""
        single, batched = [], []
        for repack, flag in (1, "--repack"), (0, "--no-repack"):
            single.append(self.output(self.args.llama / "llama-bench", "-m", self.model, "-t", self.args.threads, "-p", PROMPT, "-n",
                                      self.args.tokens, "-r", self.args.repeat, "--repack", repack, "-o", "json", attempts=ATTEMPTS))
            batched.append(self.output(self.args.llama / "llama-batched-bench", "-m", self.model, "-t", self.args.threads, "-npp", FIRST,
                                       "-ntg", self.args.tokens, "-npl", SEQUENCES, "-c", 2 * SEQUENCES * (FIRST + self.args.tokens),
                                       flag, "--output-format", "jsonl", attempts=ATTEMPTS))
        rows = [row for text in single if text for row in json.loads(text)]
        many = [json.loads(line)["speed_tg"] for text in batched if text for line in text.splitlines() if line.startswith("{")]
        if not rows or not many:
            sys.exit("llama.cpp crashed each time, with and without repacked weights")
        return dict(zip(ROWS, [max(statistics.median(r["samples_ts"]) for r in rows if r["n_gen"]),
                               max(statistics.median(r["samples_ts"]) for r in rows if r["n_prompt"]), max(many)]))


def summary(samples):
    middle = statistics.median(samples)
    return middle, (max(samples) - min(samples)) / 2 / middle


def compare(args, model):
    bench = Bench(args, model)
    ours, theirs = [], []
    for turn in range(args.rounds):
        print(f"{model.name}: round {turn + 1} of {args.rounds}", file=sys.stderr)
        pair = [(ours, bench.chimere), (theirs, bench.llama)]
        for samples, run in pair if turn % 2 == 0 else reversed(pair):
            samples.append(run())
    figures = {row: {"chimere": [s[row] for s in ours], "llama.cpp": [s[row] for s in theirs]} for row in ROWS}
    middle = {row: {who: summary(v)[0] for who, v in f.items()} for row, f in figures.items()}
    ratios = {
        "decode 1": middle["decode 1"]["chimere"] / middle["decode 1"]["llama.cpp"],
        f"prefill {PROMPT}": middle[ROWS[1]]["chimere"] / middle[ROWS[1]]["llama.cpp"],
        f"{SEQUENCES} over own single": middle[ROWS[2]]["chimere"] / middle["decode 1"]["chimere"],
        f"{SEQUENCES} over llama-batched-bench": middle[ROWS[2]]["chimere"] / middle[ROWS[2]]["llama.cpp"],
    }
    return {"model": model.name, "threads": args.threads, "tokens_per_s": figures, "ratios": ratios}


def show(result, aims):
    print(f"\n{result['model']}, {result['threads']} threads, tokens/s over all sequences\n")
    print("| | chimere | llama.cpp |\n| --- | --- | --- |")
    for row, figures in result["tokens_per_s"].items():
        cells = [f"{middle:,.1f} ± {spread:.1%}" for middle, spread in (summary(figures[who]) for who in ("chimere", "llama.cpp"))]
        print(f"| {row} | {cells[0]} | {cells[1]} |")
    print("\n| ratio | measured | aim |\n| --- | --- | --- |")
    met = True
    for (name, ratio), aim in zip(result["ratios"].items(), aims):
        met &= ratio >= aim
        print(f"| {name} | {ratio:.2f} | {aim:.1f}{'' if ratio >= aim else ', missed'} |")
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("--llama", type=pathlib.Path, required=True, metavar="DIR", help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--chimere", type=pathlib.Path, default=pathlib.Path("target/release/chimere"), help="our binary [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="of both [%(default)s]")
    parser.add_argument("--tokens", type=int, default=64, help="decoded in a measurement [%(default)s]")
    parser.add_argument("--repeat", type=int, default=3, help="measurements a round [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each [%(default)s]")
    parser.add_argument("--timeout", type=int, default=600, metavar="SECONDS", help="of one command [%(default)s]")
    parser.add_argument("--under", default="", metavar="COMMAND", help="prefix of every command, such as `chrt -r 5`")
    parser.add_argument("--aims", type=float, nargs=4, default=[1.2, 1.0, 2.0, 1.5], metavar="RATIO", help="of the four ratios %(default)s")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all samples here")
    args = parser.parse_args()
    result = compare(args, args.model)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if show(result, args.aims) else 1


if __name__ == "__main__":
    sys.exit(main())
