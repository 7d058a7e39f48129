#!/usr/bin/env python3
"""What drafts gain on the model that ships: the same requests with and without them, in turn.

    chimere --threads 2 &                       # drafts are on by default
    python3 scripts/draft_gain.py --rounds 5

One user at a time, answers of temperature 0, the prefix cache left out. A figure is tokens after the first a second of decoding, from the replies' own
`timings`, all of a case together, with drafts over without, and the interval of 95 % of 1,000 draws of its pairs with replacement. Each round asks
something else. Both answers of a pair must be the same text: the script fails where they are not. With --control nothing is drafted in either: what is
then off 1 is the machine's.

copy         Answers of --tokens tokens that copy their context. The model does not recite a page when it is given one, but without randomness a long
             text of its own soon repeats itself: the first --lead tokens of a page and --tokens of its own are the context, and answers of which at
             least --copied stands in it behind the same three tokens are taken. The source is `ngram`.
predicted    An answer to a question, asked again with itself as `prediction`, of which every tenth word is another one.
tasks        Questions of the model's card, --questions of a row.
crowd        --users at once, who go on from pages: the time of all of them.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

NANO = pathlib.Path(__file__).resolve().parent.parent / "models/nano"
sys.path.insert(0, str(NANO))
from asking import Client  # noqa: E402
from rows import instances  # noqa: E402
from eval import PAGE_RULE, as_sent  # noqa: E402

ROWS = ["arithmetic, thinking", "strings", "context, 1,024 tokens", "JSON to schema", "tool calls", "facts, trained", "several turns"]


def text(reply):
    choice = reply["choices"][0]
    return choice["text"] if "text" in choice else json.dumps([choice["message"].get(k) for k in ("reasoning_content", "content")] +
                                                              [c["function"] for c in choice["message"].get("tool_calls") or []])


class Pairs:
    """Asks with and without drafts, and adds up what came."""

    def __init__(self, client, control):
        self.client, self.flip, self.control = client, False, control

    def ask(self, path, body, more=None):
        """-> the replies with and without drafts."""
        body = dict(body, cache=False, temperature=0, seed=7)
        both, self.flip = {}, not self.flip
        for drafts in (self.flip, not self.flip):
            both[drafts] = self.client.call(path, body | (more or {}) if drafts and not self.control else body | dict(drafts=False))
        if text(both[True]) != text(both[False]):
            sys.exit(f"drafts changed an answer: {json.dumps(body)[:400]}\n{text(both[True])!r}\n{text(both[False])!r}")
        return both[True], both[False]


class Case:
    """The pairs of one row of the table."""

    def __init__(self, name):
        self.name, self.pairs, self.drafted, self.accepted = name, [], 0, 0

    def add(self, reply, without):
        drafts = reply["timings"].get("drafts", {})
        self.pairs.append((reply["usage"]["completion_tokens"] - 1, reply["timings"]["decode_ms"], without["timings"]["decode_ms"]))
        self.drafted += drafts.get("drafted", 0)
        self.accepted += drafts.get("accepted", 0)

    def tell(self, note=""):
        rng = random.Random(0)
        drawn = sorted(ratio(rng.choices(self.pairs, k=len(self.pairs))) for _ in range(1000))
        tokens, _, off = (sum(column) for column in zip(*self.pairs))
        line = dict(case=self.name, ratio=round(ratio(self.pairs), 3), low=round(drawn[25], 3), high=round(drawn[974], 3), pairs=len(self.pairs), tokens=tokens,
                    tokens_a_second_without=round(tokens / off * 1e3, 1), drafted=self.drafted, accepted=self.accepted)
        print(json.dumps(line | ({"note": note} if note else {})), flush=True)


def ratio(pairs):
    """The time of decoding without drafts over that with them."""
    return sum(without for _, _, without in pairs) / sum(with_drafts for _, with_drafts, _ in pairs)


def pages(rng):
    """Pages of the held-out documentation, in any order."""
    found = [page.strip() for page in (NANO / "heldout.txt").read_text().split(PAGE_RULE)]
    return rng.sample(found, len(found))


def known(context, answer):
    """The share of an answer's tokens that stand in the context, or earlier in the answer, behind the same three tokens as in the answer."""
    ids = context + answer
    seen, found = {tuple(ids[i:i + 4]) for i in range(len(context) - 3)}, 0
    for i in range(len(context) - 3, len(ids) - 3):
        run = tuple(ids[i:i + 4])
        found += run in seen
        seen.add(run)
    return found / len(answer)


