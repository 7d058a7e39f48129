#!/usr/bin/env python3
"""What the service promises over time, measured on a quiet machine in a few minutes: loads with k6, and what the scheduler holds.

    scripts/quiet_figures.py --chimere target/release/chimere --k6 k6 --out DIR --setting cpu
    scripts/quiet_figures.py --chimere target/release/chimere --k6 k6 --out DIR --setting gpu --model 35b.gguf

Each part has a service of its own, started with the settings that are told and ended with the part:
  itl       times between the tokens of streams, alone and with two clients that send prompts of 3,000 tokens, for a target and for none
  wait      predicted over actual wait of a steady load of alike requests at 4 slots, from the service's own histogram
  fairness  time to the first token of one key, alone and beside a key that keeps 64 requests in flight, in turns
  steady    k6: users who talk and think, within what the service can do
  overload  k6: users who never think, 4 slots and a queue of 8: refusals, and what becomes of those who come back
  spike     k6: a quiet service, more arrivals than it can do, and quiet again

All times are those of each reply's own `timings`, so streams of random weights, which have no text, count as others do. Writes DIR/SETTING.json
and DIR/SETTING.md, the tables of docs/reference/performance.md, after every part. Nothing but k6 and the standard library is needed.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "loadtest"), str(ROOT / "models/nano")]
import run  # noqa: E402
from asking import Client  # noqa: E402

# What suits a device: how many stream, and targets a little above what the smallest step that moves a prompt takes there.
SETTINGS = {
    "cpu": dict(device="cpu", target_ms=5, streams=6, users=8, rate=300, quiet=4, long_prompt=3000),
    "gpu": dict(device="cuda", target_ms=20, streams=16, users=16, rate=200, quiet=4, long_prompt=3000),
}
# Seconds of the loads at scale 1.
STEADY, SPIKE, OVERLOAD, GAPS, WAIT = 15, 24, 10, 10, 12
GREEDY_REQUESTS, ROUNDS, ASKED_A_ROUND = 64, 3, 20
TIMEOUT = 120


class Service(Client):
    """A service that is asked for completions of exactly so many tokens."""

    def __init__(self, url, key=None):
        super().__init__(url, TIMEOUT)
        if key:
            self.headers = {"Authorization": f"Bearer {key}"}

    def complete(self, prompt_tokens, output_tokens, salt):
        """-> the reply's timings, milliseconds."""
        prompt = [100 + (7 * i + 13 * salt) % 900 for i in range(prompt_tokens)]
        body = dict(prompt=prompt, max_tokens=output_tokens, ignore_eos=True, temperature=1, seed=salt)
        return self.call("/v1/completions", body)["timings"]

    def metrics(self):
        lines = self.text("/metrics").splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}


