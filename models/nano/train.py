#!/usr/bin/env python3
"""Trains the model on one GPU from the endless stream of data.py. Stops and resumes at any step.

    python3 train.py --tokenizer tokenizer.json --docs docs.txt.xz --work work --steps 20000 --decay-from 14000
    python3 train.py ... --prose prose.txt.xz --rows 4 --row-tokens 16384 --init nano-q8_0.gguf --from-start --minutes 8 --exam-last

`work/state.pt` is everything a resume needs; `work/weights/*.safetensors` (parts of at most 16 MiB) is the running average of the
weights in float16, what export.py reads. `--init` starts from such parts, or from a GGUF, with a fresh optimizer.
Matrices are trained with Muon, everything else with AdamW; the rate is constant after the warm-up and falls linearly at the end.
"""
import argparse
import collections
import json
import math
import multiprocessing
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import gguf
import generators
import generators.grade
import model as nano
import rows
import shares
from chat import render
from data import ROW_TOKENS, Stream
from tasks.grade import parse_calls, right

PROCESS_STARTED = time.time()
PART_BYTES_MAX = 15 << 20
MTP_WEIGHT, BALANCE_WEIGHT = 0.15, 0.003
STREAM = None       # set before the workers are forked


# ---------------------------------------------------------------- optimizer
def orthogonal(x):
    """Newton-Schulz towards the nearest orthogonal matrix, [n, rows <= columns]."""
    x = x.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return x


class Muon:
    """Momentum, then orthogonalised, matrices of one shape stacked. An expert's gate and up halves are matrices of their own."""

    def __init__(self, params, momentum=0.95, decay=0.02):
        self.momentum, self.decay, self.groups = momentum, decay, collections.defaultdict(list)
        for p in params:
            view = self.view(p)
            self.groups[tuple(sorted(view.shape[1:]))].append(p)
        self.buffers = {shape: torch.zeros(sum(len(self.view(p)) for p in ps), *shape, device=ps[0].device)
                        for shape, ps in self.groups.items()}

    @staticmethod
    def view(p):
        if p.dim() == 3 and p.shape[1] == p.shape[2]:       # gate_up_proj [E, 2I, H] with 2I = H
            return p.reshape(-1, p.shape[1] // 2, p.shape[2])
        return p if p.dim() == 3 else p[None]

    @torch.no_grad()
    def step(self, rate):
        for shape, params in self.groups.items():
            views = [self.view(p.grad) for p in params]
            wide = [v if v.shape[1] <= v.shape[2] else v.mT for v in views]
            grad, buffer = torch.cat(wide), self.buffers[shape]
            buffer.lerp_(grad, 1 - self.momentum)
            update = orthogonal(grad.lerp(buffer, self.momentum)).float()
            for p, v, u in zip(params, views, update.split([len(v) for v in views])):
                u = u if v.shape[1] <= v.shape[2] else u.mT
                p.mul_(1 - rate * self.decay).sub_((rate * max(1, v.shape[1] / v.shape[2]) ** 0.5 * u).reshape(p.shape))


def split_parameters(net):
    matrices, others = [], []
    for name, p in net.named_parameters():
        if not p.requires_grad:
            continue
        small = any(s in name for s in ("embed_tokens", "mlp.gate.", "shared_expert_gate", "conv1d", "in_proj_a", "in_proj_b"))
        (others if p.dim() < 2 or small else matrices).append(p)
    return matrices, others


# ---------------------------------------------------------------- loss
def token_loss(hidden, embedding, target):
    """Sum of the cross entropies where target >= 0."""
    logits = F.linear(hidden.to(embedding.dtype), embedding).float()
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="sum")


def targets(ids, segment, loss, ahead):
    """The id `ahead` places on, -1 where it carries no loss or belongs to another document."""
    ahead_of = lambda x, fill: F.pad(x[:, ahead:], (0, ahead), value=fill)
    valid = ahead_of(loss, False) & (ahead_of(segment, -1) == segment) & (segment > 0)
    return torch.where(valid, ahead_of(ids, 0), -1)


