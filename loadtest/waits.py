#!/usr/bin/env python3
"""Drives a running service with chats and judges what it said of waiting: refusals, predicted waits, Retry-After.

    python3 loadtest/waits.py --url http://127.0.0.1:8080 --users 12 --requests 600 --busy 4
    python3 loadtest/waits.py --url http://127.0.0.1:8080 --users 256 --requests 3000 --prompt-words 100 --answer-tokens 96 --log chimere.log

Each user sends a chat, waits for its answer and sends the next one; a refused user stays away as long as the refusal says and tries again.
A refusal for its wait is judged by the requests that were admitted right before and right after it: where both waited less than the bound,
it was wrong. With --log the states that the service logs at refusals (`no room`) are read too: none may have slots and pages free for it and for those before it.

Exits with 1 where more than one of a thousand requests was refused wrongly, where a refused request had room, where fewer than nine of ten
predicted waits above 0.1 s were between half and twice as long, or where a request failed. Standard library only.
"""
import argparse
import bisect
import http.client
import json
import multiprocessing
import os
import random
import re
import sys
import threading
import time
import urllib.parse

WORDS = ("harbour master wrote down each ship that came in with the tide and what it carried wool salt timber which of four long piers had "
         "room before evening bell").split()
REQUEST_SECONDS = 300
# A refusal is judged by requests that were admitted within this time of it.
NEAR_SECONDS = 5
TRIES = 100
WRONG_SHARE, RIGHT_SHARE = 0.001, 0.9
# Pages that are free in vain for a request whose prompt needs more.
PAGES_PLENTY = 256
# The share of predictions is not judged by fewer waits than these.
WAITS_MIN = 20
RATIO = "chimere_wait_prediction_ratio"


