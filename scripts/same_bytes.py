#!/usr/bin/env python3
"""Whether two builds answer with the same bytes: a few hundred seeded requests to each, over HTTP, and a digest a group.

    scripts/same_bytes.py --chimere OLD --chimere NEW
    scripts/same_bytes.py --chimere OLD --chimere NEW --model 35b.gguf --setting " --device cuda" --groups raw
    scripts/same_bytes.py --chimere OLD --save digests.json       # and later: --chimere NEW --against digests.json

Each build serves each model with each setting on a free port of the loopback interface, answers some requests at a time and is ended.
What is compared are texts, reasons to finish, token counts and log-probabilities as they were written, not the shape of a reply.
Groups: `raw` are completions of random token ids with every sampling option, for any model; `chat` are conversations with thinking budgets,
tools, documents and fewer experts, for the shipped model. Exits with 1 where a digest differs. The standard library is all it needs.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["models/nano", "engine/tests/golden/moe/model.gguf"]
SETTINGS = ["--device cpu --threads 2", "--device cpu --threads 1 --exact", "--device cpu --threads 2 --step-tokens 64 --kv-type f32"]
START_SECONDS, REQUEST_SECONDS = 120, 300
WORDS = "stone river lamp apple tiger window seven garden paper cloud engine morning".split()


def raw(rng, number):
    """A completion of random ids: the smallest of our vocabularies has 512 tokens."""
    body = dict(prompt=[rng.randrange(4, 500) for _ in range(rng.choice([1, 2, 17, 63, 64, 65, 130, 300]))], seed=rng.randrange(1 << 31),
                max_tokens=rng.choice([1, 8, 24]), ignore_eos=rng.random() < 0.7, logprobs=rng.choice([1, 5]),
                temperature=rng.choice([0, 0.3, 1, 1.7]))
    options = dict(top_p=0.9, top_k=7, min_p=0.05, repetition_penalty=1.2, presence_penalty=0.8, frequency_penalty=0.5,
                   min_tokens=1, logit_bias={"5": 3.5, "77": -100}, n=2, echo=True, engram={"documents": ["a b c a b c"], "lambda": 0.5})
    if number % 3 == 0:
        body.pop("logprobs")
        body["moe"] = {"mass": 0.8}
    for name in rng.sample(sorted(options), rng.randrange(4)):
        body[name] = options[name]
    return "/v1/completions", body


def chat(rng, number):
    """A conversation with the shipped model."""
    a, b, words = rng.randrange(9999), rng.randrange(999), rng.sample(WORDS, 5)
    asked = rng.choice([f"What is {a} + {b}?", f"What is {a} - {b}?", f"Reverse the word {words[0]}.", f"Sort these words: {' '.join(words)}",
                        f"How many letters has {words[1]}?", "Who are you?", "What is the capital of Ferfen?"])
    messages = [{"role": "user", "content": asked}]
    if rng.random() < 0.3:
        messages[:0] = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello! What can I do for you?"}]
    body = dict(messages=messages, seed=rng.randrange(1 << 31), max_tokens=rng.choice([20, 150]), temperature=rng.choice([0, 0.7, 1]))
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    more = [{}, {"reasoning_effort": "none"}, {"reasoning": {"max_tokens": 9}}, {"reasoning": {"adaptive": True}},
            {"reasoning_effort": "auto"}, {"moe": {"mass": 0.7}}, {"n": 2}, {"tools": [tool]}, {"min_tokens": 12},
            {"engram": {"documents": ["The Ferfen capital is Melkar."], "lambda": 0.8}, "reasoning_effort": "none"},
            {"engram": {"documents": ["The Ferfen capital is Melkar."], "mode": "bias", "alpha": 2, "phase": "all"}},
            {"logit_bias": {"300": 2.0}, "stop": ["7"]}]
    return "/v1/chat/completions", body | more[number % len(more)]


GROUPS = {"raw": raw, "chat": chat}


def essence(reply):
    """What must not change of a reply."""
    if "choices" not in reply:
        return reply
    usage = reply["usage"]
    found = [usage["prompt_tokens"], usage["completion_tokens"]]
    for choice in reply["choices"]:
        message, scores = choice.get("message", {}), choice.get("logprobs") or {}
        found.append([choice.get("text"), message.get("content"), message.get("reasoning_content"), choice["finish_reason"],
                      [call["function"] for call in message.get("tool_calls") or []], scores.get("token_logprobs")])
    return found


class Server:
    """A build that serves a model; `with` ends it."""

    def __init__(self, binary, model, setting):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "serve", "--model", model, "--port", str(port), *shlex.split(setting)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                sys.exit(f"{shlex.join(command)} is not ready")
            time.sleep(0.1)

    def ready(self):
        try:
            return urllib.request.urlopen(self.url + "/ready", timeout=5).status == 200
        except OSError:
            return False

    def ask(self, path, body):
        """Comes back as often as it is told to: a slow machine predicts long waits."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        while True:
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as reply:
                    return essence(json.load(reply))
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    return [error.code, json.load(error)["error"]["param"]]
                time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def digests(binary, args):
    """-> {group: digest}, and how many requests were refused."""
    found = {}
    for model in args.model:
        for setting in args.setting:
            with Server(binary, model, setting) as server:
                for group in args.groups if model == MODELS[0] else [g for g in args.groups if g == "raw"]:
                    rng = random.Random(f"{args.seed} {group}")
                    requests = [GROUPS[group](rng, i) for i in range(args.requests)]
                    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
                        replies = list(pool.map(lambda r: server.ask(*r), requests))
                    refused = sum(len(r) == 2 and isinstance(r[1], (str, type(None))) for r in replies)
                    digest = hashlib.sha256(json.dumps(replies, ensure_ascii=False).encode()).hexdigest()[:16]
                    found[f"{model} | {setting} | {group}"] = [digest, len(replies), refused]
                    print(f"{digest}  {len(replies)} requests, {refused} refused  {model}  {setting}  {group}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", action="append", required=True, help="a build; twice to compare two")
    parser.add_argument("--model", action="append", help="models [default: the shipped one and the golden preset that has a vocabulary]")
    parser.add_argument("--setting", action="append", help=f"options of a service [default: {SETTINGS}]")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--requests", type=int, default=60, help="of each group, model and setting")
    parser.add_argument("--at-once", type=int, default=8, help="requests that are answered together, which changes no digest")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--save", help="write the first build's digests here")
    parser.add_argument("--against", help="digests of a build that is not at hand")
    args = parser.parse_args()
    args.model, args.setting = args.model or MODELS, args.setting or SETTINGS
    found = [digests(str(pathlib.Path(binary).resolve()), args) for binary in args.chimere]
    if args.save:
        pathlib.Path(args.save).write_text(json.dumps(found[0], indent=1) + "\n")
    if args.against:
        found.insert(0, json.loads(pathlib.Path(args.against).read_text()))
    differ = [key for key in found[0] if any(other.get(key) != found[0][key] for other in found[1:])]
    print("\n".join(f"differs: {key}" for key in differ) or f"{len(found[0])} groups, all the same in {len(found)} builds")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
