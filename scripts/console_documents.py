"""Tests of the console's documents, which `scripts/console.py` runs, and a service of documents for binaries that have none.

`Shelf` answers as OpenAI's files and vector stores do, with the fields that this service adds (`page`, `headings`, `chunks`). A binary that has
the endpoints is asked itself.
"""
import contextlib
import itertools
import json
import pathlib
import re
import tempfile
import urllib.parse

HANDBOOK = ("# Handbook\n\nWelcome to the house.\n\n## Heating\n\nThe boiler stands in the cellar. It is serviced in October by Ms. Ångström.\n\n"
            "## Keys\n\nThe spare key hangs behind the green door.\n")
QUOTE = "The spare key hangs behind the green door."
HOSTILE = "<img src=x onerror=window.hurt=1>\u202etxt.md"  # a name of a file or a store
SHOWN = HOSTILE.replace("\u202e", "\ufffd")


class Shelf:
    """Files and stores in memory. A file is read after `looks` looks at its store; one with a zero byte cannot be."""

    def __init__(self, looks=2):
        self.files, self.stores, self.batches, self.ids = {}, {}, {}, itertools.count(1)
        self.looks = looks

    def new(self, kind):
        return f"{kind}{next(self.ids)}"

    def answer(self, method, path, headers, body):
        """Status and object of a reply."""
        path, _, query = path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        _, _, kind, *rest = path.split("/")
        rest = [urllib.parse.unquote(part) for part in rest]
        try:
            if kind == "files":
                return 200, self.file(method, rest, headers, body)
            return 200, self.store(method, rest, query, json.loads(body or b"{}"))
        except KeyError as unknown:
            return 404, {"error": {"message": f"there is no {unknown} here", "code": "not_found"}}

    def file(self, method, rest, headers, body):
        if method == "POST":
            boundary = b"--" + re.search(r"boundary=(\S+)", headers["content-type"])[1].encode()
            part = next(part for part in body.split(boundary) if b'name="file"' in part)
            head, content = part.split(b"\r\n\r\n", 1)
            name = re.search(r'filename="([^"]*)"', head.decode())[1].replace("%22", '"')
            file = {"id": self.new("file-"), "filename": name, "bytes": len(content) - 2, "content": content[:-2]}
            self.files[file["id"]] = file
        elif method == "DELETE":
            file = self.files.pop(rest[0])
            for store in self.stores.values():
                store["members"].pop(file["id"], None)
        elif not rest:
            return self.page([self.shown(file) for file in self.files.values()], {"limit": 10000})
        else:
            file = self.files[rest[0]]
        return self.shown(file)

    def shown(self, file):
        return {name: value for name, value in file.items() if name != "content"}

    def page(self, data, query):
        data = data[::-1]
        begin = next((i + 1 for i, entry in enumerate(data) if entry["id"] == query.get("after")), 0)
        page = data[begin:begin + int(query.get("limit", 20))]
        return {"object": "list", "data": page, "last_id": page[-1]["id"] if page else None, "has_more": begin + len(page) < len(data)}

    def store(self, method, rest, query, body):
        if not rest:
            if method == "POST":
                store = {"id": self.new("vs_"), "name": body["name"], "members": {}}
                self.stores[store["id"]] = store
                return self.described(store)
            return self.page([self.described(store) for store in self.stores.values()], query)
        store = self.stores[rest[0]]
        if len(rest) == 1:
            if method == "DELETE":
                del self.stores[rest[0]]
            store["name"] = body.get("name", store["name"])
            self.read(store)
            return self.described(store)
        within = {"files": self.members, "file_batches": self.file_batches, "search": self.search}[rest[1]]
        return within(store, rest[2:], query, body)

    def described(self, store):
        states = [member["status"] for member in store["members"].values()]
        counts = {state: states.count(state) for state in ("in_progress", "completed", "failed", "cancelled")}
        return {"id": store["id"], "name": store["name"], "usage_bytes": sum(self.files[id]["bytes"] for id in store["members"]),
                "file_counts": counts | {"total": len(states)}, "status": "in_progress" if counts["in_progress"] else "completed"}

    def read(self, store):
        for id, member in store["members"].items():
            member["seen"] += 1
            if member["status"] == "in_progress" and member["seen"] > self.looks:
                bad = b"\0" in self.files[id]["content"]
                member |= {"status": "failed", "last_error": {"code": "unsupported_file", "message": "the file is no text"}} if bad else {"status": "completed", "chunks": 1}

    def file_batches(self, store, rest, query, body):
        if len(rest) == 2:
            for id in self.batches[rest[0]]:
                if store["members"][id]["status"] == "in_progress":
                    store["members"][id]["status"] = "cancelled"
            return {"id": rest[0]}
        batch = self.new("batch_")
        self.batches[batch] = [of["file_id"] for of in body["files"]]
        for of in body["files"]:
            store["members"][of["file_id"]] = {"id": of["file_id"], "status": "in_progress", "last_error": None, "seen": 0, "attributes": of.get("attributes", {})}
        return {"id": batch}

    def members(self, store, rest, query, body):
        if len(rest) == 2:
            return {"data": [{"type": "text", "text": self.files[rest[0]]["content"].decode()}], "has_more": False}
        return self.page(list(store["members"].values()), query)

    def search(self, store, rest, query, body):
        found = [self.files[id] for id in store["members"] if body["query"].split()[0].encode() in self.files[id]["content"]]
        return {"data": [{"file_id": file["id"], "filename": file["filename"], "score": 1.0, "page": 3, "headings": ["Handbook", "Keys"], "scores": {"words": 0.875, "meaning": 0.5},
                          "content": [{"type": "text", "text": file["content"].decode()}]} for file in found]}


