#!/usr/bin/env python3
"""Sends a service everything at once, and checks that it never stands still, never refuses wrongly and never answers differently.

    python3 loadtest/everything.py --chimere target/release/chimere --seconds 60 --users 12        # starts a service and ends it
    python3 loadtest/everything.py --chimere ./chimere --seconds 180 --users 64 -- --device cuda --model 35b.gguf
    python3 loadtest/everything.py --url http://127.0.0.1:8080 --seconds 600 --users 64            # against a service that runs

USERS threads send one request after another: chats, thoughts, forms, tools, documents, several choices, log-probabilities, predictions,
decisions, answers that cite documents or the files of a vector store, whose model may write the queries, searches over MCP, streams, clients
that leave, adapters by turns, corrections of answers, prompts of 3 to MAX_WORDS words, in the dialects of OpenAI (chat, completions, responses also over a
WebSocket), Anthropic, Ollama, llama.cpp and vLLM (token ids). A third of the requests come from a fixed set and are repeated; each must have the bytes of its first answer. The run fails if

- no request has ended for STALL_SECONDS, or /health is not 200 within that time,
- an answer of the fixed set has other bytes than before, or a form's answer does not have that form,
- a request was refused or failed: nothing here asks for more than the service has room for,
- requests that started and requests that ended differ afterwards, or slots or pages do not come back.

The last lines are a summary; the exit status is 1 if anything failed. Only the standard library is needed.
"""
import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import websocket

STALL_SECONDS, START_SECONDS, SETTLE_SECONDS, REPLY_SECONDS = 10, 600, 60, 300
FIXED, FIXED_SHARE = 80, 1 / 3
# Members of a reply that name it, count what a cache spared, or time it.
VOLATILE = {"id", "created", "created_at", "completed_at", "call_id", "item_id", "tool_use_id", "usage", "timings", "system_fingerprint", "total_duration",
            "load_duration", "prompt_eval_duration", "eval_duration", "prompt_eval_count", "tokens_cached", "tokens_evaluated", "generation_settings",
            "id_slot", "slot_id", "metadata", "prompt_progress", "model", "request_id"}
