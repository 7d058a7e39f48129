#!/usr/bin/env python3
"""What tables cost in tokens a second: the same requests with and without, in turn, many times.

    CHIMERE_ENGRAM__DIRECTORY=tables chimere &
    python3 scripts/engram_overhead.py --table docs --rounds 30

A round is one burst of requests without tables and one with, in an order that changes; its figure is the ratio of their tokens a second. The
median of the ratios and the 95 % interval of that median (by ranks) are told, so that other work on the machine troubles both alike.
The strength is so small that both say nearly the same. Nothing but the standard library is needed.
"""
import argparse
import concurrent.futures
import json
import math
import sys
import time
import urllib.request

PROMPT = "The documentation of this function says that it returns"


def burst(args, engram):
    """-> tokens a second over all streams of one burst."""
    def one(i):
        body = dict(prompt=f"{PROMPT} {i}", max_tokens=args.tokens, temperature=0.8, seed=i, ignore_eos=True)
        request = urllib.request.Request(args.url + "/v1/completions", json.dumps(body | engram).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)["usage"]["completion_tokens"]

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.streams) as pool:
        tokens = sum(pool.map(one, range(args.streams)))
    return tokens / (time.monotonic() - begin)


def median_interval(values):
    """-> median, and the ranks' 95 % interval around it."""
    ordered, n = sorted(values), len(values)
    reach = math.ceil(1.96 * math.sqrt(n) / 2)
    low, high = max(0, n // 2 - reach), min(n - 1, (n - 1) // 2 + reach)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2, ordered[low], ordered[high]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--table", required=True, action="append")
    ap.add_argument("--streams", type=int, default=8)
    ap.add_argument("--tokens", type=int, default=128)
    ap.add_argument("--rounds", type=int, default=30)
    args = ap.parse_args()
    on = dict(engram={"tables": args.table, "lambda": 1e-4})
    burst(args, {}), burst(args, on)
    ratios = []
    for i in range(args.rounds):
        order = [{}, on] if i % 2 else [on, {}]
        speed = {bool(engram): burst(args, engram) for engram in order}
        ratios.append(speed[True] / speed[False])
    median, low, high = median_interval(ratios)
    print(f"with tables / without: {median:.4f}, 95 % {low:.4f} to {high:.4f}, over {args.rounds} rounds of {args.streams} streams x {args.tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