class Trainer:
    PART = ""           # how the names of the weights begin that are trained; all others stay as they are

    def __init__(self, args, device):
        self.args, self.device = args, device
        torch.manual_seed(args.seed)
        self.config = nano.Config(num_hidden_layers=args.layers)
        self.net = nano.Model(self.config).to(device)
        if args.init:
            load_weights(self.net, args.init)
        for name, p in self.net.named_parameters():
            p.requires_grad_(name.startswith(self.PART))
        self.trained = {k: p for k, p in self.net.named_parameters() if p.requires_grad}
        self.average = {k: p.detach().clone() for k, p in self.trained.items()}
        matrices, others = split_parameters(self.net)
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=device.type == "cuda")
        self.step, self.first_step, self.spent = args.first_step, args.first_step, 0.0
        self.time_gone = 0.0    # share of --minutes: the rate falls in time also where steps take longer than was thought
        self.segment = torch.zeros(args.rows, args.row_tokens, dtype=torch.int32, device=device)
        self.token_loss = token_loss
        if device.type == "cuda":
            nano.Linear.half = True
            for layer in [*self.net.layers, *self.net.mtp.layers]:
                layer.compile(dynamic=False)
            self.token_loss = torch.compile(token_loss, dynamic=False)
            self.mask = nano.block_mask(self.segment)
        else:
            self.mask = lambda: nano.dense_mask(self.segment)

    def rate(self):
        a = self.args
        warm = min(1.0, (self.step - self.first_step + 1) / a.warmup)
        done = max((self.step - self.first_step) / max(1, a.steps - self.first_step), self.time_gone)
        begin = (a.decay_from - self.first_step) / max(1, a.steps - self.first_step)
        return warm if done < begin else warm * max(0.02, (1 - done) / max(1e-9, 1 - begin))

    def losses(self, batch):
        ids, segment, loss = (torch.from_numpy(x).to(self.device, non_blocking=True) for x in batch)
        ids = ids.long()
        self.segment.copy_(segment)
        mask, same = self.mask(), nano.same_document(self.segment)
        hidden, balance = self.net.hidden(ids, same, mask)
        drafted, load = self.net.draft_hidden(ids, hidden, mask)
        embedding = self.net.embed_tokens.weight
        embedding = embedding.bfloat16() if nano.Linear.half else embedding
        next_one, next_two = targets(ids, self.segment, loss, 1), targets(ids, self.segment, loss, 2)
        main = self.token_loss(hidden, embedding, next_one) / (next_one >= 0).sum()
        draft = self.token_loss(drafted, embedding, next_two) / (next_two >= 0).sum().clamp(min=1)
        return main, draft, (balance + load) / (self.config.num_hidden_layers + 1), (hidden, drafted, next_one, next_two)

    def objective(self, batch):
        """-> what is to become less, and what is told of it: first the loss."""
        main, draft, balance, _ = self.losses(batch)
        whole = main + MTP_WEIGHT * draft + BALANCE_WEIGHT * balance * (self.config.num_hidden_layers + 1)
        return whole, dict(loss=main, draft=draft, balance=balance)

    def read(self, heldout):
        """What the weights do with the held-out pages."""
        main, _, _, (hidden, drafted, _, next_two) = self.losses(heldout)
        return dict(heldout_perplexity=round(math.exp(main.item()), 3), draft_agreement_docs=round(draft_agreement(self, hidden, drafted, next_two), 3))

    def update(self, batch):
        whole, told = self.objective(batch)
        whole.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        rate = self.rate()
        self.muon.step(rate * self.args.muon_rate)
        for group in self.adam.param_groups:
            group["lr"] = rate * self.args.adam_rate
        self.adam.step()
        self.net.zero_grad(set_to_none=True)
        keep = min(0.998, (1 + self.step - self.first_step) / (10 + self.step - self.first_step))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.trained.values()], 1 - keep)
        self.step += 1
        return {k: v.detach() for k, v in told.items()} | dict(norm=norm)

    def averaged(self):
        """Context: the network holds the averaged weights."""
        return Swapped(self.trained, self.average)

    def save(self, full=True):
        work = pathlib.Path(self.args.work)
        self.save_average(work / "weights")
        if full:
            torch.save(dict(step=self.step, first_step=self.first_step, spent=self.spent, net=self.net.state_dict(), average=self.average,
                            muon=self.muon.buffers, adam=self.adam.state_dict()), work / "state.new")
            (work / "state.new").rename(work / "state.pt")

    def save_average(self, folder):
        save_weights(dict(self.average), folder)

    def resume(self):
        path = pathlib.Path(self.args.work, "state.pt")
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device)
        self.net.load_state_dict(state["net"])
        for k, v in state["average"].items():
            self.average[k].copy_(v)
        for k, v in state["muon"].items():
            self.muon.buffers[k].copy_(v)
        self.adam.load_state_dict(state["adam"])
        self.step, self.first_step, self.spent = state["step"], state["first_step"], state["spent"]


