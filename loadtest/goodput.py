#!/usr/bin/env python3
"""Finds the highest rate of arrivals at which an OpenAI endpoint still answers as fast as a team wants.

    python3 loadtest/goodput.py --url http://HOST:8080 --mix chat                     # key in API_KEY; any server with chat completions
    python3 loadtest/goodput.py --url http://HOST:8000 --model NAME --mix agents --json goodput.json
    python3 loadtest/goodput.py --chimere ./chimere --mix chat --engine 62000,15500 -- --device cuda --model 35b.gguf

A rate holds if 95 of 100 requests have their first token within TTFT_MS and 95 of 100 times between two chunks of a stream are within ITL_MS.
Arrivals are a Poisson process with a seed, the same one at every rate but for its pace, and are sent when they are due (open loop): a slow
server gets no fewer. The time to the first token counts from when a request was due. A request that is refused, fails or is not done
GRACE seconds after the last arrival counts as one without a first token. The rate is doubled until it does not hold and then halved in
between, until two rates lie within PRECISION of each other; a probe that cannot hold any more ends early.

Mixes, in tokens, all times SCALE (medians of lognormal lengths, which are cut off at four times the median):
    chat     prompts of 1,020 and answers of 129: medians of the 19,366 conversations in Azure's trace of 2023 (Splitwise, arXiv:2311.18677;
             the logarithms of their lengths have deviations of 0.99 and 0.86)
    agents   one of four shared prompts of 6,000 (instructions and tools), 800 of its own, and answers of 60: lengths chosen here
Answers have their full length where the server takes `ignore_eos`, as Chimère, vLLM and llama.cpp do; --eos does not ask for it.

With --engine PROMPT,DECODE (tokens a second of `chimere bench` for this model and card) the result is held against what the engine alone
could do; a Chimère says itself how busy its engine was. Exits with 1 if no rate holds, if it is below LEAST, or if this client was late
itself. Only the standard library is needed.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import math
import os
import pathlib
import random
import re
import sys
import time
import urllib.parse

import arrivals
from everything import WORDS, service

# Share of a probe's time at whose beginning requests are sent and not judged: streams are still few.
WARM = 0.2
SHARE = 95
REPLY_SECONDS = 300
# A client that sends so much later than a request is due, of the limit to the first token, measures itself.
LATE_SHARE = 0.1
SHARED_PROMPTS = 4
# A slow rate still has enough requests to tell a share of 95 by. Rates at which these take four times as long are not tried.
REQUESTS_MIN = 20
# Prompt shared with others, own prompt, answer: tokens. The own ones are medians.
MIXES = {"chat": (0, 1020, 129), "agents": (6000, 800, 60)}
# Deviation of the logarithms of lengths; a length is at most this many medians.
SIGMA, CUT = 0.9, 4


class Server:
    """The endpoint, as far as it is asked beside the load."""

    def __init__(self, url, key, model):
        self.url, self.key = urllib.parse.urlsplit(url), key
        self.endpoint = arrivals.Endpoint(url, key)
        self.model = model or json.loads(self.ask("GET", "/v1/models"))["data"][0]["id"]

    def ask(self, method, path, body=None):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=REPLY_SECONDS)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            prefix = self.url.path.rstrip("/").removesuffix("/v1")
            connection.request(method, prefix + path, data, {name: value for name, value in self.endpoint.headers.items() if name != "host"})
            reply = connection.getresponse()
            text = reply.read()
        if reply.status != 200:
            sys.exit(f"{method} {path} got {reply.status}: {text[:500].decode(errors='replace')}")
        return text

    def body(self, messages, tokens, eos, seed):
        body = {"model": self.model, "messages": messages, "max_tokens": tokens, "temperature": 1, "seed": seed, "stream": True,
                "stream_options": {"include_usage": True}}
        return body if eos else body | {"ignore_eos": True}

    def words_a_token(self):
        """How many of the words that prompts are made of are a token."""
        def tokens(words):
            messages = [{"role": "user", "content": text(random.Random(words), words)}]
            reply = self.ask("POST", "/v1/chat/completions", {"model": self.model, "messages": messages, "max_tokens": 1})
            return json.loads(reply)["usage"]["prompt_tokens"]
        few, many = 100, 400
        return (many - few) / max(tokens(many) - tokens(few), 1)

    def engine_seconds(self):
        """Seconds that a Chimère's engine has computed since its start; None elsewhere."""
        try:
            metrics = self.ask("GET", "/metrics").decode()
        except (SystemExit, OSError, http.client.HTTPException):
            return None
        sums = re.findall(r"^chimere_step_seconds_sum(?:\{[^}]*\})? (\S+)$", metrics, re.M)
        return sum(map(float, sums)) if sums else None


