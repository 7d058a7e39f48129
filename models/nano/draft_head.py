#!/usr/bin/env python3
"""Trains the model's draft head (the MTP layer), and nothing else, to go on from its own guesses as the service has it do.

    python3 draft_head.py --tokenizer tokenizer.json --docs docs.txt.xz --work work --init nano-q8_0.gguf --steps 6000 --decay-from 2500 --minutes 9
    python3 export.py --draft-head work/weights --gguf nano-q8_0.gguf       # into this file; all other weights keep their bytes
    python3 draft_head.py ... --check

From every position that carries loss `--guesses` guesses are made one behind another: the first reads the model's hidden state, each later one the head's
own normed output and the true token (a chain goes on only where its guesses were right), and attends to the rows before the chain and to the chain. What is
learned at each place is the model's own distribution there. A guess counts by how far those before it agree with the model: where they do not, it is never
looked at. The loss told is the sum over the places of these gaps, `right` the share of guesses that name the model's first choice where those before did.

--check holds this against the same chains made token by token, with the keys of guesses written over those of rows to come, as the service does it.
"""
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F

import model as nano
import rows
import train
from data import Stream

QUESTIONS = 8       # of each row of the card, in the agreement that is told while it trains


def gap(drafted, hidden, embedding, weight):
    """-> the divergence of the guesses' distributions from the model's own, weighed and summed; the share that both have in common [B,T]; whether the
    first choices are the same [B,T]."""
    own = F.linear(hidden.to(embedding.dtype), embedding).float().log_softmax(-1)
    guessed = F.linear(drafted.to(embedding.dtype), embedding).float().log_softmax(-1)
    apart = (own.exp() * (own - guessed)).sum(-1)
    common = torch.minimum(own, guessed.detach()).exp().sum(-1)
    return (apart * weight).sum(), common, own.argmax(-1) == guessed.argmax(-1)


class DraftTrainer(train.Trainer):
    PART = "mtp."

    def __init__(self, args, device):
        super().__init__(args, device)
        self.gap = torch.compile(gap, dynamic=False) if device.type == "cuda" else gap
        self.asked = questions(train.STREAM, args.rows)

    def chains(self, batch):
        """-> loss, balance, [of each guess how many were looked at, how many of them were right]."""
        ids, segment, loss = (torch.from_numpy(x).to(self.device, non_blocking=True) for x in batch)
        ids = ids.long()
        self.segment.copy_(segment)
        mask = self.mask()
        with torch.no_grad():
            hidden, _ = self.net.hidden(ids, nano.same_document(self.segment), mask)
            embedding = self.net.embed_tokens.weight
            embedding = embedding.bfloat16() if nano.Linear.half else embedding
        guesses, balance = self.net.draft_chain(ids, hidden, mask, self.args.guesses)
        whole, counts, count = 0.0, [], None
        for n, drafted in enumerate(guesses, 1):
            valid = train.targets(ids, self.segment, loss, n + 1) >= 0
            looked_at, weight = (valid, valid.float()) if n == 1 else (looked_at & right & valid, weight * common * valid)
            apart, common, right = self.gap(drafted, hidden.roll(-n, 1), embedding, weight)
            count = valid.sum().clamp(min=1) if n == 1 else count
            whole = whole + apart / count
            counts.append((looked_at.sum(), (looked_at & right).sum()))
        return whole, balance / self.args.guesses, counts

    def objective(self, batch):
        whole, balance, counts = self.chains(batch)
        told = {f"right{n}": right / looked_at.clamp(min=1) for n, (looked_at, right) in enumerate(counts, 1)}
        return whole + train.BALANCE_WEIGHT * balance * self.args.guesses, dict(loss=whole, balance=balance) | told

    def read(self, heldout):
        told = {}
        for name, batch in (("docs", heldout), ("tasks", self.asked)):
            whole, _, counts = self.chains(batch)
            told[f"heldout_loss_{name}"] = round(whole.item(), 4)
            told[f"right_{name}"] = [round((right / looked_at.clamp(min=1)).item(), 3) for looked_at, right in counts]
        return told


