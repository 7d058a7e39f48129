#!/usr/bin/env python3
"""Golden logits of the shipped file: the plain forward of model.py in float32 on the decoded Q8_0 weights, over 200 prompts.

    python3 check_reference.py --gguf nano-q8_0.gguf --out reference/golden.safetensors

Arrays, prompts one after another:
    ids            int32 [tokens]     lengths  int32 [prompts]
    top            int32 [tokens]     the largest logit's id at every position
    rows           int32 [rows, 2]    (prompt, position): every prompt's last position, and one more of every fifth prompt
    logits         float32 [rows, vocab / 4]   row r holds the logits of the ids r % 4, r % 4 + 4, r % 4 + 8, ...
    full           float32 [4, vocab]          all logits of the first four rows
    draft_logits   float32 [38, vocab / 4]     MTP head of the first 38 prompts at their last position but one; columns as above
    std            float32 [1]        standard deviation of `logits`: the unit of the tolerances
A quarter of the columns keeps the file small at full precision; which quarter turns with the row, so all ids are seen.
"""
import argparse
import pathlib
import random

import numpy as np
import torch
from safetensors.numpy import save_file

import gguf
import model as nano
from data import Stream
from kernels import CHUNK
from tasks.grade import FAMILIES

PROMPTS, FULL_ROWS, DRAFT_ROWS, COLUMN_STEP = 200, 4, 38, 4
HERE = pathlib.Path(__file__).parent


def prompts(stream, seed):
    """Held-out conversations cut somewhere after the question, held-out documentation, five long contexts, some very short."""
    rng = random.Random(seed)
    pages = [stream.encode(page) for page in (HERE / "heldout.txt").read_text().split("\n" + "=" * 72 + "\n")]
    out = []
    for i in range(PROMPTS):
        if i % 40 == 39:
            sample = FAMILIES["context"].make(rng, True, tokens=rng.randint(1000, 3000))
        elif i % 5 == 4:
            page = rng.choice(pages)
            start = rng.randrange(max(1, len(page) - 100))
            out.append(page[start:start + rng.choice((1, 2, 7, 63, 64, 65, 128, 200, 300))])
            continue
        else:
            family = rng.choice(list(FAMILIES))
            tokens = dict(context=120, passages=80).get(family)
            sample = FAMILIES[family].make(rng, True, tokens=tokens) if tokens else FAMILIES[family].make(rng, True)
        ids, loss = stream.encode_sample(sample, rng)
        out.append(ids[:rng.randint(loss.index(True), len(ids) - 1)])
    return out


def load(path):
    net = nano.Model(nano.Config())
    named, weights = dict(net.named_parameters()), gguf.checkpoint(path)
    assert weights.keys() == named.keys()
    with torch.no_grad():
        for name, w in weights.items():
            named[name].copy_(torch.from_numpy(w))
    return net


@torch.no_grad()
def forward(net, ids):
    """-> logits and draft logits at every position, computed in one padded pass."""
    padded = torch.zeros(1, -(-len(ids) // CHUNK) * CHUNK, dtype=torch.long)
    padded[0, :len(ids)] = torch.tensor(ids)
    segment = (torch.arange(padded.shape[1]) < len(ids)).int()[None]
    mask = nano.dense_mask(segment)
    hidden, _ = net.hidden(padded, nano.same_document(segment), mask)
    drafted, _ = net.draft_hidden(padded, hidden, mask)
    return tuple(net.logits(h)[0, :len(ids)].numpy() for h in (hidden, drafted))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--gguf", default=str(HERE / "nano-q8_0.gguf"))
    ap.add_argument("--tokenizer", default=str(HERE / "tokenizer.json"))
    ap.add_argument("--out", default=str(HERE / "reference/golden.safetensors"))
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    net, stream = load(args.gguf), Stream(args.tokenizer, None)
    chosen = prompts(stream, args.seed)
    top, rows, logits, full, drafts = [], [], [], [], []
    for number, ids in enumerate(chosen):
        own, draft = forward(net, ids)
        top.append(own.argmax(1))
        for position in [len(ids) - 1] + ([len(ids) // 2] if number % 5 == 0 else []):
            if len(rows) < FULL_ROWS:
                full.append(own[position])
            logits.append(own[position, len(rows) % COLUMN_STEP::COLUMN_STEP])
            rows.append((number, position))
        if number < DRAFT_ROWS:
            drafts.append(draft[max(0, len(ids) - 2), number % COLUMN_STEP::COLUMN_STEP])
    arrays = dict(ids=np.concatenate(chosen).astype(np.int32), lengths=np.array([len(p) for p in chosen], np.int32),
                  top=np.concatenate(top).astype(np.int32), rows=np.array(rows, np.int32), logits=np.stack(logits), full=np.stack(full),
                  draft_logits=np.stack(drafts), std=np.array([np.std(np.stack(logits))], np.float32))
    pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(x) for name, x in arrays.items()}, args.out)
    print({name: x.shape for name, x in arrays.items()}, f"std {arrays['std'][0]:.3f}, {pathlib.Path(args.out).stat().st_size} bytes")


if __name__ == "__main__":
    main()
