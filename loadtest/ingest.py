#!/usr/bin/env python3
"""Files that become searchable beside people who chat, and a service that is killed while they do.

    python3 loadtest/ingest.py --chimere target/release/chimere                          # both parts
    python3 loadtest/ingest.py --chimere target/release/chimere --only kills --kills 20

beside   200 files of 50 MB in all go into a store while others ask for one token again and again. Given are the 95th percentile of their
         times to it, in turns without files, beside as many processes that only compute, and beside files; the rate at which text becomes
         searchable; and that of the uploads alone.
kills    files are uploaded and attached one after another, and the service is killed at a random moment, again and again. After each start
         every file that was acknowledged is there byte by byte, becomes searchable, and is found by its first and by its last words.

Timing fails nothing; the kills do. Needs the standard library alone.
"""
import argparse
import contextlib
import hashlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from documents import Client  # noqa: E402
from hostile import at, beside, busy  # noqa: E402

START_SECONDS, SEARCHABLE_SECONDS = 120, 900
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()


def word(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))


def text(rng, size):
    """Paragraphs of sentences of made-up words."""
    vocabulary = [word(rng) for _ in range(2000)]
    parts, length = [], 0
    while length < size:
        sentence = " ".join(rng.choice(vocabulary) for _ in range(rng.randint(6, 18))).capitalize()
        parts.append(sentence + (".\n\n" if rng.random() < 0.15 else ". "))
        length += len(parts[-1])
    return "".join(parts)[:size]