WORDS = ("harbour master wrote down each ship that came in with the tide and what it carried wool salt timber which of four long piers had "
         "room before evening bell seven nine two").split()
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                                      "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 4}},
     "required": ["name", "age"], "additionalProperties": False},
    {"enum": ["red", "green", "blue"]},
    {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 5},
]
TOOL = {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
# Of a service that is started here: a workflow, a server of tools, and more adapters than it has slots for.
PIPELINE, SERVER, ADAPTERS = "twice", "notes", ["first", "second", "third"]
CHAT, TOKEN_IDS = "/v1/chat/completions", "/inference/v1/generate"


class Request:
    """A body, where it goes, and how its reply is read."""

    def __init__(self, kind, path, body, leaves=False, form=None):
        self.kind, self.path, self.body, self.leaves, self.form = kind, path, body, leaves, form


class Maker:
    """Draws requests for a model that takes prompts of some length."""

    def __init__(self, model, max_words, store=None, own=False):
        self.model, self.max_words, self.store = model, max_words, store
        self.kinds = [self.plain, self.plain, self.thinking, self.form, self.tools, self.documents, self.choices, self.logprobs, self.streamed, self.leaving,
                      self.prediction, self.stop, self.anthropic, self.responses, self.socket, self.completion, self.ollama, self.llama, self.token_ids,
                      self.cited, self.decisions]
        self.kinds += [self.searched, self.written, self.mcp] if store else []
        self.kinds += [self.piped, self.hosted, self.adapted, self.corrected] if own else []

    def any(self, rng):
        return rng.choice(self.kinds)(rng)

    def fixed(self, number):
        """A request that always has the same answer: one with a seed, or a greedy one where a dialect has no seeds."""
        rng = random.Random(number)
        request = self.any(rng)
        while request.leaves:
            request = self.any(rng)
        if request.path == "/api/chat":
            request.body["options"]["seed"] = number
        elif request.path in (CHAT, "/v1/completions", "/completion"):
            request.body["seed"] = number
        elif request.path == TOKEN_IDS:
            request.body["sampling_params"]["seed"] = number
        elif request.path not in ("/v1/decisions", "/mcp"):  # which draw nothing
            request.body["temperature"] = 0
        return request

    def words(self, rng):
        # As people write: mostly little, now and then a long text.
        return " ".join(rng.choice(WORDS) for _ in range(rng.choice([3, 10, 10, 40, 40, 200, 200, 1500, self.max_words])))

    def question(self, rng):
        texts = [lambda: f"What is {rng.randrange(999)} + {rng.randrange(999)}?", lambda: f"Reverse the word {rng.choice(WORDS)}.",
                 lambda: f"Sort these words: {' '.join(rng.sample(WORDS, 4))}.", lambda: self.words(rng)]
        return rng.choice(texts)()

    def messages(self, rng):
        messages = [{"role": "user", "content": self.question(rng)}]
        if rng.random() < 0.5:
            messages.insert(0, {"role": "system", "content": "You help at a harbour. " + " ".join(WORDS * rng.choice([1, 8, 20]))})
        if rng.random() < 0.4:
            messages += [{"role": "assistant", "content": "I wrote it down."},
                         {"role": "user", "content": f"Now what is {rng.randrange(99)} times {rng.randrange(99)}?"}]
        return messages

    def chat(self, kind, rng, leaves=False, form=None, **more):
        tokens = rng.choice([1, 8, 40, 150, 400])
        body = {"model": self.model, "messages": self.messages(rng), "max_tokens": tokens, "temperature": rng.choice([0, 0.7, 1, 1.5])}
        return Request(kind, CHAT, body | more, leaves, form)

    def plain(self, rng):
        return self.chat("plain", rng)

    def thinking(self, rng):
        return self.chat("thinking", rng, reasoning_effort=rng.choice(["none", "low", "high"]))

    def form(self, rng):
        schema = rng.choice(SCHEMAS)
        return self.chat("form", rng, form=schema, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})

    def tools(self, rng):
        return self.chat("tools", rng, tools=[{"type": "function", "function": TOOL}], tool_choice=rng.choice(["auto", "required"]))

    def documents(self, rng):
        return self.chat("documents", rng, engram={"documents": [f"The {a} of {rng.choice(WORDS)} is {rng.choice(WORDS)}." for a in rng.sample(WORDS, 5)]})

    def choices(self, rng):
        return self.chat("choices", rng, n=rng.choice([2, 4]))

    def logprobs(self, rng):
        return self.chat("logprobs", rng, logprobs=True, top_logprobs=5)

    def streamed(self, rng):
        return self.chat("streamed", rng, stream=True)

    def leaving(self, rng):
        return self.chat("leaving", rng, leaves=True, stream=True)

    def prediction(self, rng):
        return self.chat("prediction", rng, prediction={"type": "content", "content": self.words(rng)})

    def stop(self, rng):
        return self.chat("stop", rng, stop=["the", "\n"])

    def anthropic(self, rng):
        messages = [m for m in self.messages(rng) if m["role"] != "system"]
        return Request("anthropic", "/v1/messages", {"model": self.model, "max_tokens": rng.choice([1, 40, 150]), "messages": messages})

    def cited(self, rng):
        facts = [f"The {a} of {b} is {c}." for a, b, c in (rng.sample(WORDS, 3) for _ in range(5))]
        blocks = [{"type": "document", "source": {"type": "text", "data": fact}, "citations": {"enabled": True}} for fact in facts]
        blocks.append({"type": "text", "text": "What is the " + facts[0].split()[1] + "?"})
        return Request("cited", "/v1/messages", {"model": self.model, "max_tokens": 60, "messages": [{"role": "user", "content": blocks}]})

    def searched(self, rng):
        tool = {"type": "file_search", "vector_store_ids": [self.store], "max_num_results": rng.choice([1, 4])}
        messages = [{"role": "user", "content": f"What came with the {rng.choice(WORDS)}?"}]
        return Request("searched", CHAT, {"model": self.model, "messages": messages, "max_tokens": 60, "temperature": 0, "tools": [tool],
                                          "stream": rng.random() < 0.5})

    def written(self, rng):
        tool = {"type": "file_search", "vector_store_ids": [self.store], "max_num_results": 2, "queries": "written"}
        messages = [{"role": "user", "content": f"What came with the {rng.choice(WORDS)}?"}]
        return Request("written", CHAT, {"model": self.model, "messages": messages, "max_tokens": 120, "temperature": 0, "tools": [tool],
                                         "tool_choice": {"type": "file_search"}, "stream": rng.random() < 0.5})

    def mcp(self, rng):
        call = {"name": "search_documents", "arguments": {"query": rng.choice(WORDS), "stores": [self.store], "max_results": 2}}
        return Request("mcp", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})

    def piped(self, rng):
        return self.chat("piped", rng, model=PIPELINE, n=1)

    def adapted(self, rng):
        return self.chat("adapted", rng, model=rng.choice(ADAPTERS), scale=rng.choice([0.5, 1]))

    def hosted(self, rng):
        tool = {"type": "mcp", "server_label": SERVER, "allowed_tools": ["read"]}
        messages = [{"role": "user", "content": f"Read what the {rng.choice(WORDS)} says."}]
        return Request("hosted", CHAT, {"model": self.model, "messages": messages, "max_tokens": 120, "temperature": 0, "tools": [tool],
                                        "tool_choice": rng.choice(["auto", "required"]), "stream": rng.random() < 0.5})

    def decisions(self, rng):
        questions = [{"type": "predicate", "name": "ship", "instructions": "It tells of a ship."},
                     {"type": "choice", "name": "word", "instructions": "Which word is in it?", "choices": rng.sample(WORDS, 4)}]
        return Request("decisions", "/v1/decisions", {"model": self.model, "input": self.question(rng), "questions": questions})

    def responses(self, rng):
        return Request("responses", "/v1/responses", {"model": self.model, "input": self.question(rng), "max_output_tokens": rng.choice([16, 40, 150])})

    def socket(self, rng):
        request = self.responses(rng)
        return Request("socket", request.path, request.body)

    def token_ids(self, rng):
        sampling = {"max_tokens": rng.choice([1, 40, 150]), "temperature": rng.choice([0, 0.7])}
        ids = [rng.randrange(256, 4000) for _ in range(rng.choice([1, 60, 700]))]
        return Request("token_ids", TOKEN_IDS, {"model": self.model, "token_ids": ids, "sampling_params": sampling})

    def corrected(self, rng):
        return self.chat("corrected", rng)

    def completion(self, rng):
        return Request("completion", "/v1/completions", {"model": self.model, "prompt": self.words(rng), "max_tokens": rng.choice([1, 40, 400])})

    def ollama(self, rng):
        options = {"num_predict": rng.choice([1, 40, 150]), "temperature": 0.7}
        return Request("ollama", "/api/chat", {"model": self.model, "messages": self.messages(rng), "stream": False, "options": options})

    def llama(self, rng):
        return Request("llama", "/completion", {"prompt": self.words(rng), "n_predict": rng.choice([1, 40, 150])})


