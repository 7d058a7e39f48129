#!/usr/bin/env python3
"""Puts gateways that people have in front of two services, unchanged and pinned, and says which of them keep what they promise.

    python3 scripts/gateways.py --chimere target/release/chimere                 # all of them
    python3 scripts/gateways.py --chimere target/release/chimere vllm-router smg # some

Each gateway gets a virtual environment of its own under --venvs (default target/gateways), made with pip at the first run; nginx is the
system's, or is left out. The services run on free ports of the loopback interface with the shipped model, one engine thread each. What is
tried of each gateway:

  share      64 conversations of 4 turns, one after the other: the share of prompt tokens that the workers' prefix caches spare, against one
             worker alone. A gateway with affinity must reach 95 % of it; of another one the figure is told.
  overload   one worker refuses with 429 (it has no room in its queue): requests are answered all the same, by the other.
  death      one worker is killed: after at most --settle seconds 16 requests succeed.

`subscriber` is no gateway: ZeroMQ's own library hears the KV events of one worker, in both forms.

The last line reads `N passed, N failed`. docs/operating/gateways.md has the figures.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS, REQUEST_SECONDS = 120, 60
CONVERSATIONS, TURNS, ABREAST = 64, 4, 4
SHARE_MIN = 0.95
MODEL = "chimere-nano"
# LiteLLM starts with a key of its own alone; the others and the workers look at none.
KEY = "sk-gateway-0123456789abcdef"
PINNED = {"vllm-router": ["vllm-router==0.1.17"], "vllm-router-events": ["vllm-router==0.1.17"], "smg": ["smg==1.13.0"],
          "litellm": ["litellm[proxy]==1.110.2"], "nginx": [], "subscriber": ["pyzmq==27.3.0", "msgpack==1.2.4"]}
# Two gateways in one environment.
WITHIN = {"vllm-router-events": "vllm-router"}
# Those that send a conversation to the worker that had it before, whatever the workers say and when.
AFFINE = {"vllm-router", "smg", "nginx"}


class Skip(Exception):
    """Why a gateway cannot be run here."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fetch(url, body=None, headers=(), seconds=REQUEST_SECONDS):
    """Status, headers and JSON of a reply, whatever the status is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            return reply.status, reply.headers, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.loads(error.read() or b"null")


class Running:
    """A program that is ended with the block."""

    def __init__(self, arguments, log, environment=()):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=self.log, env={**os.environ, **dict(environment)}, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def kill(self, sign=signal.SIGKILL):
        if self.process.poll() is None:
            os.killpg(self.process.pid, sign)

    def wait_for(self, url, headers=()):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            try:
                if fetch(url, headers=headers, seconds=5)[0] == 200:
                    return
            except (OSError, ValueError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"{url} did not answer in {START_SECONDS} s")


class Worker(Running):
    """A service on a free port, with a prefix cache that has room for all conversations."""

    def __init__(self, chimere, folder, name, queue=256, seqs=8, encoding="map"):
        self.url, self.events = f"http://127.0.0.1:{free_port()}", [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
        config = folder / f"{name}.toml"
        config.write_text(f'[limits]\nqueue_requests = {queue}\n[events]\nlisten = "{self.events[0]}"\nreplay = "{self.events[1]}"\n'
                          f'topic = ""\nencoding = "{encoding}"\n')
        arguments = [chimere, "serve", "--device", "cpu", "--model", ROOT / "models/nano/nano-q8_0.gguf", "--config", config, "--port", self.url.rsplit(":", 1)[1], "--model-name", MODEL,
                     "--threads", "1", "--max-seqs", str(seqs)]
        super().__init__(arguments, folder / f"{name}.log")
        self.wait_for(self.url + "/ready")


def turn(url, messages, session, tokens=16):
    """The status of a chat's turn, its usage and its answer."""
    body = {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
    headers = {"x-session-id": session, "Authorization": f"Bearer {KEY}"}
    status, _, reply = fetch(url + "/v1/chat/completions", body, headers)
    return status, reply


def converse(url, number):
    """Tokens of the prompts of a conversation, and how many of them were spared."""
    topic = " ".join(f"{word}-{number}" for word in ("river", "stone", "lamp", "harbour", "garden", "winter", "letter", "engine"))
    messages = [{"role": "system", "content": f"You are assistant {number}. You know all about {topic}. " * 4}]
    prompt, cached = 0, 0
    for question in range(TURNS):
        messages.append({"role": "user", "content": f"Question {question} about {topic}: what comes next, and why is it so?"})
        status, reply = turn(url, messages, f"session-{number}")
        assert status == 200, (status, reply)
        prompt += reply["usage"]["prompt_tokens"]
        cached += (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"] or "-"})
    return prompt, cached


def share(url, conversations):
    """The share of prompt tokens that was spared."""
    with concurrent.futures.ThreadPoolExecutor(ABREAST) as pool:
        all = list(pool.map(lambda number: converse(url, number), range(conversations)))
    prompt, cached = map(sum, zip(*all))
    return cached / prompt


# ---- the gateways: each gives the arguments of its program for two workers, and where it answers

def vllm_router(venv, folder, workers, port):
    return [venv / "bin/vllm-router", "--host", "127.0.0.1", "--port", port, "--policy", "cache_aware", "--worker-urls",
            *[worker.url for worker in workers], "--prometheus-port", free_port(), "--retry-max-retries", "3",
            "--health-check-interval-secs", "2", "--health-failure-threshold", "1", "--log-level", "info"]


def vllm_router_events(venv, folder, workers, port):
    """The same program, which chooses by the workers' KV events."""
    arguments = vllm_router(venv, folder, workers, port)
    arguments[arguments.index("cache_aware")] = "kv_aware"
    for worker in workers:
        arguments += ["--kv-event-source", f"{worker.url}={worker.events[0]}", "--kv-event-replay-source", f"{worker.url}={worker.events[1]}"]
    return [*arguments, "--kv-event-block-size", "64", "--kv-event-model", MODEL]


def smg(venv, folder, workers, port):
    return [venv / "bin/smg", "launch", "--host", "127.0.0.1", "--port", port, "--policy", "cache_aware", "--worker-urls",
            *[worker.url for worker in workers], "--prometheus-port", free_port(), "--retry-max-retries", "3",
            "--health-check-interval-secs", "2", "--health-failure-threshold", "1", "--log-level", "info"]


def litellm(venv, folder, workers, port):
    """Its router knows no prefixes of self-hosted workers: it goes by least busy. 429 and failures go to another worker."""
    config = folder / "litellm.yaml"
    models = [{"model_name": MODEL, "litellm_params": {"model": f"openai/{MODEL}", "api_base": worker.url + "/v1", "api_key": "none"}}
              for worker in workers]
    settings = {"routing_strategy": "simple-shuffle", "num_retries": 3, "allowed_fails": 0, "cooldown_time": 30}
    config.write_text(json.dumps({"model_list": models, "router_settings": settings, "litellm_settings": {"drop_params": False}}))
    return [venv / "bin/litellm", "--host", "127.0.0.1", "--port", port, "--config", config]


def nginx(venv, folder, workers, port):
    """Consistent hashing of the session's header, and the next worker where one refuses or is gone."""
    program = os.environ.get("CHIMERE_NGINX") or shutil.which("nginx")
    if program is None:
        raise Skip("there is no nginx here (Debian's package nginx, or CHIMERE_NGINX)")
    servers = "\n".join(f"    server {worker.url.removeprefix('http://')} max_fails=1 fail_timeout=5s;" for worker in workers)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"  {name}_temp_path {folder}/{name};" for name in names)
    (folder / "nginx.conf").write_text(f"""
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
events {{}}
http {{
  access_log off;
{folders}
  upstream chimere {{
    hash $http_x_session_id consistent;
{servers}
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://chimere;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_next_upstream error timeout http_429 http_502 http_503 non_idempotent;
    }}
  }}
}}
""")
    return [program, "-p", folder, "-c", folder / "nginx.conf"]


def subscriber(venv, arguments, folder):
    """A subscriber of ZeroMQ's own library, for each form of an event."""
    for encoding in "map", "array":
        with Worker(arguments.chimere, folder, f"told-{encoding}", encoding=encoding) as worker:
            script = pathlib.Path(__file__).parent / "python_clients/kv_subscriber.py"
            done = subprocess.run([venv / "bin/python", script, worker.url, *worker.events, encoding], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            yield encoding, done.stdout.strip()


GATEWAYS = {"vllm-router": vllm_router, "vllm-router-events": vllm_router_events, "smg": smg, "litellm": litellm, "nginx": nginx}


def environment(name, venvs):
    """The virtual environment of a gateway, made at the first run."""
    packages = PINNED[name]
    venv = venvs / WITHIN.get(name, name)
    if packages and not (venv / "done").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        (venv / "done").touch()
    return venv


def gateway(name, venv, folder, workers, in_turns=False):
    """A gateway in front of these workers, which sends to them in turns where it would go by their load too."""
    port = free_port()
    arguments = [str(argument) for argument in GATEWAYS[name](venv, folder, workers, port)]
    if in_turns:
        arguments = ["round_robin" if argument == "cache_aware" else argument for argument in arguments]
    running = Running(arguments, folder / f"{name}.log", {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY})
    running.url = f"http://127.0.0.1:{port}"
    return running


def ready(running):
    """A gateway answers for its workers when it lists their model."""
    running.wait_for(running.url + "/v1/models", headers={"Authorization": f"Bearer {KEY}"})


def keeps_share(name, arguments, running, workers, alone):
    got = share(running.url, arguments.conversations)
    told = f"{got:.1%} of prompt tokens spared, {got / alone:.1%} of the {alone:.1%} of one worker alone"
    assert name not in AFFINE or got >= SHARE_MIN * alone, told
    return told


def passes_refusals(running, full):
    """While a worker with one slot and one place to wait is busy, more requests than it takes are answered by the other."""
    def ask(number):
        return turn(running.url, [{"role": "user", "content": f"{number}: tell me a story."}], f"full-{number}", tokens=48)[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(ask, range(24)))
    refused = refusals(full)
    assert statuses.count(200) == len(statuses), f"statuses {sorted(set(statuses))}"
    assert refused > 0, "no worker refused anything"
    return f"{len(statuses)} answered, of which {refused:.0f} had been refused"


def refusals(worker):
    with urllib.request.urlopen(worker.url + "/metrics", timeout=REQUEST_SECONDS) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith('chimere_rejected_total{reason="queue_full"'))


def survives(arguments, running, dead):
    dead.kill()
    dead.process.wait()
    time.sleep(arguments.settle)
    asked = [turn(running.url, [{"role": "user", "content": f"Hello {number}!"}], f"after-{number}")[0] for number in range(16)]
    assert asked == [200] * 16, f"statuses {asked}"
    return "16 of 16 answered"


def tried(name, arguments, alone):
    """What is tried of a gateway, each with what came of it."""
    venv = environment(name, arguments.venvs)
    with tempfile.TemporaryDirectory(prefix="chimere-gateway-") as folder:
        folder = pathlib.Path(folder)
        try:
            if name == "subscriber":
                yield from subscriber(venv, arguments, folder)
                return
            with Worker(arguments.chimere, folder, "one") as one, Worker(arguments.chimere, folder, "two") as two:
                with gateway(name, venv, folder, [one, two]) as running:
                    ready(running)
                    yield "share", keeps_share(name, arguments, running, [one, two], alone)
                    yield "death", survives(arguments, running, one)
                with Worker(arguments.chimere, folder, "full", queue=1, seqs=1) as full, \
                        gateway(name, venv, folder, [full, two], in_turns=True) as running:
                    ready(running)
                    yield "overload", passes_refusals(running, full)
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", type=pathlib.Path, default=ROOT / "target/release/chimere")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "target/gateways")
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS)
    parser.add_argument("--settle", type=float, default=8.0, help="seconds that a gateway has to notice that a worker is gone")
    parser.add_argument("names", nargs="*", metavar="gateway", help=f"of {', '.join(PINNED)}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in PINNED]
    if unknown:
        parser.error(f"no gateway {unknown[0]!r}: there are {', '.join(PINNED)}")
    arguments.venvs, arguments.chimere = arguments.venvs.resolve(), arguments.chimere.resolve()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder, Worker(arguments.chimere, pathlib.Path(folder), "alone") as worker:
        alone = share(worker.url, arguments.conversations)
    print(f"one worker alone: {alone:.1%} of prompt tokens spared", flush=True)
    for name in arguments.names or PINNED:
        try:
            for what, told in tried(name, arguments, alone):
                print(f"pass {name}: {what}: {told}", flush=True)
            passed += 1
        except Skip as why:
            print(f"left out {name}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
