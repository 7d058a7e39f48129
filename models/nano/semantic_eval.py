#!/usr/bin/env python3
"""What the model's hidden states find, and what examples that were found that way change. Over HTTP, standard library alone.

    CHIMERE_ENGRAM__DIRECTORY=$(mktemp -d) chimere &
    python3 semantic_eval.py --json result.json

retrieval   families: is the nearest of some 900 other questions of the same family (and of the same task within it)? facts: of all facts, each
            asked in one way, is the one nearest to the same fact asked in another way the right one? Vectors by the mean over a text's rows
            and by its last row, as they are and less the mean of all; beside them words weighed by how rare they are, what the service's
            own search finds by each of its ways, and chance.
examples    is a family answered better with examples? Each question is asked alone, with the k nearest questions of the collection and their
            answers before it, and with k of the collection at random. Differences are paired, question by question, over the same questions.

Intervals are 95 %: 1.96 standard errors of the mean to each side.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import operator
import pathlib
import random
import re
import sys
import urllib.parse
import urllib.request

from eval import Server
from tasks import arithmetic, extract, facts, strings, tools
from tasks.grade import right
from tasks.sample import plain
from tasks.talk import make as talk

BATCH = 256
# Families whose questions say by themselves what is asked for. Contexts of thousands of tokens are left out: nobody keeps those as examples.
FAMILIES = {
    "arithmetic": lambda rng, test: arithmetic.make(rng, test, False),
    "strings": lambda rng, test: strings.make(rng, test, False),
    "tool calls": lambda rng, test: tools.make(rng, test),
    "JSON to schema": lambda rng, test: extract.make(rng, test),
    "facts": lambda rng, test: facts.make(rng, test, False, rng.choice(facts.WITHHELD if test else facts.TRAINED)),
    "several turns": lambda rng, test: talk(rng, test),
}


class Client(Server):
    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=self.timeout) as response:
            return json.load(response)

    def embed(self, texts, pooling):
        vectors = []
        for i in range(0, len(texts), BATCH):
            reply = self.call("/v1/embeddings", dict(model=self.model, input=texts[i:i + BATCH], pooling=pooling))
            vectors += [d["embedding"] for d in reply["data"]]
        return vectors

    def collect(self, name, items):
        path = "/v1/engram/collections/" + urllib.parse.quote(name)
        self.send("PUT", path)
        self.send("DELETE", path)
        self.send("PUT", path)
        for i in range(0, len(items), BATCH):
            self.send("POST", path + "/add", {"items": items[i:i + BATCH]})


def interval(values):
    """-> mean, and half the width of its 95 % interval."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)
    return mean, 1.96 * math.sqrt(variance / len(values))


def dot(a, b):
    return sum(map(operator.mul, a, b))


def unit(v):
    length = math.sqrt(dot(v, v)) or 1.0
    return [x / length for x in v]


def centred(vectors, mean):
    return [unit(list(map(operator.sub, v, mean))) for v in vectors]


def nearest(query, index):
    return max(range(len(index)), key=lambda i: dot(query, index[i]))


def words(text):
    return re.findall(r"\w+", text.lower())


def nearest_by_words(queries, texts):
    """Cosine of word counts, each weighed by the logarithm of how rare the word is among the texts."""
    seen = collections.Counter(w for text in texts for w in set(words(text)))
    weigh = lambda text: {w: n * math.log(1 + len(texts) / (1 + seen[w])) for w, n in collections.Counter(words(text)).items()}
    length = lambda v: math.sqrt(sum(x * x for x in v.values())) or 1.0
    index = [weigh(text) for text in texts]
    lengths = [length(v) for v in index]
    found = []
    for query in map(weigh, queries):
        scores = [sum(x * v.get(w, 0.0) for w, x in query.items()) / n for v, n in zip(index, lengths)]
        found.append(max(range(len(index)), key=scores.__getitem__))
    return found


def question(sample):
    """What is embedded for a conversation: the last thing that its user says."""
    return [m for m in sample.prompt() if m["role"] == "user"][-1]["content"]


