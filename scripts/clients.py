#!/usr/bin/env python3
"""Drives programs that people already have against a running Chimère, unchanged and pinned, and says which of them do their thing.

    python3 scripts/clients.py --chimere target/release/chimere                    # all of them
    python3 scripts/clients.py --chimere target/release/chimere litellm openai     # some
    python3 scripts/clients.py --chimere target/release/chimere --only openai      # those with this in their name

Each program gets a virtual environment of its own under --venvs (default target/clients), made with pip at the first run, because their
requirements contradict each other (some take minutes and a gigabyte; .ci/run takes the light ones); those of JavaScript (scripts/node_clients) share one directory, made with npm, and need Node 20. The server runs on a free port of the loopback interface with the shipped model.
A program that cannot be run here is left out with its reason, unless CHIMERE_REQUIRE names `clients`: then it fails. No program fetches a model or a data set. The last
line reads `N passed, N failed`, and how many were left out if any were. docs/using/clients.md says what each of them sends and what does not work.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

from python_clients import agents, browsers, documents, evaluations, frameworks, terminals, web
from python_clients.asked import PLACE, QUESTION, RESULT, WEATHER, place

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS, END_SECONDS, PROGRAM_SECONDS = 120, 30, 300
# What each is made of; the first is the program itself.
PINNED = {
    "openai": ["openai==3.54.0"],
    "litellm": ["litellm==1.106.0", "mcp==2.3.0"],   # which it imports and does not ask for
    "pydantic-ai": ["pydantic-ai-slim[openai]==2.68.0"],
    "openai-agents": ["openai-agents==0.24.0", "openai==3.57.0", "mcp==2.3.0"],
    "langchain-openai": ["langchain-openai==1.7.3"],
    "instructor": ["instructor==1.17.0", "anthropic==2.14.0"],
    "guidellm": ["guidellm==0.8.1"],
    "anthropic": ["anthropic==2.12.0"],
    "openai-responses": ["openai==3.54.0"],
    "openai-websocket": ["openai[realtime]==3.57.0"],
    "openai-documents": ["openai==3.57.0"],
    "mcp": ["mcp==2.3.0"],
    "ollama": ["ollama==0.6.3"],
    "schemathesis": ["schemathesis==4.32.5"],
    "llm": ["llm==0.36"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "haystack": ["haystack-ai==3.4.1"],
    "semantic-kernel": ["semantic-kernel==1.45.0"],
    "crewai": ["crewai==1.15.30"],
    "aider": ["aider-chat==0.86.2"],
    "lm-eval": ["lm-eval[api]==0.4.13"],
    "evalscope": ["evalscope[perf]==1.14.1"],
    "dspy": ["dspy==3.4.1"],
    "inspect-ai": ["inspect-ai==0.3.285", "openai==3.57.0", "anthropic==2.14.0"],
    "open-webui": ["open-webui==0.12.4", "playwright==1.65.2"],
    "langchain-documents": ["langchain-openai==1.7.3", "langchain-anthropic==1.7.10", "langchain-cohere==0.6.0"],
    # What its retrieval imports: all that it asks for would take gigabytes.
    "open-webui-rag": ["open-webui==0.12.4", "aiohttp==3.14.5", "aiosqlite==0.22.1", "alembic==1.18.4", "authlib==1.7.2",
                       "beautifulsoup4==4.14.3", "chromadb==1.5.9", "cryptography==48.0.1", "fastapi==0.136.3", "langchain-classic==1.0.7",
                       "langchain-text-splitters==1.1.2", "loguru==0.7.3", "markdown==3.10.2", "mcp==2.3.0", "pillow==13.0.0",
                       "pyjwt[crypto]==2.13.0", "python-mimeparse==2.0.0", "python-socketio==5.16.2", "pytz==2026.2", "rank-bm25==0.2.2",
                       "redis==8.0.1", "requests==2.34.2", "sqlalchemy[asyncio]==2.0.50", "validators==0.35.0",
                       "youtube-transcript-api==1.2.4"],
}
# Those whose first package is installed without what it asks for.
ALONE = {"open-webui-rag"}
# Those that are run in the environment of another one.
WITHIN = {"openai-file-search": "openai-documents", "anthropic-documents": "anthropic", "anthropic-web": "anthropic", "openai-agents-documents": "openai-agents",
          "openai-agents-tools": "openai-agents"}

# Those of JavaScript: the package, and the script that drives it.
NODE = {"openai-node": ("openai@6.49.0", "openai.mjs"), "openai-node-documents": ("openai@6.49.0", "documents.mjs"),
        "anthropic-node": ("@anthropic-ai/sdk@1.12.0", "anthropic.mjs"), "ai-sdk": ("ai@6.0.326", "ai.mjs"), "promptfoo": ("promptfoo@0.123.1", "promptfoo.mjs")}
NODE_BESIDE = ["@ai-sdk/openai-compatible@2.0.91", "@ai-sdk/openai@3.0.141", "zod@4.6.7"]
# Those with a directory of their own, for their size, and the Node that they want.
NODE_ALONE = {"promptfoo": ["node@22.23.3", "zod@4.6.7"]}

# Programs of this machine that some need.
NEEDS = dict.fromkeys(NODE, ["npm", "node"]) | {"open-webui": ["chromium"]}


class Skip(Exception):
    """Why a program cannot be run here."""


def openai(url, model):
    """A stream, two turns with a tool whose first reply goes back as it was dumped, a typed answer and a call that must come."""
    import openai
    import pydantic
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
    typed = client.chat.completions.parse(model=model, messages=[{"role": "user", "content": PLACE}], response_format=place(), temperature=0)
    assert isinstance(typed.choices[0].message.parsed, pydantic.BaseModel), typed
    forced = client.chat.completions.create(messages=[{"role": "user", "content": "Hello!"}], tool_choice="required", **settings)
    assert forced.choices[0].message.tool_calls[0].function.name == "get_weather", forced


def litellm(url, model):
    """Two turns with a tool: the second has everything that the library adds to a reply. A typed answer by its type, by a schema and as responses."""
    import litellm
    settings = dict(model=f"openai/{model}", api_base=url, api_key="none", tools=[WEATHER], temperature=0)
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]}]
    message = litellm.completion(messages=messages, **settings).choices[0].message
    call = message.tool_calls[0]
    messages += [message, {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": RESULT}]
    answer = litellm.completion(messages=messages, **settings).choices[0].message
    assert answer.content and "21" in answer.content, answer
    kind, settings = place(), dict(model=f"openai/{model}", api_base=url, api_key="none", temperature=0)
    schema = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": kind.model_json_schema()}}
    for form in (kind, schema):
        typed = litellm.completion(messages=[{"role": "user", "content": PLACE}], response_format=form, **settings)
        kind.model_validate_json(typed.choices[0].message.content)
    typed = litellm.responses(input=PLACE, text_format=kind, **settings)
    kind.model_validate_json(next(item for item in typed.output if item.type == "message").content[0].text)


def pydantic_ai(url, model):
    """An agent with two system prompts and a tool, which the library declares as strict; typed output by tool and by schema."""
    from pydantic_ai import Agent, NativeOutput
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
    kind = place()
    plain = Agent(agent.model, model_settings=ModelSettings(temperature=0))
    for output_type in (kind, NativeOutput(kind)):
        output = plain.run_sync(PLACE, output_type=output_type).output
        assert isinstance(output, kind), output


def openai_agents(url, model):
    """An agent with a tool and one with typed output, on chat completions and on responses, which are its default."""
    import openai
    from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                        set_tracing_disabled)
    set_tracing_disabled(True)
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """Get the current weather of a city"""
        asked.append(city)
        return RESULT

    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    kind = place()
    for way in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        asked.clear()
        agent = Agent(name="weather", instructions="Be brief.", tools=[get_weather], model_settings=ModelSettings(temperature=0),
                      model=way(model=model, openai_client=client))
        output = Runner.run_sync(agent, QUESTION).final_output
        assert asked == ["Paris"] and "21" in output, (way, asked, output)
        typed = Runner.run_sync(agent.clone(tools=[], output_type=kind), PLACE).final_output
        assert isinstance(typed, kind), (way, typed)


def langchain_openai(url, model):
    """A model with a tool bound to it, its message sent back, and typed output by schema and by a call."""
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model=model, base_url=url, api_key="none", temperature=0, max_tokens=32_000).bind_tools([WEATHER], strict=True)
    messages = [SystemMessage("Be brief."), SystemMessage("Be kind."), HumanMessage(QUESTION)]
    message = chat.invoke(messages)
    call = message.tool_calls[0]
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"}), call
    answer = chat.invoke(messages + [message, ToolMessage(RESULT, tool_call_id=call["id"])])
    assert "21" in answer.content, answer
    kind = place()
    plain = ChatOpenAI(model=model, base_url=url, api_key="none", temperature=0, max_tokens=1000)
    for method in ("json_schema", "function_calling"):
        made = plain.with_structured_output(kind, method=method).invoke(PLACE)
        assert isinstance(made, kind), (method, made)


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


def anthropic(url, model):
    """A stream with a thought that is not shown and a call, and its message sent back with the call's result."""
    import anthropic
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    greedy = {"extra_body": {"temperature": 0}}   # which the library's newest signature leaves out
    answer = client.messages.create(model=model, max_tokens=300, messages=[{"role": "user", "content": "What is 17 + 25?"}], **greedy)
    assert "42" in answer.content[0].text and answer.stop_reason == "end_turn", answer
    function = WEATHER["function"]
    tool = {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    settings = dict(model=model, max_tokens=1000, system=system, tools=[tool], **greedy)
    messages = [{"role": "user", "content": QUESTION}]
    with client.messages.stream(messages=messages, thinking={"type": "adaptive", "display": "omitted"}, output_config={"effort": "low"},
                                **settings) as stream:
        message = stream.get_final_message()
    call = message.content[-1]
    assert (call.type, call.name, call.input, message.stop_reason) == ("tool_use", "get_weather", {"city": "Paris"}, "tool_use"), message
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": RESULT}]}
    messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    forced = client.messages.create(messages=[{"role": "user", "content": "Hello!"}], tool_choice={"type": "any"}, **settings)
    assert forced.content[-1].name == "get_weather", forced
    counted = client.messages.count_tokens(model=model, system=system, tools=[tool], messages=messages).input_tokens
    answer = client.messages.create(messages=messages, **settings)
    assert "21" in answer.content[0].text, answer
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens, (counted, answer.usage)
    kind, plain = place(), dict(model=model, max_tokens=1000, messages=[{"role": "user", "content": PLACE}], **greedy)
    form = {"type": "json_schema", "schema": kind.model_json_schema()}
    kind.model_validate_json(client.messages.create(output_config={"format": form}, **plain).content[-1].text)
    typed = client.messages.parse(output_format=kind, **plain)
    assert isinstance(typed.parsed_output, kind), typed
    try:
        client.messages.create(messages=[{"role": "user", "content": "word " * 9000}], **settings)
        raise AssertionError("a prompt that does not fit was taken")
    except anthropic.BadRequestError as error:
        assert "prompt is too long: " in str(error), error


def openai_responses(url, model):
    """A stream with a thought and a call, gone on from by its id, and the same where the client keeps everything."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tool = {"type": "function", "strict": False} | WEATHER["function"]
    settings = dict(model=model, tools=[tool], temperature=0, instructions="Be brief.")
    with client.responses.stream(input=QUESTION, reasoning={"effort": "low"}, **settings) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    call = first.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"}), first
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    answer = client.responses.create(previous_response_id=first.id, input=[result], **settings)
    assert "21" in answer.output_text and answer.usage.total_tokens > 0, answer
    assert client.responses.retrieve(answer.id).output_text == answer.output_text
    client.responses.delete(answer.id)
    typed = client.responses.parse(model=model, input=PLACE, text_format=place(), temperature=0)
    assert typed.output_parsed is not None, typed
    stateless = settings | dict(store=False, include=["reasoning.encrypted_content"])
    items = [{"role": "user", "content": QUESTION}]
    items += [item.model_dump() for item in client.responses.create(input=items, **stateless).output]
    answer = client.responses.create(input=items + [result | {"call_id": items[-1]["call_id"]}], **stateless)
    assert "21" in answer.output_text, answer
    try:
        client.responses.create(previous_response_id=answer.id, input="x", **settings)
        raise AssertionError("a response that was not kept was found")
    except openai.NotFoundError as error:
        assert error.code == "previous_response_not_found", error


def openai_websocket(url, model):
    """Two turns with a tool on one WebSocket, of which nothing is kept, and an error between two requests."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tool = {"type": "function", "strict": False} | WEATHER["function"]
    settings = dict(model=model, tools=[tool], temperature=0, instructions="Be brief.", store=False)

    def answered(connection, **body):
        connection.response.create(**settings | body)
        for event in connection:
            if event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
                return event

    with client.responses.connect() as connection:
        read = answered(connection, input=QUESTION, generate=False, reasoning={"effort": "none"}).response
        assert read.output == [] and read.usage.input_tokens > 0, read
        first = answered(connection, input=QUESTION, reasoning={"effort": "none"}).response
        call = first.output[-1]
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"}), first
        result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        answer = answered(connection, previous_response_id=first.id, input=[result], reasoning={"effort": "none"}).response
        assert "21" in answer.output_text and answer.previous_response_id == first.id, answer
        error = answered(connection, previous_response_id=first.id, input="x")
        assert (error.type, error.error.code) == ("error", "previous_response_not_found"), error
        assert answered(connection, input="Hello!").response.status == "completed"


def ollama(url, model):
    """Two turns with a tool, a prompt, vectors, and what there is."""
    import ollama
    client = ollama.Client(host=url.removesuffix("/v1"))
    name = client.list().models[0].model
    assert name == f"{model}:latest" and "tools" in client.show(name).capabilities, name
    settings = dict(model=name, tools=[WEATHER], options={"temperature": 0})
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    parts = list(client.chat(messages=messages, stream=True, think=False, **settings))
    call = [call for part in parts for call in part.message.tool_calls or []][0].function
    assert (call.name, call.arguments, parts[-1].done_reason) == ("get_weather", {"city": "Paris"}, "stop"), parts
    message = client.chat(messages=messages, **settings).message
    messages += [message, {"role": "tool", "tool_name": call.name, "content": RESULT}]
    answer = client.chat(messages=messages, **settings).message.content
    assert "21" in answer, answer
    kind = place()
    typed = client.chat(name, [{"role": "user", "content": PLACE}], format=kind.model_json_schema(), think=False, options={"temperature": 0})
    assert kind.model_validate_json(typed.message.content), typed
    text = client.generate(name, "What is 17 + 25?", think=False, options={"temperature": 0}).response
    assert "42" in text, text
    assert len(client.embed(name, ["a", "b"]).embeddings) == 2 and client.pull(name).status == "success"
    try:
        client.pull("llama3")
        raise AssertionError("another model was pulled")
    except ollama.ResponseError as error:
        assert "models are files" in str(error), error


# The settings of a service of its own: with a short context an answer that nothing bounds ends soon.
SETTINGS = {"schemathesis": {"CHIMERE_ENGINE__MAX_CONTEXT": "256"}}
SETTINGS |= dict.fromkeys(["openai-documents", "openai-file-search", "openai-node-documents", "anthropic-documents", "langchain-documents",
                           "openai-agents-documents"], {"CHIMERE_DOCUMENTS__DIRECTORY": "{home}"})
# Vectors of a real encoder, where there is one.
if MINILM := os.environ.get("CHIMERE_MINILM_DIR"):
    SETTINGS |= {name: SETTINGS.get(name, {}) | {"CHIMERE_DOCUMENTS__EMBEDDER__DIRECTORY": MINILM}
                 for name in ("langchain-documents", "open-webui-rag")}
SETTINGS["anthropic-web"] = web.SETTINGS
SETTINGS["mcp"] = {"CHIMERE_DOCUMENTS__DIRECTORY": "{home}", "CHIMERE_MCP__SERVE": "true"}
SETTINGS["openai-agents-tools"] = SETTINGS["mcp"] | {"CHIMERE_TOOLS__FILE": "{home}/tools.toml"}
# What has to be there before such a service begins, by the binary, the program's interpreter and the directory.
PREPARED = {"openai-agents-tools": agents.accept_weather}
SECONDS = {"schemathesis": 1800, "open-webui": 900}


def schemathesis(url, model):
    """Bodies made from the service's description of itself, good and bad ones."""
    settings = ROOT / "scripts/schemathesis.toml"
    command = [pathlib.Path(sys.executable).parent / "st", "--config-file", settings, "run", f"{url.removesuffix('/v1')}/openapi.json"]
    subprocess.run(command, check=True)


PROGRAMS = {"openai": openai, "litellm": litellm, "pydantic-ai": pydantic_ai, "openai-agents": openai_agents,
            "langchain-openai": langchain_openai, "instructor": frameworks.instructor, "guidellm": guidellm, "anthropic": anthropic,
            "openai-responses": openai_responses, "openai-websocket": openai_websocket, "openai-documents": documents.openai_documents, "mcp": agents.mcp,
            "openai-file-search": documents.openai_file_search, "anthropic-documents": documents.anthropic, "anthropic-web": web.anthropic,
            "langchain-documents": documents.langchain, "openai-agents-documents": documents.openai_agents,
            "openai-agents-tools": agents.openai_agents,
            "open-webui-rag": documents.open_webui_rag, "ollama": ollama, "schemathesis": schemathesis, "llm": terminals.llm,
            "aider": terminals.aider, "smolagents": frameworks.smolagents, "haystack": frameworks.haystack,
            "semantic-kernel": frameworks.semantic_kernel, "crewai": frameworks.crewai,
            "lm-eval": evaluations.lm_eval, "evalscope": evaluations.evalscope, "dspy": frameworks.dspy,
            "inspect-ai": evaluations.inspect_ai, "open-webui": browsers.open_webui}


class Server:
    """A running binary; `with` ends it."""

    def __init__(self, binary, settings=(), key="none"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CHIMERE_")} | dict(settings)
        command = [binary, "serve", "--model", ROOT / "models/nano", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise SystemExit(f"{binary} is not ready within {START_SECONDS} s")
            time.sleep(0.2)
        models = urllib.request.Request(f"{self.url}/models", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(models, timeout=10) as reply:
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


def installed(home, wanted, install):
    """Has `install` put pinned packages into a directory, unless they are there."""
    marker = home / "pinned"
    if marker.exists() and marker.read_text() == " ".join(wanted):
        return
    try:
        install()
    except subprocess.CalledProcessError as error:
        raise Skip(f"{' '.join(wanted)} cannot be installed: {pathlib.Path(str(error.cmd[0])).name} ended with {error.returncode}")
    marker.write_text(" ".join(wanted))


def python_of(name, venvs):
    """The interpreter of a program's environment."""
    name = WITHIN.get(name, name)
    home = venvs / name
    python, pip = home / "bin/python", ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone, rest = (PINNED[name][:1], PINNED[name][1:]) if name in ALONE else ([], PINNED[name])

    def install():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, *pip, *rest], check=True)
        if alone:
            subprocess.run([python, *pip, "--no-deps", *alone], check=True)

    installed(home, PINNED[name], install)
    return python


def node_of(name, venvs):
    """The Node that a program of JavaScript runs on, and the directory with its packages and the scripts that use them."""
    alone = name in NODE_ALONE
    home = venvs / (name if alone else "node")
    together = dict.fromkeys(NODE[n][0] for n in NODE if n not in NODE_ALONE)
    packages = [NODE[name][0], *NODE_ALONE[name]] if alone else [*together, *NODE_BESIDE]
    home.mkdir(parents=True, exist_ok=True)
    installed(home, packages, lambda: subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, *packages], check=True))
    # A script finds packages from where it lies.
    for script in (ROOT / "scripts/node_clients").iterdir():
        shutil.copy(script, home)
    return home / "node_modules/.bin/node" if alone else "node", home


