#!/usr/bin/env python3
"""Drives the release binary as its users do, with the official `openai` client, and those of `anthropic` and `ollama`. The last line reads `N passed, N failed`.

    python3 .ci/smoke.py target/release/chimere

Starts its own servers on free ports of the loopback interface and ends them. Needs `pip install openai anthropic ollama`.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import pty
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "models/nano"))
sys.path.insert(0, str(ROOT / "scripts"))
import clients  # noqa: E402
import eval as exam  # noqa: E402
from rows import BEHAVIOUR, CONVERSATIONS  # noqa: E402
from tasks import arithmetic  # noqa: E402
from tasks.grade import right  # noqa: E402

START_SECONDS, END_SECONDS, REQUEST_SECONDS = 60, 30, 120
STREAMS = 32
SUMS, SUMS_RIGHT = 20, 18
# Of each row of the model's behaviour so small a share is asked here that one wrong answer is a large part of it: so far a row may be under
# its floor, and all of them together may not.
BEHAVIOUR_SCALE, BEHAVIOUR_SLACK = 0.08, 0.15
METRICS = ["requests_running", "requests_waiting", "requests_total", "prompt_tokens_total", "generated_tokens_total", "queue_seconds",
           "ttft_seconds", "itl_seconds", "e2e_seconds", "step_seconds", "batch_rows", "kv_pages", "state_slots", "preemptions_total",
           "rejected_total", "memory_bytes", "build_info", "thinking_tokens_total", "thinking_ended_total", "moe_rows_total",
           "engram_lookups_total", "engram_hits_total", "engram_changed_tokens_total", "engram_lookup_seconds", "engram_late_total",
           "engram_tables",
           "embedding_inputs_total", "semantic_search_seconds", "collections", "collection_bytes"]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


class Reply:
    """What came back over plain HTTP."""

    def __init__(self, response):
        self.status_code, self.text = response.status, response.read().decode()

    def json(self):
        return json.loads(self.text)


class Http:
    """The endpoints that the client library does not know."""

    def __init__(self, base):
        self.base = base

    def get(self, path):
        return self.send(urllib.request.Request(self.base + path))

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(urllib.request.Request(self.base + path, data, {"content-type": "application/json"}))

    def send(self, request):
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
                return Reply(response)
        except urllib.error.HTTPError as error:
            return Reply(error)


class Server:
    """A running binary; `with` ends it."""

    def __init__(self, binary, **settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.binary, self.url = str(binary), f"http://127.0.0.1:{self.port}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CHIMERE_")} | settings
        self.process = subprocess.Popen([binary, "serve", "--model", ROOT / "models/nano", "--port", str(self.port)], cwd=ROOT,
                                        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.http = Http(self.url)
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", timeout=REQUEST_SECONDS, max_retries=0)
        self.wait_until_ready()
        self.model = self.client.models.list().data[0].id

    def wait_until_ready(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.http.get("/ready").status_code == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.process.kill()
        raise AssertionError(f"not ready within {START_SECONDS} s: {self.process.communicate()[1]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def chat(self, text, **more):
        settings = dict(model=self.model, messages=[{"role": "user", "content": text}], temperature=0) | more
        return self.client.chat.completions.create(**settings)


def plain(**more):
    """Without thoughts."""
    return dict(extra_body={"chat_template_kwargs": {"enable_thinking": False}}, **more)


def a_chat_is_answered(server):
    answer = server.chat("What is 17 + 25?")
    message = answer.choices[0].message
    assert "42" in message.content, message
    assert message.reasoning_content and "<think>" not in message.content, message
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    assert answer.model_extra["timings"]["total_ms"] > 0, answer.model_extra


def a_stream_brings_the_same_text_and_its_usage(server):
    whole = server.chat("What is 17 + 25?")
    chunks = list(server.chat("What is 17 + 25?", stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content, text
    assert [c.usage for c in chunks if c.usage] == [chunks[-1].usage]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]


def log_probabilities_come_with_their_alternatives(server):
    answer = server.chat("Hello!", logprobs=True, top_logprobs=3, **plain())
    tokens = answer.choices[0].logprobs.content
    assert tokens and all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in tokens), tokens
    assert all(t.top_logprobs[0].logprob >= t.logprob for t in tokens)
    assert answer.choices[0].message.content.startswith("".join(t.token for t in tokens)[:4])


def a_stop_string_ends_the_text_and_is_not_in_it(server):
    whole = server.chat("What is 17 + 25?", **plain()).choices[0].message.content
    stop = whole[len(whole) // 2:][:3]
    answer = server.chat("What is 17 + 25?", stop=[stop], **plain()).choices[0]
    assert answer.message.content == whole[:whole.index(stop)], (whole, stop, answer)
    assert answer.finish_reason == "stop"


def max_tokens_ends_with_length(server):
    answer = server.chat("What is 17 + 25?", max_tokens=3)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3, answer


def a_seed_gives_the_same_text_again(server):
    texts = [server.chat("Hello!", temperature=1, seed=7, **plain()).choices[0].message.content for _ in range(2)]
    assert texts[0] == texts[1], texts


def a_thought_keeps_to_its_budget(server):
    question = "What is 417 + 2586?"
    plain, free = server.chat(question), server.chat(question, reasoning_effort="high")
    assert free.choices[0].message == plain.choices[0].message, "no bound changes nothing"
    said = free.model_extra["timings"]["thinking"]
    assert said["ended"] == ["model"] and said["tokens"] > 16, said
    bound = {"extra_body": {"reasoning": {"max_tokens": 16}}}
    short = server.chat(question, **bound)
    thought = short.choices[0].message.reasoning_content
    assert short.model_extra["timings"]["thinking"] == {"tokens": 16, "ended": ["budget"]}, short.model_extra
    assert free.choices[0].message.reasoning_content.startswith(thought) and short.choices[0].message.content, short
    both = server.chat(question, n=2, **bound)
    assert all(c.message == short.choices[0].message for c in both.choices), both
    deltas = [c.choices[0].delta for c in server.chat(question, stream=True, **bound) if c.choices]
    assert "".join(d.content or "" for d in deltas) == short.choices[0].message.content
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == thought


def a_thought_is_skipped_where_it_is_not_wanted_or_not_needed(server):
    for effort, why in [("none", "off"), ("auto", "sure")]:
        answer = server.chat("What is 2 + 2?", reasoning_effort=effort)
        assert "4" in answer.choices[0].message.content and "reasoning_content" not in answer.choices[0].message.model_extra, answer
        assert answer.model_extra["timings"]["thinking"]["ended"] == [why], answer.model_extra


def fewer_experts_answer_too(server):
    before = server.http.get("/metrics").text
    answer = server.chat("What is 17 + 25?", extra_body={"moe": {"mass": 0.9}})
    assert answer.choices[0].message.content, answer
    count = "\nchimere_moe_experts_total "
    assert count + "0\n" in before and count + "0\n" not in server.http.get("/metrics").text


def a_tool_is_called_with_its_arguments(server):
    answer = server.chat("What is the weather in Paris?", tools=[WEATHER]).choices[0]
    assert answer.finish_reason == "tool_calls", answer
    call = answer.message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"}), call
    assert "<tool_call>" not in (answer.message.content or ""), answer


def a_tool_call_streams_as_deltas(server):
    name, arguments = "", ""
    for chunk in server.chat("What is the weather in Paris?", tools=[WEATHER], stream=True):
        delta = chunk.choices[0].delta if chunk.choices else None
        assert "<" not in ((delta and delta.content) or ""), delta
        for call in (delta and delta.tool_calls) or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (name, json.loads(arguments)) == ("get_weather", {"city": "Paris"}), (name, arguments)


def a_second_turn_brings_back_what_libraries_add_to_the_first(server):
    """As LiteLLM and the agents' libraries send it: a strict tool, two system messages, fields of other services, 32,000 tokens."""
    tool = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    settings = dict(tools=[tool], max_tokens=32_000, extra_body={"reasoning_effort": "none"})
    messages = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "What is the weather in Paris?", "cache_control": {"type": "ephemeral"}}]}]
    first = server.chat("", messages=messages, **settings)
    assert first.choices[0].finish_reason == "tool_calls" and first.model_extra["timings"]["max_tokens"] < 4096, first
    reply = first.choices[0].message.model_dump() | {"provider_specific_fields": {"refusal": None}, "thinking_blocks": []}
    call = reply["tool_calls"][0]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"}), call
    messages += [reply, {"role": "tool", "tool_call_id": call["id"], "name": "get_weather", "content": '{"city": "Paris", "temperature_c": 21}'}]
    second = server.chat("", messages=messages, model=server.model.upper(), **settings).choices[0]
    assert second.finish_reason == "stop" and second.message.content, second
    assert 'chimere_ignored_fields_total{field="messages.provider_specific_fields"} 1' in server.http.get("/metrics").text


