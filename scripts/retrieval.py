#!/usr/bin/env python3
"""Searches of a collection on real prose: does a running service find the passage that answers a question? Standard library alone.

    apt-get download perl-doc && dpkg-deb -x perl-doc_*.deb /tmp/perl-doc
    CHIMERE_ENGRAM__DIRECTORY=$(mktemp -d) chimere --device cpu &
    python3 scripts/retrieval.py --pods /tmp/perl-doc/usr/share/perl/5.36.0/pod

The questions are the 301 headings of perlfaq, and the passages are their answers without the heading, among sections of Perl's other manual
pages, cut after 1,200 characters. The share of questions whose passage is among the first five is given for searches by words, by meaning
and by both, before and after the collection's self-test. The program fails if `both` is more than a point below `words`, and with an
encoder (`documents.embedder.directory`) also below these musts:

    python3 scripts/retrieval.py --pods PODS --others 400 --meaning-least 88 --weight-least 0.5

With `--store` the passages are files of a vector store (the service then needs `documents.directory`), one passage each, and `both` is a
search that says nothing of weights.

Intervals are 95 %: 1.96 standard errors of the mean to each side.
"""
import argparse
import json
import math
import pathlib
import random
import re
import sys
import time
import urllib.error
import urllib.request

COLLECTION = "perlfaq-exam"
PASSAGE_CHARACTERS = 1200
BATCH = 64
FIRST = (1, 5, 16)
LOSS_MAX = 1.0  # points that `both` may lose on `words` at five
SELF_TEST_SECONDS = 1800


def plain(pod):
    """Text without the commands and the formatting codes of POD."""
    text = re.sub(r"^=\w+.*$", "", pod, flags=re.M)
    text = re.sub(r"[A-Z]<<+ (.*?) >>+", r"\1", text)
    for _ in range(3):  # codes nest
        text = re.sub(r"[A-Z]<([^<>]*)>", r"\1", text)
    return text.strip()


def exam(folder, others, seed=1):
    """-> [(question, number of its passage)], passages: the answers of perlfaq and `others` sections of other pages."""
    questions, passages = [], []
    for file in sorted(folder.glob("perlfaq[1-9].pod")):
        parts = re.split(r"^=head([12]) (.*)$", file.read_text(errors="ignore"), flags=re.M)
        for level, heading, body in zip(parts[1::3], parts[2::3], parts[3::3]):
            body = plain(body)
            if level == "2" and len(body) > 80:
                questions.append((plain(heading), len(passages)))
                passages.append(body)
    pages = [file for file in sorted(folder.glob("*.pod")) if "perlfaq" not in file.name and "delta" not in file.name]
    sections = [plain(body) for file in pages for body in re.split(r"^=head[1-4] .*$", file.read_text(errors="ignore"), flags=re.M)]
    sections = [body for body in sections if len(body) > 200]
    random.Random(seed).shuffle(sections)
    return questions, [passage[:PASSAGE_CHARACTERS] for passage in passages + sections[:others]]


