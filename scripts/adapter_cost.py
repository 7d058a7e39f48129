"""What adapters cost: tokens a second of eight streams with four adapters beside those of eight streams without, in turns.

    python3 scripts/adapter_cost.py --chimere target/release/chimere --model models/nano --threads 2

Drafts are off: random adapters make the draft head's guesses worse, which says nothing about real ones. The directory of
adapters is written by `chimere synth` unless one is given.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

PATIENCE = 600


def completion(base, model, prompt, tokens):
    """Generates so many tokens."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "drafts": False}
    request = urllib.request.Request(f"{base}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        got = json.load(reply)["usage"]["completion_tokens"]
    assert got == tokens, f"{got} tokens of {tokens}"


def rate(base, models, tokens):
    """Tokens a second of one stream for each of these models, all at once."""
    streams = [threading.Thread(target=completion, args=(base, model, f"Number {i} is", tokens)) for i, model in enumerate(models)]
    begin = time.monotonic()
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    return len(models) * tokens / (time.monotonic() - begin)


def measured(base, args, names):
    """Medians without and with adapters."""
    own = json.load(urllib.request.urlopen(f"{base}/v1/models", timeout=10))["data"][0]["id"]
    plain, adapted = [own] * args.streams, [names[i % len(names)] for i in range(args.streams)]
    rate(base, plain, 16)
    rate(base, adapted, 16)
    rounds = [(rate(base, plain, args.tokens), rate(base, adapted, args.tokens)) for _ in range(args.rounds)]
    return [statistics.median(column) for column in zip(*rounds)], statistics.median(own / plain for plain, own in rounds)


def write_adapters(args, directory, numbers):
    """Random adapters of the model, each under its number."""
    for number in numbers:
        out = os.path.join(directory, f"a{number}")
        command = [args.chimere, "synth", out, "--adapter", args.model, "--rank", str(args.rank), "--seed", str(number + 1)]
        subprocess.run(command, check=True)


@contextlib.contextmanager
def served(args, scratch, keys, device="cpu"):
    """The address of a service with these keys of the configuration's section of adapters."""
    config = os.path.join(scratch, "chimere.toml")
    with open(config, "w") as file:
        file.write(f"[adapters]\n{keys}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.chimere, "serve", "--model", args.model, "--device", device, "--config", config, "--port", str(port)]
    server = subprocess.Popen([*command, "--threads", str(args.threads)], stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{base}/ready", timeout=5)
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, "the service does not start"
                time.sleep(0.1)
        yield base
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chimere", default="target/release/chimere")
    parser.add_argument("--model", default="models/nano/nano-q8_0.gguf")
    parser.add_argument("--adapters", help="directory with adapters of the model")
    parser.add_argument("--count", type=int, default=4, help="adapters")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = args.adapters or os.path.join(scratch, "adapters")
        if not args.adapters:
            write_adapters(args, directory, range(args.count))
        names = sorted(name.removesuffix(".gguf") for name in os.listdir(directory) if not name.startswith("."))[: args.count]
        with served(args, scratch, f"directory = {json.dumps(directory)}") as base:
            (plain, adapted), share = measured(base, args, names)
    print(f"{plain:.0f} tokens/s without, {adapted:.0f} with {len(names)} adapters over {args.streams} rows: {share:.3f}")


if __name__ == "__main__":
    main()
