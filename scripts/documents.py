#!/usr/bin/env python3
"""An exam of answers from a team's own files: facts in documents, asked in several wordings of a running service. Standard library alone.

    CHIMERE_DOCUMENTS__DIRECTORY=$(mktemp -d) chimere &
    python3 scripts/documents.py [--facts 960] [--documents 2000] [--unanswerable 200] [--queries question|written|forced] [--check]

The documents are texts of a few sentences, of which one states a fact about an invented thing (models/nano/tasks/facts.py) and the others tell
of something else; those beyond the facts state facts about things that nobody asks for. Given are, with 95 % intervals:

searches      questions whose document is among the first five that the store finds, in six wordings
answers       questions whose answer has the value, asked through the tool file_search
refused       questions that the documents answer, and that were answered with "not in the text"
citations     answers with the value that carry a citation; citations whose quote is a part of the file's text and has the value
unanswerable  questions about things that no document tells of, answered with "not in the text"
searched      questions that the model searched for at all, where it writes the queries; forced ones have to begin with a search

With --check the program fails where a share is below its floor: MUSTS, or what --least says (answers=20,cited=50) for a smaller model or exam.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "models/nano"))
from tasks import context, facts  # noqa: E402

WORDINGS = ["What is the {r} of {e}?", "Which {r} does {e} have?", "Tell me {e}'s {r}.", "I need to know the {r} of the {k} {e}.",
            "{e}: what is its {r}?", "Can you look up the {r} for {e}?"]
STATED = ["The {e} {r} is {v}.", "The {r} of {e} is {v}.", "{e} has the {r} {v}."]
NOT_THERE = ("not in the text", "not in the passage", "does not say", "do not say", "don't know", "no information")
MUSTS = {"searches": 99, "answers": 97, "refused": (None, 3), "cited": 95, "citations": 98, "unanswerable": 95}
UNKNOWN_SEED = 77
WAIT_SECONDS = 1800
# As services/src/citations/prompt.rs and turn/decisions/sufficiency.rs have them.
CITE = ("Answer from these passages and cite the number of each passage that you use, like [1]. If they do not have the answer, "
        "say so.")
SUFFICIENT = "The passages have the answer to the question."


class Client:
    def __init__(self, url, key):
        self.url, self.headers = url, {"Authorization": f"Bearer {key}"} if key else {}

    def send(self, method, path, data=None, kind="application/json"):
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind, **self.headers}, method=method)
        with urllib.request.urlopen(request, timeout=600) as response:
            return response.read()

    def call(self, method, path, body=None):
        return json.loads(self.send(method, path, None if body is None else json.dumps(body).encode()))

    def upload(self, name, text):
        boundary, name = uuid.uuid4().hex, name.replace('"', "%22")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nassistants\r\n--{boundary}\r\n'
        head += f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/plain\r\n\r\n'
        body = head.encode() + text.encode() + f"\r\n--{boundary}--\r\n".encode()
        return json.loads(self.send("POST", "/v1/files", body, f"multipart/form-data; boundary={boundary}"))["id"]

    def model(self):
        return self.call("GET", "/v1/models")["data"][0]["id"]

    def refusal(self, method, path, body=None):
        """-> the status and what is said, or None where a request is not refused."""
        try:
            self.call(method, path, body)
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        return None

    def filled(self, name, texts):
        """-> the id of a store with these texts, each with a name, and the files' ids in their order, once all of them can be searched."""
        store = self.call("POST", "/v1/vector_stores", {"name": name})["id"]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            files = list(pool.map(lambda text: self.upload(*text), texts))
        for at in range(0, len(files), 100):
            self.call("POST", f"/v1/vector_stores/{store}/file_batches", {"file_ids": files[at:at + 100]})
        end = time.monotonic() + WAIT_SECONDS
        while True:
            counts = self.call("GET", f"/v1/vector_stores/{store}")["file_counts"]
            if counts["completed"] == len(files):
                return store, files
            if counts["failed"] or time.monotonic() > end:
                sys.exit(f"not all files became searchable: {counts}")
            time.sleep(0.5)

    def removed(self, store, files):
        self.call("DELETE", f"/v1/vector_stores/{store}")
        for file in files:
            self.call("DELETE", f"/v1/files/{file}")


def stated(rng, row):
    """A document that states a fact."""
    fact = rng.choice(STATED).format(e=row["entity"], r=row["relation"], v=row["value"])
    lines = [context.filler(rng) for _ in range(rng.randint(2, 6))]
    lines.insert(rng.randint(0, len(lines)), fact)
    return " ".join(lines)


def asked(row, wording):
    return WORDINGS[wording].format(e=row["entity"], r=row["relation"], k=facts.DOMAINS[row["domain"]][0])


def strangers():
    """Facts about things that are not in the table."""
    known = {row["entity"] for row in facts.ROWS}
    return [row for row in facts.table(UNKNOWN_SEED) if row["entity"] not in known]