def completions_take_text_and_ids_and_echo(server):
    text = server.client.completions.create(model=server.model, prompt="The quick", max_tokens=4, temperature=0, echo=True)
    assert text.choices[0].text.startswith("The quick"), text
    ids = server.http.post("/tokenize", {"prompt": "The quick"}).json()["tokens"]
    same = server.client.completions.create(model=server.model, prompt=ids, max_tokens=4, temperature=0, echo=True)
    assert same.choices[0].text == text.choices[0].text, (text, same)


def tokens_come_back_as_their_text(server):
    text = "Grüße, 你好 — 12+30=42"
    reply = server.http.post("/tokenize", {"prompt": text}).json()
    assert reply["count"] == len(reply["tokens"]) > 0, reply
    assert server.http.post("/detokenize", {"tokens": reply["tokens"]}).json()["prompt"] == text


def many_streams_run_at_once(server):
    def stream(i):
        pieces = [c.choices[0].delta.content or "" for c in server.chat(f"What is {i} + {i}?", stream=True, **plain()) if c.choices]
        return "".join(pieces)

    alone = stream(3)
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        texts = list(pool.map(stream, [3] * 4 + list(range(10, 10 + STREAMS - 4))))
    assert all(texts), texts
    assert texts[:4] == [alone] * 4, "a sequence says the same alone and among others"


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def documents_supply_what_the_model_does_not_know(server):
    fact = "The Quorvane harbour master is Ilsebet Tarn."
    def ask(engram):
        extra = {"chat_template_kwargs": {"enable_thinking": False}} | engram
        return server.chat("Who is the harbour master of Quorvane?", temperature=0, max_tokens=40, extra_body=extra)
    without = ask({})
    with_it = ask({"engram": {"documents": [fact], "lambda": 0.5}})
    timings = with_it.model_extra["timings"]["engram"]
    assert timings["lookups"] == with_it.usage.completion_tokens and timings["changed_tokens"] <= timings["hits"], (timings, with_it.usage)
    assert "engram" not in without.model_extra["timings"], without
    # What the table says once the answer has begun as it does.
    begun = server.client.completions.create(model=server.model, prompt="The Quorvane harbour master", max_tokens=6, temperature=0,
                                             extra_body={"engram": {"documents": [fact] * 20, "lambda": 0.9}})
    assert "Ilsebet" in begun.choices[0].text, begun
    error = refused(openai.BadRequestError, lambda: ask({"engram": {"tables": ["nobody-made-it"]}}))
    assert error.body["param"] == "engram.tables" and "nobody-made-it" in error.body["message"], error.body
    error = refused(openai.BadRequestError, lambda: ask({"engram": {"documents": [fact], "lambda": 0.96}}))
    assert error.body["param"] == "engram.lambda" and "0.96" in error.body["message"], error.body