class Swapped:
    def __init__(self, trained, weights):
        self.trained, self.weights = trained, weights

    @torch.no_grad()
    def exchange(self):
        for k, p in self.trained.items():
            other = p.clone()
            p.copy_(self.weights[k])
            self.weights[k].copy_(other)

    __enter__ = exchange

    def __exit__(self, *_):
        self.exchange()


def save_weights(weights, folder):
    """float16 for matrices, float32 for vectors and gates, in parts small enough to copy around."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, size = [{}], 0
    for name, w in weights.items():
        w = (w.half() if w.numel() > 20000 else w.float()).cpu().contiguous()
        if size + w.nbytes > PART_BYTES_MAX:
            parts.append({})
            size = 0
        parts[-1][name] = w
        size += w.nbytes
    for i, part in enumerate(parts):
        save_file(part, folder / f".part{i}.new")
    for i in range(len(parts)):
        (folder / f".part{i}.new").rename(folder / f"part{i}.safetensors")


@torch.no_grad()
def load_weights(net, folder):
    weights = {}
    if str(folder).endswith(".gguf"):
        weights = {k: torch.from_numpy(w) for k, w in gguf.checkpoint(folder).items()}
    for part in sorted(pathlib.Path(folder).glob("*.safetensors")):
        weights.update(load_file(part))
    named = dict(net.named_parameters())
    weights = grown(weights, named, net.c)
    assert weights.keys() == named.keys(), weights.keys() ^ named.keys()
    for k, w in weights.items():
        named[k].copy_(w)


LAST_WORDS = ("linear_attn.out_proj.weight", "self_attn.o_proj.weight", "experts.down_proj", "shared_expert.down_proj.weight")


def grown(weights, named, config):
    """Weights of fewer layers as those of more: new layers in the middle, in whole groups, that add nothing until they are trained."""
    have = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("layers."))
    more, middle = config.num_hidden_layers - have, have // 2
    if not more:
        return weights
    assert more % config.full_attention_interval == middle % config.full_attention_interval == 0, "layers come in whole groups"
    moved = {}
    for k, w in weights.items():
        part, _, rest = k.partition(".")
        number, _, rest = rest.partition(".")
        moved[f"layers.{int(number) + more}.{rest}" if part == "layers" and int(number) >= middle else k] = w
    for k in named.keys() - moved.keys():
        moved[k] = torch.zeros_like(named[k]) if k.endswith(LAST_WORDS) else named[k].detach().clone()
    return moved


# ---------------------------------------------------------------- evaluation while training
def exam(counts, scale=1.0, seed=999):
    """Test instances by label, as rows.py has them, and those of the generators' held-out author; fixed for the whole training."""
    rng = random.Random(seed)
    scaled = lambda n: range(max(1, round(n * scale)))
    asked = [(label, rows.instance(rng, label)) for label, n in counts.items() for _ in scaled(n)]
    if generators.library.LIBRARY:
        for label, (n, make, _) in generators.ROWS.items():
            asked += [(label, make(rng)) for _ in scaled(n)]
    return asked


COUNTS = {"arithmetic, thinking": 80, "arithmetic, direct": 64, "strings": 80, "strings, direct": 32, "context, 256 tokens": 32,
          "tool calls": 48, "JSON to schema": 40, "facts, trained": 40, "facts, withheld": 24, "several turns": 40, "follow-ups": 120,
          "wording, trained forms": 120, "wording, new forms": 120, "out of its domain": 120, "introduction, new words": 16,
          "tools never seen": 80, "no tool for it": 48, "cited passages": 64, "not in the passages": 48, "not in the text": 24,
          "independent questions": 120, "context, 1,024 tokens": 20, "context, 3,000 tokens": 28}
# Prompts from so many tokens to so many are answered together, in rows of a third number.
PROMPT_TOKENS = [(0, 400, 1200), (400, 900, 1800), (900, 3700, 3900)]
WRONG_KEPT = 12             # a row


