"""What it takes to have an adapter at hand: seconds of a load from disk, and milliseconds of a swap into a slot.

    python3 scripts/adapter_load.py --chimere target/release/chimere --model MODEL --device cpu

The whole load is `POST /v1/load_lora_adapter`. Reading alone is a load into a service whose `host_mib` has no room for a second
adapter, which it knows once it has read it; the rest is the probe. With one slot, requests for two adapters in turns swap each time,
and those for one never do: the difference of their medians is the swap. A model of a released shape with few experts
(`chimere synth --experts 8`) has adapters as large as the whole model's, because they do not change routed experts.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.error
import urllib.request

import adapter_cost

# Longer than the time between two swaps.
PAUSE = 0.06


def load(base, name, file):
    """Seconds of a load, and the status of its reply."""
    body = json.dumps({"lora_name": name, "lora_path": file}).encode()
    request = urllib.request.Request(f"{base}/v1/load_lora_adapter", body, {"content-type": "application/json"})
    begin = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            status = reply.status
    except urllib.error.HTTPError as error:
        status = error.code
    return time.monotonic() - begin, status


def unload(base, name):
    """Has an adapter no longer served."""
    body = json.dumps({"lora_name": name}).encode()
    request = urllib.request.Request(f"{base}/v1/unload_lora_adapter", body, {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()


def answers(base, models, rounds):
    """Milliseconds of each of so many answers of one token, the models in turns."""
    times = []
    for i in range(rounds):
        time.sleep(PAUSE)
        begin = time.monotonic()
        adapter_cost.completion(base, models[i % len(models)], f"Number {i} is", 1)
        times.append(1000 * (time.monotonic() - begin))
    return times


def spread(values, unit):
    """The median and the range."""
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chimere", default="target/release/chimere")
    parser.add_argument("--model", default="models/nano/nano-q8_0.gguf")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        files, directory = os.path.join(scratch, "files"), os.path.join(scratch, "adapters")
        adapter_cost.write_adapters(args, files, range(2))
        os.mkdir(directory)
        bytes_of_one = sum(entry.stat().st_size for entry in os.scandir(os.path.join(files, "a0")))
        # A file has 16-bit numbers and the memory 32-bit ones; one and a half fit.
        keys = f"directory = {json.dumps(directory)}\nslots = 1\nhost_mib = "
        with adapter_cost.served(args, scratch, f"{keys}{3 * bytes_of_one // 2**20 + 1}", args.device) as base:
            for name in os.listdir(files):
                os.rename(os.path.join(files, name), os.path.join(directory, name))
            whole, read = [], []
            for _ in range(args.rounds):
                seconds, status = load(base, "first", "a0")
                assert status == 200, f"{status} of a load"
                whole.append(seconds)
                seconds, status = load(base, "second", "a1")
                assert status == 400, f"{status} where no room is left"
                read.append(seconds)
                unload(base, "first")
        print(f"{bytes_of_one / 2**20:.1f} MiB in files; read {spread(read, 's')}, loaded and probed {spread(whole, 's')}")
        with adapter_cost.served(args, scratch, f"{keys}{8 * bytes_of_one // 2**20 + 1}", args.device) as base:
            answers(base, ["a0", "a1"], 4)
            rounds = [(answers(base, ["a0"], 8)[1:], answers(base, ["a1", "a0"], 8)[1:]) for _ in range(args.rounds)]
        stays, turns = ([ms for one in column for ms in one] for column in zip(*rounds))
        print(f"an answer of one token from the adapter in the slot {spread(stays, 'ms')}, from another {spread(turns, 'ms')}")


if __name__ == "__main__":
    main()