class Load:
    """Threads that send one kind of request after another until the block ends."""

    def __init__(self, service, count, prompt_tokens, output_tokens, pause=0.0):
        self.timings, self.errors, self.stop = [], [], threading.Event()

        def send(first):
            salt = first
            while not self.stop.is_set():
                try:
                    self.timings.append(service.complete(prompt_tokens, output_tokens, salt))
                except (OSError, RuntimeError) as error:
                    self.errors.append(str(error))
                    return
                salt += 1000
                self.stop.wait(pause)

        self.threads = [threading.Thread(target=send, args=(i,), daemon=True) for i in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise RuntimeError(f"{len(self.errors)} clients of a load failed, the first with {self.errors[0]}")


def percentile(values, share):
    """Nearest rank."""
    values = sorted(values)
    return values[max(0, -(-len(values) * share // 100) - 1)]


def serve(args, part, **settings):
    """A service with settings named as in the configuration, SECTION__KEY."""
    named = {f"CHIMERE_{name}": str(value) for name, value in settings.items()}
    return run.server(args.chimere, part, args.model, args.folder, args.always | named)


def k6(part, seconds, **settings):
    """-> measures a scenario of loadtest/."""
    def measure(args):
        values = {name: str(of(args)) for name, of in settings.items()}
        args.seconds = max(3, round(seconds * args.scale))
        with serve(args, part) as url:
            before = os.environ.copy()
            os.environ.update(values)
            try:
                held = run.k6(args, part, url)
            finally:
                os.environ.clear()
                os.environ.update(before)
        found = json.loads((args.out / f"{part}.json").read_text())
        of = lambda name, at: found["metrics"].get(name, {}).get(at)
        return dict(held=held, seconds=found["seconds"], settings=values, verdicts=found["verdicts"],
                    **{name: of(name, "count") or 0 for name in ("answered", "refused", "failed", "gave_up", "output_tokens")},
                    **{f"{name}_{short}": of(name, at) for name in ("ttft", "itl", "queue", "total") for short, at in (("p50", "med"), ("p95", "p(95)"))})
    return measure


def gaps(timings):
    """Of streams: the middle one's mean and p95 between tokens, and what 95 of 100 streams' p95 are at most."""
    p95 = [t["itl_ms_p95"] for t in timings]
    return dict(streams=len(p95), mean=statistics.median(t["itl_ms_mean"] for t in timings), p95=statistics.median(p95),
                p95_of_95=percentile(p95, 95))


def itl(args):
    found, setting = {}, args.setting_of
    for target_ms in (setting["target_ms"], 0):
        with serve(args, "itl", ENGINE__ITL_TARGET_MS=target_ms) as url:
            service, streams = Service(url), setting["streams"]
            service.complete(setting["long_prompt"], 2, 1)
            with Load(service, streams, 60, 200) as alone:
                time.sleep(GAPS / 2 * args.scale)
            before = service.metrics()
            with Load(service, streams, 60, 200) as beside, Load(service, 2, setting["long_prompt"], 4, pause=0.1) as long:
                time.sleep(GAPS * args.scale)
                # Not those that go on when the prompts have ended, unless there are no others.
                while_prompts = list(beside.timings)
            after = service.metrics()
            steps, held = (after[f"chimere_decode_stall_seconds_{of}"] - before.get(f"chimere_decode_stall_seconds_{of}", 0) for of in ("count", "sum"))
            found[str(target_ms)] = dict(alone=gaps(alone.timings), beside=gaps(while_prompts or beside.timings), long_prompts=len(long.timings),
                                         long_ttft_p50=statistics.median(t["ttft_ms"] for t in long.timings), stall_mean_ms=1e3 * held / max(1, steps))
    return dict(target_ms=setting["target_ms"], streams=setting["streams"], prompt=setting["long_prompt"], by_target=found)


def wait(args):
    with serve(args, "wait", ENGINE__MAX_SEQS=4, LIMITS__PREDICTED_WAIT_SECONDS=0) as url:
        service = Service(url)
        with Load(service, 14, 200, 60):
            time.sleep(WAIT / 3 * args.scale)
            before = service.metrics()
            time.sleep(WAIT * args.scale)
            after = service.metrics()
    name = "chimere_wait_prediction_ratio_bucket"
    bound = lambda key: float(key.split('le="')[1].split('"')[0].replace("+Inf", "inf"))
    counts = {bound(key): after[key] - before.get(key, 0) for key in after if key.startswith(name)}
    total = counts[float("inf")]
    if not total:
        raise RuntimeError("no request waited")
    return dict(predictions=total, median_at_most=min(b for b in counts if counts[b] >= total / 2),
                median_above=max([b for b in counts if counts[b] < total / 2], default=0), within_30_percent=(counts[1.3] - counts[0.7]) / total)


def fairness(args):
    found = []
    for tokens in (300, 3000):
        times, streams = {"alone": [], "beside": []}, []
        with serve(args, "fairness", ENGINE__ITL_TARGET_MS=args.setting_of["target_ms"]) as url:
            modest, greedy = (Service(url, run.KEYS[f"{who}_KEY"]) for who in ("MODEST", "GREEDY"))
            modest.complete(tokens, 8, 1)
            for turn in range(ROUNDS):
                for what in times:
                    with Load(greedy, GREEDY_REQUESTS if what == "beside" else 0, 200, 80) as load:
                        time.sleep(1.5 if what == "beside" else 0.1)
                        for i in range(max(5, round(ASKED_A_ROUND * args.scale))):
                            times[what].append(modest.complete(tokens, 20, 100 * turn + i)["ttft_ms"])
                            time.sleep(0.05)
                    streams += load.timings
        figures = {f"{what}_{name}": of(values) for what, values in times.items()
                   for name, of in (("p50", statistics.median), ("p95", lambda v: percentile(v, 95)))}
        found.append(dict(prompt=tokens, asked=len(times["alone"]), growth=figures["beside_p95"] / figures["alone_p95"], streams=gaps(streams), **figures))
    return found


PARTS = {
    "itl": itl, "wait": wait, "fairness": fairness,
    "steady": k6("steady", STEADY, USERS=lambda a: a.setting_of["users"], THINK=lambda a: 1),
    "overload": k6("overload", OVERLOAD, USERS=lambda a: 64),
    # Last: who is refused comes back when told to, which may take longer than the load.
    "spike": k6("spike", SPIKE, RATE=lambda a: a.rate, QUIET=lambda a: a.setting_of["quiet"]),
}


def markdown(results):
    """-> the tables of docs/reference/performance.md."""
    ms = lambda value: "-" if value is None else f"{value:,.1f}"
    lines = []
    loads = [(name, results[name]) for name in ("steady", "spike", "overload") if name in results]
    if loads:
        lines += ["| load | answered | refused, came back | failed | tokens/s | TTFT p50 / p95, ms | ITL p95 of p50 / p95 streams, ms | all thresholds |",
                  "| --- | --- | --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {name}, {r['seconds']:.0f} s | {r['answered']:,} | {r['refused']:,} | {r['failed'] + r['gave_up']:,} | "
                  f"{r['output_tokens'] / r['seconds']:,.0f} | {ms(r['ttft_p50'])} / {ms(r['ttft_p95'])} | {ms(r['itl_p50'])} / {ms(r['itl_p95'])} | "
                  f"{'held' if r['held'] else 'missed'} |" for name, r in loads]
    if r := results.get("itl"):
        lines += ["", f"| {r['streams']} streams, between tokens, ms | mean | p95 | p95 of the worst 5 % |", "| --- | --- | --- | --- |"]
        for target, found in r["by_target"].items():
            target = f"target {target} ms" if target != "0" else "no target"
            lines += [f"| {target}, {name} | {ms(g['mean'])} | {ms(g['p95'])} | {ms(g['p95_of_95'])} |" for name, g in
                      (("alone", found["alone"]), (f"beside {found['long_prompts']} prompts of {r['prompt']:,} (their TTFT {ms(found['long_ttft_p50'])})", found["beside"]))]
    if r := results.get("wait"):
        lines += ["", f"Predicted over actual wait, {r['predictions']:.0f} requests: median between {r['median_above']:g} and {r['median_at_most']:g}, "
                  f"{100 * r['within_30_percent']:.0f} % within 0.7 to 1.3."]
    if r := results.get("fairness"):
        lines += ["", f"| prompts of one key | asked | TTFT alone p50 / p95, ms | beside {GREEDY_REQUESTS} requests of another | p95 grows | between the other's tokens, p95 / of the worst 5 %, ms |",
                  "| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {f['prompt']:,} tokens | {f['asked']} | {ms(f['alone_p50'])} / {ms(f['alone_p95'])} | {ms(f['beside_p50'])} / {ms(f['beside_p95'])} | "
                  f"{f['growth']:.2f} times | {ms(f['streams']['p95'])} / {ms(f['streams']['p95_of_95'])} |" for f in r]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, required=True)
    parser.add_argument("--k6", default=shutil.which("k6") or "k6")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--setting", choices=SETTINGS, required=True)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/nano")
    parser.add_argument("--threads", type=int, default=8, help="that compute on a CPU")
    parser.add_argument("--target-ms", type=int, help="between tokens [5 on a CPU, 20 on a GPU]")
    parser.add_argument("--rate", type=int, help="arrivals a second of the spike [300 on a CPU, 200 on a GPU]")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the time to take, e.g. 0.3 for a quick look")
    parser.add_argument("parts", nargs="*", help=f"default: all of {', '.join(PARTS)}")
    args = parser.parse_args()
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.chimere, args.prometheus, args.setting_of = args.chimere.resolve(), None, SETTINGS[args.setting]
    args.setting_of |= {"target_ms": args.target_ms} if args.target_ms else {}
    args.rate = args.rate or args.setting_of["rate"]
    args.always = {"CHIMERE_ENGINE__DEVICE": args.setting_of["device"], "CHIMERE_ENGINE__ITL_TARGET_MS": str(args.setting_of["target_ms"])}
    args.always |= {"CHIMERE_ENGINE__THREADS": str(args.threads)} if args.setting == "cpu" else {}
    folder, args.out = args.out, args.out / args.setting
    args.out.mkdir(parents=True, exist_ok=True)
    # Whoever ends this (`timeout` does) ends the service of the part that runs too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results, begin = {}, time.monotonic()
    for part in args.parts or PARTS:
        with tempfile.TemporaryDirectory() as name:
            args.folder = pathlib.Path(name)
            since = time.monotonic()
            try:
                results[part] = PARTS[part](args)
            except (OSError, RuntimeError, SystemExit) as error:
                print(f"{part}: {error}", file=sys.stderr)
        print(f"{part}: {time.monotonic() - since:.0f} s", flush=True)
        (folder / f"{args.setting}.json").write_text(json.dumps(dict(settings=args.always, model=args.model.name, results=results), indent=1) + "\n")
        (folder / f"{args.setting}.md").write_text(markdown(results))
    print(markdown(results) + f"\n{time.monotonic() - begin:.0f} s in all")
    return 0 if len(results) == len(args.parts or PARTS) else 1


if __name__ == "__main__":
    sys.exit(main())