class Service(Client):
    """A program of its own over a directory of documents that outlives it."""

    def __init__(self, binary, directory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}", None)
        self.log = directory / "service.log"
        settings = {"CHIMERE_DOCUMENTS__DIRECTORY": str(directory / "documents")}
        (directory / "documents").mkdir(exist_ok=True)
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([binary, "serve", "--port", str(port), "--device", "cpu"], env=os.environ | settings, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                self.send("GET", "/ready")
                return
            time.sleep(0.05)
        sys.exit(f"the service did not get ready: {self.log.read_text()[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def searchable(self, store, count):
        """Waits until so many files of a store are."""
        end = time.monotonic() + SEARCHABLE_SECONDS
        while True:
            counts = self.call("GET", f"/v1/vector_stores/{store}")["file_counts"]
            if counts["completed"] >= count:
                return
            if counts["failed"] or counts["cancelled"] or time.monotonic() > end:
                failed = self.call("GET", f"/v1/vector_stores/{store}/files?filter=failed")["data"]
                why = [(file["id"], file["last_error"]) for file in failed[:3]]
                sys.exit(f"of {count} files not all became searchable: {counts}; {why}")
            time.sleep(0.1)

    def finds(self, store, query, file):
        hits = self.call("POST", f"/v1/vector_stores/{store}/search", {"query": query, "max_num_results": 5})["data"]
        return file in [hit["file_id"] for hit in hits]


def first_token(service, model):
    """Milliseconds until a request for one token is answered."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    begin = time.monotonic()
    service.call("POST", "/v1/chat/completions", body)
    return 1e3 * (time.monotonic() - begin)


def ask_until(service, model, ended):
    times = []
    while not ended():
        times.append(first_token(service, model))
        time.sleep(0.02)
    return times


def upload_all(service, store, texts, figures):
    """Uploads and attaches files, and waits until they are searchable."""
    begin = time.monotonic()
    files = [service.upload(f"{i}.txt", each) for i, each in enumerate(texts)]
    figures["uploaded"] = time.monotonic() - begin
    for i in range(0, len(files), 100):
        service.call("POST", f"/v1/vector_stores/{store}/file_batches", {"file_ids": files[i:i + 100]})
    service.searchable(store, len(files))
    figures["searchable"] = time.monotonic() - begin
    for file in files:
        service.call("DELETE", f"/v1/files/{file}")


def run_beside(binary, files, megabytes, rounds):
    rng = random.Random(1)
    texts = [text(rng, megabytes * 1_000_000 // files) for _ in range(files)]
    times, figures = {"alone": [], "computing": [], "files": []}, {}
    with tempfile.TemporaryDirectory() as folder, Service(binary, pathlib.Path(folder)) as service:
        model = service.model()
        for _ in range(rounds):
            end = time.monotonic() + 15
            times["alone"] += ask_until(service, model, lambda: time.monotonic() > end)
            with beside(busy, 1, service):
                end = time.monotonic() + 15
                times["computing"] += ask_until(service, model, lambda: time.monotonic() > end)
            store = service.call("POST", "/v1/vector_stores", {"name": "load"})["id"]
            worker = threading.Thread(target=upload_all, args=(service, store, texts, figures))
            worker.start()
            times["files"] += ask_until(service, model, lambda: not worker.is_alive())
            service.call("DELETE", f"/v1/vector_stores/{store}")
            rate = figures["searchable"] / megabytes
            print(f"{files} files of {megabytes} MB: uploaded in {figures['uploaded']:.1f} s, searchable after {figures['searchable']:.1f} s, "
                  f"{rate:.2f} s a MB", flush=True)
    p95 = {name: at(.95, values) for name, values in times.items()}
    print("first token, p95: " + ", ".join(f"{name} {value:.1f} ms of {len(times[name])}" for name, value in p95.items())
          + f"; files / alone {p95['files'] / p95['alone']:.2f}, files / computing {p95['files'] / p95['computing']:.2f}")


def upload_until_killed(service, store, rng, kept):
    """Uploads and attaches files until the service is gone; `kept` gets what was acknowledged."""
    with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
        while True:
            first, last = f"{word(rng)}{rng.randrange(10**9)}", f"{word(rng)}{rng.randrange(10**9)}"
            body = f"{first} begins. {text(rng, rng.randrange(5_000, 80_000))}. It ends with {last}."
            file = service.upload(f"{len(kept)}.txt", body)
            kept[file] = (first, last, hashlib.sha256(body.encode()).digest(), False)
            service.call("POST", f"/v1/vector_stores/{store}/files", {"file_id": file})
            kept[file] = (*kept[file][:3], True)


def check_kept(service, store, kept):
    attached = {file for file, (*_, attached) in kept.items() if attached}
    listed, after = set(), ""
    while True:
        page = service.call("GET", f"/v1/vector_stores/{store}/files?limit=100{after}")
        listed |= {member["id"] for member in page["data"]}
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert attached <= listed, f"{len(attached - listed)} attached files are gone"
    # One whose answer was lost may be there too.
    service.searchable(store, len(listed))
    for file, (first, last, digest, _) in kept.items():
        assert hashlib.sha256(service.send("GET", f"/v1/files/{file}/content")).digest() == digest, f"{file} has other bytes"
        found = [service.finds(store, first, file), service.finds(store, last, file)]
        assert found == [file in listed] * 2, f"{file} is half searchable: {found}"


def run_kills(binary, kills, seed):
    rng, kept = random.Random(seed), {}
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        with Service(binary, directory) as service:
            store = service.call("POST", "/v1/vector_stores", {"name": "killed"})["id"]
        for kill in range(kills):
            with Service(binary, directory) as service:
                check_kept(service, store, kept)
                timer = threading.Timer(rng.uniform(0.05, 3), service.kill)
                timer.start()
                upload_until_killed(service, store, rng, kept)
                timer.join()
            print(f"killed {kill + 1} times, {len(kept)} files acknowledged", flush=True)
        with Service(binary, directory) as service:
            check_kept(service, store, kept)
    print(f"{kills} kills: all of {len(kept)} acknowledged files are there and whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", required=True)
    parser.add_argument("--only", choices=("beside", "kills"))
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.only != "kills":
        run_beside(args.chimere, args.files, args.megabytes, args.rounds)
    if args.only != "beside":
        run_kills(args.chimere, args.kills, args.seed)


if __name__ == "__main__":
    main()