def documents(count, rows, seed=5):
    """-> texts, of which the first state the facts of `rows`, and the things that no text tells of."""
    rng, others = random.Random(seed), strangers()
    rng.shuffle(others)
    fillers, unknown = others[:len(others) // 2], others[len(others) // 2:]
    told = {row["entity"] for row in fillers}
    texts = [stated(rng, row) for row in rows]
    texts += [stated(rng, rng.choice(fillers)) for _ in range(count - len(rows))]
    return texts, [row for row in unknown if row["entity"] not in told]


def found(client, store, file, question):
    """Whether the question's file is among the first five."""
    hits = client.call("POST", f"/v1/vector_stores/{store}/search", {"query": question, "max_num_results": 5})["data"]
    return file in [hit["file_id"] for hit in hits]


def answered(client, store, model, question, passages, queries):
    """-> the answer's text, its citations, and how many searches were made for it."""
    tool = {"type": "file_search", "vector_store_ids": [store], "max_num_results": passages,
            "queries": "question" if queries == "question" else "written"}
    body = {"model": model, "messages": [{"role": "user", "content": question}], "tools": [tool], "temperature": 0, "max_tokens": 400}
    if queries == "forced":
        body["tool_choice"] = {"type": "file_search"}
    reply = client.call("POST", "/v1/chat/completions", body)
    message, searches = reply["choices"][0]["message"], reply["timings"]["turn"]["searches"]
    return message["content"] or "", [note["file_citation"] for note in message.get("annotations", [])], searches


def judged(client, store, questions, passages):
    """-> lines for `chimere eval decisions`: whether the passages that a question is answered from have its answer."""
    for question, has_answer in questions:
        hits = client.call("POST", f"/v1/vector_stores/{store}/search", {"query": question, "max_num_results": passages})["data"]
        shown = [f"[{at}] Title: {hit['filename']}\n{hit['content'][0]['text']}" for at, hit in enumerate(hits, 1)]
        text = "\n\n".join([CITE, *shown, question])
        predicate = {"type": "predicate", "name": "sufficient", "instructions": SUFFICIENT}
        yield {"input": text, "question": predicate, "answer": has_answer}


def refuses(text):
    return any(phrase in text.lower() for phrase in NOT_THERE)


def share(values):
    """-> percent of true values, and half the width of its interval."""
    p = sum(values) / max(1, len(values))
    return 100 * p, 196 * math.sqrt(p * (1 - p) / max(1, len(values)))


def floors(text):
    """Floors as --least writes them."""
    return {name: float(value) for name, value in (floor.split("=") for floor in text.split(","))}


def report(results, musts):
    """Prints the table -> the rows that are below their floor."""
    missed = []
    for name, values in results.items():
        (value, half), must = share(values), musts.get(name)
        low, high = must if isinstance(must, tuple) else (must, None)
        wanted = f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
        print(f"{name:13s} {value:5.1f} +- {half:4.1f} % of {len(values):5d}   {wanted}", flush=True)
        if low is not None and value < low or high is not None and value > high:
            missed.append(name)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", help="an API key")
    parser.add_argument("--facts", type=int, default=960)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--unanswerable", type=int, default=200)
    parser.add_argument("--passages", type=int, default=5, help="passages of each search")
    parser.add_argument("--queries", choices=["question", "written", "forced"], default="question", help="whether the model writes the queries")
    parser.add_argument("--wordings", type=int, default=len(WORDINGS), help="in which each fact is asked")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="fail where a share is below its floor")
    parser.add_argument("--judged", type=pathlib.Path, help="write questions for `chimere eval decisions` to this file, and end")
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers to print")
    parser.add_argument("--least", type=floors, default=MUSTS, help="floors in place of the exam's own")
    args = parser.parse_args()
    client = Client(args.url, args.key)
    model, rows = client.model(), facts.ROWS[:args.facts]
    texts, unknown = documents(max(args.documents, len(rows)), rows)
    begin = time.monotonic()
    store, files = client.filled("exam", [(f"{at:05}.txt", text) for at, text in enumerate(texts)])
    kilobytes = sum(map(len, texts)) / 1000
    print(f"{len(texts)} documents, {kilobytes:.0f} kB, searchable after {time.monotonic() - begin:.1f} s", flush=True)
    questions = [(at, asked(row, wording)) for wording in range(args.wordings) for at, row in enumerate(rows)]
    if args.judged:
        rng = random.Random(9)
        none = [asked(rng.choice(unknown), rng.randrange(args.wordings)) for _ in range(args.unanswerable)]
        lines = judged(client, store, [(q, True) for _, q in questions] + [(q, False) for q in none], args.passages)
        args.judged.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return
    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        begin = time.monotonic()
        searches = list(pool.map(lambda q: found(client, store, files[q[0]], q[1]), questions))
        print(f"{1000 * (time.monotonic() - begin) / len(questions):.1f} ms a search", flush=True)
        ask = lambda question: answered(client, store, model, question, args.passages, args.queries)
        answers = list(pool.map(lambda q: ask(q[1]), questions))
        rng = random.Random(9)
        none = list(pool.map(ask, [asked(rng.choice(unknown), rng.randrange(args.wordings)) for _ in range(args.unanswerable)]))
    right = [rows[at]["value"] in text for (at, _), (text, *_) in zip(questions, answers)]
    notes = [(files[at], rows[at]["value"], texts[at], note) for (at, _), (_, cited, _) in zip(questions, answers) for note in cited]
    wrong = [(question, text) for (_, question), (text, *_), ok in zip(questions, answers, right) if not ok]
    for question, text in random.Random(3).sample(wrong, min(args.wrong, len(wrong))):
        print(f"  {question!r} -> {text!r}")
    missed = report({
        "searches": searches,
        "answers": right,
        "refused": [refuses(text) for text, *_ in answers],
        "cited": [bool(cited) for ok, (_, cited, _) in zip(right, answers) if ok],
        "citations": [note["file_id"] == file and note["quote"] in text and value in note["quote"] for file, value, text, note in notes],
        "unanswerable": [refuses(text) for text, *_ in none],
        **({"searched": [made > 0 for *_, made in answers]} if args.queries != "question" else {}),
    }, args.least)
    client.removed(store, files)
    if args.check and missed:
        sys.exit(f"below their floors: {', '.join(missed)}")


if __name__ == "__main__":
    main()
