"""The Model Context Protocol by the client library of its own project, in both revisions."""
import asyncio
import json
import time
import urllib.request

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
