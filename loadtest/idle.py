#!/usr/bin/env python3
"""What streams notice of idle work: times between the tokens of STREAMS streams, and first tokens, with a self-test beside them and without.

    python3 loadtest/idle.py --chimere target/release/chimere                     # the shipped model on the CPU
    python3 loadtest/idle.py --chimere ./chimere --texts 4000 -- --device cuda --model 35b.gguf

Runs with idle work and without take turns, PAIRS of each. Idle work is the self-test of a collection of TEXTS texts, which the model reads.
A run has two parts of SECONDS each: STREAMS streams that begin again as soon as they have ended, and single short requests with PAUSE_MS
between them, which meet the service with nothing to do but idle work. Fails if the median over the pairs of the p95 between tokens is more
than MOST per cent longer with idle work, if none was done beside the streams, or if a request failed. Only the standard library is needed.
"""
import argparse
import asyncio
import contextlib
import http.client
import json
import math
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time
import urllib.parse

import arrivals
from everything import WORDS, service

REPLY_SECONDS, START_SECONDS, COLLECTION = 600, 60, "/v1/engram/collections/idle"
ADDED_AT_ONCE, ANSWER_TOKENS, PROMPT_WORDS, PAUSE_MS = 64, 400, 60, 30


class Service:
    """A service, asked beside the load."""

    def __init__(self, url):
        self.host, self.endpoint = urllib.parse.urlsplit(url).netloc, arrivals.Endpoint(url, None)

    def ask(self, method, path, body=None):
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=REPLY_SECONDS)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
            reply = connection.getresponse()
            text = reply.read()
        if reply.status >= 300:
            sys.exit(f"{method} {path} got {reply.status}: {text[:400].decode(errors='replace')}")
        return text

    def idle_rows(self):
        found = re.search(r"^chimere_idle_rows_total (\S+)$", self.ask("GET", "/metrics").decode(), re.M)
        return float(found[1]) if found else 0.0

    def begin_idle(self, texts, seed):
        """Fills a collection, and waits until its self-test reads."""
        rng = random.Random(seed)
        sentence = lambda: " ".join(rng.choice(WORDS) for _ in range(12)).capitalize() + "."
        self.ask("PUT", COLLECTION)
        for at in range(0, texts, ADDED_AT_ONCE):
            items = [{"id": str(n), "text": " ".join(sentence() for _ in range(8))} for n in range(at, min(at + ADDED_AT_ONCE, texts))]
            self.ask("POST", COLLECTION + "/add", {"items": items})
        before, end = self.idle_rows(), time.monotonic() + START_SECONDS
        while self.idle_rows() == before:
            if time.monotonic() > end:
                sys.exit("the self-test of the collection does not begin")
            time.sleep(0.1)

    def end_idle(self):
        self.ask("DELETE", COLLECTION)


def body(rng, tokens, drafts):
    words = " ".join(rng.choice(WORDS) for _ in range(PROMPT_WORDS))
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": tokens, "ignore_eos": True, "temperature": 1, "seed": rng.randrange(2**31),
            "stream": True, "stream_options": {"include_usage": True}}
    return body if drafts else body | {"drafts": False}


async def stream(service, rng, until, args, records, tokens=ANSWER_TOKENS, pause=0.0):
    """Requests one after the other."""
    while (begin := time.monotonic()) < until:
        record = arrivals.Record(0.0)
        records.append(record)
        await arrivals.follow(service.endpoint, body(rng, tokens, args.drafts), record, begin)
        await asyncio.sleep(pause)


async def streams(service, args, seed):
    records, until = [], time.monotonic() + args.seconds
    await asyncio.gather(*(stream(service, random.Random(seed * 1000 + n), until, args, records) for n in range(args.streams)))
    return records


async def singles(service, args, seed):
    records = []
    await stream(service, random.Random(seed), time.monotonic() + args.seconds, args, records, tokens=2, pause=PAUSE_MS / 1e3)
    return records


def percentile(values, percent):
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def run(service, args, idle, seed):
    """Figures of one run: milliseconds between tokens and to the first token, tokens a second, idle rows a second."""
    if idle:
        service.begin_idle(args.texts, seed)
    before, began = service.idle_rows(), time.monotonic()
    records = asyncio.run(streams(service, args, seed))
    took, rows = time.monotonic() - began, service.idle_rows() - before
    gaps = [1e3 * gap for record in records for gap in record.gaps]
    alone = asyncio.run(singles(service, args, seed))
    after = service.idle_rows()
    firsts = [1e3 * record.first for record in alone]
    if idle:
        service.end_idle()
    return {"itl50": percentile(gaps, 50), "itl95": percentile(gaps, 95), "itl99": percentile(gaps, 99), "first50": percentile(firsts, 50),
            "first95": percentile(firsts, 95), "tokens": sum(record.output_tokens for record in records) / took, "idle": rows / took,
            "idle_alone": (after - before - rows) / args.seconds}


COLUMNS = {"itl50": "ITL50", "itl95": "ITL95", "itl99": "ITL99", "tokens": "tokens/s", "idle": "idle rows/s", "first50": "alone: TTFT50",
           "first95": "TTFT95", "idle_alone": "idle rows/s"}


def row(name, figures):
    return f"{name:18}" + " ".join(f"{figures[column]:>{len(title)}.{2 if column[0] in 'if' and column[:4] != 'idle' else 0}f}" for column, title in COLUMNS.items())


def judge(pairs, args):
    """Whether idle work may be there: the median over the pairs of how much longer they were with it."""
    change = lambda column: [100 * (with_idle[column] / without[column] - 1) for without, with_idle in pairs]
    for column in ("itl50", "itl95", "itl99", "tokens", "first50", "first95"):
        values = change(column)
        print(f"{COLUMNS[column]}: {statistics.median(values):+.1f} % with idle work (from {min(values):+.1f} to {max(values):+.1f})")
    idle = min(with_idle["idle"] for _, with_idle in pairs)
    if idle <= 0:
        print("FAILED: no idle work was done beside the streams")
    elif statistics.median(change("itl95")) > args.most:
        print(f"FAILED: more than {args.most} % longer")
    else:
        print("HELD")
        return 0
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, required=True, help="program that serves")
    parser.add_argument("--streams", type=int, default=16, help="at once [16]")
    parser.add_argument("--texts", type=int, default=400, help="of the collection [400]")
    parser.add_argument("--seconds", type=float, default=15, help="of each part of a run [15]")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each kind [5]")
    parser.add_argument("--most", type=float, default=5, help="per cent by which the p95 between tokens may grow [5]")
    parser.add_argument("--drafts", action="store_true", help="streams are drafted for, whose steps idle work keeps out of")
    parser.add_argument("flags", nargs="*", help="flags for the service, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CHIMERE_ENGRAM__DIRECTORY"] = folder
        with service(args.chimere.resolve(), args.flags) as (url, _):
            served, pairs = Service(url), []
            run(served, args, False, 0)
            print(f"{'':18}" + " ".join(COLUMNS.values()))
            for pair in range(args.pairs):
                # Whichever comes second has a warmer machine, so they take turns in that too.
                order = (False, True) if pair % 2 == 0 else (True, False)
                both = {idle: run(served, args, idle, pair + 1) for idle in order}
                pairs.append((both[False], both[True]))
                print(row("without idle work", both[False]))
                print(row("with idle work", both[True]), flush=True)
    return judge(pairs, args)


if __name__ == "__main__":
    sys.exit(main())
