#!/usr/bin/env python3
"""Trains the byte-level BPE on the model's own corpus: the documentation and a sample of the generated conversations.

    python3 tokenizer.py --docs docs.txt.xz --out tokenizer.json

The pre-tokenizer is the family's (single digits), the normaliser NFC. `<think>` and the tool marks are ordinary added tokens, not
special ones, so that a decoder which skips special tokens keeps them.
"""
import argparse
import json
import lzma
import random

import chat
from tasks.grade import FAMILIES
from tasks.sample import plain

VOCAB = 8192
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           r"\s+(?!\S)|\s+")
# Characters of generated text a family contributes: long ones would drown the others.
SHARE = {"arithmetic": 4e5, "strings": 4e6, "context": 4e6, "extract": 2e6, "tools": 5e6, "facts": 2e5, "talk": 1e6}


def corpus(docs, seed):
    yield from lzma.open(docs, "rt").read().split("\x00")
    rng = random.Random(seed)
    for family, characters in SHARE.items():
        while characters > 0:
            sample = FAMILIES[family].make(rng)
            for kind, text in chat.pieces(sample.messages, sample.tools):
                text = plain(text)
                characters -= len(text)
                yield text


def build(texts, size=VOCAB):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL + MARKS), show_progress=False, max_token_length=24,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    t.add_tokens([AddedToken(s, special=s in SPECIAL, normalized=False) for s in SPECIAL + MARKS])
    return t


def gguf_vocabulary(path):
    """tokenizer.json -> tokens, types (1 normal, 3 control, 4 user-defined), merges ("a b"), ids by token."""
    with open(path) as f:
        parsed = json.load(f)
    ids = dict(parsed["model"]["vocab"])
    ids.update({a["content"]: a["id"] for a in parsed["added_tokens"]})
    tokens = [token for token, _ in sorted(ids.items(), key=lambda item: item[1])]
    types = [3 if token in SPECIAL else 4 if token in MARKS else 1 for token in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in parsed["model"]["merges"]]
    return tokens, types, merges, ids


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--docs", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    t = build(corpus(args.docs, args.seed))
    t.save(args.out, pretty=False)
    print(f"{t.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
