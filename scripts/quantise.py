#!/usr/bin/env python3
"""Compares schemes of `chimere quantize` at equal bytes on text that calibration never saw, and prediction with
measurement. Prints the tables of docs/quantise.md; --json keeps all figures.

    python3 scripts/quantise.py --chimere target/release/chimere
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = ["Q4_K", "Q5_K", "Q6_K"]
SCHEMES = ["kl", "error", "ramp"]


def run(chimere, *args):
    subprocess.run([chimere, *map(str, args)], check=True, stdout=subprocess.DEVNULL)


def quantise(options, out, *args):
    """The report of a file, which is made unless it is there."""
    report = out.with_name(out.name + ".json")
    if not report.exists():
        common = ["--model", options.model, "--out", out, "--work", options.work, "--mtp", "keep"]
        common += ["--sequences", options.sequences, "--tokens", options.tokens, "--depths", options.depths]
        run(options.chimere, "quantize", *common, "--threads", options.threads, *args)
    return json.loads(report.read_text())


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
    parser.add_argument("--model", default=ROOT / "models/nano/nano-q8_0.gguf")
    parser.add_argument("--text", default=ROOT / "models/nano/heldout.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/quantise")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=2048, help="of calibration, for divergences")
    parser.add_argument("--depths", type=int, default=4)
    parser.add_argument("--judge-tokens", type=int, default=3072, help="of the text")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    reports = {}
    for size in SIZES:
        out = options.work / f"{size}-uniform.gguf"
        reports[size, "uniform"] = quantise(options, out, "--scheme", f"uniform:{size}")
        bits = repr(reports[size, "uniform"]["bpw"] + 1e-9)
        for scheme in SCHEMES:
            out = options.work / f"{size}-{scheme}.gguf"
            reports[size, scheme] = quantise(options, out, "--scheme", scheme, "--target", f"{bits}bpw")

    judged = options.work / "judged.json"
    files = [arg for report in reports.values() for arg in ("--model", report["out"])]
    run(options.chimere, "eval", "kld", "--base", options.model, *files, "--text", options.text, "--json", judged,
        "--tokens", options.judge_tokens, "--threads", options.threads)
    measured = {m["model"]: m for m in json.loads(judged.read_text())["models"]}

    print("| size | scheme | bits | mean KL | 99.9 % KL | same top | mean KL beside kl |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (size, scheme), report in reports.items():
        m, best = measured[report["out"]], measured[reports[size, "kl"]["out"]]
        print(f"| {size} | {scheme} | {report['bpw']:.3f} | {m['mean']:.6f} | {m['p99.9']:.4f} | "
              f"{100 * m['same_top']:.2f} % | {m['mean'] / best['mean']:.2f} |")

    alpha = {g["group"]: g["alpha"] for g in reports["Q4_K", "kl"]["groups"]}
    predicted = [expected(report, alpha) for report in reports.values()]
    means = [measured[report["out"]]["mean"] for report in reports.values()]
    print(f"\nrank correlation of expected and measured divergence over {len(means)} files: "
          f"{spearman(predicted, means):.3f}")
    for size in SIZES:
        report = reports[size, "kl"]
        own = report["calibration_kl"]["mean"]
        print(f"{size}, kl: expected {report['expected_kl']:.6f}, on calibration text {own:.6f}, "
              f"on this text {measured[report['out']]['mean']:.6f}")
    if options.json:
        rows = [{"size": s, "scheme": c, "report": r, "measured": measured[r["out"]]} for (s, c), r in reports.items()]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
