#!/usr/bin/env python3
"""Writes a BF16 file whose weights round to those of a Q8_0 one: each is drawn anew from what its code stands for.

    python3 unround.py nano-q8_0.gguf nano-unrounded.gguf

The trained weights are not in the tree, and beside the decoded Q8_0 any file in Q8_0 is without error, which
flatters whoever chooses that type. The drawn weights are as good a model (perplexity 14.36 for both on the first
2,048 tokens of `heldout.txt`), and Q8_0 has an error of the size that it had beside the trained ones. The largest
weight of a block is not changed: its code is exact.
"""
import argparse
import pathlib

import numpy as np

import export
import gguf

Q8_0 = 8


def draw(rng):
    """`gguf.decode`, with the rounding of Q8_0 undone at random."""
    plain = gguf.decode

    def decode(raw, kind, count):
        if kind != Q8_0:
            return plain(raw, kind, count)
        blocks = raw[:count // 32 * 34].reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        codes = blocks[:, 2:].view(np.int8).astype(np.float32)
        off = rng.random(codes.shape, dtype=np.float32) - np.float32(0.5)
        off[np.abs(codes) == 127] = 0
        return ((codes + off) * scale).ravel()
    return decode


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("source", help="a GGUF file that export.py wrote")
    ap.add_argument("out")
    ap.add_argument("--tokenizer", default=export.HERE / "tokenizer.json")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    gguf.decode = draw(np.random.default_rng(args.seed))
    _, tensors = gguf.read(args.source)
    template = (export.HERE / "chat_template.jinja").read_text()
    export.write_gguf(args.out, export.metadata(args.tokenizer, template), tensors, "bf16")
    print(f"{args.out}: {len(tensors)} tensors, {pathlib.Path(args.out).stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
