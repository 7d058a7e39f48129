"""The web within an answer, by Anthropic's client: a search, a page that is read, their citations. SearXNG and the site are one small server here."""
import http.server
import json
import os
import socket
import threading

from python_clients.documents import CODE, FILES, LOCKER


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# Where the server is, which this process tells the service and the one that it starts for the client.
PORT = int(os.environ.setdefault("CLIENTS_WEB_PORT", str(free_port())))
PAGE = f"http://127.0.0.1:{PORT}/lockers"
SETTINGS = {"CHIMERE_WEB__SEARXNG_URL": f"http://127.0.0.1:{PORT}", "CHIMERE_WEB__FETCH": "listed", "CHIMERE_WEB__ALLOW": f"127.0.0.1:{PORT}"}
FACT = "The access code of the Kelmar locker is 4821."


class Pages(http.server.BaseHTTPRequestHandler):
    """Every search finds one page."""

    def do_GET(self):
        search = self.path.startswith("/search")
        found = {"results": [{"url": PAGE, "title": "Lockers", "content": FACT}]}
        body = (json.dumps(found) if search else FILES["lockers.md"]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json" if search else "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def anthropic(url, model):
    """A search and a page, whole, streamed and sent back."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import anthropic
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    settings = dict(model=model, max_tokens=400, extra_body={"temperature": 0})
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 4, "allowed_domains": ["127.0.0.1"]}
    fetch = {"type": "web_fetch_20250910", "name": "web_fetch", "citations": {"enabled": True}}
    for tool, question in ((search, LOCKER), (fetch, f"{LOCKER} Read {PAGE}")):
        asked = [{"role": "user", "content": question}]
        request = dict(messages=asked, tools=[tool], tool_choice={"type": "tool", "name": tool["name"]}, **settings)
        message = client.messages.create(**request)
        check(message, tool["name"])
        with client.messages.stream(**request) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_message()
        check(streamed, tool["name"])
        assert texts(streamed) == texts(message), (streamed, message)
        later = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thank you."}]
        assert client.messages.create(messages=later, tools=[tool], **settings).content, message


def texts(message):
    return [part.text for part in message.content if part.type == "text"]


def check(message, tool):
    """Whether a message used the tool, got its result and cites the page by the sentence with the fact."""
    used = next(part for part in message.content if part.type == "server_tool_use")
    result = next(part for part in message.content if part.type == f"{tool}_tool_result")
    assert (used.name, used.id) == (tool, result.tool_use_id), message
    if tool == "web_search":
        assert used.input["query"] and [(page.url, page.title) for page in result.content] == [(PAGE, "Lockers")], message
        assert message.usage.server_tool_use.web_search_requests >= 1, message
    else:
        assert used.input["url"] == result.content.url == PAGE and FACT in result.content.content.source.data, message
        assert message.usage.server_tool_use.web_fetch_requests == 1, message
    noted = [note for part in message.content if part.type == "text" for note in part.citations or []]
    assert CODE in "".join(texts(message)) and noted, message
    assert {(note.type, note.url, note.cited_text) for note in noted} == {("web_search_result_location", PAGE, FACT)}, noted
