#!/usr/bin/env python3
"""The most that drafts can gain on a machine: what a step of one user takes with 1 to 7 drafts, over one without, and with the guesses of the draft head;
and with --tasks, by row of the shipped model's card, what the head's guesses that are right there could make of these times.

    python3 scripts/draft_bound.py --chimere target/release/chimere --threads 2 --tasks

`bench step` makes each step's drafts at random and takes none for accepted, so that all cases stand at the same positions; steps without drafts are timed
beside each of them, by the same process. The least of --rounds times --repeat runs of all cases, because other work on the machine only adds. From them:

free         Tokens a time over none drafted, if all drafts were right and cost nothing to make: no source can gain more on this machine.
head         The same with the guesses of the draft head and the shares of --accept of them that are right where those before them were (those of the shipped
             model on its card's questions, `scripts/draft_ids.py`).
row, guess   What one row more and one guess more take, each over a step without drafts: the sums of both that --wanted allows stand in the last column.

--tasks asks --questions of each row of the card from a service that drafts seven guesses of the head in each step, and counts how many are right at each
place: counts, which no machine changes. For each row are told the shares, the tokens that a step brings, and the gains that follow from them and from the
times above, over none drafted:

fixed        The best number of drafts, the same in each step: with drafts that cost nothing to make, and with what the head's guesses cost.
knowing      A gate that knows beforehand how many guesses will be right, and has just these made and verified: no gate can gain more with these guesses and
             times. Where it is below --wanted with what guesses cost, no choice of how many to draft brings that.
floor        The same, if a step with k drafts took no more than one without and k rows of a prompt of 512, of which many share each weight: as if nothing
             ever waited for the host and rows had no cost of their own. What the head's guesses cost is counted.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

PLACES = 7


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


def prompt_row(args):
    """-> milliseconds that a row of a prompt takes."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        command = [args.chimere, "bench", "step", "--batch", "0", "--context", "0", "--prefill", "512", "--repeat", str(args.repeat), "--json", str(out)]
        command += ["--threads", str(args.threads)] if args.device == "cpu" else []
        command += ["--device", args.device] + (["--model", args.model] if args.model else [])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return min(row["ms"]["min"] / (row["sequences"] * row["tokens"]) for row in json.loads(out.read_text())["prefill"])


def tokens(shares, drafts):
    """Tokens a step, where a draft is right with its share if those before it were."""
    sum_of, chance = 1.0, 1.0
    for share in (shares + shares[-1:] * drafts)[:drafts]:
        chance *= share
        sum_of += chance
    return sum_of


def counted_by_task(args):
    """-> by row of the card, the steps with drafts and in how many of them at least the first, the first two, and so on were right."""
    from draft_ids import ROWS, Service, counted
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models/nano"))
    from eval import as_sent
    from rows import instances

    def seen(client):
        places = counted(client, "chimere_accepted_tokens_total")
        right = [sum(n for labels, n in places.items() if f'position="{i}"' in labels) for i in range(1, PLACES + 1)]
        return [sum(counted(client, "vllm:spec_decode_num_drafts_total").values())] + right

    args.flags = ["--drafts", str(PLACES), "--draft-sources", "mtp"]
    with Service(args, *args.flags) as client:
        rng, before = random.Random(args.seed), seen(client)
        for label in ROWS:
            for sample in instances(rng, label, args.questions):
                body = dict(messages=as_sent(sample.prompt()), max_tokens=600, chat_template_kwargs={"enable_thinking": sample.thinking}, temperature=0, seed=7,
                            cache=False)
                client.call("/v1/chat/completions", body | (dict(tools=sample.tools) if sample.tools else {}))
            now = seen(client)
            yield label, [b - a for a, b in zip(before, now)]
            before = now


def at(took, k):
    """What k drafts take, between numbers that were measured what lies between."""
    low, high = max(n for n in took if n <= k), min(n for n in took if n >= k)
    return took[low] + (took[high] - took[low]) * (k - low) / max(high - low, 1)


