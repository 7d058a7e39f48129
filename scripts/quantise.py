#!/usr/bin/env python3
"""Compares schemes of `chimere quantize` at equal bytes on texts that calibration never saw, and prediction with
measurement. Prints the tables of docs/operating/quantise.md; --json has all figures, those of an unfinished run too.

    python3 scripts/quantise.py --chimere target/release/chimere --unround

What was made is kept in --work, so that a run that was stopped goes on. --unround needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
NANO = ROOT / "models/nano"
SIZES = ["Q4_K", "Q5_K", "Q6_K"]
# A scheme with another rounding than its own is spelled SCHEME+ROUNDING, such as kl+nearest or error+correlated.
SCHEMES = ["kl", "error", "ramp"]
# Files that are made, and groups of them that are judged, at a time: a small model keeps few threads busy.
AT_A_TIME = 4


class Comparison:
    def __init__(self, options):
        self.options, self.begin = options, time.monotonic()
        self.reports, self.judged = {}, {}
        self.texts = {"documentation": ["--text", options.text], "own": []}

    def run(self, *args):
        subprocess.run([self.options.chimere, *map(str, args)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def tell(self, what):
        print(f"{time.monotonic() - self.begin:6.0f} s: {what}", file=sys.stderr, flush=True)

    def keep(self):
        """Everything that is known, in the file of --json."""
        if self.options.json:
            rows = [{"size": s, "scheme": c, "report": r, "measured": self.judged.get(r["out"], {})}
                    for (s, c), r in self.reports.items()]
            self.options.json.write_text(json.dumps(rows, indent=1) + "\n")

    def quantise(self, size, scheme, threads):
        """Makes a file, unless it is there, and takes in its report."""
        o, out = self.options, self.options.work / f"{size}-{scheme}.gguf"
        report = out.with_name(out.name + ".json")
        if not report.exists():
            args = ["--model", o.model, "--out", out, "--work", o.work, "--mtp", "keep", "--threads", threads]
            args += ["--sequences", o.sequences, "--tokens", o.tokens, "--depths", o.depths]
            if scheme == "uniform":
                args += ["--scheme", f"uniform:{size}"]
            else:
                bits = repr(self.reports[size, "uniform"]["bpw"] + 1e-9)
                name, _, rounding = scheme.partition("+")
                args += ["--scheme", name, "--target", f"{bits}bpw"]
                args += ["--rounding", rounding] if rounding else []
            self.run("quantize", *args)
        self.reports[size, scheme] = json.loads(report.read_text())
        self.tell(f"{size} {scheme}")
        self.keep()

    def make(self):
        """The first file of each kind measures what the others find in --work."""
        o = self.options
        few = max(1, o.threads // AT_A_TIME)
        self.quantise(SIZES[0], "uniform", o.threads)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda size: self.quantise(size, "uniform", few), SIZES[1:]))
        self.quantise(SIZES[0], "kl", o.threads)
        rest = [(size, scheme) for size in SIZES for scheme in o.schemes if (size, scheme) != (SIZES[0], "kl")]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda job: self.quantise(*job, few), rest))

    def judge(self, text, files, number):
        o, out = self.options, self.options.work / f"judged-{text}-{number}.json"
        models = [arg for file in files for arg in ("--model", file)]
        self.run("eval", "kld", "--base", o.model, *models, *self.texts[text], "--json", out,
                 "--tokens", o.judge_tokens, "--threads", max(1, o.threads // AT_A_TIME))
        for m in json.loads(out.read_text())["models"]:
            self.judged.setdefault(m["model"], {})[text] = m
        self.tell(f"judged {len(files)} files on {text}")
        self.keep()

    def judge_all(self):
        files = [report["out"] for report in self.reports.values()]
        jobs = [(text, files[i::AT_A_TIME], i) for text in self.texts for i in range(AT_A_TIME)]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda job: self.judge(*job), jobs))

    def of(self, key, text):
        return self.judged[self.reports[key]["out"]][text]

    def print(self, text):
        print(f"\nOn {text} text, {self.of((SIZES[0], 'kl'), text)['positions']} positions:\n")
        print("| size | scheme | bits | mean KL | +- | 99.9 % KL | same top | mean KL beside kl |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for size in SIZES:
            for scheme in ["uniform", *self.options.schemes]:
                m, best = self.of((size, scheme), text), self.of((size, "kl"), text)
                print(f"| {size} | {scheme} | {self.reports[size, scheme]['bpw']:.3f} | {m['mean']:.6f} | "
                      f"{m['mean_error']:.6f} | {m['p99.9']:.4f} | {100 * m['same_top']:.2f} % | "
                      f"{m['mean'] / best['mean']:.2f} |")
        # Sensitivities belong to the source and the text, not to a size.
        alpha = {g["group"]: g["alpha"] for g in self.reports[SIZES[0], "kl"]["groups"]}
        predicted = [expected(report, alpha) for report in self.reports.values()]
        means = [self.of(key, text)["mean"] for key in self.reports]
        print(f"\nRank correlation of expected and measured divergence over {len(means)} files: "
              f"{spearman(predicted, means):.3f}")
        for size in SIZES:
            report = self.reports[size, "kl"]
            own = report["calibration_kl"]["mean"]
            print(f"{size}, kl: expected {report['expected_kl']:.6f}, on calibration text {own:.6f}, "
                  f"on this text {self.of((size, 'kl'), text)['mean']:.6f}")


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    place = [0] * len(values)
    for rank, i in enumerate(order):
        place[i] = rank
    return place


def spearman(a, b):
    """Rank correlation; there are no ties in measured numbers."""
    n, a, b = len(a), ranks(a), ranks(b)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1))


def expected(report, alpha):
    return sum(alpha[g["group"]] * g["t2"] for g in report["groups"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", default=ROOT / "target/release/chimere")
    parser.add_argument("--model", type=pathlib.Path, default=NANO / "nano-q8_0.gguf")
    parser.add_argument("--unround", action="store_true", help="take weights in BF16 that round to those of --model")
    parser.add_argument("--text", default=NANO / "heldout.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/quantise")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=12288, help="of calibration, for divergences")
    parser.add_argument("--depths", type=int, default=8)
    parser.add_argument("--judge-tokens", type=int, default=8192, help="of each text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES, help="beside uniform; kl among them")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.unround:
        base = options.work / "unrounded.gguf"
        if not base.exists():
            subprocess.run([sys.executable, NANO / "unround.py", options.model, base], check=True)
        options.model = base
    comparison = Comparison(options)
    comparison.make()
    comparison.judge_all()
    for text in comparison.texts:
        comparison.print(text)


if __name__ == "__main__":
    main()