def citation(file, content, mark, quote=QUOTE, text=HANDBOOK):
    """A citation as chat streams it: behind the `mark` of an answer, by its characters and the file's bytes."""
    start, at = content.index(mark), len(text[:text.index(quote)].encode())
    return {"type": "file_citation", "file_citation": {"file_id": file["id"], "filename": file["filename"], "index": 2, "start_index": start, "end_index": start + len(mark),
            "quote": quote, "page": 3, "source_start": at, "source_end": at + len(quote.encode()), "score": 0.9}}


def delta(**of):
    return {"choices": [{"index": 0, "delta": of, "finish_reason": None}]}


class DocumentTests:
    """Tests as those of `console.Tests`, which they become a part of."""

    @contextlib.contextmanager
    def _documents(self, fake=False, **options):
        """A service with documents whose chat is scripted: the binary's own documents, or those of a `Shelf`."""
        directory = tempfile.mkdtemp()
        with self._serving(documents__directory=directory) if not fake and self._has_documents() else contextlib.nullcontext(self.service) as service:
            shelf = None if service is not self.service else Shelf(**options)
            with self._scripted(service, shelf) as scripted:
                scripted.shelf = shelf
                yield scripted

    def _has_documents(self):
        return self.service.ask("GET", "/v1/vector_stores").status != 404

    def _files(self, *names):
        """A folder of the disk with a handbook under each of these names."""
        folder = pathlib.Path(tempfile.mkdtemp()) / "papers"
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(HANDBOOK if "bad" not in name else "a\0b")
        return folder

    def _drop(self, page, *paths):
        """Drops files and folders of the disk as a person does."""
        box = page.locator(".drop").bounding_box()
        session = page.context.new_cdp_session(page)
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + box["width"] / 2, "y": box["y"] + 8,
                         "data": {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}})

    def _new_store(self, page, name):
        page.click("header nav >> text=Documents")
        page.fill("text=Name of a new store", name)
        page.click("text=Make it")
        page.wait_for_selector(f"h1 >> text={name}")

    def _ready(self, page, n):
        page.wait_for_function("n => document.querySelectorAll('.files li.completed').length === n && !document.querySelector('.sending')", arg=n)

    def _asked(self, scripted, path):
        """What the service of documents says at a path."""
        return scripted.shelf.answer("GET", path, {}, b"")[1] if scripted.shelf else json.loads(scripted.service.ask("GET", path).body)

    def _file(self, scripted, name):
        return next(file for file in self._asked(scripted, "/v1/files")["data"] if file["filename"] == name)

    def _text(self, scripted, file):
        """The parsed text of a file of the only store."""
        store = self._asked(scripted, "/v1/vector_stores")["data"][0]["id"]
        return "\n\n".join(section["text"] for section in self._asked(scripted, f"/v1/vector_stores/{store}/files/{file['id']}/content")["data"])

    def files_that_are_dropped_answer_a_question_and_a_footnote_opens_the_passage(self):
        with self._documents() as scripted:
            page = self.page(scripted.url)
            self._new_store(page, "House")
            self._drop(page, self._files("handbook.md") / "handbook.md")
            self._ready(page, 1)
            assert re.match(r"handbook.md\s+ready · \d passages? · 178 bytes", page.inner_text(".files li")), page.inner_text(".files")
            page.fill("[role=search] input", "spare key")
            page.click("[role=search] button")
            page.wait_for_selector(f".found li >> nth=0 >> text={QUOTE}")
            found = page.inner_text(".found .facts >> nth=0")
            assert "score" in found and "Handbook › Keys" in found, found
            page.click("header nav >> text=Chat")
            page.click(".composer summary >> text=Documents")
            page.check(".composer .menu >> text=House")
            page.keyboard.press("Escape")
            answer = "So: 😀 the key hangs behind the green door [1]. It is made of gold [2]. Not `[1]`.\r\n\r\n* Behind **the door** [1, 2]\r\n\r\nThe end.\n"
            file = self._file(scripted, "handbook.md")
            text = self._text(scripted, file)
            scripted.script = [*answer[:40], delta(content=answer[40:60]), delta(annotations=[citation(file, answer, "[1]", text=text)]), answer[60:], delta(annotations=[citation(file, answer, "[1, 2]", text=text)])]
            self.chat(page, "Where is the key?")
            self.answered(page, 1)
            asked = scripted.asked[-1]["tools"]
            assert [tool["type"] for tool in asked] == ["file_search"] and len(asked[0]["vector_store_ids"]) == 1 and asked[0]["max_num_results"] == 8, asked
            for _ in range(2):
                page.wait_for_selector(".cite >> text=[1, 2]")
                assert page.locator(".cite").all_inner_texts() == ["[1]", "[1, 2]"], page.locator(".cite").all_inner_texts()
                page.wait_for_selector(".sources >> text=No passage of the documents was found to say it: [2]")
                page.click(".cite >> nth=0")
                page.wait_for_selector(".passage blockquote >> text=is serviced in October by Ms. Ångström")
                assert page.inner_text(".passage mark") == QUOTE and "handbook.md, page 3" in page.inner_text(".passage"), page.inner_text(".passage")
                page.keyboard.press("Escape")
                page.wait_for_selector(".cite:focus >> text=[1]")
                page.reload()
            page.wait_for_selector(".chip >> text=House")
        return page

    def a_mark_is_a_citation_only_where_one_was_found_for_it(self):
        blocks = ["> The door [1] is\n> green [1].\n\n", "| a | b |\n|--|--|\n| x [1] | y [1] |\n\n", "```\nlist[1]\n```\n\n", "$a_{[1]}$ and [1](https://x.invalid) and [1].\n\n", "- one\n  - two [1]\n"]
        answer = "".join(blocks)
        at = [match.start() for match in re.finditer(r"\[1\]", answer)]
        file = {"id": "file-1", "filename": "handbook.md"}
        with self._documents(fake=True) as scripted:
            page = self.page(scripted.url)
            for i, (place, mark) in enumerate(zip(at, [0, 1, 2, 3, None, None, None, 4, 5])):
                of = citation(file, answer, "[1]")
                of["file_citation"]["start_index"] = place
                # In one piece, so that all is drawn before the citation comes.
                scripted.script = [answer, delta(annotations=[of])]
                page.click("text=New conversation")
                self.chat(page, f"Go {i}")
                self.answered(page, 1)
                page.wait_for_selector(".text li li")
                marked = page.evaluate("[...document.querySelectorAll('.text .cite, .text .citation')].map(e => e.className === 'cite')")
                assert marked == [mark == n for n in range(6)], (i, marked)
        return page

    def a_folder_is_taken_without_its_hidden_files_and_a_file_says_why_it_failed(self):
        with self._documents() as scripted:
            page = self.page(scripted.url)
            self._new_store(page, "Papers")
            folder = self._files("a.md", "deep/er/b.md", ".git/config", ".secret", "bad.md", f"x/{HOSTILE}")
            self._drop(page, folder)
            self._ready(page, 3)
            listed = page.inner_text("[aria-label='Files of the store']")
            assert "papers/deep/er/b.md" in listed and "secret" not in listed and SHOWN in listed, listed
            page.wait_for_selector(".said >> text=2 hidden files or folders left out")
            page.wait_for_selector("li.failed:has-text('bad.md') .reason")
            assert len(page.inner_text("li.failed .reason")) > 10, page.inner_text("li.failed")
            page.wait_for_selector("text=4 files · 3 ready · 1 failed")
            assert page.evaluate("window.hurt") is None
            page.once("dialog", lambda d: d.accept())
            page.click("[aria-label='Delete papers/bad.md']")
            page.wait_for_selector("text=3 files · 3 ready")
            page.wait_for_selector("[aria-label='Files of the store']:focus")
            page.fill("[role=search] input", "spare")
            page.click("[role=search] button")
            page.wait_for_selector(".found li >> text=The spare key")
            facts = page.inner_text(".found .facts >> nth=0")
            expected = ("page 3", "Handbook › Keys", "score 1.000", "words 0.875", "meaning 0.500") if scripted.shelf else ("Handbook › Keys", "score 1.000")
            assert all(words in facts for words in expected), facts
        return page

    def many_files_do_not_hold_the_page_up_and_are_asked_after_politely(self):
        with self._documents() as scripted:
            page = self.page(scripted.url, begins="window.long = []; new PerformanceObserver(l => window.long.push(...l.getEntries().map(e => e.duration))).observe({type: 'longtask'})")
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            self._new_store(page, "Many")
            self._drop(page, self._files(*[f"{i}.md" for i in range(200)]))
            page.wait_for_selector("text=200 files · 200 ready")
            page.wait_for_function("() => !document.querySelector('.sending')")
            page.click("text=Show more files")
            self._ready(page, 200)
            longest = max(page.evaluate("window.long"), default=0)
            print(f"    longest task {longest:.0f} ms, wanted 50")
            assert longest < 50 * self.args.patience, longest
            assert sum(url.endswith("/file_batches") for url in asked) < 40, "each file has a batch of its own"
            page.wait_for_timeout(500)
            before = len(asked)
            page.wait_for_timeout(2500)
            assert len(asked) == before, "a store in which nothing happens is asked after"
        return page

    def what_is_not_ready_can_be_cancelled(self):
        with self._documents(fake=True, looks=1_000_000) as scripted:
            page = self.page(scripted.url)
            self._new_store(page, "Slow")
            page.set_input_files("input[multiple]", [self._files("first.md") / "first.md"])
            page.wait_for_selector("text=1 file · 1 in progress")
            scripted.uploads.clear()
            page.set_input_files("input[multiple]", [{"name": f"{i}.bin", "mimeType": "text/plain", "buffer": b"x" * 100_000} for i in range(5)])
            page.wait_for_selector(".sending >> text=5 files on the way")
            page.click("text=Cancel what is not ready")
            scripted.uploads.set()
            page.wait_for_selector("text=1 file · 1 given up")
            page.wait_for_function("() => !document.querySelector('.sending')")
        return page

    def stores_are_renamed_and_deleted_with_their_files(self):
        with self._documents() as scripted:
            page = self.page(scripted.url, viewport={"width": 390, "height": 780})
            self._new_store(page, "Old name")
            page.set_input_files("input[multiple]", [self._files("a.md") / "a.md"])
            self._ready(page, 1)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.querySelector('.page').scrollWidth <= innerWidth"), "it scrolls sideways"
            page.click("text=Rename")
            page.fill(".rename input", HOSTILE)
            page.keyboard.press("Enter")
            page.wait_for_selector("button:focus >> text=Rename")
            page.click("text=All stores")
            page.wait_for_selector(".cards li >> text=1 file · 1 ready")
            assert SHOWN in page.inner_text(".cards") and page.evaluate("window.hurt") is None
            page.click(".cards a")
            page.once("dialog", lambda d: d.accept())
            page.click("text=Delete store")
            page.wait_for_selector("text=There is no store yet.")
            assert not self._asked(scripted, "/v1/files")["data"], "its files are still there"
        return page

    def what_documents_lack_is_said_with_the_setting_s_name(self):
        page = self.page("about:blank")
        lacks = {"error": {"message": "there is no directory for documents: set documents.directory", "type": "invalid_request_error", "code": "no_directory"}}
        if not self._has_documents():
            page.context.route("**/v1/vector_stores*", lambda route: route.fulfill(status=409, json=lacks))
        page.goto(self.service.url)
        page.click("header nav >> text=Documents")
        page.wait_for_selector("code >> text=documents.directory")
        assert not page.locator("main input").count(), "nobody types what cannot be kept"
        page.click("header nav >> text=Chat")
        page.click(".composer summary >> text=Documents")
        page.wait_for_selector(".composer .menu >> text=documents.directory")
        page.wrong.clear()  # the page was not on this address when it was opened
        return page

    def a_passage_whose_file_is_gone_is_shown_as_it_was(self):
        answer, more = "Behind the green door [1].\n", "\nIt is green [1].\n"
        gone = lambda text: delta(annotations=[citation({"id": "file-9", "filename": HOSTILE}, text, "[1]", quote="<script>window.hurt=1</script>", text="<script>window.hurt=1</script>")])
        with self._documents(fake=True) as scripted:
            page = self.page(scripted.url, viewport={"width": 390, "height": 780})
            self._new_store(page, "Gone")
            page.click("header nav >> text=Chat")
            page.click(".composer summary >> text=Documents")
            page.check(".composer .menu >> text=Gone")
            page.keyboard.press("Escape")
            scripted.script = [answer, gone(answer)]
            self.chat(page, "Where?")
            self.answered(page, 1)
            page.focus(".cite")
            page.keyboard.press("Enter")
            page.wait_for_selector(".passage:focus >> text=What stands around these words cannot be shown")
            assert page.inner_text(".passage mark") == "<script>window.hurt=1</script>" and page.evaluate("window.hurt") is None
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
            # An answer that goes on counts its own characters.
            scripted.script = [more, gone(more)]
            page.click("button >> text=Continue")
            page.wait_for_function("() => document.querySelectorAll('.text .cite').length === 2")
            with page.expect_download() as download:
                page.click("button.narrow")
                page.click(".menu summary >> nth=0")
                page.click("text=Export as JSON")
            kept = json.loads(pathlib.Path(download.value.path()).read_text())
            other = self.page(scripted.url)
            other.set_input_files("input[accept*=json]", {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(kept).encode()})
            other.wait_for_function("() => document.querySelectorAll('.text .cite').length === 2")
            assert not other.wrong, other.wrong
        return page

    def documents_and_footnotes_are_for_those_who_read_otherwise_too(self):
        answer = "Behind the green door [1].\n"
        for theme in ("light", "dark"):
            with self._documents(fake=True) as scripted:
                page = self.page(scripted.url, color_scheme=theme, bypass_csp=True)
                page.click("header nav >> text=Documents")
                page.wait_for_selector("text=There is no store yet.")
                self._axe(page, f"{theme}, no store")
                self._new_store(page, "House")
                self._drop(page, self._files("a.md", "bad.md"))
                self._ready(page, 1)
                page.fill("[role=search] input", "spare")
                page.click("[role=search] button")
                page.wait_for_selector(".found li")
                self._axe(page, f"{theme}, a store")
                page.click("header nav >> text=Chat")
                page.click(".composer summary >> text=Documents")
                page.check(".composer .menu >> text=House")
                scripted.script = [answer, delta(annotations=[citation(self._file(scripted, "a.md"), answer, "[1]")])]
                self.chat(page, "Where?")
                self.answered(page, 1)
                page.click(".cite")
                page.wait_for_selector(".passage blockquote >> text=Welcome to the house.")
                page.click(".composer summary >> text=Documents")
                self._axe(page, f"{theme}, a passage")
        return None
