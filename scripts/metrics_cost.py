#!/usr/bin/env python3
"""Measures what metrics cost: the same load with and without them, taking turns, and the time of a scrape while 256 sequences run.

    python3 scripts/metrics_cost.py --chimere target/release/chimere --rounds 7

Prints the median over the rounds of each pair's ratio (with / without) for tokens a second and for the server's processor time, which says
more on a machine that does other work, and the scrape's median and p95.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

START_SECONDS, SCRAPES, SEQUENCES = 120, 40, 256


@contextlib.contextmanager
def server(args, **settings):
    """A server, its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.chimere, "serve", "--port", str(port), "--model", args.model, "--device", "cpu"]
    environment = os.environ | {"CHIMERE_LOG__FILTER": "error"} | settings
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + START_SECONDS
        while not ready(url):
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"the server did not get ready within {START_SECONDS} s")
            time.sleep(0.1)
        yield url, process
    finally:
        process.kill()
        process.wait()


def ready(url):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{url}/ready", timeout=5).close()
        return True
    return False


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(args, metrics):
    """Tokens a second and processor seconds of one load."""
    with server(args, CHIMERE_SERVER__METRICS=str(metrics).lower()) as (url, process), tempfile.TemporaryDirectory() as folder:
        out, before = pathlib.Path(folder) / "out.json", processor_seconds(process)
        command = [args.chimere, "bench", "serve", "--url", url, "--rate", "inf", "--requests", str(args.requests), "--max-tokens", "128",
                   "--prompt-tokens", "64", "--json", out]
        subprocess.run(command, check=True, capture_output=True)
        return json.loads(out.read_text())["output_tokens_per_s"], processor_seconds(process) - before


def stream(url, stop):
    """One sequence that runs until it is told to stop."""
    body = json.dumps({"prompt": "Once", "max_tokens": 100_000, "ignore_eos": True, "stream": True}).encode()
    # The server ends before the streams do.
    with contextlib.suppress(OSError, http.client.HTTPException):
        while not stop.is_set():
            with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body), timeout=600) as reply:
                while not stop.is_set() and reply.read1(65536):
                    pass


def scrapes(args):
    """Seconds of each scrape while all sequences run, and its bytes."""
    with server(args, CHIMERE_ENGINE__MAX_SEQS=str(SEQUENCES)) as (url, _):
        stop = threading.Event()
        threads = [threading.Thread(target=stream, args=(url, stop), daemon=True) for _ in range(SEQUENCES)]
        for thread in threads:
            thread.start()
        while f"chimere_requests_running {SEQUENCES}\n".encode() not in urllib.request.urlopen(f"{url}/metrics").read():
            time.sleep(0.2)
        times = []
        for _ in range(SCRAPES):
            begin = time.perf_counter()
            size = len(urllib.request.urlopen(f"{url}/metrics").read())
            times.append(time.perf_counter() - begin)
            time.sleep(0.1)
        stop.set()
        return times, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, default=pathlib.Path("target/release/chimere"))
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/nano"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=64)
    args = parser.parse_args()
    args.chimere = args.chimere.resolve()
    speeds, costs = [], []
    for turn in range(args.rounds):
        order = (True, False) if turn % 2 == 0 else (False, True)
        figures = {metrics: load(args, metrics) for metrics in order}
        speeds.append(figures[True][0] / figures[False][0])
        costs.append(figures[True][1] / figures[False][1])
        print(f"round {turn + 1}: tokens/s {figures[True][0]:.0f} with, {figures[False][0]:.0f} without; processor seconds "
              f"{figures[True][1]:.2f} with, {figures[False][1]:.2f} without", file=sys.stderr)
    for name, ratios in ("tokens/s", speeds), ("processor time", costs):
        middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
        print(f"{name}, with over without: median {middle:.3f}, {least:.3f} to {most:.3f} over {len(ratios)} pairs")
    times, size = scrapes(args)
    times.sort()
    middle, p95, least = (1e3 * t for t in (statistics.median(times), times[int(0.95 * len(times))], times[0]))
    print(f"scrape at {SEQUENCES} sequences: median {middle:.1f} ms, p95 {p95:.1f} ms, least {least:.1f} ms, {size} bytes")


if __name__ == "__main__":
    main()
