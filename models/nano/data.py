#!/usr/bin/env python3
"""The training stream: conversations and documentation, encoded and packed into rows. Batch number n depends on (seed, n) alone.

    python3 data.py --tokenizer tokenizer.json --docs docs.txt.xz --check            # template, split, lengths, facts
    python3 data.py --tokenizer tokenizer.json --docs docs.txt.xz --prose prose.txt.xz --show read    # a few samples of one family

With --prose the families of generators/ are most of it; their table has the shares.
"""
import argparse
import bisect
import collections
import lzma
import random
import re
import sys
import time

import chat
import rows
from tasks import facts
from tasks.grade import FAMILIES, parse_calls, right
from tasks.sample import ALONE, COPY_CLOSE, COPY_OPEN, LETTERS_CLOSE, LETTERS_OPEN, plain

ROW_TOKENS = 4096           # unless train.py says otherwise
CUT_ONE_IN = 5              # thoughts cut at a random point, closed, and answered all the same
CLOSERS = ["\n</think>\n\n", "\n</think>\n\n", "</think>\n\n"]
SYSTEM = ["You are a helpful assistant.", "Answer briefly.", "You are Chimère Nano.", "Be precise.", "You answer questions.",
          "You are a helpful, honest assistant. Today is Monday.", "Be friendly.", "Answer in English.", "You are an assistant in a console.",
          "Keep answers short.", "You are a tutor for children.", "Think step by step.", "You are an expert.", "Never make things up.",
          "If you do not know, say so.", "You help users of a service.", "Use plain words.", "Reply in one sentence.", "Follow the instructions."]
# Share of the tokens by family. Long contexts and tool declarations are many tokens with few answers in them.
MIX = {"arithmetic": 0.13, "strings": 0.12, "context": 0.08, "extract": 0.05, "tools": 0.06, "facts": 0.02, "talk": 0.04, "beyond": 0.06,
       "conversation": 0.08, "followup": 0.06, "passages": 0.10, "toolbox": 0.13, "forms": 0.03, "docs": 0.04}
REDRAWN_MAX = 5
NOISED = 0.6                # of the passages of documentation have some tokens replaced, so that they are not learned by heart
NOISE = 0.08                # of their tokens
LETTER_RUN = re.compile(f"{LETTERS_OPEN}(.*?){LETTERS_CLOSE}")
COPY_RUN = re.compile(f"{COPY_OPEN}(.*?){COPY_CLOSE}", re.S)
BYTE_NAMES = str.maketrans({" ": "\u0120", "\n": "\u010a"})        # of the bytes that names and sentences have, what the vocabulary calls them