def without_volatile(value):
    if isinstance(value, dict):
        return {k: without_volatile(v) for k, v in value.items() if k not in VOLATILE}
    return [without_volatile(v) for v in value] if isinstance(value, list) else value


def said(request, reply):
    """What an answer says, without what differs between two equal answers."""
    if not request.body.get("stream"):
        return json.dumps(without_volatile(json.loads(reply)), sort_keys=True)
    # How a stream is cut into events depends on the time; what the pieces say together does not.
    parts = collections.defaultdict(str)
    for line in reply.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", []):
                for name, piece in choice["delta"].items():
                    parts[f"{choice['index']} {name}"] += piece if isinstance(piece, str) else ""
                parts[f"{choice['index']} finish"] += choice.get("finish_reason") or ""
    return json.dumps(parts, sort_keys=True)


def misses_form(request, reply):
    """Whether an answer that ended by itself lacks the form that was asked for. Types only: the schemas here have little more."""
    if request.form is None:
        return False
    kind = {"object": dict, "array": list}.get(request.form.get("type"), str)
    for choice in json.loads(reply)["choices"]:
        if choice["finish_reason"] != "stop":
            continue
        try:
            if not isinstance(json.loads(choice["message"]["content"]), kind):
                return True
        except ValueError:
            return True
    return False


