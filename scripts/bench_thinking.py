#!/usr/bin/env python3
"""Accuracy and thinking tokens of the shipped model over HTTP, for budgets and adaptive thinking, and with fewer experts.

    chimere &                                   # serves models/nano by default
    python3 scripts/bench_thinking.py thinking --questions 500 --json thinking.json
    python3 scripts/bench_thinking.py experts --questions 500 --json experts.json
    CHIMERE_THINKING__PROBE_ENTROPY=1 chimere &   # takes every answer for sure, which shows what each threshold would have let through
    python3 scripts/bench_thinking.py calibrate --seed 8 --questions 400

Every mode is asked the same held-out questions (the generator's test split, by seed), so differences are paired. Intervals are of 95 %:
Wilson's for a share, Agresti and Min's for a paired difference. Rates are compared within small groups of questions that every mode
answers in turn, so that whatever else the machine does falls on all alike; what is told is the quartiles of the groups' ratios. --seconds
bounds what a mode of a family may take; questions that were not asked for that are counted nowhere. The standard library is all it needs.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "models/nano"))
from asking import Client, asked, difference, wilson  # noqa: E402
from tasks import arithmetic, strings  # noqa: E402
from tasks.grade import right  # noqa: E402

FAMILIES = {
    "arithmetic": lambda rng: arithmetic.make(rng, True, True),
    "strings": lambda rng: strings.make(rng, True, True),
}
MODES = {
    "0": {"reasoning": {"max_tokens": 0}},
    "16": {"reasoning": {"max_tokens": 16}},
    "32": {"reasoning": {"max_tokens": 32}},
    "64": {"reasoning": {"max_tokens": 64}},
    "128": {"reasoning": {"max_tokens": 128}},
    "free": {"reasoning": {"effort": "high"}},
    "hold": {"reasoning": {"adaptive": True}},
    "probe": {"reasoning": {"effort": "auto", "adaptive": False}},
    "auto": {"reasoning": {"effort": "auto"}},
}
FREE = "free"
ALL = "all"
EXPERTS = {ALL: {}} | {f"{mass:g}": {"moe": {"mass": mass}} for mass in (0.95, 0.9, 0.8, 0.6, 0.0)}
Answer = collections.namedtuple("Answer", "right tokens thinking probe entropy ended")
THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1)


class Server(Client):
    def ask(self, sample, fields, args):
        body = dict(messages=sample.prompt(), temperature=args.temperature, seed=args.seed, max_tokens=args.max_tokens, **fields)
        answer = self.call("/v1/chat/completions", body)
        said = answer["timings"].get("thinking", {})
        content = answer["choices"][0]["message"].get("content") or ""
        return Answer(bool(right(sample, content, [])), answer["usage"]["completion_tokens"], said.get("tokens", 0),
                      said.get("probe_tokens", 0), said.get("probe_entropy"), (said.get("ended") or ["?"])[0])

    def counter(self, name):
        values = [line.rsplit(" ", 1)[1] for line in self.text("/metrics").splitlines() if line.startswith(name + " ")]
        return float(values[0]) if values else 0.0


def run(server, samples, fields, args):
    """-> {number of the question: answer}, of those that there was time for."""
    return asked(lambda i: server.ask(samples[i], fields, args), range(len(samples)), args.concurrency, args.seconds)


def row(mode, answers, yardstick):
    """Of the questions that both have answered."""
    both = sorted(answers.keys() & yardstick.keys())
    answers, yardstick = ([found[i] for i in both] for found in (answers, yardstick))
    if not both:
        sys.exit(f"{mode}: no question was answered in time")
    n, good = len(answers), sum(a.right for a in answers)
    thinking, probe = sum(a.thinking for a in answers), sum(a.probe for a in answers)
    free = max(1, sum(a.thinking for a in yardstick))
    d, worse, better = difference([a.right for a in answers], [a.right for a in yardstick])
    return dict(mode=mode, right=good, n=n, accuracy=good / n, interval=wilson(good, n), difference=d, worse=worse, better=better,
                thinking=thinking / n, probe=probe / n, tokens=sum(a.tokens for a in answers) / n, fewer=1 - thinking / free,
                fewer_with_probe=1 - (thinking + probe) / free, ended=dict(collections.Counter(a.ended for a in answers)))


def seconds(args):
    """On the wall's clock, or those that the server's process has computed, its prompts included."""
    if not args.pid:
        return time.monotonic()
    fields = pathlib.Path(f"/proc/{args.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def experts(server, samples, args):
    """Accuracy, mean experts and rate of each mass. The groups' modes take turns, beginning with another one each time."""
    answers, rates, used = collections.defaultdict(dict), collections.defaultdict(list), collections.defaultdict(list)
    for turn, first in enumerate(range(0, len(samples), args.group)):
        group = samples[first:first + args.group]
        modes = list(EXPERTS)
        shift = turn % len(modes)
        for mode in modes[shift:] + modes[:shift]:
            before = [server.counter(f"chimere_moe_{what}_total") for what in ("rows", "experts")]
            begin = seconds(args)
            got = run(server, group, EXPERTS[mode], args)
            rates[mode].append(sum(a.tokens for a in got.values()) / max(1e-3, seconds(args) - begin))
            after = [server.counter(f"chimere_moe_{what}_total") for what in ("rows", "experts")]
            used[mode].append((after[0] - before[0], after[1] - before[1]))
            answers[mode] |= {first + i: answer for i, answer in got.items()}
    lines = []
    for mode in EXPERTS:
        rows, given = (sum(x) for x in zip(*used[mode]))
        ratios = [a / b for a, b in zip(rates[mode], rates[ALL])]
        # A step that ends after its reply is counted in the next turn, so the yardstick sees a few rows of others.
        mean = None if mode == ALL or rows == 0 else given / rows
        line = row(mode, answers[mode], answers[ALL]) | dict(experts=mean, rates=statistics.quantiles(ratios, n=4))
        lines.append(line)
        show(line)
    return lines