def gains(counts, took):
    """-> the best fixed number of drafts, its gain, and that of a gate that knows, with steps of k drafts that take took[k] over one without."""
    steps, right = counts[0], counts[1:]
    fixed = {k: (1 + sum(right[:k]) / steps) / at(took, k) for k in range(1, max(took) + 1)}
    best = max(fixed, key=fixed.get)
    most = [steps] + right[:max(took)]
    exactly = [a - b for a, b in zip(most, most[1:] + [0])]
    knowing = sum(n * (1 + k) for k, n in enumerate(exactly)) / sum(n * at(took, k) for k, n in enumerate(exactly))
    return best, fixed[best], knowing


def tell_tasks(args, over, row):
    free = {0: 1.0} | {k: over[k, 0] for k in args.drafts}
    made = [k for k in args.drafts if (k, k) in over]
    head = {0: 1.0} | {k: over[k, k] for k in made}
    guess = min((over[k, k] - over[k, 0]) / k for k in made)
    costs = dict(free=free, head=head)
    if row is not None:
        costs["floor"] = {0: 1.0} | {k: 1 + k * (row + guess) for k in made}
        print(f"\na prompt's row takes {row:.3f} of a step without drafts", end="")
    print(f"\nby row of the card, one user; a guess takes {guess:.2f} of a step without drafts")
    columns = ["row", "steps", "right at 1", "2", "3", "tokens a step"] + [column for name in costs for column in (f"{name}: fixed", "knowing")]
    print(f"| {' | '.join(columns)} |\n|" + " --- |" * len(columns))
    for label, counts in counted_by_task(args):
        if not counts[0]:
            print(f"| {label} | 0 |" + " |" * (len(columns) - 2), flush=True)
            continue
        shares = [after / before if before else 0 for before, after in zip(counts, counts[1:4])]
        cells = [f"{sum(counts) / counts[0]:.2f}"]
        for took in costs.values():
            best, fixed, knowing = gains(counts, took)
            cells += [f"{fixed:.2f} ({best})", f"{knowing:.2f}"]
        print(f"| {label} | {counts[0]:.0f} | {' | '.join(f'{share:.3f}' for share in shares)} | {' | '.join(cells)} |", flush=True)


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
    ap.add_argument("--accept", type=float, nargs="*", default=[1.0, 0.981, 0.991])
    ap.add_argument("--wanted", type=float, default=1.4, help="gain for which the cost of a row and its guess is told")
    ap.add_argument("--tasks", action="store_true", help="also by row of the card")
    ap.add_argument("--over", type=float, nargs="*", help="what steps with --drafts drafts take over one without, measured before: nothing is timed")
    ap.add_argument("--guess", type=float, help="and what a guess takes")
    ap.add_argument("--row", type=float, help="and a prompt's row; else no floor is told")
    ap.add_argument("--questions", type=int, default=12, help="of each row of the card")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    if args.over:
        over = {(k, 0): took for k, took in zip(args.drafts, args.over, strict=True)}
        return tell_tasks(args, over | {(k, k): took + k * args.guess for (k, _), took in over.items()}, args.row)
    cases = [(k, g) for k in args.drafts for g in ([0, k] if k <= len(args.accept) or args.tasks else [0])]
    took = {case: [] for case in cases}
    for _ in range(args.rounds):
        for case in cases:
            took[case].append(measured(args, *case))
    every = [off for case in cases for off, _ in took[case]]
    one = min(every)
    over = {case: min(on for _, on in took[case]) / one for case in cases}
    print(f"a step without drafts: {one * 1e3:.1f} us (the median of all {statistics.median(every) * 1e3:.1f}), {args.users} users")
    print("| drafts | over a step without | a row more | free | with guesses | a guess | head | row and guess may take |\n|" + " --- |" * 8)
    for k in args.drafts:
        rows = f"| {k} | {over[k, 0]:.2f} | {(over[k, 0] - 1) / k:.2f} | {(k + 1) / over[k, 0]:.2f} |"
        if (k, k) in over:
            gain, may = tokens(args.accept, k) / over[k, k], (tokens(args.accept, k) / args.wanted - 1) / k
            rows += f" {over[k, k]:.2f} | {(over[k, k] - over[k, 0]) / k:.2f} | {gain:.2f} | {may:.2f} |"
        print(rows + ("" if (k, k) in over else " | | | |"), flush=True)
    if args.tasks:
        tell_tasks(args, over, prompt_row(args) / one)


if __name__ == "__main__":
    main()