def text(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


class Mix:
    """Draws requests: the same times and lengths for the same seed, and other texts for every probe, or a prefix cache would have read them."""

    def __init__(self, server, args):
        self.server, self.args, self.words = server, args, server.words_a_token()
        self.shared, self.prompt, self.answer = (tokens * args.scale for tokens in MIXES[args.mix])
        self.common = [text(random.Random(-1 - n), round(self.shared * self.words)) for n in range(SHARED_PROMPTS)] if self.shared else []

    @staticmethod
    def length(rng, median):
        return max(1, round(min(median * math.exp(SIGMA * rng.gauss(0, 1)), CUT * median)))

    def request(self, rng, texts):
        messages = [{"role": "system", "content": rng.choice(self.common)}] if self.common else []
        messages.append({"role": "user", "content": text(texts, round(self.length(rng, self.prompt) * self.words) or 1)})
        return self.server.body(messages, self.length(rng, self.answer), self.args.eos, rng.randrange(2**31))

    def arrivals(self, rate):
        """When requests are due, in seconds, with their bodies: as many as the time or the bound allows."""
        rng, texts, due, all_due = random.Random(self.args.seed), random.Random(f"{self.args.seed} {rate}"), 0.0, []
        while len(all_due) < self.args.requests:
            due += rng.expovariate(rate)
            if due > self.args.seconds and len(all_due) >= min(self.args.requests, REQUESTS_MIN):
                break
            all_due.append((due, self.request(rng, texts)))
        return all_due


def percentile(values, percent):
    values = sorted(values)
    return values[math.ceil(len(values) * percent / 100) - 1] if values else math.inf


class Probe:
    """One rate, and what came of it."""

    def __init__(self, mix, rate, args):
        server, self.rate, self.args = mix.server, rate, args
        due = mix.arrivals(rate)
        last = due[-1][0]
        self.warm, judged = last * WARM, sum(at >= last * WARM for at, _ in due)
        before = server.engine_seconds()
        began = time.monotonic()
        bounds = (args.ttft_ms / 1e3, last + args.grace, args.in_flight)
        # Those of the warm-up may be lost too and are not judged, so they do not end it.
        lost_max = judged * (100 - SHARE) // 100 + (len(due) - judged)
        records, self.whole = arrivals.probe(server.endpoint, due, args.processes, bounds, lost_max, self.tell)
        self.took, after = time.monotonic() - began, server.engine_seconds()
        self.busy = None if before is None or after is None else (after - before) / self.took
        self.sent, self.planned = len(records), len(due)
        self.judge(records)

    def tell(self, ended, in_flight):
        print(f"    {self.rate:.3g}/s: {ended} requests have ended, {in_flight} are in flight", file=sys.stderr, flush=True)

    def judge(self, records):
        judged = [record for record in records if record.due >= self.warm]
        gaps = [gap for record in judged for gap in record.gaps]
        done = [record for record in records if not record.error]
        self.ttft = {p: 1e3 * percentile([record.first for record in judged], p) for p in (50, SHARE)}
        self.itl = {p: 1e3 * percentile(gaps, p) if gaps else 0.0 for p in (50, SHARE)}
        self.late_ms = 1e3 * percentile([record.late for record in records], SHARE)
        self.errors = [record.error for record in records if record.error]
        total = lambda name: sum(getattr(record, name) for record in done)
        ends = max((record.due + record.last for record in done), default=self.took)
        self.prompt_tokens, self.cached_tokens, self.output_tokens = map(total, ("prompt_tokens", "cached_tokens", "output_tokens"))
        self.done, self.output_rate = len(done), self.output_tokens / ends
        self.holds = self.whole and self.ttft[SHARE] < self.args.ttft_ms and self.itl[SHARE] < self.args.itl_ms

    def client_was_late(self):
        return self.late_ms > LATE_SHARE * self.args.ttft_ms

    def row(self):
        number = lambda ms: f"{ms:8.1f}" if ms < 1e6 else "       -"
        verdict = "holds" if self.holds else "does not hold"
        return (f"{self.rate:8.3f} {self.sent:6} {number(self.ttft[50])} {number(self.ttft[SHARE])} {number(self.itl[50])} {number(self.itl[SHARE])} "
                f"{self.output_rate:9.1f} {len(self.errors):6}  {verdict}{' (client late)' if self.client_was_late() else ''}")

    def figures(self):
        finite = lambda values: {f"p{p}": value if value < math.inf else None for p, value in values.items()}
        return {"rate": self.rate, "holds": self.holds, "requests": self.sent, "planned": self.planned, "done": self.done, "seconds": self.took,
                "ttft_ms": finite(self.ttft), "itl_ms": finite(self.itl), "client_late_ms": self.late_ms, "output_tokens_a_second": self.output_rate,
                "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens, "output_tokens": self.output_tokens,
                "engine_busy": self.busy, "errors": self.errors[:5]}


HEAD = "  rate/s   sent  TTFT50   TTFT95    ITL50    ITL95  tokens/s failed"


def search(mix, args):
    """All probes, in order, and the best that held."""
    probes, end, low, high, rate = [], time.monotonic() + 60 * args.minutes, None, None, args.rate
    print(HEAD, flush=True)
    for _ in range(args.probes):
        probe = Probe(mix, rate, args)
        probes.append(probe)
        print(probe.row(), flush=True)
        low, high = (probe, high) if probe.holds else (low, probe)
        if time.monotonic() > end or probe.holds and rate >= args.rate_max:
            break
        if high is None:
            rate = min(2 * rate, args.rate_max)
        elif low is None:
            rate /= 2
            if rate * args.seconds < REQUESTS_MIN / 4:
                break
        elif high.rate / low.rate <= 1 + args.precision:
            break
        else:
            rate = math.sqrt(low.rate * high.rate)
    return probes, low


def explain(best, args):
    """What the engine alone could do for the same requests, and how busy it was."""
    found = {}
    if args.engine and best.done:
        prompt_rate, decode_rate = args.engine
        seconds = ((best.prompt_tokens - best.cached_tokens) / prompt_rate + best.output_tokens / decode_rate) / best.done
        found |= {"engine_rate": 1 / seconds, "share_of_engine": best.rate * seconds}
        print(f"the engine alone: {1 / seconds:.2f} requests/s for these lengths; the goodput is {100 * best.rate * seconds:.0f} % of it")
    if best.busy is not None:
        found["engine_busy"] = best.busy
        print(f"its engine computed for {100 * best.busy:.0f} % of the probe's time")
    return found


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, help="program that serves")
    parser.add_argument("--url", help="a service that runs, instead; with or without /v1")
    parser.add_argument("--model", help="its name there [the first that is listed]")
    parser.add_argument("--mix", choices=MIXES, default="chat", help="lengths of prompts and answers [chat]")
    parser.add_argument("--scale", type=float, default=1, help="of all lengths [1]")
    parser.add_argument("--ttft-ms", type=float, default=500, help="limit of the 95th percentile to the first token [500]")
    parser.add_argument("--itl-ms", type=float, default=50, help="limit of the 95th percentile between tokens [50]")
    parser.add_argument("--rate", type=float, default=1, help="arrivals a second of the first probe [1]")
    parser.add_argument("--rate-max", type=float, default=1000, help="rate beyond which none is tried [1000]")
    parser.add_argument("--precision", type=float, default=0.05, help="distance of the last two rates [0.05]")
    parser.add_argument("--probes", type=int, default=16, help="the most probes [16]")
    parser.add_argument("--minutes", type=float, default=30, help="after which no probe begins [30]")
    parser.add_argument("--seconds", type=float, default=60, help="of arrivals in a probe [60]")
    parser.add_argument("--requests", type=int, default=5000, help="the most of a probe [5000]")
    parser.add_argument("--grace", type=float, default=30, help="seconds for the streams that are left behind the last arrival [30]")
    parser.add_argument("--in-flight", type=int, default=2048, help="requests at once with which a probe has failed [2048]")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="that send [half of the processors]")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and texts [1]")
    parser.add_argument("--eos", action="store_true", help="answers end where the model ends them")
    parser.add_argument("--engine", type=lambda pair: [float(rate) for rate in pair.split(",", 1)], help="tokens a second of the engine: prompts,decode")
    parser.add_argument("--least", type=float, default=0, help="fails if the goodput is lower [0]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    parser.add_argument("flags", nargs="*", help="flags for the service, after --")
    return parser


def main():
    parser = flags()
    args = parser.parse_args()
    if (args.chimere is None) == (args.url is None):
        parser.error("either --chimere or --url")
    if args.engine and (len(args.engine) != 2 or min(args.engine) <= 0):
        parser.error(f"--engine wants two rates, as 62000,15500, got {args.engine}")
    if min(args.rate, args.rate_max, args.seconds, args.requests, args.probes, args.processes, args.scale, args.precision) <= 0:
        parser.error("rates, times, counts, scale and precision must be above 0")
    with contextlib.ExitStack() as stack:
        url = args.url or stack.enter_context(service(args.chimere.resolve(), args.flags))[0]
        server = Server(url, os.environ.get("API_KEY"), args.model)
        mix = Mix(server, args)
        probes, best = search(mix, args)
    result = {"url": args.url, "model": server.model, "mix": args.mix, "scale": args.scale, "ttft_ms": args.ttft_ms, "itl_ms": args.itl_ms,
              "seed": args.seed, "goodput": best.rate if best else 0.0}
    if best:
        mean = lambda tokens: tokens / max(best.done, 1)
        print(f"goodput of the mix {args.mix}: {best.rate:.3g} requests/s, {best.output_rate:.0f} tokens/s; a request has "
              f"{mean(best.prompt_tokens):.0f} prompt tokens, {mean(best.cached_tokens):.0f} of them from a cache, and {mean(best.output_tokens):.0f} tokens of answer")
        result |= explain(best, args)
    result["probes"] = [probe.figures() for probe in probes]
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return verdict(probes, best, args)


def verdict(probes, best, args):
    for error in dict.fromkeys(itertools.chain.from_iterable(probe.errors[:2] for probe in probes)):
        print(f"failed: {error}")
    if best is None:
        print("FAILED: no rate held the limits")
    elif best.rate < args.least:
        print(f"FAILED: {best.rate:.3g} requests/s are below {args.least:g}")
    elif best.client_was_late():
        print(f"FAILED: this client sent {best.late_ms:.0f} ms late; give it more processes, or another machine")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