class Run:
    """The users, and what they saw."""

    def __init__(self, url, seconds, users, max_words, own=False):
        self.host, self.seconds, self.users = urllib.parse.urlparse(url).netloc, seconds, users
        self.lock, self.kinds, self.failures, self.first = threading.Lock(), collections.Counter(), [], {}
        self.compared = self.ended = 0
        self.longest_gap, self.last, self.over = 0.0, time.monotonic(), False
        card = json.loads(self.fetch("GET", "/v1/models")[1])["data"][0]
        # A word of a prompt is at most about a token and a half; the rest of the context is for the answer.
        self.maker = Maker(card["id"], min(max_words, (card["max_model_len"] - 1200) // 2), self.stored(), own)
        self.fixed = [self.maker.fixed(number) for number in range(FIXED)]

    def fetch(self, method, path, body=None, leaves=False, seconds=REPLY_SECONDS):
        connection = http.client.HTTPConnection(self.host, timeout=seconds)
        try:
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            reply = connection.getresponse()
            if leaves and reply.status == 200:
                reply.read(200)
                return 0, b""
            return reply.status, reply.read()
        finally:
            connection.close()

    def stored(self):
        """A vector store with a file, or none where the service has no directory for them."""
        boundary, text = "a-line-between", " ".join(f"The {a} came with the {b}." for a in WORDS for b in WORDS[:6]).encode()
        part = f'--{boundary}\r\nContent-Disposition: form-data; name='
        form = (part + '"purpose"\r\n\r\nassistants\r\n' + part + '"file"; filename="harbour.txt"\r\n\r\n').encode()
        connection = http.client.HTTPConnection(self.host, timeout=REPLY_SECONDS)
        connection.request("POST", "/v1/files", form + text + f"\r\n--{boundary}--\r\n".encode(),
                           {"content-type": f"multipart/form-data; boundary={boundary}"})
        reply = connection.getresponse()
        file = json.loads(reply.read())
        connection.close()
        if reply.status != 200:
            return None
        store = json.loads(self.fetch("POST", "/v1/vector_stores", {"name": "harbour", "file_ids": [file["id"]]})[1])["id"]
        end = time.monotonic() + SETTLE_SECONDS
        while json.loads(self.fetch("GET", f"/v1/vector_stores/{store}")[1])["file_counts"]["completed"] == 0:
            if time.monotonic() > end:
                self.fail("a file did not become searchable")
                return None
            time.sleep(0.1)
        return store

    def metrics(self):
        text = self.fetch("GET", "/metrics")[1].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line and not line.startswith("#")}

    def fail(self, why):
        with self.lock:
            self.failures.append(why)
        print("FAILED", why[:700], flush=True)

    def user(self, number):
        rng = random.Random(f"{number} {time.time()}")
        while not self.over:
            index = rng.randrange(FIXED) if rng.random() < FIXED_SHARE else None
            request = self.maker.any(rng) if index is None else self.fixed[index]
            try:
                status, reply = self.sent(request)
                self.judge(request, index, status, reply)
                if request.kind == "corrected" and status == 200:
                    self.correct(json.loads(reply)["id"])
            except Exception as error:  # noqa: BLE001: whatever a client meets is a failure of the service
                self.fail(f"{request.kind}: {type(error).__name__}: {error}")
            with self.lock:
                now = time.monotonic()
                self.longest_gap, self.last = max(self.longest_gap, now - self.last), now
                self.ended += 1
                self.kinds[request.kind] += 1

    def sent(self, request):
        if request.kind == "socket":
            return websocket.respond(self.host, request.path, request.body, REPLY_SECONDS)
        return self.fetch("POST", request.path, request.body, request.leaves)

    def correct(self, answer):
        """Says of an answer that another would have been right."""
        status, reply = self.fetch("POST", "/v1/feedback", {"completion_id": answer, "rating": -1, "correction": f"It is written in {answer}."})
        if status != 200:
            self.fail(f"a correction got {status}: {reply[:300].decode(errors='replace')}")

    def judge(self, request, index, status, reply):
        if status not in (0, 200):
            self.fail(f"{request.kind} got {status}: {reply[:300].decode(errors='replace')}")
        elif status == 200 and misses_form(request, reply):
            self.fail(f"{request.kind} {request.form}: {reply[:400].decode(errors='replace')}")
        elif status == 200 and index is not None:
            answer = said(request, reply)
            with self.lock:
                self.compared += index in self.first
                before = self.first.setdefault(index, answer)
            if before != answer:
                self.fail(f"fixed request {index} ({request.kind}) differs: {before[:300]} | {answer[:300]}")

    def go(self):
        threads = [threading.Thread(target=self.user, args=(number,), daemon=True) for number in range(self.users)]
        begin = said_at = time.monotonic()
        before = self.metrics()
        self.last = begin
        for thread in threads:
            thread.start()
        while time.monotonic() - begin < self.seconds and len(self.failures) < 20 and not self.stands_still():
            time.sleep(0.5)
            if time.monotonic() - said_at > 15:
                said_at = time.monotonic()
                print(f"{said_at - begin:.0f} s: {self.ended} ended, {self.compared} compared, {len(self.failures)} failures", flush=True)
        self.over = True
        for thread in threads:
            thread.join(SETTLE_SECONDS if not self.failures else 5)
        took = time.monotonic() - begin
        self.settle()
        self.sum_up(took, before)

    def stands_still(self):
        idle = time.monotonic() - self.last
        if idle > STALL_SECONDS:
            self.fail(f"the service stands still: no request has ended for {idle:.0f} s, {self.ended} had before")
            return True
        try:
            status, body = self.fetch("GET", "/health", seconds=STALL_SECONDS)
        except OSError as error:
            status, body = -1, str(error).encode()
        if status != 200:
            self.fail(f"/health: {status} {body[:300].decode(errors='replace')}")
        return status != 200

    def settle(self):
        """Waits until the service has given everything back, or says what it keeps."""
        end, left = time.monotonic() + SETTLE_SECONDS, {"nothing was read": 1}
        while left and time.monotonic() < end:
            time.sleep(0.2)
            try:
                now = self.metrics()
            except (OSError, http.client.HTTPException) as error:
                left = {f"/metrics: {error}": 1}
                continue
            ended = sum(v for k, v in now.items() if k.startswith("chimere_requests_total{"))
            kept = {k: now.get(k, 0) for k in ("chimere_requests_running", "chimere_requests_waiting", 'chimere_state_slots{state="used"}',
                                              'chimere_kv_pages{state="used"}')}
            kept["requests started and not ended"] = now.get("chimere_requests_started_total", 0) - ended
            left = {k: v for k, v in kept.items() if v}
        if left:
            self.fail(f"not given back: {left}")

    def sum_up(self, took, before):
        print(f"{self.ended} requests of {self.users} users in {took:.0f} s ({self.ended / took:.1f}/s): "
              + ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items())))
        with contextlib.suppress(OSError, http.client.HTTPException):
            now = self.metrics()
            names = ("generated_tokens_total", "prompt_tokens_total", "queue_seconds_sum", "queue_seconds_count")
            tokens, prompts, waits, count = [now.get(f"chimere_{name}", 0) - before.get(f"chimere_{name}", 0) for name in names]
            print(f"{tokens / took:.0f} tokens/s behind {prompts / took:.0f} prompt tokens/s, mean wait {1e3 * waits / max(count, 1):.1f} ms, "
                  f"longest time without an end {self.longest_gap:.1f} s")
        print(f"{self.compared} answers compared with an earlier one, {sum('differs' in f for f in self.failures)} differ; "
              f"{sum(' got 429' in f for f in self.failures)} refused; {len(self.failures)} failures")
        print("FAILED" if self.failures else "HELD", flush=True)


