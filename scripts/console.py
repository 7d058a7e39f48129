#!/usr/bin/env python3
"""Drives the web console in a real Chromium, as its users do. The last line reads `N passed, N failed`.

    scripts/console.py --chimere target/release/chimere [--chromium /usr/bin/chromium] [--only NAME] [--lan] [--files services/console] [--pictures DIR]

Starts its own servers on free ports of the loopback interface and ends them. Needs `pip install playwright axe-playwright-python` and
Debian's `chromium`; no browser is fetched. Without them it says so and leaves everything out, unless CHIMERE_REQUIRE names `chromium`. What a model of the shipped size cannot write (20,000 tokens, hostile markup) comes from a
scripted upstream that passes everything else on to the service. `--lan` opens every page by a name over plain HTTP, as a second machine of a LAN
does, where browsers withhold the clipboard and more; `--files` serves the console's files from a folder, so that no build stands between an edit
and its test.
"""
import argparse
import http.client
import http.server
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import traceback

from console_documents import DocumentTests
from console_feedback import FeedbackTests
from console_learning import LearningTests
from console_tools import ToolTests

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
# A page that came from a folder has no address, and without these may ask no service of this machine.
OF_FILES = ["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"]
LAN = "llm.lan"  # a name that is no localhost, so no secure context
WAIT = 60_000  # milliseconds; a slow machine is no failure
TOKENS = 20_000
VISITS = 5

ATTACKS = ["<script>window.hurt=1</script>", "<img src=x onerror=\"window.hurt=1\">", "<svg onload=window.hurt=1>", "[a](javascript:window.hurt=1)",
           "<a href=\"data:text/html,<script>parent.hurt=1</script>\">b</a>", "<iframe srcdoc=\"<script>parent.hurt=1</script>\"></iframe>",
           "<math><mtext><table><mglyph><style><img src=x onerror=window.hurt=1>", "<form action=//evil.example><button>c</button></form>",
           "<style>body{background:url(http://evil.example/s)}</style>", "![d](http://evil.example/pixel.png)", "<base href=http://evil.example/>",
           "<div style=\"background:url(http://evil.example/t)\">e</div>", "$\\href{javascript:window.hurt=1}{f}$", "$$\\includegraphics{http://evil.example/g}$$",
           "```\n</code><script>window.hurt=1</script>\n```", "<input onfocus=window.hurt=1 autofocus>", "<details open ontoggle=window.hurt=1>g</details>",
           "<object data=http://evil.example/h></object>", "<link rel=stylesheet href=http://evil.example/i>", "<meta http-equiv=refresh content='0;url=http://evil.example'>",
           "<noscript><p title=\"</noscript><img src=x onerror=window.hurt=1>\">", "<a href=\"http://evil.example\" ping=\"http://evil.example/p\">h</a>",
           "<video poster=http://evil.example/v src=http://evil.example/w></video>", "<template><script>window.hurt=1</script></template>", "j <b id=app name=body>k</b>"]

# Constructs within constructs, as deep as an answer can make them; each ends with a word.
DEEP = {"quotations": ">" * 4000 + " deep", "items": "- " * 3000 + "deep", "numbers": "1. " * 2000 + "deep",
        "both": ">- " * 2000 + "deep", "strong": "*" * 2500 + "deep" + "*" * 2500, "emphasis": "*a " * 2000 + "deep" + " b*" * 2000,
        "mixed": "**a _b " * 1000 + "deep" + " c_ d**" * 1000, "deleted": "~~a " * 1500 + "deep" + " b~~" * 1500,
        "brackets": "[" * 4000 + "deep" + "](b)" * 1000, "pictures": "![" * 2000 + "deep" + "](b)" * 2000,
        "indented": "".join("  " * i + "- deep\n" for i in range(100))}

CODE_LINE = "value_{0} = {0} * 2  # line\n"

# Code by its language, with some of the words that have a colour there.
CODE = {"python": ("@cached\ndef f(x):\n    \"\"\"Gives\n    x.\"\"\"\n    return 1.5e-3 # <b>", [("keyword", "def"), ("string", '"""Gives\n    x."""'), ("number", "1.5e-3"), ("comment", "# <b>"), ("title", "f")]),
        "rust": ("fn f<'a>(x: &'a str) -> char { '\\'' }", [("keyword", "fn"), ("number", "'a"), ("string", "'\\''")]), "sql": ("select 'it''s' FROM t", [("keyword", "FROM"), ("string", "'it''s'")]),
        "json": ('{"a": true}', [("title", '"a"'), ("keyword", "true")]), "diff": ("-old\n+new", [("keyword", "-old"), ("string", "+new")]), "html": ("<a href=\"b\">c</a>", [("title", "href"), ("string", '"b"')]),
        "ts": ("const a = `b ${c}`", [("keyword", "const"), ("string", "`b ${c}`")]), "css": ("a { color: #fff }", [("number", "#fff")]), "yaml": ("a: yes", [("title", "a")]), "sh": ("echo $HOME", [("number", "$HOME")])}

FORMULAS = [r"\sqrt{2}", r"\sqrt[3]{x+1}", r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}", r"\sqrt{1+\sqrt{1+\sqrt{1+x}}}", r"\sqrt{\frac{a}{b}}", r"a^2+b^2=c^2",
            r"e^{i\pi}+1=0", r"\sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}", r"\int_a^b f(x)\,dx", r"\oint_C \mathbf{F}\cdot d\mathbf{r}",
            r"\lim_{x\to 0} \frac{\sin x}{x} = 1", r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", r"\begin{bmatrix} 1 & 0 & 0 \\ 0 & 1 & 0 \\ 0 & 0 & 1 \end{bmatrix}",
            r"\left( \frac{\partial f}{\partial x} \right)^2", r"\nabla \times \vec{B}", r"\hat{H}\psi = E\psi", r"\mathbb{R} \subset \mathbb{C}",
            r"\forall \epsilon > 0\, \exists \delta", r"A \cup B \cap C", r"x \in \emptyset", r"p \implies q \iff r", r"\lfloor x \rfloor + \lceil y \rceil",
            r"\binom{n}{k}", r"\prod_{i=1}^n x_i", r"\alpha\beta\gamma\Gamma\Delta\Omega", r"\mathcal{L}(\theta)", r"\bar{x} \tilde{y} \dot{z}",
            r"\overline{AB} \parallel CD", r"\underbrace{a+b}_{c}", r"\overbrace{x+y}^{z}", r"f: X \to Y", r"a \equiv b \pmod{n}", r"\log_2 n \approx 10",
            r"\begin{cases} 1 & x>0 \\ 0 & x \le 0 \end{cases}", r"\langle u, v \rangle", r"\|x\|_2 \leq 1", r"\cos 90^{\circ} = 0", r"\iint_D g\,dA", r"x_{i,j}^{(k)}",
            r"\dots \cdots \vdots \ddots"]

TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "webmanifest": "application/manifest+json",
         "woff2": "font/woff2", "txt": "text/plain"}

# Watches a page from its first moment: its long tasks, and when the field for a message has the focus.
WATCH = """window.long = []; new PerformanceObserver(l => window.long.push(...l.getEntries().map(e => e.duration))).observe({type: 'longtask', buffered: true});
    document.addEventListener('focusin', e => { if (e.target.id === 'ask') window.ready ??= performance.now() })"""

# Files that a page begins with: those that it names, and those that its script imports.
NAMED = "[...document.querySelectorAll('script, link[rel=modulepreload]')].map(e => e.src || e.href).sort()"
IMPORTED = """async (files) => { const found = new Set(); const walk = async (url) => { if (found.has(url)) return; found.add(url);
    for (const [, at] of (await (await fetch(url)).text()).matchAll(/^import (?:[^"]*from )?"(\\.[^"]*)";$/gm)) await walk(new URL(at, url).href) };
    for (const file of files) await walk(new URL(`/console/${file}.js`, location.href).href); return [...found].sort() }"""

