"""The web within an answer, by Anthropic's client. SearXNG and the site are one small server here."""
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
# Two pages with a fact each, which the shipped model reads well.
PAGE, OTHER = (f"http://127.0.0.1:{PORT}/{name}" for name in FILES)
SETTINGS = {"CHIMERE_WEB__SEARXNG_URL": f"http://127.0.0.1:{PORT}", "CHIMERE_WEB__FETCH": "listed", "CHIMERE_WEB__ALLOW": f"127.0.0.1:{PORT}"}
FACT = "The access code of the Kelmar locker is 4821."


class Pages(http.server.BaseHTTPRequestHandler):
    """Every search finds both pages."""

    def do_GET(self):
        search = self.path.startswith("/search")
        found = {"results": [{"url": f"http://127.0.0.1:{PORT}/{name}", "title": name, "content": text} for name, text in FILES.items()]}
        body = (json.dumps(found) if search else FILES[self.path.strip("/")]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json" if search else "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def anthropic(url, model):
    """A search, whole, streamed and sent back."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import anthropic
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    settings = dict(model=model, max_tokens=400, extra_body={"temperature": 0})
    asked = [{"role": "user", "content": LOCKER}]
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 4, "allowed_domains": ["127.0.0.1"]}
    request = dict(messages=asked, tools=[tool], tool_choice={"type": "tool", "name": "web_search"}, **settings)
    message = client.messages.create(**request)
    check(message)
    with client.messages.stream(**request) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_message()
    check(streamed)
    assert texts(streamed) == texts(message), (streamed, message)
    later = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thank you."}]
    assert client.messages.create(messages=later, tools=[tool], **settings).content, message


def texts(message):
    return [part.text for part in message.content if part.type == "text"]


def check(message):
    """Whether a message searched, tells what was found, and knows the fact. The shipped model does not always cite what it says."""
    used = next(part for part in message.content if part.type == "server_tool_use")
    result = next(part for part in message.content if part.type == "web_search_tool_result")
    assert (used.name, used.id) == ("web_search", result.tool_use_id) and used.input["query"], message
    assert [(page.url, page.title) for page in result.content] == list(zip((PAGE, OTHER), FILES)), message
    assert message.usage.server_tool_use.web_search_requests >= 1, message
    noted = [note for part in message.content if part.type == "text" for note in part.citations or []]
    told = {(note.type, note.url, note.cited_text) for note in noted}
    assert CODE in "".join(texts(message)) and told <= {("web_search_result_location", PAGE, FACT)}, message