def pipeline(folder):
    """A workflow of two generations and a tool between them, for a service that begins."""
    directory = folder / "pipelines"
    directory.mkdir()
    steps = '[[steps]]\nname = "draft"\ngenerate = { suffix = "Say it in a few words.", tokens = 40 }\n\n'
    steps += f'[[steps]]\nname = "seen"\ncall = {{ tool = "{SERVER}__read", arguments = {{ text = "{{draft}}" }} }}\n\n'
    (directory / f"{PIPELINE}.toml").write_text(steps + '[[steps]]\ngenerate = { suffix = "A draft: {seen}" }\n')
    return {"CHIMERE_PIPELINES__DIRECTORY": str(directory)}


def tools(binary, folder):
    """An MCP server with tools that read, accepted, for a service that begins."""
    file, program = folder / "tools.toml", pathlib.Path(__file__).resolve().parent.parent / "cli/tests/data/mcp_server.py"
    file.write_text(f'[mcp.{SERVER}]\nargv = {json.dumps([sys.executable, str(program), str(folder / "mcp.log")])}\nread_only = ["read", "environment"]\n')
    file.chmod(0o600)
    subprocess.run([binary, "mcp", "accept", SERVER, "--tools", file], check=True, stdout=subprocess.DEVNULL, timeout=START_SECONDS)
    return {"CHIMERE_TOOLS__FILE": str(file)}