def calibrate(server, samples, args):
    """Of the answers without a thought: which share each threshold takes for sure, and which share of all is wrong among these."""
    answers = run(server, samples, MODES["probe"], args).values()
    if any(a.ended != "sure" for a in answers):
        sys.exit("calibrate wants a server with CHIMERE_THINKING__PROBE_ENTROPY=1")
    lines = []
    for threshold in THRESHOLDS:
        sure = [a for a in answers if a.entropy <= threshold]
        lines.append(dict(threshold=threshold, sure=len(sure) / len(answers), wrong=sum(not a.right for a in sure) / len(answers)))
        print(f"  {threshold:5}: sure {lines[-1]['sure']:.1%}, wrong {lines[-1]['wrong']:.2%} of all", flush=True)
    return lines


def show(line):
    low, high = line["interval"]
    text = f"{line['mode']:>8} {line['right']:5}/{line['n']} {line['accuracy']:7.1%} [{low:.1%}, {high:.1%}]"
    text += f" paired {100 * line['difference']:+.2f} [{100 * line['worse']:+.2f}, {100 * line['better']:+.2f}] points"
    if "rates" in line:
        mean, (low, middle, high) = f"{line['experts']:.2f}" if line["experts"] else "as the model has it", line["rates"]
        print(f"{text}, experts {mean}, rate x {middle:.2f} (half of the groups {low:.2f} to {high:.2f})", flush=True)
        return
    text += f", thinking {line['thinking']:.1f} ({line['fewer']:.1%} fewer)"
    if line["probe"]:
        text += f", with the probe's {line['probe']:.1f} {line['fewer_with_probe']:.1%} fewer"
    print(text, line["ended"], flush=True)


OTHERS = {"experts": experts, "calibrate": calibrate}


def keep(results, args):
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(arguments=vars(args), results=results), indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["thinking", "experts", "calibrate"])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--questions", type=int, default=500, help="a family")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--mode", choices=MODES, action="append", help="of thinking; default: all, free is always asked")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--max-tokens", type=int, default=1400)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=600, help="most that a mode of a family may take")
    parser.add_argument("--group", type=int, default=25, help="questions of experts that every mass answers in turn; at least --concurrency is best")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--pid", type=int, help="of the server: rates by its own processor time, for a machine that does other work too")
    parser.add_argument("--json")
    args = parser.parse_args()
    server, results, pooled = Server(args.url, args.timeout), {}, collections.defaultdict(dict)
    for family in args.family or FAMILIES:
        rng = random.Random(f"thinking {args.seed} {family}")
        samples = [FAMILIES[family](rng) for _ in range(args.questions)]
        print(f"{family}, {len(samples)} held-out questions, temperature {args.temperature}", flush=True)
        if args.what in OTHERS:
            results[family] = OTHERS[args.what](server, samples, args)
            keep(results, args)
            continue
        answers = {FREE: run(server, samples, MODES[FREE], args)}
        results[family] = []
        for mode in args.mode or MODES:
            if mode not in answers:
                answers[mode] = run(server, samples, MODES[mode], args)
            line = row(mode, answers[mode], answers[FREE])
            results[family].append(line)
            show(line)
            keep(results, args)
        for mode, got in answers.items():
            pooled[mode] |= {(family, i): answer for i, answer in got.items()}
    if len(results) > 1 and pooled:
        print("all families together", flush=True)
        results["together"] = [row(mode, got, pooled[FREE]) for mode, got in pooled.items()]
        for line in results["together"]:
            show(line)
        keep(results, args)


if __name__ == "__main__":
    main()