def copied(pairs, args, rng):
    case, shares = Case("copy"), []
    for page in pages(rng):
        if len(case.pairs) == args.rounds:
            break
        ids = pairs.client.call("/tokenize", dict(prompt=page))["tokens"][:args.lead]
        more = dict(max_tokens=args.tokens, ignore_eos=True, temperature=0, cache=False, drafts=False)
        tail = text(pairs.client.call("/v1/completions", dict(prompt=ids) | more))
        ids += pairs.client.call("/tokenize", dict(prompt=tail))["tokens"]
        answer = text(pairs.client.call("/v1/completions", dict(prompt=ids) | more))
        share = known(ids, pairs.client.call("/tokenize", dict(prompt=answer))["tokens"])
        if share < args.copied:
            continue
        shares.append(share)
        case.add(*pairs.ask("/v1/completions", dict(prompt=ids, max_tokens=args.tokens, ignore_eos=True)))
    if not shares:
        sys.exit(f"no answer copies its context to {args.copied:.0%}")
    case.tell(f"{statistics.mean(shares):.0%} of the answers' tokens are copied")


def predicted(pairs, args, rng):
    case = Case("predicted")
    for page in pages(rng)[:args.rounds]:
        ids = pairs.client.call("/tokenize", dict(prompt=page))["tokens"][:300]
        body = dict(prompt=ids, max_tokens=args.tokens, ignore_eos=True)
        # Warm-up too: what the answer is.
        words = text(pairs.client.call("/v1/completions", body | dict(temperature=0, seed=7, drafts=False, cache=False))).split(" ")
        changed = [rng.choice(words) if i % 10 == 9 else word for i, word in enumerate(words)]
        case.add(*pairs.ask("/v1/completions", body, dict(prediction=dict(type="content", content=" ".join(changed)))))
    case.tell("every tenth word of the prediction is another one")


def crowd(pairs, args, rng):
    """--users at once: what one gains must not be what another loses."""
    case = Case(f"{args.users} users")
    for first in range(args.rounds):
        bodies = [dict(prompt=page[:800], max_tokens=args.tokens // 2, ignore_eos=True) for page in rng.choices(list(pages(rng)), k=args.users)]
        with ThreadPoolExecutor(args.users) as pool:
            took, replies = {}, {}
            for drafts in (first % 2 == 0, first % 2 == 1):
                more = dict(cache=False, temperature=0) | ({} if drafts and not args.control else dict(drafts=False))
                begin = time.monotonic()
                replies[drafts] = list(pool.map(lambda body: pairs.client.call("/v1/completions", body | more), bodies))
                took[drafts] = (time.monotonic() - begin) * 1e3
        if [text(reply) for reply in replies[True]] != [text(reply) for reply in replies[False]]:
            sys.exit("drafts changed an answer of a crowd")
        all_of = [reply["timings"].get("drafts", {}) for reply in replies[True]]
        case.pairs.append((args.users * (args.tokens // 2), took[True], took[False]))
        case.drafted += sum(of.get("drafted", 0) for of in all_of)
        case.accepted += sum(of.get("accepted", 0) for of in all_of)
    case.tell("the time of all, their prompts included")


def tasks(pairs, args, rng):
    for label in ROWS:
        case = Case(label)
        for sample in instances(rng, label, args.questions):
            body = dict(messages=as_sent(sample.prompt()), max_tokens=600, chat_template_kwargs={"enable_thinking": sample.thinking})
            reply, without = pairs.ask("/v1/chat/completions", body | (dict(tools=sample.tools) if sample.tools else {}))
            if reply["usage"]["completion_tokens"] >= args.least:
                case.add(reply, without)
        if case.pairs:
            case.tell()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", default="http://127.0.0.1:8080")
    ap.add_argument("--rounds", type=int, default=7, help="pairs of the cases copy and predicted")
    ap.add_argument("--questions", type=int, default=12, help="pairs of each row of the card")
    ap.add_argument("--tokens", type=int, default=500)
    ap.add_argument("--users", type=int, default=8, help="of the case crowd")
    ap.add_argument("--lead", type=int, default=200, help="tokens of a page that the case copy begins with")
    ap.add_argument("--copied", type=float, default=0.98, help="share of an answer that the case copy wants to be in its context")
    ap.add_argument("--least", type=int, default=16, help="shorter answers tell nothing of speed")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--control", action="store_true", help="draft in neither")
    ap.add_argument("cases", nargs="*", help="copy, predicted, tasks, crowd; all where none is named")
    args = ap.parse_args()
    pairs = Pairs(Client(args.url, 600), args.control)
    # What steps take is learned before anything is timed.
    for drafts in (False, True):
        pairs.client.call("/v1/completions", dict(prompt="one two three one two three", max_tokens=200, ignore_eos=True, temperature=0, drafts=drafts))
    for name, case in (("copy", copied), ("predicted", predicted), ("tasks", tasks), ("crowd", crowd)):
        if not args.cases or name in args.cases:
            case(pairs, args, random.Random(args.seed))


if __name__ == "__main__":
    main()
