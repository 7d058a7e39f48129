#!/usr/bin/env python3
"""What the prefix cache spares: starts servers of its own on loopback and prints a short table.

    python3 loadtest/prefix.py --chimere target/release/chimere                                  # the shipped model on the CPU
    python3 loadtest/prefix.py --chimere target/release/chimere --model F --history 8192 --users 64 --turns 8 --system 1500 \\
        --arg=--device=cuda --arg=--vram-budget=60GiB                                            # a GPU, which both servers share

Measurements, the first two each with the cache on and off in turns. `second turn`: a conversation of HISTORY tokens, an answer of ANSWER, a question
of QUESTION; time to the first token of that second turn, the median of ROUNDS conversations. `users`: USERS talk for TURNS turns behind a
common system prompt of SYSTEM tokens, all at once; requests a second, times to the first token, and the share of tokens that were
spared of those that could have been: whatever the conversation had when its last answer began, and the system prompt for who comes new.
`alone`: USERS prompts at once of HISTORY tokens that nobody shares, ROUNDS times; what the cache costs where it brings nothing.
`host` (a GPU): the second turn when other conversations have taken the device's room meanwhile; all servers with the cache on. `soak`:
MINUTES of conversations of random length, users and pauses, some of whom leave in the middle; memory of the process before and after.
Needs nothing but Python. Times are the service's own (`timings`); the cache's share is what replies say in `usage`.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

START_SECONDS, REPLY_SECONDS, UNIT = 900, 600, 64
CHAT = "/v1/chat/completions"
WORDS = ("harbour master wrote down each ship that came in with tide and what it carried wool or salt timber which of four long piers had "
         "room for before evening bell").split()


class Server:
    """A server with the cache on or off; `with` ends it."""

    def __init__(self, args, cache, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / f"{cache}.log"
        command = [args.chimere, "serve", "--port", str(self.port), "--prefix-cache", cache]
        command += (["--model", args.model] if args.model else []) + args.arg
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=os.environ | {"CHIMERE_LIMITS__PREDICTED_WAIT_SECONDS": "0"}, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5).close()
                self.options = self.template_options()
                return
            time.sleep(0.1)
        self.__exit__()
        sys.exit(f"the service did not get ready: {self.log.read_text()[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=REPLY_SECONDS) as reply:
            return json.load(reply)

    def template_options(self):
        """No thinking, where the template knows of it; one that does not refuses to be told."""
        options = {"chat_template_kwargs": {"enable_thinking": False}}
        try:
            self.post("/tokenize", {"messages": [said("user", "Hello.")]} | options)
        except urllib.error.HTTPError:
            return {}
        return options

    def say(self, messages, tokens):
        """An answer of exactly so many tokens."""
        body = {"messages": messages, "max_tokens": tokens, "ignore_eos": True, "temperature": 0} | self.options
        return self.post(CHAT, body)


def text(server, tokens, seed):
    """Words of about so many tokens, the same for the same seed."""
    draw = random.Random(seed)
    words = " ".join(draw.choice(WORDS) for _ in range(tokens))
    ids = server.post("/tokenize", {"prompt": words})["tokens"]
    return server.post("/detokenize", {"tokens": ids[:tokens]})["prompt"]


def said(role, content):
    return {"role": role, "content": content}


def answer_of(server, args, reply, seed):
    """What goes into the history; as many words where random weights said nothing that is text."""
    return said("assistant", reply["choices"][0]["message"]["content"] or text(server, args.answer, seed))


def figures(reply):
    return reply["timings"]["ttft_ms"], reply["usage"]["prompt_tokens_details"]["cached_tokens"], reply["usage"]["prompt_tokens"]


def second_turn(server, args, seed):
    """Times to the first token of both turns, and what the second was spared."""
    messages = [said("user", text(server, args.history, seed))]
    first = server.say(messages, args.answer)
    messages += [answer_of(server, args, first, seed + 2), said("user", text(server, args.question, seed + 1))]
    return figures(first), figures(server.say(messages, 2))


def measure_turns(servers, args):
    found = {cache: [] for cache in servers}
    for round_ in range(args.rounds):
        for cache, server in servers.items():
            found[cache].append(second_turn(server, args, 1000 * round_))
    print(f"second turn: {args.history} tokens of history, an answer of {args.answer}, a question of {args.question}; {args.rounds} rounds")
    print(f"{'cache':<8}{'first turn':>14}{'second turn':>14}{'spared':>16}")
    seconds = {}
    for cache, rounds in found.items():
        first, seconds[cache] = (statistics.median(r[turn][0] for r in rounds) for turn in (0, 1))
        spared = statistics.median(r[1][1] for r in rounds)
        print(f"{cache:<8}{first:>11.1f} ms{seconds[cache]:>11.1f} ms{spared:>8.0f} of {rounds[0][1][2]}")
    print(f"the second turn takes 1/{seconds['off'] / seconds['on']:.1f} of what it takes without\n")


def openings(server, messages):
    """Where turns begin in a prompt, and how long it is: each opens with the token that the first one opens with."""
    ids = server.post("/tokenize", {"messages": messages} | server.options)["tokens"]
    return [at for at, token in enumerate(ids) if token == ids[0]], len(ids)


def converse(server, args, system, user):
    """All turns of one user: time to the first token, tokens spared, and tokens that could have been, of each."""
    messages, rows = [said("system", system)], []
    turns, tokens = openings(server, messages + [said("user", "Hello.")])
    known, opening = turns[1], tokens - turns[-1]
    for turn in range(args.turns):
        messages.append(said("user", text(server, 60, 7_000_000 + 1000 * user + turn)))
        reply = server.say(messages, args.answer)
        ttft, spared, tokens = figures(reply)
        # Up to the last unit in which the answer before began; a newcomer finds the system prompt.
        rows.append((turn, ttft, spared, known // UNIT * UNIT))
        known = tokens - opening
        messages.append(answer_of(server, args, reply, 9_000_000 + 1000 * user + turn))
    return rows


def measure_users(servers, args):
    print(f"{args.users} users x {args.turns} turns: a system prompt of {args.system}, questions of 60, answers of {args.answer}")
    print(f"{'cache':<8}{'requests/s':>12}{'first turns':>14}{'later turns':>14}{'spared of ideal':>18}")
    rates = {}
    for cache, server in servers.items():
        system = text(server, args.system, 42)
        server.say([said("system", system), said("user", "Hello.")], 1)
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.users) as pool:
            rows = [row for user in pool.map(lambda user: converse(server, args, system, user), range(args.users)) for row in user]
        rates[cache] = len(rows) / (time.monotonic() - begin)
        first, later = (statistics.median([row[1] for row in rows if (row[0] > 0) == late] or [0]) for late in (False, True))
        share = sum(row[2] for row in rows) / max(1, sum(row[3] for row in rows))
        print(f"{cache:<8}{rates[cache]:>12.2f}{first:>11.1f} ms{later:>11.1f} ms{share:>17.1%}")
    print(f"{rates['on'] / rates['off']:.2f} x the requests a second")


def measure_alone(servers, args):
    print(f"nothing shared: {args.users} prompts of {args.history} tokens at once, answers of {args.answer}; {args.rounds} rounds in turns")
    seconds = {cache: [] for cache in servers}
    for round_ in range(args.rounds + 1):
        for cache, server in servers.items():
            talks = [[said("user", text(server, args.history, 3_000_000 + 10_000 * round_ + user))] for user in range(args.users)]
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(args.users) as pool:
                list(pool.map(lambda messages: server.say(messages, args.answer), talks))
            seconds[cache].append(time.monotonic() - begin)
    for cache, took in seconds.items():
        took = sorted(took[1:])
        print(f"{cache:<8}{args.users / statistics.median(took):>10.2f} requests/s ({args.users / took[-1]:.2f} to {args.users / took[0]:.2f})")
    ratios = sorted(off / on for off, on in zip(seconds["off"][1:], seconds["on"][1:]))
    print(f"on by off: {statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f})")


def series(server, name):
    """Values of a metric by its labels as they are written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return {line[len(name):].rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def measure_host(server, args):
    """The second turn of conversations that the device has given up meanwhile."""
    rows = []
    for round_ in range(args.rounds):
        messages = [said("user", text(server, args.history, 1000 * round_ + 500_000))]
        first = server.say(messages, args.answer)
        messages += [answer_of(server, args, first, 1000 * round_ + 2), said("user", text(server, args.question, 1000 * round_ + 1))]
        gone = series(server, "chimere_prefix_evictions_total")['{tier="device"}']
        other = 0
        places = series(server, "chimere_prefix_entries")['{tier="device"}']
        while series(server, "chimere_prefix_evictions_total")['{tier="device"}'] < gone + places and other < 200:
            server.say([said("user", text(server, args.history, 600_000 + 1000 * round_ + other))], 2)
            other += 1
        before = series(server, "chimere_prefix_hit_tokens_total")['{tier="host"}']
        second = server.say(messages, 2)
        rows.append((*figures(first), *figures(second), series(server, "chimere_prefix_hit_tokens_total")['{tier="host"}'] - before))
    first, second, spared, host = (statistics.median(row[i] for row in rows) for i in (0, 3, 4, 6))
    print(f"second turn from the host: {args.history} tokens of history, an answer of {args.answer}, a question of {args.question}; {args.rounds} rounds")
    print(f"first turn {first:.1f} ms, second turn {second:.1f} ms, spared {spared:.0f} of {rows[0][5]}, of these by the host {host:.0f}")
    for direction in ("save", "load"):
        label = f'{{direction="{direction}"}}'
        took, count = (series(server, f"chimere_prefix_transfer_seconds_{part}").get(label, 0) for part in ("sum", "count"))
        print(f"{direction}: {count:.0f} copies, {1000 * took / max(1, count):.2f} ms each\n")


def talk_until(server, args, user, end):
    """Random conversations, one after another. How many answers came whole, and what did not."""
    draw, whole, wrong = random.Random(user), 0, []
    while time.monotonic() < end:
        messages = [said("system", text(server, draw.randrange(50, args.system), draw.randrange(3)))]
        for turn in range(draw.randrange(1, args.turns + 1)):
            messages.append(said("user", text(server, draw.randrange(1, args.history), draw.randrange(1 << 30))))
            tokens = draw.randrange(1, args.answer)
            if draw.random() < 0.1:
                leave(server, messages, tokens)
                continue
            try:
                reply = server.say(messages, tokens)
            except urllib.error.HTTPError as error:
                # The context is full, or too much waits: an answer too.
                wrong += [error.read().decode()] if error.code not in (400, 429, 503) else []
                break
            whole += 1
            messages.append(answer_of(server, args, reply, turn))
            time.sleep(draw.random() * 0.2)
    return whole, wrong


def leave(server, messages, tokens):
    """Asks, and is gone before the answer is whole."""
    body = json.dumps({"messages": messages, "max_tokens": tokens, "stream": True} | server.options).encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.recv(200)


def resident(server):
    """MiB of the process that the machine keeps in memory."""
    lines = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def measure_soak(server, args):
    print(f"soak: {args.users} users for {args.minutes} minutes, prompts up to {args.history} tokens and turn, up to {args.turns} turns")
    begin, parts, answers, wrong = time.monotonic(), 6, 0, []
    for part in range(parts):
        end = begin + 60 * args.minutes * (part + 1) / parts
        with concurrent.futures.ThreadPoolExecutor(args.users) as pool:
            for whole, bad in pool.map(lambda user: talk_until(server, args, 1000 * part + user, end), range(args.users)):
                answers, wrong = answers + whole, wrong + bad
        entries = series(server, "chimere_prefix_entries")
        running = sum(series(server, "chimere_requests_running").values())
        gpu = series(server, "chimere_gpu_memory_bytes").get('{of="used"}', 0) / 2**20
        used = series(server, "chimere_kv_pages")['{state="used"}']
        print(f"{(time.monotonic() - begin) / 60:5.1f} min: {answers} answers, {resident(server):.0f} MiB resident, {gpu:.0f} MiB of the GPU, "
              f"entries {entries}, running {running:.0f}, pages used {used:.0f}", flush=True)
    spared, asked = series(server, "chimere_prefix_hit_tokens_total"), series(server, "chimere_prefix_query_tokens_total")
    print(f"spared {spared} of {asked}; failed: {wrong[:3] or 'none'}")
    if wrong:
        sys.exit(f"{len(wrong)} answers failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", required=True)
    parser.add_argument("--model")
    parser.add_argument("--arg", action="append", default=[], help="another argument of the server, as --arg=--device=cuda")
    parser.add_argument("--only", choices=["turns", "users", "alone", "host", "soak"])
    for name, default in [("history", 3000), ("answer", 100), ("question", 30), ("rounds", 5), ("users", 4), ("turns", 4), ("system", 500)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--minutes", type=float, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        alone = {"host": measure_host, "soak": measure_soak}.get(args.only)
        if alone:
            return alone(stack.enter_context(Server(args, "on", pathlib.Path(folder))), args)
        servers = {cache: stack.enter_context(Server(args, cache, pathlib.Path(folder))) for cache in ("off", "on")}
        both = {"turns": measure_turns, "users": measure_users, "alone": measure_alone}
        for name in [args.only] if args.only else ["turns", "users"]:
            both[name](servers, args)


if __name__ == "__main__":
    main()
