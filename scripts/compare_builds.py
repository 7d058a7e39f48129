#!/usr/bin/env python3
"""How fast a build is beside another: both serve at a time, and the same requests are put to each in turns, over HTTP.

    scripts/compare_builds.py --chimere OLD --chimere NEW
    scripts/compare_builds.py --chimere OLD --chimere NEW --setting "--device cpu --threads 2 --config tables.toml" --table docs

Prints, by kind of work, medians of tokens a second, the median of the second's over the first's, and their middle half: completions of one
user and of eight, eight whose answers have a form, prompts of some 1,500 tokens, and with `--table` eight beside that table. The order
changes each turn. Nothing else should run. The standard library is all it needs.
"""
import argparse
import concurrent.futures
import json
import statistics
import time
import urllib.request

from same_bytes import REQUEST_SECONDS, SETTINGS, Server

SCHEMA = {"type": "object", "required": ["name", "n", "ok"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "ok": {"type": "boolean"},
                         "n": {"type": "array", "items": {"type": "integer"}, "minItems": 12, "maxItems": 12}}}
TEXT = "The function returns a value when it is called again. "
TOKENS, REPEATS = 256, 140


def body(kind, seed, table):
    asked = {"prompt": f"The documentation of function {seed} says that it returns", "max_tokens": TOKENS, "seed": seed, "temperature": 0.8,
             "ignore_eos": True}
    if kind == "schema":
        del asked["ignore_eos"]
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    elif kind == "table":
        asked["engram"] = {"tables": [table], "lambda": 1e-4}
    elif kind == "prompts":
        asked |= {"prompt": f"{seed} {TEXT * REPEATS}", "max_tokens": 1}
    return asked


def tokens(server, kind, seed, table):
    """Tokens that were said, of prompts those that were read."""
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body(kind, seed, table)).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as reply:
        return json.load(reply)["usage"]["prompt_tokens" if kind == "prompts" else "completion_tokens"]


def rate(server, kind, turn, table):
    users = 1 if kind in ("one", "prompts") else 8
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(users) as pool:
        said = sum(pool.map(lambda user: tokens(server, kind, 100 * turn + user, table), range(users)))
    return said / (time.monotonic() - begin)


def compare(servers, kind, args):
    rates = []
    for turn in range(args.turns + 1):
        order = servers if turn % 2 else servers[::-1]
        taken = {server.url: rate(server, kind, turn, args.table) for server in order}
        rates.append([taken[server.url] for server in servers])
    old, new = zip(*rates[1:])
    quarters = statistics.quantiles([n / o for o, n in zip(old, new)], n=4)
    print(f"| {kind} | {statistics.median(old):,.0f} | {statistics.median(new):,.0f} | {quarters[1]:.3f} | {quarters[0]:.3f} to {quarters[2]:.3f} |",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", action="append", required=True, metavar="FILE", help="a build; twice, the one to compare with first")
    parser.add_argument("--model", default="models/nano", help="what both serve [%(default)s]")
    parser.add_argument("--setting", default=SETTINGS[0], help="their options [%(default)s]")
    parser.add_argument("--table", metavar="NAME", help="also ask beside this table of Engram's")
    parser.add_argument("--turns", type=int, default=40, help="of each kind, behind one that does not count [%(default)s]")
    args = parser.parse_args()
    if len(args.chimere) != 2 or args.turns < 2:
        parser.error(f"two builds and two turns at least are compared: {len(args.chimere)} builds, {args.turns} turns came")
    print("| work | tokens/s | second | over the first | middle half |\n| --- | --- | --- | --- | --- |")
    with Server(args.chimere[0], args.model, args.setting) as old, Server(args.chimere[1], args.model, args.setting) as new:
        for kind in ["one", "eight", "schema", "prompts"] + ["table"] * bool(args.table):
            compare([old, new], kind, args)


if __name__ == "__main__":
    main()