def texts_become_vectors(server):
    """The client asks for base64 unless it is told otherwise, and decodes it itself."""
    texts = ["What is 17 + 25?", "Reverse: green"]
    one, two = (d.embedding for d in server.client.embeddings.create(model=server.model, input=texts).data)
    assert len(one) == len(two) and abs(sum(x * x for x in one) - 1) < 1e-4 and one != two
    plain = server.client.embeddings.create(model=server.model, input=texts[0], encoding_format="float")
    assert all(abs(a - b) < 1e-7 for a, b in zip(plain.data[0].embedding, one)), "as short decimals, the same numbers"
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > 0, plain.usage
    ids = server.http.post("/tokenize", {"prompt": texts[0]}).json()["tokens"]
    assert server.client.embeddings.create(model=server.model, input=[ids]).data[0].embedding == one
    error = refused(openai.BadRequestError, lambda: server.client.embeddings.create(model=server.model, input="a", dimensions=8))
    assert error.body["param"] == "dimensions" and "8" in error.body["message"], error.body


def examples_come_from_a_collection(binary):
    with tempfile.TemporaryDirectory() as directory, Server(binary, CHIMERE_ENGRAM__DIRECTORY=directory) as server:
        path = "/v1/engram/collections/smoke"
        put = urllib.request.Request(server.url + path, method="PUT")
        assert server.http.send(put).status_code == 200
        items = [{"id": "capital", "text": "What is the capital of Ferfen?", "answer": "The Ferfen capital is Melkar."}, {"text": "no answer"}]
        assert server.http.post(path + "/add", {"items": items}).json()["items"] == 2
        found = server.http.post(path + "/search", {"query": items[0]["text"], "k": 1}).json()["data"]
        assert found[0]["id"] == "capital" and found[0]["score"] > 0.9, found
        extra = {"chat_template_kwargs": {"enable_thinking": False}, "engram": {"semantic": {"collection": "smoke", "k": 4}}}
        answer = server.chat("What is the capital of Ferfen?", extra_body=extra)
        assert answer.model_extra["timings"]["engram"]["semantic"]["ids"] == ["capital"], answer.model_extra


