"""Many questions to a running server at once, and what a number of right answers says. The standard library alone.

One process of Python asks a few hundred questions a second at most, less than a server on a GPU answers: so questions are shared out among
processes, each with threads of its own.
"""
import concurrent.futures
import http.client
import json
import math
import multiprocessing
import os
import threading
import time
import urllib.parse

Z = 1.959964                # 95 %
THREADS_A_PROCESS = 8
# A server that is full says when to come back; so often is it taken at its word.
RETRIES = 100


class Client:
    """JSON over HTTP, with a connection kept for each thread."""

    def __init__(self, url, timeout):
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        self.url, self.timeout, self.address = url.rstrip("/"), timeout, parts.netloc
        self.local = threading.local()
        self.headers = {}

    def call(self, path, body=None):
        return json.loads(self.text(path, body))

    def text(self, path, body=None):
        for _ in range(RETRIES):
            status, headers, text = self.once(path, None if body is None else json.dumps(body).encode())
            if status == 200:
                return text
            if status != 429:
                break
            time.sleep(float(headers.get("retry-after-ms", 1000)) / 1000)
        raise RuntimeError(f"{path}: {status} {text[:400]}")

    def once(self, path, data):
        kept = getattr(self.local, "connection", None)
        connection = kept or http.client.HTTPConnection(self.address, timeout=self.timeout)
        self.local.connection = None
        try:
            headers = {"Content-Type": "application/json"} | self.headers
            connection.request("POST" if data is not None else "GET", path, data, headers)
            reply = connection.getresponse()
            answer = reply.status, reply.headers, reply.read().decode()
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()
            if kept is None:
                raise
            return self.once(path, data)        # the server had closed a connection that nobody used
        self.local.connection = connection
        return answer


def asked(work, items, concurrency, seconds=math.inf):
    """-> {item: work(item)} for the items that there was time for, `concurrency` at a time. What has begun is waited for."""
    items, end = list(items), time.monotonic() + seconds
    processes = max(1, min(len(items), concurrency // THREADS_A_PROCESS, os.cpu_count() or 1))
    # Forked, not started anew: so `work` may be any function, and what it knows is there.
    context, found = multiprocessing.get_context("fork"), {}
    children = []
    for i in range(processes):
        receiver, sender = context.Pipe(duplex=False)
        threads = (concurrency + i) // processes
        child = context.Process(target=ask_share, args=(work, items[i::processes], threads, end, sender), daemon=True)
        child.start()
        sender.close()
        children.append((child, receiver))
    for child, receiver in children:
        try:
            share = receiver.recv()
        except EOFError:
            raise RuntimeError("a process that asked questions ended early") from None
        child.join()
        if isinstance(share, str):
            raise RuntimeError(share)
        found |= share
    return found


def ask_share(work, items, threads, end, sender):
    def one(item):
        return (item, work(item)) if time.monotonic() < end else None
    try:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            sender.send(dict(pair for pair in pool.map(one, items) if pair))
    except Exception as error:      # whatever it is, the one who asked is told
        sender.send(f"{type(error).__name__}: {error}")


def wilson(good, n):
    """-> the 95 % interval of a share."""
    p = good / n
    middle, half = p + Z * Z / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def difference(a, b):
    """-> share right in `a` less that in `b`, question by question, and its 95 % interval.

    Agresti and Min's: half a pair more of each of the four kinds, so that it has a width also where no answer differs.
    """
    better, worse, n = (sum(x > y for x, y in zip(a, b)), sum(x < y for x, y in zip(a, b)), len(a))
    d = (better - worse) / (n + 2)
    half = Z * math.sqrt((better + worse + 1) / (n + 2) - d * d) / math.sqrt(n + 2)
    return (better - worse) / n, max(-1, d - half), min(1, d + half)