def ways(client, queries, texts):
    """-> for each way of finding, the number of the text that it finds for each query."""
    found = {"words": nearest_by_words(queries, texts)}
    # Only what has an answer can be an example.
    client.collect("found", [dict(id=str(i), text=text, answer="yes") for i, text in enumerate(texts)])
    search = lambda query, by: client.send("POST", "/v1/engram/collections/found/search", dict(query=query, k=1, by=by))["data"]
    asked = lambda query: dict(model=client.model, messages=[dict(role="user", content=query)], max_tokens=1,
                               engram={"semantic": {"collection": "found", "k": 1}})
    examples = [client.call("/v1/chat/completions", asked(query))["timings"]["engram"]["semantic"]["ids"] for query in queries]
    found["examples"] = [int(ids[0]) if ids else -1 for ids in examples]
    for by in ("both", "meaning", "words"):
        hits = [search(query, by) for query in queries]
        # What has no word in common with anything finds nothing, and is wrong.
        found[f"search by {by}"] = [int(hit[0]["id"]) if hit else -1 for hit in hits]
    for pooling in ("mean", "last"):
        q, index = client.embed(queries, pooling), client.embed(texts, pooling)
        mean = [sum(column) / len(index) for column in zip(*index)]
        found[pooling] = [nearest(v, index) for v in q]
        qc, ic = centred(q, mean), centred(index, mean)
        found[f"{pooling}, centred"] = [nearest(v, ic) for v in qc]
    return found


def shares(found, is_right, chance):
    """-> rows of (way, share, half the width of its interval)."""
    rows = {"chance": dict(share=chance, half_width=0.0)}
    for way, places in found.items():
        share, half = interval([float(place >= 0 and is_right(i, place)) for i, place in enumerate(places)])
        rows[way] = dict(share=share, half_width=half)
    return rows


def show(title, rows):
    print(title)
    for way, row in rows.items():
        print(f"  {way:17} {100 * row['share']:6.1f} +- {100 * row['half_width']:.1f} %", flush=True)


SUMS = {"add": r"\d\s*(\+|plus|and)\s*\d|\badd \d", "sub": r"\d\s*(-|minus|less)\s*\d|\bsubtract \d",
        "mul": r"\d\s*(\*|x|times|by)\s*\d|\bmultiply \d|\bproduct of \d"}


def task(family, sample):
    """The family and what is asked for within it, without the numbers and names of the instance. A sum that a tool is there for is a sum:
    nothing in its text tells it from others."""
    key = sample.key.split()
    sums = [name for name, pattern in SUMS.items() if re.search(pattern, question(sample).lower())]
    if family == "tool calls" and len(sums) == 1 and " and " not in question(sample):
        return ("arithmetic", sums[0])
    return (family, {"arithmetic": key[1], "strings": key[0], "several turns": key[0]}.get(family))


