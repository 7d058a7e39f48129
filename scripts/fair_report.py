#!/usr/bin/env python3
"""What the scheduler promises over time, measured on a real service: scripts/fair_report.py [--binary target/release/chimere]

Starts the service with the shipped model on the CPU, three times, and prints for
  itl       the gaps between tokens of six streams, without and with prompts of 3,000 tokens arriving, for a target and for none
  wait      the predicted over the actual wait of a steady load of alike requests, from the service's own histogram
  fairness  the time to the first token of one key, alone and beside a key that keeps 64 requests in flight, in turns
Only the Python standard library. Figures of a machine with other work on it are comparable within one run only."""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Service:
    """The program on a free port, ended with the block."""

    def __init__(self, binary, keys="", **env):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.file.write(keys)
        self.file.flush()
        more = ["--api-key-file", self.file.name] if keys else []
        variables = {f"CHIMERE_{name}": str(value) for name, value in env.items()}
        command = [binary, "serve", "--model", str(ROOT / "models/nano"), "--port", "0", "--device", "cpu", *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})
        for line in self.process.stderr:
            if line.startswith("ready on http://"):
                self.address = line.split()[2].removeprefix("http://")
                break
        else:
            raise SystemExit("the service did not start")
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def request(self, prompt, outputs, key="", stream=True):
        """Times of the tokens since the request was sent, in seconds; None where it was refused."""
        body = {"prompt": prompt, "max_tokens": outputs, "ignore_eos": True, "temperature": 0, "stream": stream}
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection = http.client.HTTPConnection(self.address, timeout=300)
        sent = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        if reply.status != 200:
            reply.read()
            return None
        if not stream:
            reply.read()
            return []
        return [time.monotonic() - sent for line in reply if line.startswith(b'data: {"id"') and b'"text":""' not in line]

    def metrics(self):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}


def prompt(tokens, salt):
    return [100 + (7 * i + salt) % 900 for i in range(tokens)]


def percentile(values, share):
    values = sorted(values)
    return values[max(0, -(-len(values) * share // 100) - 1)]


class Load:
    """Threads that send one kind of request after another until the block ends."""

    def __init__(self, service, count, tokens, outputs, key="", pause=0.0, stream=False):
        self.times, self.stop = [], threading.Event()

        def run(salt):
            while not self.stop.is_set():
                times = service.request(prompt(tokens, salt), outputs, key, stream)
                self.times.extend([times] if times else [])
                self.stop.wait(pause if times is not None else 1.0)

        self.threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]

    def __enter__(self):
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_):
        self.stop.set()
        [thread.join() for thread in self.threads]


def gaps(streams):
    return [1e3 * (b - a) for times in streams for a, b in zip(times, times[1:])]


def itl(binary, target, seconds):
    for target_ms in (target, 0):
        with Service(binary, ENGINE__ITL_TARGET_MS=target_ms) as service:
            service.request(prompt(3000, 1), 2)
            with Load(service, 6, 60, 400, stream=True) as chat:
                time.sleep(seconds)
            with Load(service, 6, 60, 400, stream=True) as beside, Load(service, 2, 3000, 4, pause=0.3) as long:
                time.sleep(seconds)
            stall = service.metrics()
            name = f"target {target_ms} ms" if target_ms else "no target"
            for what, load in (("alone", chat), ("beside prompts of 3,000", beside)):
                found = gaps(load.times)
                print(f"itl, {name}, {what}: p50 {statistics.median(found):.1f} p95 {percentile(found, 95):.1f} p99 {percentile(found, 99):.1f} ms of {len(found)} gaps")
            steps, held = stall["chimere_decode_stall_seconds_count"], stall["chimere_decode_stall_seconds_sum"]
            print(f"     stall of decoding by prompts: mean {1e3 * held / max(steps, 1):.1f} ms over {steps:.0f} steps")


def wait(binary, seconds):
    with Service(binary, ENGINE__MAX_SEQS=4, LIMITS__PREDICTED_WAIT_SECONDS=0) as service:
        with Load(service, 14, 200, 60):
            time.sleep(seconds / 2)
            before = service.metrics()
            time.sleep(seconds)
            after = service.metrics()
    name = "chimere_wait_prediction_ratio_bucket"
    bounds = [k for k in after if k.startswith(name)]
    counts = {float(k.split('le="')[1].split('"')[0].replace("+Inf", "inf")): after[k] - before.get(k, 0) for k in bounds}
    total = counts[float("inf")]
    median = next(bound for bound in sorted(counts) if counts[bound] >= total / 2)
    print(f"wait: {total:.0f} predictions, median of predicted over actual at most {median}, {100 * (counts[1.3] - counts[0.7]) / total:.0f} % within 0.7..1.3")


def fairness(binary, target, rounds, tokens):
    with Service(binary, keys="modest\ngreedy\n", ENGINE__ITL_TARGET_MS=target) as service:
        service.request(prompt(tokens, 1), 8, "modest")
        found = {"alone": [], "beside": []}
        for _ in range(rounds):
            for what in found:
                with Load(service, 64 if what == "beside" else 0, 200, 80, "greedy"):
                    time.sleep(2.0 if what == "beside" else 0.2)
                    for i in range(10):
                        times = service.request(prompt(tokens, i), 20, "modest")
                        found[what].append(1e3 * times[0])
                        time.sleep(0.2)
        alone, beside = (percentile(found[what], 95) for what in ("alone", "beside"))
        p50 = [statistics.median(found[what]) for what in found]
        print(f"fairness, prompts of {tokens}, target {target} ms: TTFT p95 {alone:.0f} ms alone, {beside:.0f} ms beside 64 requests of another key: {beside / alone:.2f} times (p50 {p50[0]:.0f} and {p50[1]:.0f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/chimere"))
    parser.add_argument("--target-ms", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("parts", nargs="*", default=["itl", "wait", "fairness"])
    args = parser.parse_args()
    if "itl" in args.parts:
        itl(args.binary, args.target_ms, args.seconds)
    if "wait" in args.parts:
        wait(args.binary, args.seconds)
    if "fairness" in args.parts:
        for tokens in (300, 3000):
            fairness(args.binary, args.target_ms, args.rounds, tokens)


main()