def adapters(binary, folder, flags):
    """Random adapters of the model, and a slot less than they are, for a service that begins."""
    shipped = pathlib.Path(__file__).resolve().parent.parent / "models/nano/nano-q8_0.gguf"
    model = flags[flags.index("--model") + 1] if "--model" in flags else shipped
    directory = folder / "adapters"
    for seed, name in enumerate(ADAPTERS):
        command = [binary, "synth", directory / name, "--adapter", model, "--rank", "8", "--seed", str(seed)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=START_SECONDS)
    return {"CHIMERE_ADAPTERS__DIRECTORY": str(directory), "CHIMERE_ADAPTERS__SLOTS": str(len(ADAPTERS) - 1)}


@contextlib.contextmanager
def service(binary, flags):
    """A service of its own; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "service.log"
        with open(log, "w") as out:
            settings = os.environ | {"CHIMERE_DOCUMENTS__DIRECTORY": str(pathlib.Path(folder) / "documents"), "CHIMERE_MCP__SERVE": "true"}
            settings |= {"CHIMERE_LEARNING__DIRECTORY": str(pathlib.Path(folder) / "learning"), "CHIMERE_LEARNING__LEARN": "all"}
            settings |= pipeline(pathlib.Path(folder)) | tools(binary, pathlib.Path(folder)) | adapters(binary, pathlib.Path(folder), flags)
            process = subprocess.Popen([binary, "serve", "--port", str(port), *flags], stdout=out, stderr=out, env=settings)
        try:
            end = time.monotonic() + START_SECONDS
            while process.poll() is None and time.monotonic() < end and not re.search(r"^ready in ", log.read_text(), re.M):
                time.sleep(0.1)
            if process.poll() is not None:
                sys.exit(f"the service ended with {process.returncode}: {log.read_text()[-2000:]}")
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            status = process.wait()
            if status != 0:
                print(f"the service ended with {status}: {log.read_text()[-3000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, help="program that serves")
    parser.add_argument("--url", help="a service that runs, instead")
    parser.add_argument("--seconds", type=float, default=60, help="how long [60]")
    parser.add_argument("--users", type=int, default=12, help="requests in flight [12]")
    parser.add_argument("--max-words", type=int, default=6000, help="words of the longest prompts, or fewer if the context is shorter [6000]")
    parser.add_argument("flags", nargs="*", help="flags for the service, after --")
    args = parser.parse_args()
    if (args.chimere is None) == (args.url is None):
        parser.error("either --chimere or --url")
    with contextlib.ExitStack() as stack:
        url, process = (args.url, None) if args.url else stack.enter_context(service(args.chimere.resolve(), args.flags))
        run = Run(url, args.seconds, args.users, args.max_words, own=process is not None)
        run.go()
        if process is not None and process.poll() is not None:
            run.fail(f"the service ended with {process.returncode}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
