#!/usr/bin/env python3
"""Drives programs that people already have against a running Chimère, unchanged and pinned, and says which of them do their thing.

    python3 scripts/clients.py --chimere target/release/chimere                    # all of them
    python3 scripts/clients.py --chimere target/release/chimere litellm openai     # some

Each program gets a virtual environment of its own under --venvs (default target/clients), made with pip at the first run, because their
requirements contradict each other. The server runs on a free port of the loopback interface with the shipped model. The last line reads
`N passed, N failed`. docs/clients.md says what each of them sends and what does not work.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import traceback
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS, END_SECONDS, PROGRAM_SECONDS = 120, 30, 300
QUESTION = "What is the weather in Paris?"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
RESULT = json.dumps({"city": "Paris", "temperature_c": 21, "condition": "sunny"})

# What each is made of; the first is the program itself.
PINNED = {
    "openai": ["openai==3.54.0"],
    "litellm": ["litellm==1.106.0", "mcp==2.3.0"],   # which it imports and does not ask for
    "pydantic-ai": ["pydantic-ai-slim[openai]==2.68.0"],
    "openai-agents": ["openai-agents==0.24.0"],
    "langchain-openai": ["langchain-openai==1.7.3"],
    "instructor": ["instructor==1.17.0"],
    "guidellm": ["guidellm==0.8.1"],
}


def openai(url, model):
    """A stream, and two turns with a tool whose first reply goes back as it was dumped."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    text = ""
    for chunk in client.chat.completions.create(model=model, messages=[{"role": "user", "content": "What is 17 + 25?"}], temperature=0,
                                                stream=True, stream_options={"include_usage": True}):
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    assert "42" in text, text
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    settings = dict(model=model, tools=[WEATHER], temperature=0, max_completion_tokens=32_000)
    message = client.chat.completions.create(messages=messages, **settings).choices[0].message
    call = message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"}), call
    messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    answer = client.chat.completions.create(messages=messages, **settings).choices[0].message
    assert answer.content and "21" in answer.content, answer


def litellm(url, model):
    """Two turns with a tool: the second has everything that the library adds to a reply."""
    import litellm
    settings = dict(model=f"openai/{model}", api_base=url, api_key="none", tools=[WEATHER], temperature=0)
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]}]
    message = litellm.completion(messages=messages, **settings).choices[0].message
    call = message.tool_calls[0]
    messages += [message, {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": RESULT}]
    answer = litellm.completion(messages=messages, **settings).choices[0].message
    assert answer.content and "21" in answer.content, answer


def pydantic_ai(url, model):
    """An agent with two system prompts and a tool, which the library declares as strict."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.settings import ModelSettings
    agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none")), system_prompt=("Be brief.", "Be kind."),
                  model_settings=ModelSettings(temperature=0))
    asked = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the current weather of a city"""
        asked.append(city)
        return RESULT

    output = agent.run_sync(QUESTION).output
    assert asked == ["Paris"] and "21" in output, (asked, output)


def openai_agents(url, model):
    """An agent with a tool, on chat completions."""
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    set_tracing_disabled(True)
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """Get the current weather of a city"""
        asked.append(city)
        return RESULT

    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    agent = Agent(name="weather", instructions="Be brief.", tools=[get_weather], model_settings=ModelSettings(temperature=0),
                  model=OpenAIChatCompletionsModel(model=model, openai_client=client))
    output = Runner.run_sync(agent, QUESTION).final_output
    assert asked == ["Paris"] and "21" in output, (asked, output)


def langchain_openai(url, model):
    """A model with a tool bound to it, and its message sent back."""
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model=model, base_url=url, api_key="none", temperature=0, max_tokens=32_000).bind_tools([WEATHER], strict=True)
    messages = [SystemMessage("Be brief."), SystemMessage("Be kind."), HumanMessage(QUESTION)]
    message = chat.invoke(messages)
    call = message.tool_calls[0]
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"}), call
    answer = chat.invoke(messages + [message, ToolMessage(RESULT, tool_call_id=call["id"])])
    assert "21" in answer.content, answer


def instructor(url, model):
    """A typed answer by asking for it in words; modes that force it need structured output, which is not there yet."""
    import instructor
    import openai
    import pydantic

    class City(pydantic.BaseModel):
        city: str

    client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.MD_JSON)
    text = 'Extract the city as JSON to the schema. Text: "Anna moved to Paris in 2019."'
    made = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], response_model=City, temperature=0)
    assert isinstance(made, City), made


def guidellm(url, model):
    """Three requests one after another, timed."""
    with open("prompts.jsonl", "w") as file:
        file.writelines(json.dumps({"prompt": f"What is {n} + {n}?"}) + "\n" for n in range(1, 9))
    backend = f"kind=openai_http,target={url.removesuffix('/v1')},model={model}"
    command = ["guidellm", "run", "--backend", backend, "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3",
               "--data", "kind=json_file,path=prompts.jsonl", "--output", "kind=json,path=benchmarks.json", "--disable-console"]
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=environment, check=True, timeout=PROGRAM_SECONDS)
    report = json.loads(pathlib.Path("benchmarks.json").read_text())
    totals = report["benchmarks"][0]["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (3, 0), totals


PROGRAMS = {"openai": openai, "litellm": litellm, "pydantic-ai": pydantic_ai, "openai-agents": openai_agents,
            "langchain-openai": langchain_openai, "instructor": instructor, "guidellm": guidellm}


class Server:
    """A running binary; `with` ends it."""

    def __init__(self, binary):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CHIMERE_")}
        command = [binary, "serve", "--model", ROOT / "models/nano", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise SystemExit(f"{binary} is not ready within {START_SECONDS} s")
            time.sleep(0.2)
        with urllib.request.urlopen(f"{self.url}/models", timeout=10) as reply:
            self.model = json.load(reply)["data"][0]["id"]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()


def python_of(name, venvs):
    """The interpreter of a program's environment, made if it is not there as pinned."""
    home = venvs / name
    python, marker, wanted = home / "bin/python", home / "pinned", " ".join(PINNED[name])
    if not marker.exists() or marker.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED[name]], check=True)
        marker.write_text(wanted)
    return python


def drive(name, venvs, server):
    begin = time.monotonic()
    python = python_of(name, venvs)
    command = [python, __file__, "--inside", name, "--url", server.url, "--model", server.model]
    environment = os.environ | {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    try:
        good = subprocess.run(command, cwd=venvs / name, env=environment, timeout=PROGRAM_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        good = False
    print(f"{'ok    ' if good else 'FAILED'} {PINNED[name][0]} ({time.monotonic() - begin:.1f} s)", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS], help="default: all")
    parser.add_argument("--chimere", help="the binary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "target/clients", help="where the environments are kept")
    for own in ("--inside", "--url", "--model"):   # for the run inside of a program's environment
        parser.add_argument(own, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        try:
            PROGRAMS[args.inside](args.url, args.model)
        except Exception:
            traceback.print_exc()
            return 1
        return 0
    venvs = args.venvs.resolve()
    with Server(pathlib.Path(args.chimere).resolve()) as server:
        results = [drive(name, venvs, server) for name in args.programs or PROGRAMS]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