def questions(stream, count):
    """Held-out questions of the card's rows with right answers, packed into so many rows like a batch of training."""
    ids, segment = np.full((count, stream.row_tokens), stream.end, np.int16), np.zeros((count, stream.row_tokens), np.int16)
    loss, used = np.zeros((count, stream.row_tokens), bool), [0] * count
    rng = random.Random(999)
    for serial, label in enumerate([label for label in rows.TASKS | rows.BEHAVIOUR for _ in range(QUESTIONS)], 1):
        new, learn = stream.encode_sample(rows.instance(rng, label), rng)
        row = next((r for r in range(count) if used[r] + len(new) <= stream.row_tokens), None)
        if row is not None:
            place = slice(used[row], used[row] + len(new))
            ids[row, place], segment[row, place], loss[row, place] = new, serial, learn
            used[row] = place.stop
    return ids, segment, loss


# ---------------------------------------------------------------- the same token by token
@torch.no_grad()
def step_by_step(net, ids, hidden, guesses):
    """The chains of one document [1,T] as a service makes them: row by row, each chain's keys in the places of the rows to come."""
    c, m, T = net.c, net.mtp, ids.shape[1]
    keys = tuple(torch.full((1, c.num_key_value_heads, T + guesses, c.head_dim), float("nan")) for _ in "kv")
    made = torch.full((guesses, T, c.hidden_size), float("nan"))
    embedded = nano.rms(F.embedding(ids[0], net.embed_tokens.weight), m.pre_fc_norm_embedding.weight, c.rms_norm_eps)
    for row in range(T - guesses):
        before = hidden[:, row]
        for n in range(1, guesses + 1):
            x = torch.cat([embedded[None, row + n], nano.rms(before, m.pre_fc_norm_hidden.weight, c.rms_norm_eps)], -1)
            seen = tuple(cache[:, :, :row + n] for cache in keys)
            x = m.layers[0].step(m.fc(x), seen, torch.tensor([row + n - 1]))
            before = nano.rms(x, m.norm.weight, c.rms_norm_eps)
            made[n - 1, row] = before[0]
    return made


@torch.no_grad()
def check(args):
    """Both ways agree on a held-out question and page, which stand in one row behind each other."""
    from check_reference import load
    net, stream = load(args.init), Stream(args.tokenizer, None)
    rng = random.Random(1)
    one = stream.encode_sample(rows.instance(rng, "arithmetic, thinking"), rng)[0][:150]
    two = stream.encode(open(args.heldout).read()[:1000])[:160]
    ids = torch.tensor([one + two + [stream.end] * (-len(one + two) % nano.kernels.CHUNK)])
    segment = torch.tensor([[1] * len(one) + [2] * len(two) + [0] * (ids.shape[1] - len(one + two))])
    mask = nano.dense_mask(segment)
    hidden, _ = net.hidden(ids, nano.same_document(segment), mask)
    together, _ = net.draft_chain(ids, hidden, mask, args.guesses)
    for part in (slice(0, len(one)), slice(len(one), len(one + two))):
        want = step_by_step(net, ids[:, part], hidden[:, part], args.guesses)
        for n in range(args.guesses):
            got = together[n][0, part][:want.shape[1] - args.guesses]
            error = (got - want[n, :len(got)]).abs().max().item()
            print(f"guess {n + 1}: {len(got)} rows, at most {error:.1e} apart")
            assert error < 1e-3, "chains made together are not those made token by token"


def main():
    ap = train.parser(__doc__)
    ap.add_argument("--guesses", type=int, default=7, help="of a chain")
    ap.add_argument("--check", action="store_true", help="hold the chains against ones made token by token, and end")
    args = ap.parse_args()
    if args.check:
        return check(args)
    if not args.init:
        sys.exit("--init: there is no model to guess for")
    args.exam_every = 0     # what the model says does not change
    train.run(args, DraftTrainer)


if __name__ == "__main__":
    main()