# The store of the first version of the page, with a conversation that has two branches; `window.held` is open until it is closed.
FIRST_STORE = """() => new Promise((done, fail) => { indexedDB.deleteDatabase('chimere').onsuccess = () => { const request = indexedDB.open('chimere', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' }); request.onerror = fail;
    request.onsuccess = () => { const held = window.held = request.result, transaction = held.transaction('conversations', 'readwrite'), turn = (id, parent, role, content, at) => ({ id, parent, role, content, at });
        const answer = (...of) => ({ ...turn(...of), reasoning: 'I think.', calls: [], tokens: [{ text: 'x', logprob: -1, top: [] }], finish: 'stop', usage: { prompt_tokens: 3, completion_tokens: 4 } });
        const turns = { a: turn('a', null, 'user', 'Old question', 1), b: answer('b', 'a', 'assistant', 'First old answer', 2), c: answer('c', 'a', 'assistant', 'Second old answer', 3) };
        transaction.objectStore('conversations').put({ id: 'old', title: 'Of old', created: 1, updated: 3, system: 'Be old', leaf: 'c', turns });
        transaction.objectStore('conversations').put({ id: 'odd', title: 'An odd one', created: 1, updated: 2, leaf: 'a', turns: { a: { role: 'user', parent: null, content: 'No name', at: 1 }, b: null } });
        transaction.objectStore('conversations').put({ id: 'bare', title: 'A bare one', created: 1, updated: 1 });
        transaction.oncomplete = () => done() } } })"""

# What is read of an answer, wherever its blocks were cut.
READING = """[...document.querySelectorAll('.text td, .text li, .text p, .text code, .text h2, .text blockquote')].map(e => e.textContent).join('|').replace(/\\s+/g, ' ')"""