def errors_name_what_was_wrong(server):
    error = refused(openai.BadRequestError, lambda: server.chat("hi", temperature=9))
    assert error.body["param"] == "temperature" and "9" in error.body["message"], error.body
    error = refused(openai.BadRequestError, lambda: server.chat("hi", extra_body={"no_such_field": 1}))
    assert error.body["param"] == "no_such_field", error.body
    error = refused(openai.BadRequestError, lambda: server.chat("hi", response_format={"type": "xml"}))
    assert error.body["param"] == "response_format.type" and "xml" in error.body["message"], error.body
    error = refused(openai.BadRequestError, lambda: server.chat("word " * 6000))
    assert "6010" in error.body["message"] and "4095" in error.body["message"], error.body
    error = refused(openai.NotFoundError, lambda: server.chat("hi", model="no-such-model"))
    assert error.body["param"] == "model" and "no-such-model" in error.body["message"], error.body
    malformed = server.http.post("/v1/chat/completions", b'{"messages": [')
    assert malformed.status_code == 400 and malformed.json()["error"]["type"] == "invalid_request_error", malformed.text


def a_body_over_the_limit_is_413(server):
    reply = server.http.post("/v1/chat/completions", b" " * (9 << 20))
    assert reply.status_code == 413 and reply.json()["error"]["message"], reply.text


def metrics_have_their_names(server):
    text = server.http.get("/metrics").text
    missing = [name for name in METRICS if f"chimere_{name}" not in text]
    assert not missing, f"missing: {missing}"


def held_out_sums_are_right(server):
    rng = random.Random("smoke")
    samples = [arithmetic.make(rng, True, True, "add") for _ in range(SUMS)]

    def ask(sample):
        answer = server.client.chat.completions.create(model=server.model, messages=sample.prompt(), temperature=0, max_tokens=1400)
        return right(sample, answer.choices[0].message.content or "", [])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        good = sum(pool.map(ask, samples))
    print(f"  {good} of {SUMS} sums are right")
    assert good >= SUMS_RIGHT


def the_model_behaves_as_its_card_says(server):
    """A small part of the rows that `models/nano/eval.py` measures: conversations, wording, refusals, citations, tools."""
    asked_of = exam.Server(server.url, server.model, REQUEST_SECONDS)
    settings = argparse.Namespace(seed=7, scale=BEHAVIOUR_SCALE, concurrency=8, wrong=True)
    rows = {label: (exam.measure(asked_of, label, count, settings), floor) for label, (count, _, floor, _) in (BEHAVIOUR | CONVERSATIONS).items()}
    for label, (row, _) in rows.items():
        print(f"  {label}: {row['right']} of {row['asked']}")
    under = [label for label, (row, floor) in rows.items() if floor and row["share"] < floor - BEHAVIOUR_SLACK]
    assert not under, under
    held = [(row, floor) for row, floor in rows.values() if floor]
    assert sum(row["right"] for row, _ in held) >= sum(floor * row["asked"] for row, floor in held), rows
    assert sum(row["empty"] for row, _ in rows.values()) == 0, rows


class Terminal:
    """`chimere chat` at a terminal of its own."""

    def __init__(self, server, folder, *flags):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = os.environ | {"TERM": "xterm-256color", "XDG_STATE_HOME": folder}
            os.execve(server.binary, [server.binary, "chat", "--url", server.http.base, *flags], environment)
        self.seen = ""

    def until(self, text):
        """What comes up to this text."""
        end = time.monotonic() + REQUEST_SECONDS
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self.fd], [], [], 1)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        before, self.seen = self.seen.split(text, 1)
        return before

    def say(self, text):
        """Types when the editor asks: what is typed before that is lost."""
        self.until("> \r\x1b[2C")
        os.write(self.fd, text.encode())

    def end(self):
        """Its exit code."""
        with contextlib.suppress(OSError):
            while os.read(self.fd, 65536):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def the_terminal_has_an_editor_and_commands(server):
    with tempfile.TemporaryDirectory() as folder:
        chat = Terminal(server, folder, "--temperature", "0", "--max-tokens", "60")
        chat.say("this is not meant\x03")
        chat.say("/think off\r")
        chat.say("What is 12 + 30?\r")
        assert "42" in chat.until(" a second, the first after ")
        chat.say("/sta\t\r")
        assert "1 answer of " in chat.until(" messages")
        chat.say(f"/save {folder}/talk.json\r")
        chat.until("wrote 2 messages to")
        chat.say("/undo\r")
        chat.until('took back "What is 12 + 30?"')
        chat.say("\x04")
        assert chat.end() == 0
        saved = json.loads((pathlib.Path(folder) / "talk.json").read_text())
        assert [m["role"] for m in saved["messages"]] == ["user", "assistant"], saved
        history = pathlib.Path(folder) / "chimere/chat_history"
        assert "What is 12 + 30?" in history.read_text() and history.stat().st_mode & 0o077 == 0, oct(history.stat().st_mode)