class Examiner:
    def __init__(self, net, stream, device, scale=1.0):
        self.stream, self.end = stream, stream.tokenizer.token_to_id("<|im_end|>")
        asked = [(label, s, stream.encode(render(s.prompt(), s.tools, s.thinking))) for label, s in exam(COUNTS, scale)]
        self.sets = []
        for low, high, length in PROMPT_TOKENS:
            chosen = [question for question in asked if low <= len(question[2]) < high]
            if chosen:
                self.sets.append((chosen, nano.Decoder(net, len(chosen), length, device)))

    def __call__(self):
        score, wrong = collections.defaultdict(list), collections.defaultdict(list)
        for chosen, decoder in self.sets:
            for (label, sample, _), ids in zip(chosen, decoder.run([prompt for _, _, prompt in chosen], self.end)):
                text = self.stream.tokenizer.decode(ids, skip_special_tokens=False)
                reply = text.split("</think>")[-1] if sample.thinking else text
                content, calls = parse_calls(reply, sample.tools)
                judge = generators.grade.right if label in generators.ROWS else right
                ok = ("</think>" in text or not sample.thinking) and judge(sample, content, calls)
                score[label].append(ok)
                if not ok and len(wrong[label]) < WRONG_KEPT:
                    wrong[label].append(f"{sample.prompt()[-1]['content'][-300:]!r} expect {str(sample.expect)[:200]!r} got {text[-300:]!r}")
        return {label: sum(ok) / len(ok) for label, ok in score.items()}, wrong


def heldout_rows(stream, path, rows):
    """Held-out documentation, as many pages in a row as fit, packed like a training batch."""
    import numpy as np
    ids = np.full((rows, stream.row_tokens), stream.end, np.int16)
    segment, loss = np.zeros((rows, stream.row_tokens), np.int16), np.zeros((rows, stream.row_tokens), bool)
    pages = pathlib.Path(path).read_text().split("\n" + "=" * 72 + "\n")
    at = [0] * rows
    for number, page in enumerate(sorted(pages, key=len, reverse=True), 1):
        page, row = stream.encode(page)[:ROW_TOKENS], at.index(min(at))
        page = page[:stream.row_tokens - at[row]]
        part = slice(at[row], at[row] + len(page))
        ids[row, part], segment[row, part], loss[row, part] = page, number, True
        at[row] += len(page)
    return ids, segment, loss


def draft_agreement(trainer, hidden, drafted, next_two):
    """Share of learned positions where the draft for i + 2 is what the main model says at i + 1."""
    with torch.no_grad():
        own = torch.cat([trainer.net.logits(h[None]).argmax(-1) for h in hidden])
        draft = torch.cat([trainer.net.logits(h[None]).argmax(-1) for h in drafted])
        valid = next_two >= 0
        return (draft[:, :-1] == own[:, 1:])[valid[:, :-1]].float().mean().item()


# ---------------------------------------------------------------- main
def make_batch(number):
    return STREAM.batch(number)


def batches(first, workers, ahead=48):
    with multiprocessing.Pool(workers) as pool:
        waiting = collections.deque(pool.apply_async(make_batch, (first + i,)) for i in range(ahead))
        for number in range(first + ahead, 1 << 30):
            waiting.append(pool.apply_async(make_batch, (number,)))
            yield waiting.popleft().get()


def parser(description):
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--docs", required=True)
    ap.add_argument("--heldout", default=str(pathlib.Path(__file__).with_name("heldout.txt")))
    ap.add_argument("--work", required=True, help="folder for state, weights and log")
    ap.add_argument("--init", help="folder of weight parts, or a GGUF, to start from")
    ap.add_argument("--first-step", type=int, default=0, help="number of the first step when starting from --init")
    ap.add_argument("--steps", type=int, default=16000)
    ap.add_argument("--decay-from", type=int, default=11000)
    ap.add_argument("--minutes", type=float, default=1e9, help="stop and save after this long")
    ap.add_argument("--prose", help="passages of prose.py: trains on generators/ too")
    ap.add_argument("--layers", type=int, default=nano.Config.num_hidden_layers, help="more than --init has are added in its middle")
    ap.add_argument("--rows", type=int, default=16, help="rows a step")
    ap.add_argument("--row-tokens", type=int, default=ROW_TOKENS)
    ap.add_argument("--from-start", action="store_true", help="--minutes counts from the start of the process")
    ap.add_argument("--began", type=float, help="--minutes counts from here, in seconds since 1970: a training that goes on keeps its end and its rate")
    ap.add_argument("--exam-scale", type=float, default=1.0, help="share of the questions of an exam")
    ap.add_argument("--exam-last", action="store_true", help="one exam at the end, of more questions, as a table")
    ap.add_argument("--announce", type=pathlib.Path, help="a file that is made once the last weights are saved, before the last exam: behind.py waits for it")
    ap.add_argument("--mix", type=json.loads, help='shares by family as JSON, e.g. {"docs": 0.1, ...}')
    ap.add_argument("--muon-rate", type=float, default=0.02)
    ap.add_argument("--adam-rate", type=float, default=0.003)
    ap.add_argument("--warmup", type=int, default=150)
    ap.add_argument("--exam-every", type=int, default=1000)
    ap.add_argument("--heldout-every", type=int, default=500, help="perplexity of the held-out pages, between exams; 0: never")
    ap.add_argument("--save-every", type=int, default=500)
    ap.add_argument("--save-seconds", type=float, default=1e9, help="the whole state is saved too when so much time has passed")
    ap.add_argument("--mixed-with", help="a GGUF that the last weights are mixed with, at the share of --shares that shares.py finds best")
    ap.add_argument("--shares", type=json.loads, default=[1.0, 0.8, 0.9, 0.7], help="of the last weights, as JSON, in the order in which they are tried")
    ap.add_argument("--shares-seconds", type=float, default=60, help="no other share is tried after so long")
    ap.add_argument("--workers", type=int, default=13)
    ap.add_argument("--seed", type=int, default=0)
    return ap