def long_answer(tokens):
    """An answer in pieces of a token each, with a long list, table and code, which are the hard ones for whoever draws it."""
    words = "the **model** says `code` and more, so the text grows. ".split(" ")
    n = tokens // 20
    prose = [w + " " for i in range(4 * n) for w in [words[i % len(words)] if i % 40 else f"\n\n## Part {i // 40}\n\n"]]
    items = ["\n\n", *[w for i in range(n) for w in (f"- item **{i}** ", "with `code`\n")]]
    numbered = ["\n\nIn order:\n\n", *[f"1. step {i}\n" for i in range(n)]]
    table = ["\n\n| a | b |\n", "|--|--|\n", *[w for i in range(n) for w in (f"| {i} ", "| cell |\n")]]
    formulas = ["\n\n", *[w for i in range(n // 2) for w in (f"So $a_{{{i}}}^2 + ", "\\frac{b}{c}$ holds.\n\n")]]
    code = ["\n\n```python\n", *[CODE_LINE.format(i) for i in range(tokens // 2)], "```\n\nThe end.\n"]
    return prose + items + numbered + table + formulas + code


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Service:
    """A running service; `with` ends it. `settings` are keys of the configuration, as the environment names them."""

    host = "127.0.0.1"

    def __init__(self, binary, *options, port=None, **settings):
        self.port = port or free_port()
        self.url = f"http://{self.host}:{self.port}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CHIMERE_")} | {"CHIMERE_SERVER__HOSTS": LAN}
        environment |= {f"CHIMERE_{name.upper()}": str(value) for name, value in settings.items()}
        self.process = subprocess.Popen([binary, "serve", "--model", ROOT / "models/nano", "--port", str(self.port), "--device", "cpu", *options],
                                        cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.ask("GET", "/ready").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.process.kill()
        raise AssertionError("the service is not ready within 60 s")

    def ask(self, method, path, headers=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, headers or ({} if body is None else {"content-type": "application/json"}))
        reply = connection.getresponse()
        reply.body = reply.read()
        return reply

    def __enter__(self):
        return self

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()

    __exit__ = lambda self, *_: self.end()


class Scripted:
    """
    The service with answers of our own: `script` is a list of pieces that the next chats get, a chunk each: text, or an object that is the chunk;
    a function is called, and may wait.
    A `shelf` answers for files and vector stores, and `answers` has the object that a path gives.
    """

    def __init__(self, service, shelf=None):
        self.script, outer = [], self
        self.service = service
        self.uploads = threading.Event()  # uploads wait for it
        self.uploads.set()
        self.pause = 0  # seconds between two pieces
        self.asked = []  # bodies of the requests
        self.answers = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/v1/console/steps":
                    return self.pass_on(200, [("content-type", "text/event-stream")], b"")  # it has no end
                if self.path in outer.answers:
                    return self.pass_on(200, [("content-type", "application/json")], json.dumps(outer.answers[self.path]).encode())
                self.pass_through()

            def do_DELETE(self):
                self.pass_through()

            def pass_through(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.command == "POST" and self.path == "/v1/files":
                    outer.uploads.wait()
                if shelf and self.path.startswith(("/v1/files", "/v1/vector_stores")):
                    status, found = shelf.answer(self.command, self.path, self.headers, body)
                    return self.pass_on(status, [("content-type", "application/json")], json.dumps(found).encode())
                headers = {name: self.headers[name] for name in ("accept", "content-type") if name in self.headers}
                reply = service.ask(self.command, self.path, headers, body)
                self.pass_on(reply.status, reply.getheaders(), reply.body)

            def pass_on(self, status, headers, body):
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                if self.path != "/v1/chat/completions":
                    return self.pass_through()
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for i, piece in enumerate(outer.script):
                    if callable(piece):
                        piece()
                        continue
                    self.event(piece if isinstance(piece, dict) else {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
                    if outer.pause or i % 50 == 49:
                        self.wfile.flush()
                        time.sleep(outer.pause or 0.005)
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": len(outer.script)}})
                self.wfile.write(b"data: [DONE]\n\n")

            def event(self, value):
                self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a page that was left
        self.url = f"http://{Service.host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()


class Tests(DocumentTests, FeedbackTests, LearningTests, ToolTests):
    """Each method whose name is a sentence is a test; it gets a page of its own."""

    def __init__(self, browser, args):
        self.browser, self.args = browser, args
        self.service = Service(args.chimere)

    def _serving(self, **settings):
        return Service(self.args.chimere, **settings)

    def _scripted(self, service, shelf):
        return Scripted(service, shelf)

    def page(self, url=None, begins="", **options):
        """A fresh page that has the chat, and what went wrong on it; the script `begins` runs before it."""
        context = self.browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 850}), **options)
        if self.args.files:
            context.route(re.compile(r"://[^/]*/(console/[^?]*)?$"), self._serve)
        context.add_init_script(begins)
        return self._tab(context, url or self.service.url)

    def _serve(self, route):
        """A file of the folder under the policy that the program sends."""
        name = route.request.url.split("/", 3)[3].removeprefix("console/") or "index.html"
        source = (ROOT / "services/src/http/endpoints/console.rs").read_text()
        policy = re.sub(r"\\\s+", "", re.search(r'POLICY: &str = "([^"]*)"', source)[1])
        route.fulfill(path=self.args.files / name, headers={"content-security-policy": policy, "content-type": TYPES[name.rsplit(".", 1)[1]]})

    def _tab(self, context, url):
        """A page of a browser that has perhaps others."""
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.wrong = []
        page.on("console", lambda m: page.wrong.append(m.text) if "Content Security Policy" in m.text else None)
        page.on("pageerror", lambda e: page.wrong.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith((url, "data:", "blob:")) else page.wrong.append(f"asked {r.url}"))
        page.goto(url)
        return page

    def chat(self, page, text):
        page.fill("#ask", text)
        page.press("#ask", "Enter")

    def answered(self, page, turns):
        page.wait_for_function("n => document.querySelectorAll('.turn.assistant footer .took').length >= n", arg=turns)

    def a_question_is_answered_as_it_streams(self):
        page = self.page()
        self.chat(page, "What is 48 + 276?")
        self.answered(page, 1)
        page.wait_for_selector(".turn.assistant .text >> text=324")
        took = page.inner_text(".took")
        assert "tokens" in took and "a second" in took and "first token" in took, took
        return page

    def an_answer_can_be_stopped_and_keeps_what_it_has(self):
        page = self.page()
        page.click("text=Settings")
        page.select_option(".settings select", "none")
        page.click("text=Sampling in numbers")
        page.fill("input[max='1048576']", "3000")
        # An answer that does not end by itself, so that there is something to stop on any machine.
        page.route("**/v1/chat/completions", lambda route: route.continue_(
            post_data=json.dumps(json.loads(route.request.post_data) | {"ignore_eos": True})))
        self.chat(page, "Write down what you know of Rust, at length.")
        page.wait_for_selector("text=Stop")
        page.keyboard.press("Escape")
        self.answered(page, 1)
        assert page.is_visible("button:has-text('Send')")
        return page

    def an_edit_makes_a_branch_and_both_can_be_read(self):
        page = self.page()
        self.chat(page, "What is 2 + 2?")
        self.answered(page, 1)
        page.click(".turn.user footer >> text=Edit")
        page.fill(".turn.user textarea", "What is 3 + 4?")
        page.click("text=Ask this instead")
        page.wait_for_selector(".turn.user >> text=2 / 2")
        self.answered(page, 1)
        page.wait_for_selector(".turn.assistant .text >> text=7")
        page.click("[aria-label='Earlier version']")
        # Drawn after the click's own task.
        page.wait_for_selector(".turn.user >> text=2 + 2")
        page.wait_for_selector(".turn.assistant .text >> text=4")
        page.reload()
        page.wait_for_selector(".turn.user >> text=1 / 2")
        return page

    def a_retry_is_a_sibling(self):
        page = self.page()
        self.chat(page, "Hello!")
        self.answered(page, 1)
        page.click("text=Try again")
        page.wait_for_selector(".turn.assistant >> text=2 / 2")
        self.answered(page, 1)
        return page

    def _inspect_an_answer(self, page):
        """With the settings open: keeps the tokens of an answer and looks at them."""
        page.check("text=Keep each token")
        page.click("[aria-label='Close settings']")
        self.chat(page, "What is 48 + 276?")
        self.answered(page, 1)
        page.click("text=Inspect")

    def the_inspector_shows_what_else_might_have_been_said(self):
        page = self.page()
        page.click("text=Settings")
        self._inspect_an_answer(page)
        page.click(".token >> nth=2")
        assert page.locator(".alternatives tbody tr").count() == 8
        page.keyboard.press("ArrowRight")
        assert page.locator(".token[aria-pressed='true']").count() == 1
        page.select_option(".inspector select", "entropy")
        return page

    def the_inspector_shows_what_stood_behind_a_token(self):
        page = self.page()
        page.click("text=Settings")
        page.select_option(".settings select", "budget")
        page.fill(".settings label:has-text('Thinking tokens') input", "12")
        self._inspect_an_answer(page)
        page.click(".token >> nth=1")
        told = page.inner_text(".behind")
        assert "Likeliest token" in told and "tokens of its budget left" in told, told
        assert "about" not in page.inner_text(".alternatives caption"), "the engine's own entropy is not about so much"
        page.click(".experts summary")
        assert page.locator(".experts li").count() > 1
        page.select_option(".inspector select", "rules")
        page.click(".token.heat-4 >> nth=0")
        assert "forced" in page.inner_text(".behind"), "the end of the budget is forced"
        return page

    def a_text_is_coloured_by_engram_and_by_drafts(self):
        reports = [{"engram": {"changed": True, "document": "fox", "title": "Of foxes", "at_token": 7}}, {"engram": {"changed": False}},
                   {"draft": {"source": "ngram", "accepted": True}}, {"draft": {"source": "mtp", "accepted": False}}]
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = [{"choices": [{"index": 0, "delta": {"content": f"word{i} "}, "finish_reason": None, "logprobs": {"content": [{
                "token": f"word{i} ", "logprob": -0.5, "bytes": [], "top_logprobs": [], "report": {"entropy": 0.1, "top_prob": 0.9, **report}}]}}]}
                for i, report in enumerate(reports)] + [f"more{i} " for i in range(3)]
            self.chat(page, "go on")
            self.answered(page, 1)
            page.click("text=Inspect")
            for by, nth, level, words in [("engram", 0, 4, "made it this token: “Of foxes”, token 7"), ("engram", 1, 0, "changed nothing"),
                                          ("drafts", 2, 2, "guessed by ngram, and right"), ("drafts", 3, 5, "in place of a wrong guess by mtp")]:
                page.select_option(".inspector select", by)
                page.wait_for_selector(f".token.heat-{level} >> text=word{nth}")
                page.click(f".token >> nth={nth}")
                page.wait_for_selector(f".behind >> text={words}")
        return page

    def a_citation_leads_to_its_passage_and_an_answer_has_its_sources(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            sources = [{"choice": 0, "token": i, "text": "x", **of} for i, of in enumerate([{"document": "a", "title": "Of dogs", "at_token": 3}] * 2 + [{"context_tokens": 4}])]
            scripted.script = ["The dog is ", "blue [2], not", " green [7].\n\nSo it is.\n", {"choices": [], "timings": {"engram": {"lookups": 3, "hits": 3, "changed_tokens": 3, "sources": sources}}}]
            self.chat(page, "[1] The cat is red.\n[2] The dog is blue.\nIt barks.\n\nWhat colour is the dog?")
            self.answered(page, 1)
            page.click(".cite >> text=[2]")
            assert page.inner_text(".passage").startswith("[2] The dog is blue.\nIt barks."), page.inner_text(".passage")
            assert page.locator(".cite").count() == 1, "there is no passage 7"
            page.wait_for_selector(".sources >> text=Of dogs (2 tokens) · tables (1 token)")
            page.click("[aria-label='Close the passage']")
        return page

    def a_tool_is_called_and_its_result_handed_over(self):
        page = self.page()
        page.click("text=Settings")
        tool = {"name": "get_weather", "description": "Get the current weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
        page.click(".settings summary >> text=Tools")
        page.fill(".settings textarea.mono", json.dumps([tool]))
        self.chat(page, "What is the weather in Oslo?")
        page.wait_for_selector(".call >> text=get_weather")
        self.answered(page, 1)
        page.fill(".call textarea", '{"temperature": 7, "sky": "rain"}')
        page.click("text=Hand it over")
        self.answered(page, 2)
        return page

    def the_live_view_moves_under_load(self):
        page = self.page()
        page.click("nav >> text=Live")
        seen = threading.Event()

        def talk(i):
            # A fast machine answers before the page has looked once.
            while not seen.is_set():
                self.service.ask("POST", "/v1/completions", body=json.dumps({"prompt": f"{i} and {i} are", "max_tokens": 500, "temperature": 0, "ignore_eos": True}))

        users = [threading.Thread(target=talk, args=(i,), daemon=True) for i in range(4)]
        for user in users:
            user.start()
        try:
            page.wait_for_function("""() => [...document.querySelectorAll('dl div')].some(d => d.textContent.startsWith('Sequences running') && +d.lastChild.textContent > 1)""")
        finally:
            seen.set()
        inked = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v)"
        assert page.eval_on_selector("canvas", inked), "the picture is empty"
        for user in users:
            user.join()
        return page

    def the_live_view_of_an_idle_service_says_zero(self):
        with Service(self.args.chimere) as service:
            page = self.page(service.url)
            page.click("header nav >> text=Live")
            page.wait_for_selector("dl")
            for _ in range(5):
                told = page.inner_text("dl")
                assert "-0" not in told and "Tokens a second\n0" in told, told
                page.wait_for_timeout(250)
        return page

    def rates_of_the_live_view_are_over_a_second(self):
        page = self.page()
        ticks = [0, 900, 0, 900, 0, 900, 0, 900] * 3
        events = [{"steps": [], "now": {"running": 1, "waiting": 0, "pages_used": 1, "pages": 2, "slots_used": 1, "slots": 2, "entries": 0, "entries_max": 0,
                   "host_entries": 0, "tokens_per_second": rate, "prompt_tokens_per_second": -0.0, "step_ms": 1.0, "predicted_ms": 1.0}} for rate in ticks]
        page.add_init_script("""window.fetch = (fetch => (url, options) => url !== '/v1/console/steps' ? fetch(url, options) : Promise.resolve(new Response(
            new ReadableStream({ async start(c) { for (const e of %s) { c.enqueue(new TextEncoder().encode('data: ' + JSON.stringify(e) + '\\n\\n'));
                await new Promise(r => setTimeout(r, 250)) } } }))))(window.fetch)""" % json.dumps(events))
        page.reload()
        page.click("header nav >> text=Live")
        page.wait_for_timeout(2000)
        shown = "() => +[...document.querySelectorAll('dl div')].find(d => d.textContent.startsWith('Tokens a second')).lastChild.textContent"
        rates = []
        for _ in range(8):
            rates.append(page.evaluate(shown))
            page.wait_for_timeout(250)
        assert max(rates) < 3 * min(rates), rates
        return page

    def the_memory_view_says_what_it_lacks_or_what_it_learned(self):
        page = self.page()
        page.click("header nav >> text=Memory")
        page.wait_for_selector("text=engram.directory")
        assert not page.locator("input").count(), "nobody types what cannot be kept"
        folder = tempfile.mkdtemp()
        with Service(self.args.chimere, engram__directory=folder) as service:
            page = self.page(service.url)
            page.click("header nav >> text=Memory")
            page.wait_for_selector("section form")
            tables, collections = page.locator("section").all()
            for place, button, said in ((tables, "Teach", "Learned 2 texts."), (collections, "Add", "Added 2 texts.")):
                place.locator("input").first.fill("pets")
                place.locator("textarea").fill("The cat sat on the mat.\nThe dog lay on the rug.")
                place.locator(f"form button >> text={button}").click()
                place.locator(f"text={said}").wait_for()
                place.locator("li >> text=pets").wait_for()
            assert re.search(r"created: .*20\d\d", collections.inner_text()), collections.inner_text()
            assert "vector weight: 0" in collections.inner_text(), collections.inner_text()
            assert re.search(r"size: [\d.]+ (bytes|[KM]iB)", tables.inner_text()), tables.inner_text()
        return page

    def what_cannot_be_written_from_a_lan_is_said_before_it_is_typed(self):
        documents = {"documents__directory": tempfile.mkdtemp()} if self._has_documents() else {}
        with Service(self.args.chimere, "--host", "0.0.0.0", "--allow-open", engram__directory=tempfile.mkdtemp(), **documents) as service:
            page = self.page(service.url)
            page.click("header nav >> text=Memory")
            page.wait_for_selector("section >> nth=1 >> text=Nothing can be written from here")
            assert page.locator("text=Nothing can be written from here").count() == 2 and not page.locator("main input").count()
            if documents:
                page.click("header nav >> text=Documents")
                page.wait_for_selector("text=Nothing can be written from here")
                assert not page.locator("main input").count()
            page.click("header nav >> text=Live")
            page.wait_for_selector("[role=alert] >> text=scope=admin")
        return page

    def the_system_view_keeps_its_order_and_says_each_thing_once(self):
        page = self.page()
        orders = []
        for _ in range(3):
            page.goto(page.url.split("#")[0] + "#/system")
            page.reload()
            page.wait_for_selector("tbody tr")
            orders.append(page.evaluate("[...document.querySelectorAll('dt, tbody td:first-child')].map(e => e.textContent)"))
        assert orders[0] == orders[1] == orders[2], orders
        names = [name.lower() for name in orders[0]]
        assert len(set(names)) == len(names), names
        return page

    def formulas_keep_their_roots(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = [f"{i + 1}. ${formula}$\n" for i, formula in enumerate(FORMULAS)] + ["\n$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$\n"]
            self.chat(page, "Forty formulas")
            self.answered(page, 1)
            page.wait_for_function("n => document.querySelectorAll('math').length === n", arg=len(FORMULAS) + 1)
            page.wait_for_function("() => document.fonts.check('16px \"Chimere Math\"') && [...document.fonts].every(f => f.status === 'loaded')")
            wider = page.evaluate("""() => [...document.querySelectorAll('msqrt')].map(root => root.getBoundingClientRect().width -
                [...root.children].reduce((sum, child) => sum + child.getBoundingClientRect().width, 0))""")
            assert len(wider) > 3 and min(wider) > 4, f"a root has no sign: {wider}"
        return page

    def conversations_are_exported_and_come_back(self):
        page = self.page()
        self.chat(page, "Hello!")
        self.answered(page, 1)
        with page.expect_download() as download:
            page.click("text=Export all")
        file = pathlib.Path(tempfile.mkdtemp()) / "conversations.json"
        download.value.save_as(file)
        other = self.page()
        other.set_input_files("input[accept*=json]", file)
        other.wait_for_selector(".turn.user >> text=Hello!")
        file.write_text('{"id": "x", "turns": {"a": {"id": "a", "role": "user", "content": "b", "parent": "a"}}, "leaf": "a"}')
        other.set_input_files("input[accept*=json]", file)
        other.wait_for_selector("[role=alert] >> text=was not imported")
        assert not other.wrong, other.wrong
        return page

    def a_page_of_a_lan_over_plain_http_does_all_that_it_does_elsewhere(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url.replace(Service.host, LAN))
            assert not page.evaluate("isSecureContext"), "this name must not be a secure context"
            scripted.script = ["Look:\n\n```python\nprint(1)\n```\n"]
            self.chat(page, "Some code?")
            self.answered(page, 1)
            for button, text in [(".code-bar button", "print(1)\n"), (".turn.assistant .actions button:has-text('Copy')", scripted.script[0])]:
                page.click(button)
                page.wait_for_selector("button >> text=Copied")
                page.fill("#ask", "")
                page.press("#ask", "Control+v")
                assert page.input_value("#ask") == text, page.input_value("#ask")
            page.reload()
            page.wait_for_selector(".turn.user >> text=Some code?")
        return page

    def an_answer_goes_on_whatever_is_shown(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.pause, scripted.script = 0.05, [f"one{i} " for i in range(60)]
            self.chat(page, "First")
            page.wait_for_selector(".turn.assistant >> text=one1")
            page.click("text=New conversation")
            scripted.script = [f"two{i} " for i in range(60)]
            self.chat(page, "Second")
            page.wait_for_selector(".turn.assistant >> text=two1")
            assert page.locator(".list .busy").count() == 2, "two conversations answer at once"
            for view in ("Live", "Memory", "System", "Chat"):
                page.click(f"header nav >> text={view}")
                page.wait_for_timeout(100)
            page.wait_for_selector(".turn.assistant >> text=two59")
            page.click(".list .name >> text=First")
            page.wait_for_selector(".turn.assistant >> text=one59")
            page.wait_for_function("() => !document.querySelector('.list .busy')")
        return page

    def a_key_right_after_new_conversation_is_for_the_new_one(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = ["Yes."]
            self.chat(page, "First")
            self.answered(page, 1)
            # The next frame is late, as it is on a machine with much to do.
            page.evaluate("() => { window.requestAnimationFrame = (draw) => setTimeout(draw, 1000); }")
            page.click("text=New conversation")
            self.chat(page, "Second")
            page.wait_for_selector(".turn.user >> text=Second")
            self.answered(page, 1)
            assert page.locator(".turn.user").count() == 1, page.inner_text(".turns")
            assert [m["content"] for m in scripted.asked[-1]["messages"]] == ["Second"], scripted.asked[-1]
        return page

    def a_reload_during_an_answer_keeps_what_had_come(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.pause, scripted.script = 0.05, [f"word{i} " for i in range(200)]
            self.chat(page, "Go on and on")
            page.wait_for_selector(".turn.assistant >> text=word40")
            page.reload()
            page.wait_for_selector(".turn.user >> text=Go on and on")
            page.wait_for_selector(".turn.assistant >> text=word15")
            page.wait_for_selector(".took .end >> text=cut off")
            kept = page.inner_text(".turn.assistant .text").strip()
            scripted.pause, scripted.script = 0, [" and the rest."]
            page.click("button >> text=Continue")
            page.wait_for_selector(".turn.assistant >> text=and the rest.")
            asked = scripted.asked[-1]
            assert asked["continue_final_message"] and asked["messages"][-1]["content"].strip() == kept, asked["messages"][-1]
            page.wait_for_function("() => !document.querySelector('.took').textContent.includes('cut off')")
        return page

    def tabs_of_one_browser_lose_nothing_of_each_other(self):
        with Scripted(self.service) as scripted:
            one = self.page(scripted.url)
            scripted.script = ["Hello."]
            self.chat(one, "Begin")
            self.answered(one, 1)
            two = self._tab(one.context, scripted.url)
            two.wait_for_selector(".turn.assistant >> text=Hello.")
            scripted.pause, scripted.script = 0.05, [f"slow{i} " for i in range(60)]
            self.chat(one, "From the first tab")
            two.wait_for_selector(".turn.user >> text=From the first tab")
            two.wait_for_selector(".took >> text=Another tab writes")
            two.wait_for_selector(".turn.assistant >> text=slow59")
            # Both at once: each tab shows what it asked, the other's turn is a branch.
            scripted.script = [f"at{i} " for i in range(30)]
            for tab, text in ((one, "Left"), (two, "Right")):
                tab.fill("#ask", text)
            one.press("#ask", "Enter")
            two.press("#ask", "Enter")
            for tab in (one, two):
                tab.wait_for_selector(".turn.assistant >> text=at29")
            assert not two.wrong, two.wrong
            one.wait_for_timeout(500)
            for tab in (one, two):
                tab.reload()
                tab.wait_for_selector(".turn.assistant")
            turns = one.evaluate("""() => new Promise(done => { indexedDB.open('chimere').onsuccess = e => {
                e.target.result.transaction('turns').objectStore('turns').getAll().onsuccess = e => done(e.target.result.map(t => [t.role, t.content])) } })""")
            said = sorted(text for role, text in turns if role == "user")
            assert said == ["Begin", "From the first tab", "Left", "Right"], said
            answers = [text for role, text in turns if role == "assistant" and text.endswith("at29 ")]
            assert len(answers) == 2, turns
            two.click(".menu summary >> nth=0")
            two.once("dialog", lambda d: d.accept())
            two.click(".menu >> text=Delete")
            one.wait_for_selector(".turns.empty")
        return one

    def each_conversation_has_its_own_settings(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = ["Yes."]
            page.click("text=Settings")
            page.fill(".settings textarea", "Speak like a pirate")
            self.chat(page, "One")
            self.answered(page, 1)
            page.click("text=New conversation")
            page.wait_for_function("() => document.querySelector('.settings textarea')?.value === ''")
            page.select_option(".settings label:has-text('Choice of words') select", "0.3")
            self.chat(page, "Two")
            self.answered(page, 1)
            first, second = scripted.asked
            assert first["messages"][0] == {"role": "system", "content": "Speak like a pirate"} and "temperature" not in first
            assert second["messages"][0]["role"] == "user" and second["temperature"] == 0.3, second
            page.reload()
            page.click(".list .name >> text=One")
            page.click("text=Settings")
            page.wait_for_function("() => document.querySelector('.settings textarea')?.value === 'Speak like a pirate'")
            # A preset takes them elsewhere, and the defaults are for new conversations.
            page.fill(".settings [placeholder='Name']", "Pirate")
            page.click("text=Save preset")
            page.click("text=New conversation")
            page.select_option(".settings .presets select", "Pirate")
            page.wait_for_function("() => document.querySelector('.settings textarea')?.value === 'Speak like a pirate'")
            page.click("text=Use for new conversations")
            page.click("text=New conversation")
            page.wait_for_function("() => document.querySelector('.settings textarea')?.value === 'Speak like a pirate'")
        return page

    def a_bad_import_is_explained_and_the_page_lives(self):
        page = self.page()
        self.chat(page, "Hello!")
        self.answered(page, 1)
        file = pathlib.Path(tempfile.mkdtemp()) / "bad.json"
        turn = {"id": "a", "role": "user", "content": "b", "parent": None}
        for text in ["[]", "7", "null", '"a"', "{", "", "[[]]", "[null]", '{"id": "x"}', '{"id": "x", "turns": []}', '{"id": "x", "turns": {"a": null}, "leaf": null}',
                     '{"id": "x", "turns": {"__proto__": {}}, "leaf": null}', json.dumps({"id": 1, "turns": {"a": turn}, "leaf": "a"}),
                     json.dumps({"id": "x", "turns": {"a": turn | {"content": 3}}, "leaf": "a"}), json.dumps({"id": "x", "turns": {"a": turn}, "leaf": "b"})]:
            page.evaluate("document.querySelectorAll('.conversation > [role=alert]').forEach(e => e.textContent = '')")
            file.write_text(text)
            page.set_input_files("input[accept*=json]", file)
            page.wait_for_function("() => document.querySelector('.conversation > [role=alert]')?.textContent.includes('was not imported')")
        # Fields of a wrong kind are left out.
        file.write_text(json.dumps({"id": "odd", "title": {"a": 1}, "settings": {"system": 7, "tools": None}, "leaf": "b", "turns": {"a": turn, "b": {
            "id": "b", "parent": "a", "role": "assistant", "content": "odd answer", "calls": 3, "tokens": [{"x": 1}, "y"], "usage": 4, "timings": {"engram": 1}, "at": "x"}}}))
        page.set_input_files("input[accept*=json]", file)
        page.wait_for_selector(".turn.assistant >> text=odd answer")
        page.click(".list .name >> text=Hello!")
        page.wait_for_selector(".turn.user >> text=Hello!")
        return page

    def conversations_are_renamed_searched_and_written_as_markdown(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            for name, answer in [("Apples", "They are *round*."), ("Pears", "They are sweet.")]:
                scripted.script = [answer]
                page.click("text=New conversation")
                self.chat(page, name)
                self.answered(page, 1)
            for words, left in [("apples", ["Apples"]), ("sweet", ["Pears"]), ("they", ["Pears", "Apples"])]:
                page.fill("[type=search]", words)
                page.wait_for_function("left => JSON.stringify([...document.querySelectorAll('.list .name')].map(e => e.textContent)) === JSON.stringify(left)", arg=left)
            page.fill("[type=search]", "")
            page.click("[aria-label='More about Apples']")
            page.click("li:has-text('Apples') >> text=Rename")
            page.wait_for_selector(".rename input:focus")
            page.keyboard.type("Fruit")
            page.keyboard.press("Enter")
            page.click("[aria-label='More about Fruit']")
            with page.expect_download() as download:
                page.click("li:has-text('Fruit') >> text=Export as Markdown")
            assert download.value.suggested_filename == "Fruit.md"
            text = pathlib.Path(download.value.path()).read_text()
            assert text == "# Fruit\n\n## You\n\nApples\n\n## Chimère\n\nThey are *round*.\n", text
            page.reload()
            page.wait_for_selector(".list .name >> text=Fruit")
        return page

    def an_answer_is_edited_gone_on_with_and_deleted(self):
        page = self.page()
        self.chat(page, "What is 48 + 276?")
        self.answered(page, 1)
        page.hover(".turn.assistant")
        page.click(".turn.assistant footer >> text=Edit")
        page.fill(".turn.assistant textarea", "The sum is")
        page.press(".turn.assistant textarea", "Shift+Enter")
        page.press(".turn.assistant textarea", "Backspace")
        page.press(".turn.assistant textarea", "Enter")
        page.wait_for_selector(".turn.assistant >> text=2 / 2")
        page.click("text=Continue")
        page.wait_for_function("() => { const t = document.querySelector('.turn.assistant .text')?.textContent.trim(); return t.startsWith('The sum is') && t.length > 12 }")
        self.answered(page, 1)
        used = page.inner_text(".context")
        assert re.fullmatch(r"\d+ of 4,096 tokens", used.strip()), used
        page.once("dialog", lambda d: d.accept())
        page.click(".turn.assistant footer >> text=Delete")
        page.wait_for_function("() => !document.querySelector('.branches')")
        page.wait_for_selector(".turn.assistant .text >> text=324")
        page.once("dialog", lambda d: d.accept())
        page.hover(".turn.user")
        page.click(".turn.user footer >> text=Delete")
        page.wait_for_selector(".turns.empty")
        return page

    def a_reader_who_went_up_can_jump_to_the_end(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = [f"Paragraph {i}.\n\n" for i in range(80)]
            self.chat(page, "A lot")
            self.answered(page, 1)
            page.wait_for_selector("text=Paragraph 79.")
            page.evaluate("document.querySelector('.turns').scrollTop = 0")
            page.click("text=Jump to the end")
            page.wait_for_function("() => { const t = document.querySelector('.turns'); return t.scrollHeight - t.scrollTop - t.clientHeight < 60 && !document.querySelector('.jump') }")
        return page

    def an_answer_reads_in_its_own_direction_with_its_tables_and_notes(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = ["שלום עולם, זו תשובה.\n\nEnglish again[^1].\n\n| a | b | c |\n|:--|:-:|--:|\n| 1 | 2 | 3 |\n\n[^1]: The **note** itself.\n"]
            self.chat(page, "مرحبا")
            self.answered(page, 1)
            page.wait_for_selector(".text td")
            directions = page.evaluate("[...document.querySelectorAll('.text p')].map(p => getComputedStyle(p).direction)")
            assert directions[:2] == ["rtl", "ltr"], directions
            assert page.evaluate("getComputedStyle(document.querySelector('.turn.user .plain')).direction") == "rtl"
            aligned = page.evaluate("[...document.querySelectorAll('.text td')].map(d => getComputedStyle(d).textAlign)")
            assert aligned == ["left", "center", "right"], aligned
            page.click(".note button")
            assert page.evaluate("document.activeElement.className") == "footnote"
            assert page.inner_text(".footnote").strip() == "1 The note itself.", page.inner_text(".footnote")
        return page

    def the_page_can_be_installed(self):
        page = self.page()
        manifest = page.evaluate("fetch(document.querySelector('link[rel=manifest]').href).then(r => r.json())")
        assert manifest["display"] == "standalone" and manifest["icons"], manifest
        return page

    def what_a_model_writes_is_inert(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            for attack in ["\n\n".join(ATTACKS), *ATTACKS]:
                scripted.script = [attack[i:i + 7] for i in range(0, len(attack), 7)]
                before = page.locator(".turn.assistant .took").count()
                self.chat(page, "go on")
                self.answered(page, before + 1)
            page.wait_for_timeout(500)
            assert page.evaluate("window.hurt") is None
            bad = page.evaluate("""() => [...document.querySelectorAll('.text *')].filter(e => ['SCRIPT','IFRAME','OBJECT','STYLE','FORM','LINK','META','BASE','VIDEO','SVG']
                .includes(e.tagName.toUpperCase()) || e.hasAttribute('style') || [...e.attributes].some(a => a.name.startsWith('on')) ||
                (e.href && /^(javascript|data):/.test(e.href.baseVal || e.href))).map(e => e.outerHTML)""")
            assert not bad, bad
        return page

    def code_is_coloured_by_its_language_and_keeps_every_character(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            scripted.script = [f"```{language}\n{code}\n```\n\n" for language, (code, _) in CODE.items()]
            self.chat(page, "Code")
            self.answered(page, 1)
            page.wait_for_function("n => document.querySelectorAll('.text pre:has(span[class^=code-])').length === n", arg=len(CODE))
            for (language, (code, words)), pre in zip(CODE.items(), page.locator(".text pre").all()):
                assert pre.inner_text().rstrip("\n") == code, language
                coloured = pre.evaluate("pre => [...pre.querySelectorAll('span[class^=code-]')].map(s => [s.className.slice(5), s.textContent])")
                assert all(list(word) in coloured for word in words), (language, coloured)
        return page

    def what_lies_too_deep_is_shown_as_text(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url)
            for name, text in DEEP.items():
                scripted.script = [text[i:i + 500] for i in range(0, len(text), 500)]
                before = page.locator(".turn.assistant .took").count()
                self.chat(page, name)
                self.answered(page, before + 1)
                shown = "() => [...document.querySelectorAll('.turn.assistant .text')].at(-1)?.textContent.includes('deep')"
                page.wait_for_function(shown)
                assert not page.wrong, (name, page.wrong)
        return page

    def a_long_answer_never_holds_the_page_up(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url, WATCH)
            scripted.script = long_answer(TOKENS)
            self.chat(page, "Write a lot.")
            longest = {"as it comes": self.longest(page)}
            streamed = page.evaluate(READING)
            page.reload()
            longest["as it is read again"] = self.longest(page)
            assert streamed == page.evaluate(READING), "what was drawn as it came is not what is drawn at once"
            self.whole(page)
            for how, ms in longest.items():
                print(f"    longest task {how} {ms:.0f} ms, wanted 50")
            assert max(longest.values()) < 50 * self.args.patience, longest
        return page

    def longest(self, page):
        """The longest task until the long answer stands there, in ms."""
        self.answered(page, 1)
        page.wait_for_function("() => [...document.querySelectorAll('.part')].at(-1)?.textContent.includes('The end.')")
        page.wait_for_timeout(500)  # colours and formulas
        return max(page.evaluate("window.long"), default=0)

    def whole(self, page):
        """Nothing of the long answer was lost where it was cut."""
        count = lambda selector: page.locator(f".text {selector}").count()
        n = TOKENS // 20
        assert (count("ul li"), count("tbody tr"), count("math")) == (n, n, n // 2), (count("ul li"), count("tbody tr"), count("math"))
        numbers = page.evaluate("[...document.querySelectorAll('.text ol')].flatMap(l => [...l.children].map((_, i) => l.start + i))")
        assert numbers == list(range(1, n + 1)), numbers[:20]
        code = page.evaluate("[...document.querySelectorAll('.text code')].map(c => c.textContent).reduce((a, b) => a.length > b.length ? a : b)")
        assert code == "".join(CODE_LINE.format(i) for i in range(TOKENS // 2)), len(code)
        copied = page.evaluate("""() => { const all = [...document.querySelectorAll('.text pre')].at(-1); getSelection().selectAllChildren(all);
            return getSelection().toString().trimEnd() }""")
        assert copied == code.rstrip(), "a selection of code has other lines"

    def it_is_ready_for_input_soon(self):
        visits = []
        for _ in range(VISITS):
            page = self.page(begins=WATCH)
            page.wait_for_function("window.ready")
            page.wait_for_timeout(1000)  # what comes after the first picture
            visits.append(page.evaluate("[window.ready, Math.max(0, ...window.long)]"))
        # The browser's own first page is slower, whatever it shows.
        ready, longest = (statistics.median(of) for of in zip(*visits))
        print(f"    ready after {ready:.0f} ms, wanted 300; longest task {longest:.0f} ms, wanted 50; medians of {VISITS} first visits")
        assert ready < 300 * self.args.patience and longest < 50 * self.args.patience, (ready, longest)
        named, imported = page.evaluate(NAMED), page.evaluate(IMPORTED, ["app"])
        assert named == imported, f"fetched one after the other, or for nothing: {set(named) ^ set(imported)}"
        for heavy in ("marked", "purify", "markdown", "message"):
            assert not any(f"/{heavy}.js" in file for file in named), f"a page without an answer waits for {heavy}"
        return page

    def a_conversation_of_an_earlier_visit_is_fetched_at_once(self):
        page = self.page()
        self.chat(page, "Hello!")
        self.answered(page, 1)
        page.reload()
        self.answered(page, 1)
        named, imported = page.evaluate(NAMED), page.evaluate(IMPORTED, ["app", "message"])
        assert named == imported, f"fetched one after the other, or for nothing: {set(named) ^ set(imported)}"
        return page

    def a_page_is_whole_soon_after_its_first_picture(self):
        page = self.page()
        page.wait_for_function("() => performance.getEntriesByType('resource').filter(e => /(system|memory|live|message|exchange).js$/.test(e.name) && e.responseEnd).length === 5")
        page.wait_for_timeout(500)
        page.context.route(re.compile("/console/.*js$"), lambda route: route.abort())
        for view in ("Live", "Memory", "System"):
            page.click(f"header nav >> text={view}")
            page.wait_for_selector(f"h1 >> text={view}")
        page.click("header nav >> text=Chat")
        self.chat(page, "Hello!")
        self.answered(page, 1)
        return page

    def a_part_that_comes_while_it_is_drawn_is_shown(self):
        page = self.page()
        page.wait_for_selector("#ask")
        page.wait_for_timeout(1500)  # the effects of the page itself
        shown = page.evaluate("""async () => { const { later, complete } = await import('/console/later.js'), { html, render } = await import('/console/vendor/preact-htm.js');
            window.requestAnimationFrame = () => 0; window.setTimeout = (of => (act, ms) => of(act, ms ? 500 : 0))(setTimeout);  // effects come late
            const place = document.createElement('div'), Part = later(async () => () => 'shown'); render(html`<${Part} />`, place); await complete();
            await new Promise(done => setTimeout(done, 1)); await new Promise(done => setTimeout(done, 1)); await new Promise(done => setTimeout(done, 1)); return place.textContent }""")
        assert shown == "shown", shown
        return page

    def a_part_that_cannot_be_fetched_is_explained(self):
        page = self.page("about:blank")
        page.context.route(re.compile("/console/system.js$"), lambda route: route.abort())
        page.goto(f"{self.service.url}/#/system")
        page.wait_for_selector("[role=alert] >> text=Reload the page")
        page.wrong.clear()  # the page was not on this address when it was opened
        return page

    def a_store_of_the_first_version_is_taken_over_whole(self):
        page = self.page()
        page.wait_for_selector("#ask")
        page.evaluate(FIRST_STORE)
        other = self._tab(page.context, page.url)
        other.wait_for_selector("[role=alert] >> text=Another tab has an older version")
        page.close()
        other.reload()
        other.wait_for_selector(".turn.assistant .text >> text=Second old answer")
        assert other.locator(".list .name").all_inner_texts() == ["Of old", "An odd one", "A bare one"]
        other.click(".thought summary")
        other.wait_for_selector(".thought >> text=I think.")
        other.click("[aria-label='Earlier version']")
        other.wait_for_selector(".turn.assistant .text >> text=First old answer")
        other.click("text=Settings")
        assert other.input_value(".settings textarea >> nth=0") == "Be old"
        self.chat(other, "And now?")
        self.answered(other, 2)
        other.click(".list .name >> text=An odd one")
        other.wait_for_selector(".turn.user >> text=No name")
        assert not other.locator("[role=alert]").count(), other.locator("[role=alert]").all_inner_texts()
        return other

    def a_store_of_a_newer_version_is_explained_and_left_as_it_is(self):
        page = self.page()
        self.chat(page, "Hello!")
        self.answered(page, 1)
        page.wait_for_timeout(500)
        whole = """() => new Promise(done => { indexedDB.open('chimere').onsuccess = ({ target: { result: store } }) => store.transaction('turns').objectStore('turns').getAll().onsuccess =
            e => { store.close(); done([store.version, e.target.result]) } })"""
        page.evaluate("""() => new Promise(done => { const request = indexedDB.open('chimere', 1000); request.onupgradeneeded = () => request.result.createObjectStore('later');
            request.onsuccess = () => { request.result.close(); done() } })""")
        before = page.evaluate(whole)
        page.reload()
        page.wait_for_selector("[role=alert] >> text=newer version of this page")
        self.chat(page, "Hello again!")
        self.answered(page, 1)
        page.wait_for_selector("[role=alert] >> text=is not kept")
        assert before[0] == 1000 and len(before[1]) == 2 and page.evaluate(whole) == before
        return page

    def what_is_closed_gives_the_focus_back(self):
        page = self.page()
        self.chat(page, "What is 2 + 2?")
        self.answered(page, 1)
        page.focus("[aria-label='More about What is 2 + 2?']")
        for key in ("Enter", "Tab", "Enter"):
            page.keyboard.press(key)
        page.wait_for_selector(".rename input:focus")
        page.keyboard.type("Sums")
        page.keyboard.press("Enter")
        page.wait_for_selector(".list .name:focus >> text=Sums")
        page.focus("text=Settings")
        page.keyboard.press("Enter")
        page.wait_for_selector(".settings:focus")
        page.keyboard.press("Escape")
        page.wait_for_function("() => !document.querySelector('.settings')")
        page.wait_for_selector("button:focus >> text=Settings")
        edit = page.locator(".turn.user footer >> text=Edit")
        edit.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".turn.user textarea:focus")
        page.keyboard.press("Escape")
        page.wait_for_selector(".turn.user button:focus >> text=Edit")
        page.keyboard.press("Enter")
        page.wait_for_selector(".turn.user textarea:focus")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask:focus")
        page.wait_for_selector(".turn.user >> text=2 / 2")
        self.answered(page, 1)
        return page

    def a_long_list_shows_its_last_menu_and_what_was_not_found(self):
        file = pathlib.Path(tempfile.mkdtemp()) / "many.json"
        file.write_text(json.dumps([{"id": f"c{i}", "title": f"Number {i}", "created": i, "updated": i, "leaf": "a", "turns": {"a": {
            "id": "a", "role": "user", "content": "Hello", "parent": None, "at": i}}} for i in range(40)]))
        page = self.page()
        page.set_input_files("input[accept*=json]", file)
        page.wait_for_selector(".list .name >> text=Number 39")
        page.locator("[aria-label='More about Number 0']").click()
        page.wait_for_function("() => { const menu = document.querySelector('details[open] div').getBoundingClientRect(), list = document.querySelector('.list ul').getBoundingClientRect(); return menu.bottom <= list.bottom + 1 }")
        page.keyboard.press("Escape")
        page.fill("[type=search]", "nowhere")
        page.wait_for_selector("text=Nothing found.")
        apart = page.evaluate("document.querySelector('.list .empty').getBoundingClientRect().top - document.querySelector('[type=search]').getBoundingClientRect().bottom")
        assert 0 <= apart < 40, apart
        return page

    def what_belongs_together_stands_together(self):
        with Scripted(self.service) as scripted:
            page = self.page(scripted.url, viewport={"width": 375, "height": 720})
            scripted.script = [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, "logprobs": {"content": [{
                "token": text, "logprob": -0.5, "bytes": [], "top_logprobs": [{"token": "+", "logprob": -0.5, "bytes": []}, {"token": " +", "logprob": -1, "bytes": []}]}]}}]}
                for text in ["Here is a **plan** with `code`, a table and a note[^1].\n\n", "[^1]: The note.\n"]]
            self.chat(page, "A note, please")
            self.answered(page, 1)
            page.wait_for_selector(".note button")
            split = page.evaluate("""() => { const mark = document.querySelector('.note button'), range = document.createRange(), word = mark.parentNode.previousSibling;
                range.selectNodeContents(word); return [word.data, mark.getBoundingClientRect().top - range.getBoundingClientRect().bottom] }""")
            assert split[0] == "note" and split[1] < 0, split
            page.click("text=Inspect")
            page.click(".token >> nth=0")
            assert page.locator(".alternatives code").all_inner_texts() == ["+", "␣+"], "a token and its twin with a space look alike"
        return page

    def a_key_is_asked_for_and_taken(self):
        secret, line = self._new_key()
        with self._with_keys(line) as service:
            assert service.ask("GET", "/", {"accept": "text/html"}).body.startswith(b"<!doctype html>") and service.ask("GET", "/v1/models").status == 401
            page = self.page(service.url)
            self._use_key(page, "sk-wrong-key-of-nobody-at-all-0000")
            page.wait_for_selector("text=was not accepted")
            self._use_key(page, secret)
            self.chat(page, "Hello!")
            self.answered(page, 1)
            stored = page.evaluate("JSON.stringify([Object.entries(localStorage), document.cookie])")
            assert secret not in stored, "the key outlives the tab"
        return page

    def a_refusal_that_no_key_mends_is_said_and_asks_for_none(self):
        page = self.page("about:blank")
        error = {"error": {"message": "Host is no name of this service", "type": "permission_error", "code": "host_not_allowed"}}
        refuse = lambda route: route.fulfill(status=403, json=error)
        page.context.route("**/v1/models", refuse)
        page.context.route("**/v1/chat/completions", refuse)
        page.goto(self.service.url)
        page.wait_for_selector(".frame > [role=alert] >> text=Host is no name of this service")
        self.chat(page, "Hello!")
        page.wait_for_selector(".turn.assistant [role=alert] >> text=Host is no name of this service")
        page.wait_for_timeout(300)
        assert page.is_visible("#ask") and not page.locator("form.key").count(), "a key is asked for, which changes nothing"
        page.wrong.clear()  # the page was not on this address when it was opened
        return page

    def a_view_for_administrators_takes_another_key(self):
        keys = [self._new_key() for _ in range(2)]
        (_, line), (_, admins) = keys
        with self._with_keys(line, f"{admins} scope=admin") as service:
            page = self.page(service.url)
            self._use_key(page, keys[0][0])
            page.click("header nav >> text=Live")
            page.wait_for_selector("[role=alert] >> text=scope=admin")
            page.click("text=Use another key")
            page.click("text=Leave it")
            page.click("text=Use another key")
            self._use_key(page, keys[1][0])
            page.wait_for_selector(".live dl")
        return page

    def _new_key(self):
        """A key and its line of a key file."""
        key = subprocess.run([self.args.chimere, "key", "new"], capture_output=True, text=True, check=True).stdout
        values = [line.split(None, 1)[1].strip() for line in key.splitlines() if len(line.split(None, 1)) == 2]
        return next(v for v in values if v.startswith("sk-")), next(v for v in values if v.startswith("sha256:"))

    def _with_keys(self, *lines):
        """A service that wants one of these keys."""
        file = pathlib.Path(tempfile.mkdtemp()) / "keys.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        file.chmod(0o600)
        return Service(self.args.chimere, "--api-key-file", file)

    def _use_key(self, page, key):
        page.fill("input[type=password]", key)
        page.click("text=Use it")

    def a_service_that_went_away_is_found_again(self):
        port = free_port()
        with Service(self.args.chimere, port=port) as service:
            page = self.page(service.url)
            self.chat(page, "Hello!")
            self.answered(page, 1)
            service.end()
            self.chat(page, "Are you there?")
            page.wait_for_selector("[role=alert] >> text=cannot be reached")
        with Service(self.args.chimere, port=port):
            page.wait_for_selector("header + main", state="attached")
            page.wait_for_function("() => !document.querySelector('.frame > [role=alert]')")
            page.click("text=Try again >> nth=-1")
            page.wait_for_function("() => !document.querySelector('.turn:last-child [role=alert]') && document.querySelector('.turn:last-child .took')")
        return page

    def nothing_serious_is_wrong_for_those_who_read_otherwise(self):
        for theme in ("light", "dark"):
            page = self.page(color_scheme=theme, bypass_csp=True)
            page.click("text=Settings")
            page.check("text=Keep each token")
            self.chat(page, "Hello!")
            self.answered(page, 1)
            page.click("text=Inspect")
            page.click(".token >> nth=0")
            page.click(".experts summary")
            for view in ("Chat", "Live", "Tools", "Memory", "Learning", "System"):
                page.click(f"nav >> text={view}")
                page.wait_for_timeout(300)
                self._axe(page, f"{theme}, {view}")
        return None

    def _axe(self, page, what):
        """Nothing serious is wrong with the page as it is."""
        source = next(pathlib.Path(importlib.util.find_spec("axe_playwright_python").origin).parent.rglob("axe.min.js")).read_text()
        page.evaluate(source)
        found = page.evaluate("axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => [v.id, v.nodes[0].html]))")
        assert not found, (what, found)

    def it_fits_a_telephone_and_needs_no_mouse(self):
        page = self.page(viewport={"width": 390, "height": 780})
        page.wait_for_selector("#ask:focus")
        page.keyboard.type("Hello!")
        page.keyboard.press("Enter")
        self.answered(page, 1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
        assert page.evaluate("document.querySelector('header').offsetHeight") < 60, "the header has more than one row"
        page.focus("button.narrow")
        page.keyboard.press("Enter")
        page.wait_for_selector(".list .name >> text=Hello!")
        page.keyboard.press("Escape")
        page.wait_for_selector(".list", state="hidden")
        page.wait_for_selector("button.narrow:focus")
        return page

    def without_a_console_there_is_none(self):
        with Service(self.args.chimere, "--no-console") as service:
            assert b"<html" not in service.ask("GET", "/", {"accept": "text/html"}).body
            assert service.ask("GET", "/console/app.js").status == 404
            assert service.ask("HEAD", "/").status == 200

    def files_are_sent_once(self):
        first = self.service.ask("GET", "/console/app.js", {"accept-encoding": "gzip"})
        assert first.getheader("content-encoding") == "gzip" and "default-src 'none'" in first.getheader("content-security-policy")
        again = self.service.ask("GET", "/console/app.js", {"if-none-match": first.getheader("etag")})
        assert again.status == 304 and not again.body
        assert self.service.ask("GET", "/console/../Cargo.toml").status == 404


def missing(chromium):
    """What is not there that a browser needs, or an empty text."""
    if not sync_playwright or not importlib.util.find_spec("axe_playwright_python"):
        return "Python's playwright and axe-playwright-python are not installed"
    return "" if os.access(chromium, os.X_OK) else f"there is no Chromium at {chromium}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimere", default="target/release/chimere")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--only", help="a part of a test's name")
    parser.add_argument("--pictures", type=pathlib.Path, help="where each test leaves a picture of its page")
    parser.add_argument("--lan", action="store_true", help=f"open every page as http://{LAN}")
    parser.add_argument("--files", type=pathlib.Path, help="folder of the console's files to serve in place of the program's")
    parser.add_argument("--patience", type=float, default=20, help="how many times the bounds on times a machine that is not calm may take")
    args = parser.parse_args()
    args.chimere = str(pathlib.Path(args.chimere).resolve())
    lacks = missing(args.chromium)
    if lacks:
        required = "chromium" in os.environ.get("CHIMERE_REQUIRE", "").split(",")
        print(f"{'FAIL' if required else 'skipped'}: {lacks}")
        raise SystemExit(required)
    passed = failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=[*FLAGS, f"--host-resolver-rules=MAP {LAN} 127.0.0.1", *(OF_FILES if args.files else [])])
        if args.lan:
            Service.host = LAN
        tests = Tests(browser, args)
        names = [n for n, f in (vars(Tests) | vars(DocumentTests) | vars(FeedbackTests) | vars(LearningTests) | vars(ToolTests)).items() if callable(f) and "_" in n and not n.startswith("_") and (not args.only or args.only in n)]
        for name in names:
            try:
                page = getattr(tests, name)()
                assert page is None or not page.wrong, page.wrong
                print(f"ok   {name}", flush=True)
                passed += 1
                if page and args.pictures:
                    args.pictures.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=args.pictures / f"{name}.png")
            except Exception:
                traceback.print_exc()
                print(f"FAIL {name}", flush=True)
                failed += 1
            for context in browser.contexts:
                context.close()
        tests.service.end()
        browser.close()
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
