#!/usr/bin/env python3
"""What pipelines win on the shipped model, against one plain generation of the same questions. Standard library alone.

    export CHIMERE_DOCUMENTS__DIRECTORY=$(mktemp -d) CHIMERE_PIPELINES__DIRECTORY=$(mktemp -d) CHIMERE_PIPELINES__RELOAD_SECONDS=1
    chimere --device cpu --port 8080 &
    python3 scripts/pipelines.py --directory $CHIMERE_PIPELINES__DIRECTORY [--n 200] [--only NAME,..] [--json FILE] [--check]

The examples of config/pipelines and a pipeline for each optional stage (STAGES) are written to the service's directory, and a
vector store `docs` of invented facts is made for them. A line a comparison: percent right of n with one generation and with
the pipeline, the difference in points with its 95 % interval (pairs of the same question), and tokens an answer of both.
With --check the program fails where an example loses beyond noise.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "models/nano"), str(ROOT / "scripts")]
from asking import difference, wilson  # noqa: E402
from documents import Client, asked, documents, refuses  # noqa: E402
from tasks import arithmetic, extract, facts  # noqa: E402
from tasks.grade import right  # noqa: E402

EXAMPLES = ROOT / "config/pipelines"
AT_ONCE = 8
# A stage and the same steps without it.
STAGES = {
    "stage_plain_docs": 'steps = [{ retrieve = { store = "docs" } }, { generate = {} }]',
    "stage_enough": 'steps = [{ retrieve = { store = "docs" } }, { enough = { min = 0.5 } }, { generate = {} }]',
    "stage_cited": """steps = [{ retrieve = { store = "docs" } }, { generate = {} },
        { check = { cited = 1, else = "The documents do not say." } }]""",
    "stage_cited_retry": """steps = [{ retrieve = { store = "docs" } }, { generate = {} },
        { check = { cited = 1, retry = 1, else = "The documents do not say." } }]""",
    "stage_first": 'steps = [{ retrieve = { store = "docs", k = 1 } }, { generate = {} }]',
    "stage_rerank": 'steps = [{ retrieve = { store = "docs", k = 1, rerank = 8 } }, { generate = {} }]',
    "stage_best_of": "steps = [{ generate = { thinking = false, best_of = { n = 8 } } }]",
    "stage_retry": "steps = [{ generate = { thinking = false } }, { check = { schema = '''SCHEMA''', retry = 1 } }]",
}
DIRECT = {"reasoning_effort": "none"}


def example(name):
    return tomllib.loads((EXAMPLES / f"{name}.toml").read_text())


def ticket_words():
    return example("checked_json")["steps"][0]["generate"]["suffix"].replace("{{", "{").replace("}}", "}")


def installed(client, directory):
    """Writes all pipelines, and waits until they are models."""
    schema = example("checked_json")["steps"][1]["check"]["schema"]
    for path in EXAMPLES.glob("*.toml"):
        (directory / path.name).write_text(path.read_text())
    for name, text in STAGES.items():
        (directory / f"{name}.toml").write_text(text.replace("SCHEMA", schema))
    wanted = set(STAGES) | {path.stem for path in EXAMPLES.glob("*.toml")}
    for _ in range(100):
        files = client.call("GET", "/v1/pipelines")["data"]
        wrong = [file["error"] for file in files if file["error"]]
        if wrong:
            sys.exit("\n".join(wrong))
        if wanted <= {file["id"] for file in files}:
            return
        time.sleep(0.2)
    sys.exit(f"{directory} is not the service's pipelines.directory, or it is not looked at")


def sums(n, seed):
    rng = random.Random(f"{seed} sums")
    made = [arithmetic.make(rng, test=True, thinking=False) for _ in range(n)]
    return [(sample.prompt()[-1]["content"], lambda text, s=sample: right(s, text)) for sample in made]


def told(row, text):
    return row["value"] in text


def tickets(n, seed):
    """Texts of tickets, and the JSON that each should give."""
    rng, fields = random.Random(f"{seed} tickets"), ["id", "owner", "component", "severity", "closed"]
    kinds = {keys.split()[0]: (kind, phrase) for keys, kind, phrase in extract.RECORDS["ticket"]}

    def one():
        value = {name: extract.KINDS[kinds[name][0]][1](rng) for name in fields}
        said = [kinds[name][1].format(extract.KINDS[kinds[name][0]][2](value[name])) for name in fields]
        rng.shuffle(said)
        return f"Text: Ticket: {', '.join(said)}.", value

    def is_value(text, value):
        try:
            return json.loads(text) == value
        except ValueError:
            return False
    return [(text, lambda reply, v=value: is_value(reply, v)) for text, value in (one() for _ in range(n))]


class Exam:
    """Asks questions, one generation or a pipeline at a time."""

    def __init__(self, client, n, seed):
        self.client, self.n, self.seed = client, n, seed
        self.model, self.known = client.model(), {}

    def ask(self, questions, model, words="", **options):
        """-> for each question whether it was answered right, and tokens."""
        def one(at):
            text, judge = questions[at]
            content = text + ("\n\n" + words if words else "")
            body = dict(model=model, messages=[{"role": "user", "content": content}], seed=at + 1, max_tokens=1500, **options)
            reply = self.client.call("POST", "/v1/chat/completions", body)
            said = reply["choices"][0]["message"]["content"] or ""
            return bool(judge(said)), reply["usage"]["completion_tokens"]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, range(len(questions))))

    def compare(self, name, questions, plain, pipeline):
        """`plain` and `pipeline` are (model, words, options)."""
        key = (id(questions), json.dumps(plain))
        if key not in self.known:
            self.known[key] = self.ask(questions, plain[0] or self.model, plain[1], **plain[2])
        before, after = self.known[key], self.ask(questions, pipeline[0] or self.model, pipeline[1], **pipeline[2])
        answers = [[good for good, _ in all_of] for all_of in (before, after)]
        gain, low, high = (100 * value for value in difference(answers[1], answers[0]))
        tokens = [statistics.mean(tokens for _, tokens in all_of) for all_of in (before, after)]
        n, good = len(questions), [sum(all_of) for all_of in answers]
        line = dict(n=n, before=good[0], after=good[1], gain=gain, low=low, high=high, tokens=tokens)
        shares = " -> ".join(f"{100 * of / n:5.1f} ({100 * wilson(of, n)[0]:.0f}-{100 * wilson(of, n)[1]:.0f})" for of in good)
        verdict = "wins" if low > 0 else "loses" if high < 0 else "no gain beyond noise"
        print(f"{name:46s} n={n:4d}  {shares} %  {gain:+5.1f} [{low:+.1f}, {high:+.1f}]  {tokens[0]:.0f} -> {tokens[1]:.0f} tokens  {verdict}", flush=True)
        return line


def store(client, n):
    """Makes the store `docs` -> questions that it answers, and questions that it does not."""
    rows = random.Random(3).sample(facts.WITHHELD, min(n, len(facts.WITHHELD)))
    texts, unknown = documents(max(2 * n, 60), rows)
    for old in client.call("GET", "/v1/vector_stores?limit=100")["data"]:
        if old["name"] == "docs":
            client.call("DELETE", f"/v1/vector_stores/{old['id']}")
    client.filled("docs", [(f"{at}.txt", text) for at, text in enumerate(texts)])
    known = [(asked(row, at % 6), lambda text, r=row: told(r, text)) for at, row in enumerate(rows)]
    return known, [(asked(row, at % 6), refuses) for at, row in enumerate(unknown[:n])]


def exams(exam, n):
    """Name -> the comparison, none of which is made before it is asked for."""
    known, unknown = store(exam.client, n)
    half = n // 2
    some, arithmetics, texts = known[:half] + unknown[:half], sums(n, exam.seed), tickets(n, exam.seed)
    mixed, plain = known[:half] + arithmetics[:half], ("", "", {})
    direct, greedy = ("", "", DIRECT), ("", "", DIRECT | {"temperature": 0})
    return {
        "docs": lambda: exam.compare("docs: plain", some, plain, ("docs", "", {})),
        "checked_json": lambda: exam.compare("checked_json: plain, the same words", texts, ("", ticket_words(), DIRECT), ("checked_json", "", {})),
        "architect_coder": lambda: exam.compare("architect_coder: plain, thinking", arithmetics[:half], plain, ("architect_coder", "", {})),
        "triage_correlate_remediate": lambda: exam.compare("triage_correlate_remediate: plain", mixed, plain, ("triage_correlate_remediate", "", {})),
        "enough": lambda: exam.compare("enough: without", some, ("stage_plain_docs", "", {}), ("stage_enough", "", {})),
        "cited": lambda: exam.compare("check cited, else a refusal: without", some, ("stage_plain_docs", "", {}), ("stage_cited", "", {})),
        "cited_retry": lambda: exam.compare("retry of cited: without", some, ("stage_cited", "", {}), ("stage_cited_retry", "", {})),
        "rerank": lambda: exam.compare("rerank 8 to 1: the first 1", known, ("stage_first", "", {}), ("stage_rerank", "", {})),
        "retry": lambda: exam.compare("retry: without", texts, ("", ticket_words(), DIRECT), ("stage_retry", ticket_words(), {})),
        "best_of": lambda: exam.compare("best_of 8 on sums: one at the same temperature", arithmetics, direct, ("stage_best_of", "", {})),
        "best_of_greedy": lambda: exam.compare("best_of 8 on sums: one at temperature 0", arithmetics, greedy, ("stage_best_of", "", {})),
        "best_of_thinking": lambda: exam.compare("best_of 8 on sums: one that thinks", arithmetics[:half], plain, ("stage_best_of", "", {})),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", help="an API key")
    parser.add_argument("--directory", type=pathlib.Path, required=True, help="the service's pipelines.directory")
    parser.add_argument("--n", type=int, default=200, help="questions of a comparison")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", help="names of comparisons, by commas")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--check", action="store_true", help="fail where an example loses beyond noise")
    args = parser.parse_args()
    client = Client(args.url, args.key)
    installed(client, args.directory)
    all_exams = exams(Exam(client, args.n, args.seed), args.n)
    chosen = args.only.split(",") if args.only else list(all_exams)
    results = {name: all_exams[name]() for name in chosen}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    lost = [name for name in results if (EXAMPLES / f"{name}.toml").exists() and results[name]["high"] < 0]
    if args.check and lost:
        sys.exit(f"lost: {', '.join(lost)}")


if __name__ == "__main__":
    main()
