"""A plugin of pytest for scripts/llama_server_tests.py: starts Chimère where llama.cpp's tests start llama-server, applies the rules that are
about requests, and leaves out the tests that do not apply. Needs the tests' own utils.py, and the environment that the launcher sets.
"""
import fnmatch
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import types

import openai
import pytest

# Downloads models, none of which is used here.
sys.modules["wget"] = types.ModuleType("wget")
import utils  # noqa: E402

RULES = tomllib.loads(pathlib.Path(os.environ["LLAMA_TESTS_RULES"]).read_text())
START_SECONDS, END_SECONDS = 120, 30
CHATS = ("/chat/completions", "/v1/chat/completions")
GENERATE = (*CHATS, "/completion", "/completions", "/v1/completions")
NO_THOUGHT = {"chat_template_kwargs": {"enable_thinking": False}}
LATEST_DRAFTS = 7

current, sent = {"file": ""}, []


def named(test):
    """`test_basic.py::test_server_props`, as the rules write it."""
    return test.removeprefix("unit/")


def settings_of(server):
    """llama-server's settings as ours: the environment of the service."""
    file = current["file"]
    slots = server.n_slots or 1
    context = RULES["context"].get(file) or (server.n_ctx or 4096) // slots
    environment = {"ENGINE__MAX_SEQS": slots, "ENGINE__MAX_CONTEXT": context, "MODEL__ALIASES": ",".join(RULES["aliases"].get(file, [])),
                   "ENGINE__DRAFTS": min(server.draft_max, LATEST_DRAFTS) if server.model_draft and server.draft_max else "off"}
    if server.model_alias:
        environment["MODEL__NAME"] = server.model_alias
    return {f"CHIMERE_{name}": str(value) for name, value in environment.items()}


def key_file(binary, key):
    line = subprocess.run([binary, "key", "hash"], input=key, capture_output=True, text=True, check=True).stdout.strip()
    file = tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False)
    file.write(f"{line} scope=user\n")
    file.close()
    return file.name


def start(server, timeout_seconds=None):
    with socket.socket() as free:
        free.bind((server.server_host, 0))
        server.server_port = free.getsockname()[1]
    binary, settings = os.environ["LLAMA_TESTS_CHIMERE"], settings_of(server)
    if server.api_key:
        settings["CHIMERE_SERVER__API_KEY_FILE"] = key_file(binary, server.api_key)
    sent.append(sorted((name, value) for name, value in settings.items() if not name.endswith("FILE")))
    command = [binary, "serve", "--model", os.environ["LLAMA_TESTS_MODEL"], "--device", "cpu", "--port", str(server.server_port)]
    server.process = subprocess.Popen(command, env=os.environ | settings, stdout=sys.stdout, stderr=sys.stdout)
    utils.server_instances.add(server)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.process.poll() is None:
        try:
            if utils.requests.get(f"http://{server.server_host}:{server.server_port}/ready", timeout=5).status_code == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError("the service did not get ready")


def stop(server):
    utils.server_instances.discard(server)
    if server.process:
        server.process.terminate()
        try:
            server.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
        server.process = None


def as_asked_here(server, path, data):
    """A path and a body by the rules: the base path, what llama-server is told when it starts, and no thoughts."""
    bare = path.partition("?")[0]
    if isinstance(data, dict) and bare in GENERATE:
        data = {"seed": server.seed, "temperature": server.temperature} | data
        limit = "max_tokens" if bare != "/completion" and bare != "/completions" else "n_predict"
        if (server.n_predict or 0) > 0:
            asked = data.get(limit, -1)
            data[limit] = server.n_predict if asked < 0 else min(asked, server.n_predict)
        if bare in CHATS:
            data = data | NO_THOUGHT
            if data.get("model", "") is None:
                del data["model"]
    return RULES["paths"].get(path, path), data


def wrapped(ask):
    """One of the server's two ways of asking, by the rules."""
    def asked(server, method, path, data=None, headers=None, **more):
        path, data = as_asked_here(server, path, data)
        sent.append([method, path, data, headers])
        return ask(server, method, path, data=data, headers=headers, **more)
    return asked


utils.ServerProcess.start = start
utils.ServerProcess.stop = stop
utils.ServerProcess.make_request = wrapped(utils.ServerProcess.make_request)
utils.ServerProcess.make_stream_request = wrapped(utils.ServerProcess.make_stream_request)
utils.download_file = lambda url, output_file_path=None: url


def with_base_path(init):
    def made(client, *args, base_url=None, **more):
        base_url = base_url if base_url is None or base_url.endswith("/v1") else f"{base_url}/v1"
        init(client, *args, base_url=base_url, **more)
    return made


def without_thoughts(create):
    def created(completions, *args, extra_body=None, **more):
        sent.append(["openai", more])
        return create(completions, *args, extra_body=(extra_body or {}) | NO_THOUGHT, **more)
    return created


openai.OpenAI.__init__ = with_base_path(openai.OpenAI.__init__)
chats = openai.resources.chat.completions.Completions
chats.create = without_thoughts(chats.create)


def why_not(test):
    """The number and the reason of the line that leaves a test out."""
    for i, line in enumerate(RULES["not_applicable"]):
        # Square brackets are the parameters', and no sets of characters.
        if any(fnmatch.fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in line["tests"]):
            return i, line["why"]
    return None


def write(**record):
    with open(os.environ["LLAMA_TESTS_RESULTS"], "a") as file:
        file.write(json.dumps(record) + "\n")


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if why_not(named(item.nodeid))]
    for item in left_out:
        by, why = why_not(named(item.nodeid))
        write(test=named(item.nodeid), outcome="not applicable", by=by, why=why)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    current.update(file=named(item.nodeid).split("::")[0], failed=False)
    sent.clear()
    result = yield
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True, default=str).encode()).hexdigest()
    write(test=named(item.nodeid), outcome="failed" if current["failed"] else "passed", sent=digest)
    return result


def pytest_runtest_logreport(report):
    # One that skips itself has not held either.
    current["failed"] |= not report.passed