def a_script_asks_one_question(server):
    command = [server.binary, "chat", "--url", server.http.base, "--temperature", "0", "--max-tokens", "400", "What is 12 + 30?"]
    run = subprocess.run(command, input="", capture_output=True, text=True, timeout=REQUEST_SECONDS)
    assert run.returncode == 0 and "42" in run.stdout and "\x1b" not in run.stdout, run
    run = subprocess.run(command[:2] + ["--url", "http://127.0.0.1:9", "Hello?"], input="", capture_output=True, text=True, timeout=REQUEST_SECONDS)
    assert run.returncode == 1 and "no server at" in run.stderr and not run.stdout, run


def a_full_queue_is_429_with_a_time(binary):
    with Server(binary, CHIMERE_ENGINE__MAX_SEQS="1", CHIMERE_LIMITS__QUEUE_REQUESTS="1") as server:
        def ask(_):
            try:
                server.chat("Hello!", max_tokens=400, extra_body={"ignore_eos": True})
            except openai.RateLimitError as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            errors = [e for e in pool.map(ask, range(8)) if e]
        assert errors, "eight requests found room in a queue of one"
        for error in errors:
            assert 1 <= int(error.response.headers["retry-after"]) <= 60, error.response.headers
            assert int(error.response.headers["retry-after-ms"]) > 0


def other_dialects_are_spoken_as_their_clients_speak_them(server):
    for client in (clients.openai_responses, clients.anthropic, clients.ollama):
        client(server.url + "/v1", server.model)


def sigterm_lets_a_stream_finish_and_exits_0(server):
    stream = server.chat("Hello!", max_tokens=300, stream=True, extra_body={"ignore_eos": True})
    first = next(iter(stream))
    server.process.send_signal(signal.SIGTERM)
    reasons = [c.choices[0].finish_reason for c in stream if c.choices and c.choices[0].finish_reason]
    assert first and reasons == ["length"], reasons
    assert server.process.wait(END_SECONDS) == 0, server.process.returncode


WITH_SERVER = [
    a_chat_is_answered, a_stream_brings_the_same_text_and_its_usage, log_probabilities_come_with_their_alternatives,
    a_stop_string_ends_the_text_and_is_not_in_it, max_tokens_ends_with_length, a_seed_gives_the_same_text_again,
    a_thought_keeps_to_its_budget, a_thought_is_skipped_where_it_is_not_wanted_or_not_needed, fewer_experts_answer_too,
    a_tool_is_called_with_its_arguments, a_tool_call_streams_as_deltas, a_second_turn_brings_back_what_libraries_add_to_the_first, completions_take_text_and_ids_and_echo,
    tokens_come_back_as_their_text, many_streams_run_at_once, documents_supply_what_the_model_does_not_know, texts_become_vectors, errors_name_what_was_wrong, a_body_over_the_limit_is_413,
    the_terminal_has_an_editor_and_commands, a_script_asks_one_question, other_dialects_are_spoken_as_their_clients_speak_them,
    metrics_have_their_names, held_out_sums_are_right, the_model_behaves_as_its_card_says,
    sigterm_lets_a_stream_finish_and_exits_0,   # last: it ends the server
]
WITH_BINARY = [a_full_queue_is_429_with_a_time, examples_come_from_a_collection]


def check(test, subject):
    begin = time.monotonic()
    try:
        test(subject)
    except Exception:
        traceback.print_exc()
        print(f"FAILED {test.__name__}", flush=True)
        return False
    print(f"ok     {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    binary = pathlib.Path(parser.parse_args().binary).resolve()
    results = []
    try:
        with Server(binary) as server:
            results += [check(test, server) for test in WITH_SERVER]
    except Exception:
        traceback.print_exc()
        results += [False] * (len(WITH_SERVER) - len(results))
    results += [check(test, binary) for test in WITH_BINARY]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
