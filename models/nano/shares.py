"""At the end of a training: how much of its weights, the rest from the file that it is mixed with.

A mean of two trainings on one path keeps what either is good at, up to a point that differs from run to run; the draft head is trained on what
comes out, so the share has to be known before. Each share is asked the questions of an exam and read the held-out pages; the one with the least
that is missing wins.
"""
import pathlib
import time

import torch

import generators
import gguf
import rows

PERPLEXITY_AIM = 16.5       # of the held-out pages
UNDER_FLOOR = 3.0           # what a row is short of its floor counts so many times


def missing(score, perplexity):
    """What an exam's rows are short of their aims and floors, and the perplexity above its aim, in points of a row."""
    short = max(0.0, perplexity / PERPLEXITY_AIM - 1)
    for label, share in score.items():
        if label in generators.ROWS:
            short += max(0.0, generators.ROWS[label][2] - share)
        else:
            _, _, floor, aim = (rows.TASKS | rows.BEHAVIOUR | rows.CONVERSATIONS)[label]
            short += 0.3 * max(0.0, (aim or 0) - share) + UNDER_FLOOR * max(0.0, (floor or 0) - share)
    return short


def choose(trainer, examiner, read_heldout, report):
    """-> the share; the averaged weights then are the mixed ones, which are saved in `mixed` beside those that were trained."""
    args, began = trainer.args, time.time()
    other = {k: torch.from_numpy(w) for k, w in gguf.checkpoint(args.mixed_with).items()}
    own = {k: v.clone() for k, v in trainer.average.items()}
    found = {}
    for share in args.shares:
        if found and time.time() - began > args.shares_seconds:
            break
        mix(trainer, own, other, share)
        read = read_heldout()
        with trainer.averaged():
            score, _ = examiner()
        found[share] = missing(score, read["heldout_perplexity"])
        report(**read, share=share, missing=round(found[share], 3), exam={k: round(v, 3) for k, v in score.items()}, seconds=round(time.time() - began, 1))
    best = min(found, key=found.get)
    mix(trainer, own, other, best)
    trainer.save_average(pathlib.Path(args.work, "mixed"))
    return best


@torch.no_grad()
def mix(trainer, own, other, share):
    for k, v in trainer.average.items():
        v.copy_(share * own[k] + (1 - share) * other[k].to(v.device, v.dtype).reshape(v.shape))