def run(args, kind=Trainer):
    """Trains what a kind of trainer trains."""
    global STREAM
    STREAM = Stream(args.tokenizer, args.docs, args.seed, args.rows, args.mix, args.prose, args.row_tokens)
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    state = work / "state.pt"
    first = torch.load(state, mmap=True)["step"] if state.exists() else args.first_step
    source = batches(first, args.workers)
    batch = next(source)                # forks the workers before CUDA starts
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    trainer = kind(args, device)
    trainer.resume()
    examiner = Examiner(trainer.net, STREAM, device, args.exam_scale) if args.exam_every else None
    heldout = heldout_rows(STREAM, args.heldout, args.rows)
    log = open(work / "log.jsonl", "a")

    def report(**row):
        print(json.dumps(row), flush=True)
        log.write(json.dumps(row) + "\n")
        log.flush()

    def read_heldout():
        with trainer.averaged():        # with gradients as in training, so that nothing is compiled anew
            return dict(step=trainer.step) | trainer.read(heldout)

    def examine():
        with trainer.averaged():
            score, wrong = examiner()
        report(**read_heldout(), exam={k: round(v, 3) for k, v in score.items()}, minutes=round((time.time() - started) / 60, 2))
        for label, share in score.items():
            aim = generators.ROWS[label][2] if label in generators.ROWS else None
            print(f"{label:34} {share:7.1%}" + (f"   aim {aim:.0%}" if aim else ""), flush=True)
        (work / "wrong.txt").write_text("\n".join(f"{label}: {w}" for label, found in wrong.items() for w in found))

    marked = time.time()
    started = args.began or (PROCESS_STARTED if args.from_start else marked)
    since = waited = 0
    saved = marked
    while trainer.step < args.steps and time.time() - started < args.minutes * 60:
        trainer.time_gone = (time.time() - started) / (args.minutes * 60)
        told = trainer.update(batch)
        began = time.time()
        batch = next(source)
        waited += time.time() - began
        since += 1
        if trainer.step % 100 == 0 or trainer.step - first in (1, 10, 30):
            told = {k: round(v.item(), 4) for k, v in told.items()}
            now = time.time()
            speed = since * args.rows * args.row_tokens / (now - marked)
            trainer.spent += now - marked
            report(step=trainer.step, **told, rate=round(trainer.rate(), 3), tokens_s=int(speed), waited=round(waited / (now - marked), 3),
                   minutes=round((now - started) / 60, 2))
            marked, since, waited = now, 0, 0
            assert math.isfinite(told["loss"]), "the loss is not finite"
        if args.heldout_every and trainer.step % args.heldout_every == 0:
            report(**read_heldout())
            marked, since, waited = time.time(), 0, 0
        if args.exam_every and trainer.step % args.exam_every == 0:
            examine()
            marked, since, waited = time.time(), 0, 0
        if trainer.step % args.save_every == 0:
            trainer.save(full=trainer.step % (4 * args.save_every) == 0)
        if time.time() - saved > args.save_seconds:
            trainer.save()
            saved = time.time()
    trainer.save(full=not args.exam_last)
    if args.exam_last and not args.exam_every:
        examiner = Examiner(trainer.net, STREAM, device, args.exam_scale)
    if args.mixed_with:
        report(step=trainer.step, share=shares.choose(trainer, examiner, read_heldout, report))
    if args.announce:
        args.announce.touch()
    if examiner:
        examine()
    report(step=trainer.step, tokens=trainer.step * args.rows * args.row_tokens, done=True)


if __name__ == "__main__":
    run(parser(__doc__).parse_args())
