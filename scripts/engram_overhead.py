#!/usr/bin/env python3
"""What tables cost in tokens a second: the same requests with and without, in turn, many times.

    CHIMERE_ENGRAM__DIRECTORY=tables chimere &
    python3 scripts/engram_overhead.py --table docs --lambda 1e-4 --streams 16 --tokens 512 --rounds 30

A round is one burst of requests without tables and one with, in an order that changes; its figure is the ratio of their tokens a second. Each
round asks other things with other seeds: where one token is changed the rest of a text is another one, with other experts and a speed of its own, so that
one text a side, timed many times, tells of the texts. The median of the ratios and the 95 % interval of that median (by ranks) are told, so that
other work on the machine troubles both alike.
The strength is so small that both say nearly the same. --letters lets the model choose among the letters and the space alone, in both: random
weights choose among ids that no text has, which no table would know. --seconds ends the rounds early. --pid, of a service on this machine, also
tells of each of its threads the processor time and the switches that a token costs, with tables and without: on a machine with other work that tells
more than the ratio. The standard library is enough.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import pathlib
import string
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models/nano"))
from asking import Client  # noqa: E402

PROMPT = "The documentation of this function says that it returns"
LETTER_BIAS = 100           # the most that the interface takes


def letters(client):
    """Ids of the letters and the space, each a token of its own."""
    ids = {client.call("/tokenize", dict(prompt=letter))["tokens"][0] for letter in string.ascii_lowercase + " "}
    return dict(logit_bias={str(i): LETTER_BIAS for i in ids})


def burst(client, args, more, number):
    """The burst of a round -> tokens a second over all streams of one burst, positions looked up, positions where a table knew something."""
    def one(i):
        seed = number * args.streams + i
        body = dict(prompt=f"{PROMPT} {seed}", max_tokens=args.tokens, temperature=0.8, seed=seed, ignore_eos=True)
        return client.call("/v1/completions", body | more)

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.streams) as pool:
        replies = list(pool.map(one, range(args.streams)))
    speed = sum(reply["usage"]["completion_tokens"] for reply in replies) / (time.monotonic() - begin)
    engram = [reply["timings"].get("engram", {}) for reply in replies]
    return speed, sum(e.get("lookups", 0) for e in engram), sum(e.get("hits", 0) for e in engram)


def threads(pid):
    """-> (nanoseconds of processor time, switches) of the threads of a process, by their names."""
    found = collections.Counter(), collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if pid else ():
        name = (task / "comm").read_text().strip()
        found[0][name] += int((task / "schedstat").read_text().split()[0])
        found[1][name] += sum(int(line.split()[1]) for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line)
    return found


def tell_threads(costs):
    """`costs`: with tables or not -> ((time, switches), tokens)."""
    (on, tokens_on), (off, tokens_off) = costs[True], costs[False]
    for name in sorted(on[0], key=lambda name: -on[0][name])[:8]:
        each = [(c[0][name] / 1e3 / n, c[1][name] / n) for c, n in ((on, tokens_on), (off, tokens_off))]
        print(f"  {name:<16}" + "; ".join(f"{us:8.3f} us and {switches:6.3f} switches a token {which}"
                                           for (us, switches), which in zip(each, ("with tables", "without"))))


def median_interval(values):
    """-> median, and the ranks' 95 % interval around it."""
    ordered, n = sorted(values), len(values)
    reach = math.ceil(1.96 * math.sqrt(n) / 2)
    low, high = max(0, n // 2 - reach), min(n - 1, (n - 1) // 2 + reach)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2, ordered[low], ordered[high]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--table", required=True, action="append", help="a table's name; may be given several times")
    how = ap.add_mutually_exclusive_group(required=True)
    how.add_argument("--lambda", dest="share", type=float, help="share of a mixture, e.g. 1e-4")
    how.add_argument("--alpha", type=float, help="strength of a bias, e.g. 1e-4")
    how.add_argument("--auto", action="store_true", help="a strength that is computed, as it is by default")
    ap.add_argument("--letters", action="store_true")
    ap.add_argument("--streams", type=int, default=8)
    ap.add_argument("--tokens", type=int, default=128)
    ap.add_argument("--rounds", type=int, default=30)
    ap.add_argument("--seconds", type=float, default=math.inf, help="no round begins later than this")
    ap.add_argument("--pid", type=int, help="process of the service")
    ap.add_argument("--json", type=pathlib.Path)
    args = ap.parse_args()
    client = Client(args.url, 600)
    both = letters(client) if args.letters else {}
    given = {"lambda": args.share, "alpha": args.alpha}
    strength = {name: value for name, value in given.items() if value is not None}
    on = both | dict(engram={"tables": args.table, **strength})
    begin, ratios, speeds, lookups, hits = time.monotonic(), [], [], 0, 0
    costs = {tables: ((collections.Counter(), collections.Counter()), 0) for tables in (True, False)}
    burst(client, args, both, 0), burst(client, args, on, 0)
    while len(ratios) < args.rounds and time.monotonic() - begin < args.seconds:
        order = [both, on] if len(ratios) % 2 else [on, both]
        found = {}
        for more in order:
            before = threads(args.pid)
            found[more is on] = burst(client, args, more, len(ratios))
            spent, tokens = costs[more is on]
            for total, then, now in zip(spent, before, threads(args.pid)):
                total.update({name: now[name] - then[name] for name in now})
            costs[more is on] = spent, tokens + args.streams * args.tokens
        ratios.append(found[True][0] / found[False][0])
        speeds.append(found[False][0])
        lookups, hits = lookups + found[True][1], hits + found[True][2]
    if not ratios:
        sys.exit("no round was done in time")
    median, low, high = median_interval(ratios)
    known = hits / max(1, lookups)
    print(f"with tables / without: {median:.4f}, 95 % {low:.4f} to {high:.4f}, over {len(ratios)} rounds of {args.streams} streams x {args.tokens} "
          f"tokens; {median_interval(speeds)[0]:,.0f} tokens/s without; a table knew something at {known:.1%} of {lookups:,} positions")
    if args.pid:
        tell_threads(costs)
    if args.json:
        args.json.write_text(json.dumps(dict(arguments={k: str(v) for k, v in vars(args).items()}, median=median, low=low, high=high, ratios=ratios,
                                             tokens_per_s=speeds, known=known), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