def retrieve_families(client, args):
    rng = random.Random(f"{args.seed} families")
    draw = lambda test, n: [(family, make(rng, test)) for family, make in FAMILIES.items() for _ in range(n)]
    index, queries = draw(False, args.index), draw(True, -(-args.questions // len(FAMILIES)))
    found = ways(client, [question(s) for _, s in queries], [question(s) for _, s in index])
    tasks = collections.Counter(task(*drawn) for drawn in index)
    # What stands word by word in two tasks is found rightly in either.
    same = lambda i, j: task(*queries[i]) == task(*index[j]) or question(queries[i][1]) == question(index[j][1])
    by_task = sum(tasks[task(*drawn)] for drawn in queries) / len(queries) / len(index)
    out = dict(questions=len(queries), index=len(index),
               family=shares(found, lambda i, j: queries[i][0] == index[j][0], 1 / len(FAMILIES)),
               task=shares(found, same, by_task))
    show(f"families: {len(queries)} questions, {len(index)} to find, same family", out["family"])
    show(f"families: same task among {len(tasks)}", out["task"])
    return out


def asked(row, way):
    return facts.ASK[way].format(e=row["entity"], r=row["relation"], k=facts.DOMAINS[row["domain"]][0])


def retrieve_facts(client, args):
    rng = random.Random(f"{args.seed} facts")
    chosen = rng.sample(range(len(facts.ROWS)), min(args.questions, len(facts.ROWS)))
    queries = [asked(facts.ROWS[i], rng.randrange(1, len(facts.ASK))) for i in chosen]
    found = ways(client, queries, [asked(row, 0) for row in facts.ROWS])
    same = lambda field: lambda i, j: facts.ROWS[chosen[i]][field] == facts.ROWS[j][field]
    out = dict(questions=len(queries), index=len(facts.ROWS), fact=shares(found, lambda i, j: chosen[i] == j, 1 / len(facts.ROWS)),
               entity=shares(found, same("entity"), 4 / len(facts.ROWS)))
    show(f"facts: {len(queries)} paraphrases, {len(facts.ROWS)} to find, the same fact", out["fact"])
    show("facts: the same entity", out["entity"])
    return out


def as_item(number, sample):
    answer = next(m for m in sample.messages[::-1] if m["role"] == "assistant")
    return dict(id=str(number), text=question(sample), answer=plain(answer["content"]))


def few_shot_families():
    """label -> (items of its collection, how a question is made). Questions are held out of training and of the collection."""
    rng = random.Random(5)
    drawn = lambda make: [as_item(i, make(rng, False)) for i in range(1000)]
    told = [dict(id=str(i), text=asked(row, 0), answer=facts.answer(row)) for i, row in enumerate(facts.WITHHELD)]
    return {
        "arithmetic, direct": (drawn(FAMILIES["arithmetic"]), lambda r: arithmetic.make(r, True, False)),
        "strings, direct": (drawn(FAMILIES["strings"]), lambda r: strings.make(r, True, False)),
        "JSON to schema": (drawn(FAMILIES["JSON to schema"]), lambda r: extract.make(r, True)),
        # Another wording than the collection's: what is found has to be understood.
        "facts, withheld": (told, lambda r: facts.make(r, True, False, r.choice(facts.WITHHELD))),
    }


def answer(client, sample, before=(), semantic=None):
    """-> right?, ids of the examples."""
    messages = sample.prompt()
    system = sum(m["role"] == "system" for m in messages[:1])
    body = dict(model=client.model, messages=messages[:system] + list(before) + messages[system:], temperature=0, max_tokens=400,
                chat_template_kwargs={"enable_thinking": False})
    if semantic:
        body["engram"] = {"semantic": semantic}
    reply = client.call("/v1/chat/completions", body)
    said = (reply["timings"].get("engram") or {}).get("semantic") or {}
    return float(right(sample, reply["choices"][0]["message"].get("content") or "", [])), said.get("ids", [])


def examples(client, label, items, make, args):
    rng = random.Random(f"{args.seed} {label}")
    name = "eval-" + re.sub(r"\W+", "-", label)
    client.collect(name, items)
    samples = [make(rng) for _ in range(args.questions)]
    turns = lambda chosen: [turn for item in chosen for turn in (dict(role="user", content=item["text"]), dict(role="assistant", content=item["answer"]))]
    jobs = [(s, turns(rng.sample(items, args.k))) for s in samples]

    def one(job):
        sample, random_turns = job
        alone, _ = answer(client, sample)
        found, ids = answer(client, sample, semantic=dict(collection=name, k=args.k))
        drawn, _ = answer(client, sample, before=random_turns)
        return alone, found, drawn, len(ids)

    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        rows = list(pool.map(one, jobs))
    alone, found, drawn, used = zip(*rows)
    out = dict(questions=len(rows), collection=len(items), k=args.k, examples=sum(used) / len(used), alone=interval(alone), found=interval(found),
               drawn=interval(drawn), found_less_alone=interval([b - a for a, b in zip(alone, found)]),
               found_less_drawn=interval([b - a for a, b in zip(drawn, found)]))
    text = lambda key: f"{100 * out[key][0]:6.1f} +- {100 * out[key][1]:.1f}"
    print(f"{label:20} {len(rows)} questions, {out['examples']:.1f} examples of {len(items)}: alone {text('alone')}, nearest {text('found')}, at random "
          f"{text('drawn')}; nearest less alone {text('found_less_alone')}, nearest less random {text('found_less_drawn')}", flush=True)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--questions", type=int, default=600, help="of each kind; at least 500 for figures that are shown")
    ap.add_argument("--index", type=int, default=150, help="questions of each family to find")
    ap.add_argument("--k", type=int, default=4, help="examples of a question")
    ap.add_argument("--part", choices=("retrieval", "examples"), help="one part only")
    ap.add_argument("--only", help="few-shot families whose names contain this")
    ap.add_argument("--concurrency", type=int, default=16)
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--json", type=pathlib.Path)
    args = ap.parse_args()
    client, out = Client(args.url, None, 1200), dict(seed=args.seed)
    if args.part != "examples":
        out["families"], out["facts"] = retrieve_families(client, args), retrieve_facts(client, args)
    if args.part != "retrieval":
        chosen = {label: of for label, of in few_shot_families().items() if not args.only or args.only in label}
        out["examples"] = {label: examples(client, label, items, make, args) for label, (items, make) in chosen.items()}
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
