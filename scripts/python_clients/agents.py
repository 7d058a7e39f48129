"""The Model Context Protocol by the client library of its own project, in both revisions, and by OpenAI's agents: servers whose tools the
service runs, with approvals, and the service's own."""
import asyncio
import json
import pathlib
import subprocess
import time
import urllib.request

from .asked import QUESTION

PORTS = b"# Ports\n\nKelm has an old port.\n\n## Tides\n\nHigh water is at noon in Kelm.\n\n# Songs\n\nDosh sings."
QUESTIONS = [{"type": "predicate", "name": "paid", "instructions": "The order is paid."},
             {"type": "choice", "name": "color", "instructions": "Which colour is it?", "choices": ["green", "red"]}]
INPUT = "Order: order 214, one lamp, in green, for 12.5 euros, paid: yes, priority high."


def uploaded(url):
    """Has a store with a file that can be searched."""
    import httpx2
    with httpx2.Client(base_url=url) as client:
        file = client.post("/files", data={"purpose": "assistants"}, files={"file": ("ports.md", PORTS)}).json()["id"]
        store = client.post("/vector_stores", json={"name": "handbook", "file_ids": [file]}).json()["id"]
        while (status := client.get(f"/vector_stores/{store}/files/{file}").json()["status"]) == "in_progress":
            time.sleep(0.05)
    assert status == "completed", status


async def called(url, mode):
    """Every tool, listed and called, its result held to its schema by the client."""
    from mcp import Client
    async with Client(url, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["search_documents", "read_passage", "decide"], tools
        assert all(tool.annotations.read_only_hint for tool in tools), tools
        found = await client.call_tool("search_documents", {"query": "When is high water?", "stores": ["handbook"]})
        best = found.structured_content["results"][0]
        assert not found.is_error and "at noon" in best["text"] and best["passage_id"] in found.content[0].text, found
        read = await client.call_tool("read_passage", {"passage_id": best["passage_id"]})
        assert read.structured_content["text"] == PORTS.decode(), read
        decided = await client.call_tool("decide", {"input": INPUT, "questions": QUESTIONS})
        assert decided.structured_content["answers"][1]["choice"] == "green", decided
        failed = await client.call_tool("search_documents", {"query": "x", "max_results": 99})
        assert failed.is_error and "between 1 and 50, got 99" in failed.content[0].text, failed


def mcp(url, _model):
    """Each tool in revision 2026-07-28, which the client finds out by itself, and after a handshake of 2025-11-25."""
    uploaded(url)
    for mode in ("auto", "legacy"):
        asyncio.run(called(url.removesuffix("/v1") + "/mcp", mode))
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=10) as reply:
        counted = [line for line in reply.read().decode().splitlines() if line.startswith("chimere_mcp_calls_total{")]
    assert any('outcome="failed"' in line and line.endswith(" 2") for line in counted), json.dumps(counted)


def accept_weather(binary, python, home):
    """Names a server of the library's own in a file of tools, and accepts what it lists."""
    file, server = home / "tools.toml", pathlib.Path(__file__).parent.resolve() / "weather_server.py"
    file.write_text(f'[mcp.desk]\nargv = {json.dumps([str(python), str(server)])}\nread_only = ["get_weather"]\n')
    file.chmod(0o600)
    subprocess.run([binary, "mcp", "accept", "desk", "--tools", file], check=True, stdout=subprocess.DEVNULL)


def openai_agents(url, model):
    """A tool that the service runs: whole and streamed, approved by a function and by hand, and denied; and the library's client at /mcp."""
    import openai
    from agents import Agent, HostedMCPTool, ModelSettings, OpenAIResponsesModel, Runner, set_tracing_disabled
    from agents.mcp import MCPServerStreamableHttp
    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    def agent(approval="never", approves=None, **more):
        tool = HostedMCPTool(tool_config={"type": "mcp", "server_label": "desk", "require_approval": approval}, on_approval_request=approves)
        settings = {"tools": [tool], "model_settings": ModelSettings(temperature=0)} | more
        return Agent(name="desk", model=OpenAIResponsesModel(model=model, openai_client=client), **settings)

    def kinds(run):
        return [getattr(item.raw_item, "type", None) or item.raw_item["type"] for item in run.new_items]

    def check_called(run):
        assert "21" in run.final_output and kinds(run).count("mcp_call") == 1, (run.final_output, kinds(run))

    async def drive():
        check_called(await Runner.run(agent(), QUESTION))
        streamed = Runner.run_streamed(agent(), QUESTION)
        told = [event.data.type async for event in streamed.stream_events() if event.type == "raw_response_event"]
        assert "response.mcp_list_tools.completed" in told and "response.mcp_call.completed" in told, told
        check_called(streamed)
        asked = []
        check_called(await Runner.run(agent("always", lambda request: asked.append(request.data.name) or {"approve": True}), QUESTION))
        assert asked == ["get_weather"], asked
        denied = await Runner.run(agent("always", lambda _: {"approve": False, "reason": "not today"}), QUESTION, max_turns=3)
        assert "mcp_call" not in kinds(denied) and denied.final_output, kinds(denied)
        stopped = await Runner.run(agent("always"), QUESTION)
        state = stopped.to_state()
        assert [item.tool_name for item in stopped.interruptions] == ["get_weather"], stopped.interruptions
        state.approve(stopped.interruptions[0])
        check_called(await Runner.run(stopped.last_agent, state))
        async with MCPServerStreamableHttp(params={"url": url.removesuffix("/v1") + "/mcp"}) as server:
            settings = ModelSettings(temperature=0, tool_choice="search_documents")
            found = await Runner.run(agent(tools=[], mcp_servers=[server], model_settings=settings), "High water?", max_turns=3)
            assert kinds(found).count("function_call") == 1 and found.final_output, kinds(found)

    asyncio.run(drive())
