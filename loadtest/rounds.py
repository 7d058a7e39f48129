#!/usr/bin/env python3
"""Turns of four rounds at once: how much of the later rounds' prompts is read from the prefix cache, and what a round takes beside its
generation and its tool.

    python3 loadtest/rounds.py --chimere target/release/chimere                     # the shipped model on the CPU
    python3 loadtest/rounds.py --chimere ./chimere --tokens 6000 -- --device cuda --model 35b.gguf

TURNS chats begin at once, each behind TOKENS tokens that no other one has, and call a tool of an MCP server in every round, whatever the
model would rather do: the first call is required, which holds later ones to the form of a call, a bias has these begin, and the turn's
tokens end in the fourth round. Then QUIET such turns come one after the other. What a round takes is the service's own time from the last token of
a generation to the admission of the next one, as its turn tells it (`timings.turn.own_ms`), without the tool. Fails unless each turn has four rounds
and later ones read LEAST per cent of their prompts from the cache. Only the standard library is needed.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import statistics
import sys
import urllib.parse

from everything import CHAT, SERVER, WORDS, service

# Of a turn that is timed; the most that a turn has. The tool takes nothing, so that each call of it has as many tokens.
ROUNDS, MOST_ROUNDS, TOOL = 4, 8, "environment"
# Of a reply behind 64 prompts on a busy machine of two cores.
REPLY_SECONDS = 1800


class Turns:
    """Turns against a service."""

    def __init__(self, url, tokens):
        self.host, self.tokens = urllib.parse.urlparse(url).netloc, tokens
        self.opening, self.answer = self.asked("/tokenize", {"content": "<tool_call>", "add_special": False, "parse_special": True})["tokens"][0], 1000
        probe = self.asked(CHAT, self.body("probe"))
        call = probe["usage"]["completion_tokens"] // probe["timings"]["turn"]["rounds"]
        assert probe["timings"]["turn"]["rounds"] == MOST_ROUNDS, probe
        self.answer = (ROUNDS - 1) * call + call // 2

    def asked(self, path, body):
        connection = http.client.HTTPConnection(self.host, timeout=REPLY_SECONDS)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        if reply.status != 200:
            sys.exit(f"{path} got {reply.status}: {text[:500].decode(errors='replace')}")
        return json.loads(text)

    def body(self, number):
        """A turn that shares nothing with others."""
        rng = random.Random(number)
        words = " ".join(rng.choice(WORDS) for _ in range(self.tokens * 3 // 4))
        tools = [{"type": "mcp", "server_label": SERVER, "allowed_tools": [TOOL]}]
        return {"messages": [{"role": "system", "content": words}, {"role": "user", "content": "Look."}], "tools": tools, "tool_choice": "required",
                "parallel_tool_calls": False, "logit_bias": {str(self.opening): 100}, "max_tokens": self.answer,
                "reasoning_effort": "none", "temperature": 0, "cache_salt": str(number)}

    def turn(self, number):
        """Rounds, tokens of the later rounds' prompts, those of them that were read from the cache, and the service's own time a round, in us."""
        body = self.body(number)
        first = self.asked(f"{CHAT}/input_tokens", body)["input_tokens"]
        reply = self.asked(CHAT, body)
        usage, turn = reply["usage"], reply["timings"]["turn"]
        own = 1e3 * turn.get("own_ms", 0) / max(1, turn["rounds"] - 1)
        return turn["rounds"], usage["prompt_tokens"] - first, usage["prompt_tokens_details"]["cached_tokens"], own


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, required=True, help="program that serves")
    parser.add_argument("--turns", type=int, default=64, help="turns at once [64]")
    parser.add_argument("--quiet", type=int, default=20, help="turns one after the other, to be timed [20]")
    parser.add_argument("--tokens", type=int, default=3300, help="tokens before the question, about [3300]")
    parser.add_argument("--least", type=float, default=95, help="per cent that later rounds read from the cache [95]")
    parser.add_argument("flags", nargs="*", help="flags for the service, after --")
    args = parser.parse_args()
    with service(args.chimere.resolve(), args.flags) as (url, _):
        turns = Turns(url, args.tokens)
        with concurrent.futures.ThreadPoolExecutor(args.turns) as threads:
            rounds, later, read, own = zip(*threads.map(turns.turn, range(args.turns)))
        quiet = [turns.turn(args.turns + number)[3] for number in range(args.quiet)]
    share = 100 * sum(read) / max(1, sum(later))
    print(f"{args.turns} turns of {min(rounds)} to {max(rounds)} rounds at once: {share:.1f} % of the later rounds' {sum(later)} prompt tokens "
          f"read from the cache, at least {min(100 * r / max(1, n) for r, n in zip(read, later)):.1f} % in each turn")
    print(f"a round beside generation and tool: median {statistics.median(own):.0f} us at once; "
          f"{statistics.median(quiet):.0f} us alone, the quickest {min(quiet):.0f} us")
    return 0 if share >= args.least and min(rounds) >= ROUNDS else 1


if __name__ == "__main__":
    sys.exit(main())