class Stream:
    """Encodes samples and packs rows. Built once, then forked into the workers."""

    def __init__(self, tokenizer_path, docs_path, seed=0, rows=16, mix=None, prose_path=None, row_tokens=ROW_TOKENS):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(tokenizer_path)
        self.seed, self.rows, self.row_tokens = seed, rows, row_tokens
        self.end = self.tokenizer.token_to_id("<|endoftext|>")
        self.makers = {name: module.make for name, module in FAMILIES.items()}
        shares = mixed(self.makers, prose_path) if prose_path else MIX
        shares = mix or shares
        self.mix = {family: share / sum(shares.values()) for family, share in shares.items()}
        pages = lzma.open(docs_path, "rt").read().split("\x00") if docs_path else []
        self.pages = [e.ids + [self.end] for e in self.tokenizer.encode_batch(pages)]
        self.page_weights = [len(p) ** 0.7 for p in self.pages]

    def encode(self, text):
        """Ids of a text; runs marked as letters become one token a letter."""
        ids, at = [], 0
        for run in LETTER_RUN.finditer(text):
            ids += self.encode_parts(text[at:run.start()])
            ids += [self.tokenizer.token_to_id(letter) for letter in run.group(1)]
            at = run.end()
        return ids + self.encode_parts(text[at:])

    def encode_parts(self, text):
        if ALONE not in text:
            return self.tokenizer.encode(text).ids
        return [i for part in text.split(ALONE) for i in self.tokenizer.encode(part).ids]

    def encode_copies(self, text, sources):
        """Ids of a text whose marked parts have the tokens that they have in what was said before."""
        ids, at = [], 0
        for run in COPY_RUN.finditer(text):
            ids += self.encode(text[at:run.start()]) + self.as_before(run.group(1), sources)
            at = run.end()
        return ids + self.encode(text[at:])

    def as_before(self, value, sources):
        """Cut where it is cut where it was said last; the first token without what stands before it there."""
        for source in reversed(sources):
            start = source.text.rfind(value)
            if start >= 0:
                ids, begin = [], 0
                ends = source.ends()
                for end in ends[bisect.bisect_right(ends, start):bisect.bisect_left(ends, start + len(value))] + [start + len(value)]:
                    ids += self.piece(value[begin:end - start])
                    begin = end - start
                return ids
        return self.encode(value)

    def piece(self, text):
        found = self.tokenizer.token_to_id(text.translate(BYTE_NAMES)) if text.isascii() else None
        return self.encode(text) if found is None else [found]

    def encode_sample(self, sample, rng):
        """-> ids, and which of them carry loss."""
        ids, loss, sources = [], [], []

        def add(text, learn):
            new = self.encode_copies(text, sources) if COPY_OPEN in text else self.encode(text)
            ids.extend(new)
            loss.extend([learn] * len(new))

        def add_prompt(text):
            sources.append(Source(text, self.tokenizer.encode(text)))
            ids.extend(sources[-1].encoding.ids)
            loss.extend([False] * (len(ids) - len(loss)))

        pieces = chat.pieces(sample.messages, sample.tools, sample.learn_history)
        thought = None
        for kind, text in pieces:
            if kind == "thought":
                thought = text
            elif kind == "reply" and thought is not None:
                reply = text.removeprefix("\n</think>\n\n")
                if rng.random() * CUT_ONE_IN < 1:
                    # Where a thought was cut says nothing about where it ends: the closing carries no loss.
                    kept = self.encode_copies(thought, sources)
                    kept = kept[:rng.randrange(len(kept) + 1)]
                    ids.extend(kept)
                    loss.extend([True] * len(kept))
                    add(rng.choice(CLOSERS), False)
                    add(reply, True)
                else:
                    add(thought + text, True)
                thought = None
            elif kind == "reply":
                add(text, True)
            else:
                # What was said before comes back as text, which is cut into tokens like any other.
                add_prompt(plain(text))
        return ids, loss

    def passage(self, rng):
        return self.noised(rng.choices(self.pages, self.page_weights)[0], rng)

    def prose(self, rng):
        """A document of prose.py."""
        from generators.library import LIBRARY
        _, title, paragraphs = LIBRARY.document(rng)
        begin = rng.randrange(max(1, len(paragraphs) - 8))
        return self.noised(self.tokenizer.encode(f"# {title}\n\n" + "\n\n".join(paragraphs[begin:begin + 40])).ids + [self.end], rng)

    def noised(self, page, rng):
        """A part of it; in most, some tokens are others and carry no loss."""
        size = rng.randint(200, 2000)
        start = rng.randrange(max(1, len(page) - size)) if rng.random() < 0.6 else 0
        ids = page[start:start + size]
        loss = [True] * len(ids)
        if rng.random() < NOISED:
            for i in range(len(ids)):
                if rng.random() < NOISE:
                    ids[i], loss[i] = rng.choice(page), False
        return ids, loss

    def document(self, family, rng):
        if family in ("docs", "prose"):
            return self.passage(rng) if family == "docs" else self.prose(rng)
        sample = self.drawn(family, rng)
        if sample.tools is None and sample.messages[0]["role"] != "system" and rng.random() < 0.1:
            sample.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM)})
        return self.encode_sample(sample, rng)

    def drawn(self, family, rng):
        """A sample. One draw in millions that a generator cannot finish is told of and made anew: it must not end a run."""
        for _ in range(REDRAWN_MAX):
            try:
                return self.makers[family](rng)
            except (ValueError, IndexError, RecursionError) as error:
                print(f"{family}: {error!r}", file=sys.stderr, flush=True)
        raise ValueError(f"{family} fails time and again")

    def batch(self, number):
        """-> ids, segment (0 is padding), loss: numpy [rows, row_tokens]. Documents never straddle rows."""
        import numpy as np
        rng = random.Random(f"{self.seed} {number}")
        ids = np.full((self.rows, self.row_tokens), self.end, np.int16)
        segment = np.zeros((self.rows, self.row_tokens), np.int16)
        loss = np.zeros((self.rows, self.row_tokens), bool)
        free, used, refused, serial = [self.row_tokens] * self.rows, collections.Counter(), 0, 0
        while refused < 12 and sum(free) > self.rows * 24:
            family = max(self.mix, key=lambda f: self.mix[f] * (self.rows * self.row_tokens) - used[f] + rng.random() * 3000 * self.mix[f])
            new, learn = self.document(family, rng)
            fitting = [r for r in range(self.rows) if free[r] >= len(new)]
            if not fitting:
                refused += 1
                used[family] += 50      # let a family of shorter documents have its turn
                continue
            row = min(fitting, key=lambda r: (free[r] < self.row_tokens // 3, free[r]) if len(new) < 400 else (False, -free[r]))
            at = self.row_tokens - free[row]
            serial += 1
            ids[row, at:at + len(new)] = new
            segment[row, at:at + len(new)] = serial
            loss[row, at:at + len(new)] = learn
            free[row] -= len(new)
            used[family] += len(new)
        return ids, segment, loss


class Source:
    """What was said, and where its tokens end."""

    def __init__(self, text, encoding):
        self.text, self.encoding, self.found = text, encoding, None

    def ends(self):
        if self.found is None:
            self.found = [end for _, end in self.encoding.offsets]
        return self.found


def mixed(makers, prose_path):
    """Adds the generators to the makers -> the shares of all."""
    import generators
    generators.load(prose_path)
    makers |= {name: make for name, (_, make) in generators.FAMILIES.items()}
    shares = {name: share * generators.PRESENT for name, share in MIX.items()} | {name: share for name, (share, _) in generators.FAMILIES.items()}
    return shares | generators.KEPT


def check(stream):
    """What the rest relies on: both templates agree, right answers are graded so, every letter has a token, facts fit the Engram window."""
    import pathlib
    import jinja2
    env = jinja2.Environment(trim_blocks=False, lstrip_blocks=False)
    env.filters["tojson"] = lambda v: __import__("json").dumps(v, ensure_ascii=False)
    template = env.from_string(pathlib.Path(__file__).with_name("chat_template.jinja").read_text())
    rng = random.Random(5)
    for family, module in FAMILIES.items():
        for _ in range(100):
            sample = module.make(rng)
            if sample.thinking or "reasoning_content" not in sample.messages[-1]:
                want = template.render(messages=sample.messages, tools=sample.tools)
                got = "".join(text for _, text in chat.pieces(sample.messages, sample.tools))
                assert plain(got) == plain(want), (family, got, want)
            want = template.render(messages=sample.prompt(), tools=sample.tools, add_generation_prompt=True, enable_thinking=sample.thinking)
            assert chat.render(sample.prompt(), sample.tools, sample.thinking) == plain(want), (family, want)
    for label in {**rows.TASKS, **rows.BEHAVIOUR, **rows.CONVERSATIONS}:
        for _ in range(60):
            sample = rows.instance(rng, label)
            prompt = chat.render(sample.prompt(), sample.tools, sample.thinking)
            assert len(stream.encode(prompt)) < ROW_TOKENS - 300, label
            said = sample.messages[len(sample.prompt())]
            content, calls = parse_calls(plain(chat.reply_text(said)), sample.tools)
            assert right(sample, content, calls), (label, sample.expect, said)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        assert stream.tokenizer.token_to_id(letter) is not None and len(stream.encode(" " + letter)) == 1, letter
    far = max(len(stream.encode(" " + facts.answer(row).split(" ", 1)[1].rsplit(f" {row['value']}", 1)[0])) for row in facts.ROWS)
    print(f"facts: entity starts at most {far} tokens before the value")
    assert far <= 7
    rng = random.Random(6)
    for family in stream.mix:
        started = time.time()
        documents = [stream.document(family, rng) for _ in range(300)]
        lengths = sorted(len(ids) for ids, _ in documents)
        learned = sum(sum(loss) for _, loss in documents) / sum(lengths)
        print(f"{family:11} median {lengths[150]:5} longest {lengths[-1]:5} learned {learned:.2f} "
              f"{sum(lengths) / (time.time() - started) / 1e3:6.0f} k tokens/s")
    started = time.time()
    ids, segment, loss = stream.batch(1)
    print(f"batch: {(segment > 0).mean():.3f} filled, {loss.mean():.3f} learned, {ids.size / (time.time() - started) / 1e3:.0f} k tokens/s")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--docs", required=True)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--prose", help="passages of prose.py, with which the families of generators/ are made too")
    ap.add_argument("--show", help="a family")
    ap.add_argument("--count", type=int, default=5)
    args = ap.parse_args()
    stream = Stream(args.tokenizer, args.docs, args.seed, prose_path=args.prose)
    if args.check:
        check(stream)
    if args.show:
        rng = random.Random(args.seed)
        for _ in range(args.count):
            ids, _ = stream.document(args.show, rng)
            print(stream.tokenizer.decode(ids, skip_special_tokens=False), f"\n--- {len(ids)} tokens")


if __name__ == "__main__":
    main()