class Collection:
    def __init__(self, url, key, name):
        self.url, self.key, self.path = url, key, f"/v1/engram/collections/{name}"

    def call(self, method, path="", body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        request = urllib.request.Request(self.url + self.path + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)

    def fill(self, passages):
        """Makes the collection anew -> tokens that were read for it."""
        try:
            self.call("DELETE")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        self.call("PUT")
        tokens = 0
        for at in range(0, len(passages), BATCH):
            batch = passages[at:at + BATCH]
            added = self.call("POST", "/add", {"items": [dict(id=str(at + i), text=text) for i, text in enumerate(batch)]})
            tokens += added["usage"]["prompt_tokens"]
        return tokens

    def ranks(self, questions, by):
        """The place of each question's passage among those found, from 0; infinity where it was not found."""
        ranks = []
        for question, passage in questions:
            found = self.call("POST", "/search", {"query": question, "k": max(FIRST), "by": by})["data"]
            ids = [hit["id"] for hit in found]
            ranks.append(ids.index(str(passage)) if str(passage) in ids else math.inf)
        return ranks

    def self_test(self):
        """What the collection says of its own test once it is not due any more; nothing from a service without such tests."""
        end = time.monotonic() + SELF_TEST_SECONDS
        while True:
            shown = self.call("GET")
            if "self_test" not in shown:
                return None
            if not shown["self_test_due"] or time.monotonic() > end:
                return shown["self_test"]
            time.sleep(1)


class Store(Collection):
    """A vector store whose files are the passages."""

    WEIGHTS = {"words": (0, 1), "meaning": (1, 0)}

    def __init__(self, url, key, name):
        super().__init__(url, key, name)
        self.name, self.path = name, "/v1/vector_stores"
        known = [store for store in self.call("GET", "?limit=100")["data"] if store["name"] == name]
        self.path += f"/{known[0]['id']}" if known else ""
        self.numbers = {}

    def upload(self, number, text):
        line = "a-line-between-parts"
        parts = ['Content-Disposition: form-data; name="purpose"\r\n\r\nassistants',
                 f'Content-Disposition: form-data; name="file"; filename="{number}.txt"\r\nContent-Type: text/plain\r\n\r\n{text}']
        data = ("".join(f"--{line}\r\n{part}\r\n" for part in parts) + f"--{line}--\r\n").encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={line}", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        with urllib.request.urlopen(urllib.request.Request(self.url + "/v1/files", data, headers), timeout=600) as response:
            return json.load(response)["id"]

    def fill(self, passages):
        if self.path != "/v1/vector_stores":
            self.call("DELETE")
            self.path = "/v1/vector_stores"
        files = [self.upload(i, text) for i, text in enumerate(passages)]
        whole = {"type": "static", "static": {"max_chunk_size_tokens": 4096, "chunk_overlap_tokens": 0}}
        self.path += f"/{self.call('POST', '', {'name': self.name})['id']}"
        for at in range(0, len(files), 2000):
            self.call("POST", "/file_batches", {"file_ids": files[at:at + 2000], "chunking_strategy": whole})
        self.wait(lambda store: store["status"] == "completed")
        return 0

    def wait(self, done):
        end = time.monotonic() + SELF_TEST_SECONDS
        while not done(self.call("GET")):
            if time.monotonic() > end:
                sys.exit(f"the store is not ready after {SELF_TEST_SECONDS} s: {self.call('GET')}")
            time.sleep(1)

    def ranks(self, questions, by):
        weights = dict(zip(("embedding_weight", "text_weight"), self.WEIGHTS.get(by, ())))
        options = {"ranking_options": {"hybrid_search": weights}} if weights else {}
        ranks = []
        for question, passage in questions:
            found = self.call("POST", "/search", {"query": question, "max_num_results": max(FIRST), **options})["data"]
            names = [hit["filename"] for hit in found]
            ranks.append(names.index(f"{passage}.txt") if f"{passage}.txt" in names else math.inf)
        return ranks

    def self_test(self):
        if not self.call("GET")["vectors"]:
            return None
        self.wait(lambda store: store["vectors"]["waiting"] == 0)
        return self.call("POST", "/selftest", {})["self_test"]


def share(ranks, first):
    """-> percent of ranks among the first, and half the width of its interval."""
    p = sum(rank < first for rank in ranks) / len(ranks)
    return 100 * p, 196 * math.sqrt(p * (1 - p) / len(ranks))


def measure(collection, questions, ways):
    """Prints a row of each way -> percent among the first five, by way."""
    five = {}
    for by in ways:
        begin = time.monotonic()
        ranks = collection.ranks(questions, by)
        each = 1000 * (time.monotonic() - begin) / len(questions)
        cells = [f"r@{first} {value:5.1f} +- {half:.1f}" for first in FIRST for value, half in [share(ranks, first)]]
        print(f"{by:8s} {'   '.join(cells)}   {each:.1f} ms a question", flush=True)
        five[by] = share(ranks, 5)[0]
    return five


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", help="an API key")
    parser.add_argument("--pods", type=pathlib.Path, required=True, help="the folder of Perl's manual pages")
    parser.add_argument("--others", type=int, default=1500, help="sections of other pages among the passages")
    parser.add_argument("--kept", action="store_true", help="the collection of an earlier run is there and is used as it is")
    parser.add_argument("--store", action="store_true", help="the passages are files of a vector store")
    parser.add_argument("--both-least", type=float, help="percent among the first five that `both` must find after the self-test")
    parser.add_argument("--meaning-least", type=float, help="percent among the first five that `meaning` must find")
    parser.add_argument("--weight-least", type=float, help="the weight that the self-test must give the vectors")
    args = parser.parse_args()
    questions, passages = exam(args.pods, args.others)
    if not questions:
        sys.exit(f"{args.pods} has no perlfaq1.pod to perlfaq9.pod")
    collection = (Store if args.store else Collection)(args.url, args.key, COLLECTION)
    begin = time.monotonic()
    tokens = 0 if args.kept else collection.fill(passages)
    took = time.monotonic() - begin
    print(f"{len(questions)} questions, {len(passages)} passages, {tokens} tokens, added in {took:.0f} s", flush=True)
    # A store has no vectors for a search by meaning before its files have theirs.
    five = measure(collection, questions, ("words", "both") if args.store else ("words", "meaning", "both"))
    losses = [five["words"] - five["both"]]
    tested = collection.self_test()
    if args.store and tested:
        five |= measure(collection, questions, ("meaning",))
    print(f"self-test, {time.monotonic() - begin:.0f} s after the start: {json.dumps(tested)}", flush=True)
    if tested:
        five |= measure(collection, questions, ("both",))
        losses.append(five["words"] - five["both"])
    weight = (tested or {}).get("vector_weight", 0)
    if args.both_least is not None and five["both"] < args.both_least:
        sys.exit(f"`both` finds {five['both']:.1f} %, at least {args.both_least} are wanted")
    if args.meaning_least is not None and five["meaning"] < args.meaning_least:
        sys.exit(f"`meaning` finds {five['meaning']:.1f} %, at least {args.meaning_least} are wanted")
    if args.weight_least is not None and weight < args.weight_least:
        sys.exit(f"the self-test gives the vectors {weight}, at least {args.weight_least} is wanted")
    if max(losses) > LOSS_MAX:
        sys.exit(f"`both` is {max(losses):.1f} points below `words`, at most {LOSS_MAX} are allowed")


if __name__ == "__main__":
    main()
