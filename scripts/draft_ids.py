#!/usr/bin/env python3
"""How good a draft head's guesses are among fewer ids: the shipped model on a CPU, the same questions for each list.

    python3 scripts/draft_ids.py target/release/chimere --lists all 4096 2048 most:2048

A list is what `--draft-ids` takes, or `most:N`: the N ids that are most frequent in the held-out pages of the model and in --questions answers of each of
its card's rows without drafts, by the tokenizer of the service (so this list has seen the questions: it is the best that there is). Each list gets a
service of its own that drafts three tokens whether that pays or not, and answers the same questions; the script fails where an answer differs. Printed
are, of the guesses at each place whose forerunners were right, the share that was right, and how many tokens came a step.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

NANO = pathlib.Path(__file__).resolve().parent.parent / "models/nano"
sys.path.insert(0, str(NANO))
from asking import Client  # noqa: E402
from rows import instances  # noqa: E402
from eval import PAGE_RULE, as_sent  # noqa: E402

ROWS = ["arithmetic, thinking", "strings", "context, 1,024 tokens", "JSON to schema", "tool calls", "facts, trained", "several turns"]
DRAFTS = 3


class Service:
    """A service of its own, for as long as the block lasts."""

    def __init__(self, args, *flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [args.chimere, "serve", "--device", "cpu", "--threads", str(args.threads), "--port", str(port), *flags]
        command += ["--model", args.model] if args.model else []
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = Client(f"http://127.0.0.1:{port}", 600)

    def __enter__(self):
        for _ in range(600):
            try:
                if self.client.once("/ready", None)[0] == 200:
                    return self.client
            except OSError:
                pass
            if self.process.poll() is not None:
                sys.exit(f"the service ended: {' '.join(self.process.args)}")
            time.sleep(0.1)
        sys.exit("the service is not ready after a minute")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def questions(args):
    rng = random.Random(args.seed)
    for label in ROWS:
        for sample in instances(rng, label, args.questions):
            body = dict(messages=as_sent(sample.prompt()), max_tokens=400, chat_template_kwargs={"enable_thinking": sample.thinking},
                        temperature=args.temperature, seed=7, cache=False)
            yield body | (dict(tools=sample.tools) if sample.tools else {})


def answers(client, args):
    found = []
    for body in questions(args):
        reply = client.call("/v1/chat/completions", body)
        message = reply["choices"][0]["message"]
        found.append(json.dumps([message.get(k) for k in ("reasoning_content", "content")] + [c["function"] for c in message.get("tool_calls") or []]))
    return found


def counted(client, name):
    """The values of a metric, by their labels."""
    lines = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", client.text("/metrics"), re.M)
    return {labels: float(value) for labels, value in lines}


def most_frequent(client, replies, n):
    pages = (NANO / "heldout.txt").read_text().split(PAGE_RULE)
    seen = collections.Counter()
    for text in pages + replies:
        seen.update(client.call("/tokenize", dict(prompt=text))["tokens"])
    return [token for token, _ in seen.most_common(n)]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("chimere", help="the program")
    ap.add_argument("--model", help="another file than the shipped one")
    ap.add_argument("--lists", nargs="+", default=["all", "4096", "2048", "1024", "most:2048"])
    ap.add_argument("--questions", type=int, default=12, help="of each row of the card")
    ap.add_argument("--temperature", type=float, default=0)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    with Service(args, "--drafts", "off") as client:
        want = answers(client, args)
        most = {name: most_frequent(client, want, int(name[5:])) for name in args.lists if name.startswith("most:")}
    print(f"| ids | {' | '.join(f'guess {i}' for i in range(1, DRAFTS + 1))} | tokens a step with drafts |\n|{' --- |' * (DRAFTS + 2)}")
    for name in args.lists:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(map(str, most.get(name, []))))
            file.flush()
            ids = file.name if name in most else name
            with Service(args, "--drafts", str(DRAFTS), "--draft-sources", "mtp", "--draft-ids", ids) as client:
                got = answers(client, args)
                steps = sum(counted(client, "vllm:spec_decode_num_drafts_total").values())
                places = counted(client, "chimere_accepted_tokens_total")
        if got != want:
            sys.exit(f"{name}: drafts changed an answer")
        right = [sum(n for labels, n in places.items() if f'position="{i}"' in labels) for i in range(1, DRAFTS + 1)]
        shares = [after / before for before, after in zip([steps] + right, right)]
        print(f"| {name} | {' | '.join(f'{share:.3f}' for share in shares)} | {1 + sum(right) / steps:.2f} |", flush=True)


if __name__ == "__main__":
    main()
