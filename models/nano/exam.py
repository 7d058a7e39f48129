#!/usr/bin/env python3
"""The questions of eval.py without a server: the decoded GGUF under PyTorch, greedy. What the weights can do, whatever serves them.

    python3 exam.py --gguf nano-q8_0.gguf --json exam.json

Draft acceptance is counted on the model's own answers: the share of positions where the MTP head names the token that follows, and, as a service has it
that drafts --guesses tokens in each step, the share of the guesses at each place that are right where those before them are (what an answer is too short for
counts as wrong), and how many tokens a step then brings.
"""
import argparse
import collections
import json
import math
import pathlib
import random

import torch
import torch.nn.functional as F

import model as nano
from chat import render
from check_reference import load
from data import Stream
from eval import HERE, PAGE_CHARACTERS_MAX, PAGE_RULE
from kernels import CHUNK
from rows import BEHAVIOUR, CONVERSATIONS, TASKS, after
from rows import instances as drawn
from tasks.grade import parse_calls, right

SHORT_TOKENS, LONG_TOKENS = 1600, 4096
DRAFTS_CHECKED = 24         # answers a task


@torch.no_grad()
def forward(net, ids, device, guesses):
    """-> logits [T, vocab]; for each guess [T]: what guess n names behind row i is thought to be token i + n + 1."""
    padded = torch.zeros(1, -(-len(ids) // CHUNK) * CHUNK, dtype=torch.long, device=device)
    padded[0, :len(ids)] = torch.tensor(ids, device=device)
    segment = (torch.arange(padded.shape[1], device=device) < len(ids)).int()[None]
    mask = nano.dense_mask(segment)
    hidden, _ = net.hidden(padded, nano.same_document(segment), mask)
    chain, _ = net.draft_chain(padded, hidden, mask, guesses)
    return net.logits(hidden)[0, :len(ids)], [net.logits(drafted)[0, :len(ids)].argmax(-1) for drafted in chain]


def steps(guesses, ids, at):
    """A service goes on from token `at` of `ids` with so many drafts a step -> the steps, and how many had the first right, the first two, and so on."""
    counts = [0] * (1 + len(guesses))
    while at + 1 < len(ids):
        right = 0
        while right < len(guesses) and at + right + 1 < len(ids) and guesses[right][at - 1] == ids[at + right + 1]:
            right += 1
        for n in range(right + 1):
            counts[n] += 1
        at += right + 1
    return counts


def gain(counts):
    """What is told of the steps of many answers."""
    taken = counts[0] or 1
    shares = [round(counts[n] / (counts[n - 1] or 1), 4) for n in range(1, len(counts))]
    return dict(steps=counts[0], right_at=shares, tokens_a_step=sum(counts.values()) / taken)


def instances(args):
    for label, (count, *_) in (TASKS | BEHAVIOUR | CONVERSATIONS).items():
        rng = random.Random(f"{args.seed} {label}")
        made = drawn(rng, label, max(1, round(count * args.scale)))
        if label in CONVERSATIONS:
            made = [after(samples, i) for samples in made for i in range(len(samples))]
        for sample in made:
            messages = sample.messages[:-1] if label.startswith("answers from a tool") else sample.prompt()
            yield label, sample, messages


def judge(label, sample, text):
    reply = text.split("</think>")[-1] if sample.thinking else text
    content, calls = parse_calls(reply, sample.tools)
    if label.startswith("answers from a tool"):
        return content.strip() == sample.expect[1]
    return ("</think>" in text or not sample.thinking) and right(sample, content, calls)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--gguf", default=str(HERE / "nano-q8_0.gguf"))
    ap.add_argument("--tokenizer", default=str(HERE / "tokenizer.json"))
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--guesses", type=int, default=3, help="drafts of a step")
    ap.add_argument("--json")
    args = ap.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net, stream = load(args.gguf).to(device), Stream(args.tokenizer, None)
    end = stream.tokenizer.token_to_id("<|im_end|>")
    asked = list(instances(args))
    prompts = [stream.encode(render(messages, s.tools, s.thinking)) for _, s, messages in asked]
    answers = [None] * len(asked)
    for length, chosen in ((SHORT_TOKENS, [i for i, p in enumerate(prompts) if len(p) < SHORT_TOKENS - 200]),
                           (LONG_TOKENS, [i for i, p in enumerate(prompts) if len(p) >= SHORT_TOKENS - 200])):
        if chosen:
            decoder = nano.Decoder(net, len(chosen), length, device)
            for i, ids in zip(chosen, decoder.run([prompts[i] for i in chosen], end)):
                answers[i] = ids
            del decoder
    scores, drafts, places = collections.defaultdict(list), collections.defaultdict(lambda: [0, 0]), collections.defaultdict(collections.Counter)
    for (label, sample, _), prompt, answer in zip(asked, prompts, answers):
        text = stream.tokenizer.decode(answer, skip_special_tokens=False)
        scores[label].append(judge(label, sample, text))
        if not scores[label][-1] and not label.endswith(("direct", "withheld")):
            print(f"wrong, {label}: wanted {str(sample.expect)[:120]!r} got {text[-200:]!r}")
        if len(scores[label]) <= DRAFTS_CHECKED:
            whole = prompt + answer + [end]
            guesses = [guess.tolist() for guess in forward(net, whole, device, args.guesses)[1]]
            agreed = [guesses[0][i - 2] == whole[i] for i in range(max(2, len(prompt) + 1), len(whole))]
            places[label].update(dict(enumerate(steps(guesses, whole, len(prompt)))))
            drafts[label][0] += sum(agreed)
            drafts[label][1] += len(agreed)
    results = {label: dict(right=sum(ok), asked=len(ok), share=sum(ok) / len(ok), draft_acceptance=drafts[label][0] / max(1, drafts[label][1]),
                           **gain(places[label])) for label, ok in scores.items()}
    loss, tokens, agreed, pairs = 0.0, 0, 0, 0
    for page in (HERE / "heldout.txt").read_text().split(PAGE_RULE):
        ids = stream.encode(page[:PAGE_CHARACTERS_MAX])
        own, guesses = forward(net, ids, device, 1)
        loss += F.cross_entropy(own[:-1], torch.tensor(ids[1:], device=device), reduction="sum").item()
        tokens += len(ids) - 1
        agreed += (guesses[0][:-2] == own[1:-1].argmax(-1)).sum().item()
        pairs += len(ids) - 2
    results["perplexity"] = dict(perplexity=math.exp(loss / tokens), tokens=tokens, draft_agreement=agreed / pairs)
    for label, r in results.items():
        print(label, json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()}))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