def command_of(name, venvs, server):
    """What drives a program, and from where."""
    missing = [program for program in NEEDS.get(name, []) if not shutil.which(program)]
    if missing:
        raise Skip(f"there is no {missing[0]}")
    if name in NODE:
        node, home = node_of(name, venvs)
        return [node, NODE[name][1]], home
    python = python_of(name, venvs)
    return [python, __file__, "--inside", name, "--url", server.url, "--model", server.model], python.parent.parent


def drive(name, venvs, server):
    """Whether a program does its thing, or None where it is left out."""
    begin = time.monotonic()
    package = NODE[name][0] if name in NODE else PINNED[WITHIN.get(name, name)][0]
    package += "" if package.startswith(name) else f" ({name})"
    try:
        command, home = command_of(name, venvs, server)
    except Skip as reason:
        required = "clients" in os.environ.get("CHIMERE_REQUIRE", "").split(",")
        print(f"{'FAILED' if required else 'skipped'} {package}: {reason}", flush=True)
        return False if required else None
    environment = os.environ | {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "URL": server.url, "MODEL": server.model}
    try:
        good = subprocess.run(command, cwd=home, env=environment, timeout=SECONDS.get(name, PROGRAM_SECONDS)).returncode == 0
    except subprocess.TimeoutExpired:
        good = False
    print(f"{'ok    ' if good else 'FAILED'} {package} ({time.monotonic() - begin:.1f} s)", flush=True)
    return good


def drive_apart(name, venvs, binary):
    """The same with a service of its own."""
    with tempfile.TemporaryDirectory() as home:
        settings = {key: value.format(home=home) for key, value in SETTINGS[name].items()}
        try:
            if name in PREPARED:
                PREPARED[name](binary, python_of(name, venvs), pathlib.Path(home))
        except Skip:
            # Nor is its program there, which is told below.
            settings = {}
        with Server(binary, settings) as server:
            return drive(name, venvs, server)


def chosen(names, only):
    """Those with `only` in their name, or the one that it names."""
    return [only] if only in names else [name for name in names if not only or only in name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS, *NODE], help="default: all")
    parser.add_argument("--only", metavar="NAME", help="one program, or all with this in their name")
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
    binary, names = pathlib.Path(args.chimere).resolve(), chosen(args.programs or [*PROGRAMS, *NODE], args.only)
    if not names:
        parser.error(f"no program has {args.only} in its name")
    with Server(binary) as server:
        results = [drive(name, venvs, server) for name in names if name not in SETTINGS]
    results += [drive_apart(name, venvs, binary) for name in names if name in SETTINGS]
    skipped, failed = results.count(None), results.count(False)
    print(f"{results.count(True)} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