class Load:
    """What is still to be sent, and what came of it."""

    def __init__(self, args):
        self.args = args
        self.url = urllib.parse.urlsplit(args.url)
        self.lock = threading.Lock()
        self.left = args.requests
        self.admitted = []
        self.refused = []
        self.failed = []
        self.returned = []
        self.end = time.monotonic() + args.seconds if args.seconds else float("inf")

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0 and time.monotonic() < self.end

    def connect(self):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        return kind(self.url.hostname, self.url.port, timeout=REQUEST_SECONDS)

    def headers(self):
        key = os.environ.get("API_KEY")
        return {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    def body(self, rng):
        words = rng.randint(1, self.args.prompt_words)
        text = " ".join(rng.choice(WORDS) for _ in range(words))
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": rng.randint(1, self.args.answer_tokens)}
        if self.args.fixed:
            body |= {"max_tokens": self.args.answer_tokens, "ignore_eos": True}
        return json.dumps(body)

    def user(self, number):
        rng = random.Random(number)
        connection = self.connect()
        while self.take():
            body = self.body(rng)
            for turn in range(TRIES):
                sent = time.monotonic()
                try:
                    connection.request("POST", "/v1/chat/completions", body, self.headers())
                    reply = connection.getresponse()
                    data = reply.read()
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    connection = self.connect()
                    with self.lock:
                        self.failed.append(repr(error))
                    break
                if not self.note(reply, data, sent, turn):
                    break
                time.sleep(int(reply.getheader("retry-after-ms", "1000")) / 1000)
        connection.close()

    def note(self, reply, data, sent, turn):
        """Takes down what came; true where the request is to be sent again."""
        with self.lock:
            if reply.status == 200:
                self.admitted.append((sent, json.loads(data)["timings"]["queue_ms"] / 1000))
                if turn:
                    self.returned.append(turn)
                return False
            if reply.status == 429:
                error = json.loads(data)["error"]
                self.refused.append((sent, error["code"], int(reply.getheader("retry-after-ms", "0")) / 1000, error["message"]))
                return True
            self.failed.append(f"{reply.status} {data[:200]}")
            return False

    def metrics(self):
        connection = self.connect()
        connection.request("GET", "/metrics", headers=self.headers())
        text = connection.getresponse().read().decode()
        connection.close()
        found = {}
        for line in text.splitlines():
            match = re.fullmatch(r"([a-z_]+)(\{[^}]*\})? ([-+0-9.eE]+|NaN|\+Inf)", line)
            if match:
                found[match[1] + (match[2] or "")] = float(match[3])
        return found


def spin(until):
    while time.monotonic() < until:
        pass


def quantiles(values):
    values = sorted(values) or [0.0]
    return " ".join(f"p{p} {values[(len(values) - 1) * p // 100]:.3f}" for p in (50, 90, 99, 100))


def wrong(load):
    """Refusals for a wait whose neighbours in time waited less than the bound."""
    admitted = sorted(load.admitted)
    found = []
    for at, code, _, message in load.refused:
        if code != "wait_too_long":
            continue
        place = bisect.bisect(admitted, (at,))
        near = [wait for sent, wait in admitted[max(place - 1, 0):place + 1] if abs(sent - at) < NEAR_SECONDS]
        if near and max(near) < load.args.bound:
            found.append((message, max(near)))
    return found


def roomy(path):
    """Refusals for a wait, in the service's log, with slots and pages free for all before it too; and how many were logged."""
    found, count = [], 0
    for line in open(path, errors="replace"):
        if "no room" not in line or "would wait" not in line:
            continue
        count += 1
        value = lambda name: int((re.search(rf'{name}"?[=:] ?(\d+)', line) or [0, 0])[1])
        if value("slots_free") > value("requests_ahead") and value("pages_free") > PAGES_PLENTY:
            found.append(line.strip()[:400])
    return found, count


def report(load, before, after, seconds):
    grown = lambda name: after.get(name, 0) - before.get(name, 0)
    waits = grown(f"{RATIO}_count")
    right = grown(f'{RATIO}_bucket{{le="2"}}') - grown(f'{RATIO}_bucket{{le="0.5"}}')
    codes = {}
    for _, code, _, _ in load.refused:
        codes[code] = codes.get(code, 0) + 1
    requests = len(load.admitted) + len(load.refused) + len(load.failed)
    print(f"{requests} requests in {seconds:.0f} s: {len(load.admitted)} answered, {len(load.refused)} refused {codes or ''}, {len(load.failed)} failed")
    print(f"waited, s: {quantiles([wait for _, wait in load.admitted])}; {sum(wait > 0.1 for _, wait in load.admitted)} above 0.1 s")
    print(f"predicted: {grown('chimere_predicted_wait_seconds_count'):.0f} times; of {waits:.0f} waits above 0.1 s {right:.0f} within half and twice")
    if load.refused:
        print(f"told to come back after, s: {quantiles([after for _, _, after, _ in load.refused])}")
        print(f"came back until they were answered, times: {quantiles(load.returned)}")
    misjudged = wrong(load)
    verdicts = [
        (len(misjudged) <= WRONG_SHARE * requests, f"{len(misjudged)} refused wrongly {misjudged[:3] or ''}"),
        (waits < WAITS_MIN or right >= RIGHT_SHARE * waits, f"{right / max(waits, 1):.0%} of the predicted waits are right"),
        (not load.failed, f"{len(load.failed)} failed {load.failed[:3] or ''}"),
    ]
    if load.args.log:
        with_room, logged = roomy(load.args.log)
        verdicts.append((not with_room, f"{len(with_room)} of {logged} refusals for a wait with room {with_room[:2] or ''}"))
    for held, text in verdicts:
        print("ok    " if held else "MISSED", text)
    return all(held for held, _ in verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--requests", type=int, default=600, help="chats in all [%(default)s]")
    parser.add_argument("--seconds", type=float, default=0, help="send no new ones after this time; 0: until all are sent [%(default)s]")
    parser.add_argument("--prompt-words", type=int, default=1500, help="prompts have up to so many words [%(default)s]")
    parser.add_argument("--answer-tokens", type=int, default=400, help="answers may have up to so many tokens [%(default)s]")
    parser.add_argument("--fixed", action="store_true", help="answers have exactly that many tokens")
    parser.add_argument("--bound", type=float, default=60, help="the service's limits.predicted_wait_seconds [%(default)s]")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the cores busy meanwhile [%(default)s]")
    parser.add_argument("--log", help="the service's log")
    args = parser.parse_args()
    load = Load(args)
    before, begin = load.metrics(), time.monotonic()
    # They end by themselves, whatever becomes of this script.
    busy = [multiprocessing.Process(target=spin, args=(begin + (args.seconds or 600) + 60,), daemon=True) for _ in range(args.busy)]
    [process.start() for process in busy]
    try:
        users = [threading.Thread(target=load.user, args=(number,), daemon=True) for number in range(args.users)]
        [user.start() for user in users]
        [user.join() for user in users]
    finally:
        [process.terminate() for process in busy]
    held = report(load, before, load.metrics(), time.monotonic() - begin)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
