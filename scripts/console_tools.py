"""Tests of the console's tools, pipelines and models, which `scripts/console.py` runs.

Answers, servers and pipelines are scripted; one test has a server of tools that is really called by the shipped model.
"""
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from console_documents import HOSTILE, SHOWN, delta

ROOT = pathlib.Path(__file__).resolve().parent.parent
ATTACK = "</pre><script>window.hurt=1</script><img src=x onerror=window.hurt=1>"
SERVER = ROOT / "cli/tests/data/mcp_server.py"


def tool(name, state="accepted", **more):
    return {"name": name, "function": f"files__{name}", "description": f"Does {name}.", "input_schema": {}, "state": state, "why": None, "read_only": False, "asks": True} | more


def server(label, *tools, error=None):
    return {"object": "mcp_server", "server_label": label, "approval": "writes", "error": error, "tools": list(tools)}


def pipeline(name, **more):
    return {"object": "pipeline", "id": name, "served": True, "error": None, "description": "", "experimental": False, "budget": {"tokens": None, "milliseconds": None}, "steps": []} | more


def step(type, status="completed", **more):
    return {"choices": [], "step": {"type": type, "status": status} | more}


def call(name, status, **more):
    of = {"server_label": "files", "name": name, "arguments": '{"path": "a.txt"}', "approval_request_id": None, "output": None, "error": None}
    return step("mcp_call", status, **of | more)


def waits(arguments, name="files__write", id="mcpr_1", index=0):
    """A piece of a script: a call that waits for an approval."""
    return delta(tool_calls=[{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}])


SERVERS = [server("files", tool("write"), tool("read", read_only=True, asks=False)),
           server("far", error=f"{ATTACK} cannot be reached"),
           server("late", tool("send", "changed", description=f"Sends. {ATTACK}"), tool("new_one", "new"), tool(HOSTILE, "unfit", why="its name wants letters"))]
PIPELINES = [pipeline("docs", description=f"Answers from the store. {ATTACK}", experimental=True, budget={"tokens": 2000, "milliseconds": 120000},
                      steps=[{"step": "retrieve", "name": "retrieve"}, {"step": "when", "name": "long", "then": [{"step": "generate", "name": "plan"}], "else": []}]),
             pipeline("broken", served=False, error="broken.toml: line 1: unknown field `sufix`")]


class ToolTests:
    """Tests as those of `console.Tests`, which they become a part of."""

    @contextlib.contextmanager
    def _tools(self, **more):
        """A service whose chat, servers, pipelines and models are scripted."""
        names = ["Chimere-Nano", "short", "docs", HOSTILE]
        models = [{"id": name, "object": "model", "max_model_len": 4096} for name in names] + [{"id": "encoder", "type": "embeddings", "max_model_len": 256}]
        lists = {"/v1/models": models, "/v1/tools": SERVERS, "/v1/pipelines": PIPELINES} | more
        with self._scripted(self.service, None) as scripted:
            scripted.answers = {path: {"object": "list", "data": data, "web_search": True} for path, data in lists.items()}
            yield scripted

    def _choose(self, page, *names):
        page.click(".composer summary >> text=Tools")
        for name in names:
            page.check(f".composer .menu label:has-text('{name}') input")
        page.keyboard.press("Escape")

    def a_model_is_chosen_and_kept_with_its_conversation(self):
        with self._tools() as scripted:
            page = self.page(scripted.url)
            scripted.script = ["Yes."]
            page.wait_for_selector(".which option", state="attached")
            options = page.locator(".which option").all_inner_texts()
            assert options == ["Chimere-Nano", "short", "docs", SHOWN], options
            self.chat(page, "One")
            self.answered(page, 1)
            assert scripted.asked[-1]["model"] == "Chimere-Nano", scripted.asked[-1]
            page.get_by_label("Model", exact=True).select_option("docs")
            self.chat(page, "Two")
            self.answered(page, 2)
            assert scripted.asked[-1]["model"] == "docs", scripted.asked[-1]
            page.click("text=New conversation")
            page.wait_for_function("() => document.querySelector('.which').value === ''")
            page.click(".list .name >> text=One")
            page.reload()
            page.wait_for_function("() => document.querySelector('.which')?.value === 'docs'")
            scripted.answers["/v1/models"]["data"] = scripted.answers["/v1/models"]["data"][:1]
            page.reload()
            page.wait_for_selector(".which option:checked >> text=docs, not served", state="attached")
        return page

    def servers_and_the_web_are_chosen_beside_the_field(self):
        with self._tools() as scripted:
            page = self.page(scripted.url)
            page.click(".composer summary >> text=Tools")
            page.wait_for_selector(".composer .menu label >> text=files")
            offered = " | ".join(page.locator(".composer .menu .check").all_inner_texts())
            for words in ("Searches of the web", "files 2 tools", "far not reached", "late 0 tools, 3 withheld"):
                assert words in offered, offered
            page.keyboard.press("Escape")
            page.wait_for_selector(".composer summary:focus >> text=Tools")
            self._choose(page, "files", "the web")
            scripted.script = ["Yes."]
            self.chat(page, "Go")
            self.answered(page, 1)
            body = scripted.asked[-1]
            assert body["tools"] == [{"type": "web_search"}, {"type": "mcp", "server_label": "files"}], body["tools"]
            assert body["stream_options"] == {"include_usage": True, "include_steps": True}
            page.reload()
            page.click("[aria-label='Do not use the web']")
            page.wait_for_selector(".chip >> text=files")
            self.chat(page, "Again")
            self.answered(page, 2)
            assert scripted.asked[-1]["tools"] == [{"type": "mcp", "server_label": "files"}], scripted.asked[-1]
            page.click("text=New conversation")
            page.wait_for_selector(".chip", state="detached")
            scripted.answers["/v1/tools"] = {"data": [], "web_search": False}
            page.click(".composer summary >> text=Tools")
            page.wait_for_selector(".composer .menu >> text=This service runs no tools for you.")
        return page

    def a_call_that_waits_is_shown_whole_and_runs_when_it_is_approved(self):
        # Letters that turn others around, a name that comes twice, markup, and more than a screen of text.
        arguments = '{"path": "a\u202etxt", "path": "b", "text": "' + ATTACK.replace('"', "") + "x" * 5000 + ' END {  }", "list": [], "deep": {"n": 1.50}}'
        with self._tools() as scripted:
            page = self.page(scripted.url)
            self._choose(page, "files")
            scripted.script = ["I write.", waits(arguments, f"files__{HOSTILE}")]
            self.chat(page, "Write it")
            group = page.get_by_role("group", name="Approval of")
            group.get_by_role("button", name="Approve").wait_for()
            shown = page.inner_text(".asks pre")
            assert '"path": "a\\u202etxt",\n  "path": "b",' in shown and 'END {  }",\n  "list": [],\n  "deep": {\n    "n": 1.50\n  }\n}' in shown, shown
            assert "x" * 5000 in shown and ATTACK.split(">")[0] in shown and "of the server files" in page.inner_text(".asks"), shown
            assert page.evaluate("(e => e.scrollHeight <= e.clientHeight + 1 && e.scrollWidth <= e.clientWidth + 1)(document.querySelector('.asks pre'))"), "a part is out of sight"
            assert page.evaluate("window.hurt") is None and SHOWN in page.inner_text(".asks")
            scripted.script = [call("write", "completed", approval_request_id="mcpr_1", output="written"), "It is written."]
            page.focus(".asks input")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            self.answered(page, 2)
            page.wait_for_selector("#ask:focus")
            said, answer = scripted.asked[-1]["messages"][-2:]
            assert answer == {"role": "tool", "tool_call_id": "mcpr_1", "approve": True}, answer
            assert said["tool_calls"][0]["function"]["arguments"] == arguments
            page.wait_for_selector(".turn.tool >> text=The call was approved.")
            assert page.locator("button:has-text('Approve')").count() == 0
            # Without its server a request approves nothing, and has the result in words.
            page.click("[aria-label='Do not use files']")
            scripted.script = ["Bye."]
            self.chat(page, "And?")
            self.answered(page, 3)
            told = next(of for of in scripted.asked[-1]["messages"] if of["role"] == "tool")
            assert told == {"role": "tool", "tool_call_id": "mcpr_1", "content": "written"}, told
        return page

    def a_call_is_refused_with_a_reason(self):
        with self._tools() as scripted:
            page = self.page(scripted.url)
            self._choose(page, "files")
            scripted.script = [waits('{"path": "a"}'), waits('{"path": "b"}', id="mcpr_2", index=1)]
            self.chat(page, "Write both")
            page.wait_for_function("() => document.querySelectorAll('.asks button.first').length === 2")
            page.fill(".asks >> nth=1 >> input", "not that one")
            page.click(".asks >> nth=1 >> text=Refuse")
            page.wait_for_selector(".turn.tool >> text=The call was refused. not that one")
            assert len(scripted.asked) == 1, "one call still waits"
            scripted.script = ["So be it."]
            page.reload()
            page.click("button:has-text('Approve')")
            self.answered(page, 2)
            assert scripted.asked[-1]["messages"][-2:] == [{"role": "tool", "tool_call_id": "mcpr_2", "approve": False, "content": "not that one"},
                                                           {"role": "tool", "tool_call_id": "mcpr_1", "approve": True}], scripted.asked[-1]
            scripted.script = [waits('{"path": "c"}', id="mcpr_3")]
            self.chat(page, "Write c")
            page.wait_for_selector("button:has-text('Approve')")
            scripted.script = ["Well."]
            self.chat(page, "Never mind")
            self.answered(page, 4)
            assert page.locator("button:has-text('Approve')").count() == 0, "it could not be answered any more"
            # An approval is never taken for one of a call that has run.
            scripted.script = [waits('{"path": "d"}', id="mcpr_4")]
            self.chat(page, "Write d")
            page.wait_for_selector("button:has-text('Approve')")
            page.click("[aria-label='Do not use files']")
            page.click("button:has-text('Approve')")
            self.answered(page, 6)
            assert scripted.asked[-1]["messages"][-1] == {"role": "tool", "tool_call_id": "mcpr_4", "approve": True}, scripted.asked[-1]
        return page

    def steps_are_shown_as_they_happen_and_kept(self):
        urls = [{"type": "url", "url": "https://kelm.example/a"}]
        web = {"action": {"type": "search", "queries": ["port of Kelm"], "query": "port of Kelm"}}
        calls = [{"tool": "files__read", "ms": 12.34, "bytes": 2048, "error": False}, {"tool": "files__fail", "ms": 0.5, "bytes": 9, "error": True}]
        timings = {"turn": {"calls": calls, "pipeline": {"name": "docs", "steps": [], "out_of": "tokens"}}}
        with self._tools() as scripted:
            page = self.page(scripted.url)
            seen = threading.Event()
            scripted.script = [step("file_search_call", queries=["Kelm?"], results=None, passages=1), call("read", "in_progress"), seen.wait, "Wait. ", call("read", "completed", output=ATTACK),
                               call("fail", "failed", error="the disk is full"), step("web_search_call", "in_progress", **web),
                               step("web_search_call", action=web["action"] | {"sources": urls}), step("web_search_call", "in_progress", action={"type": "open_page", "url": "https://kelm.example/b"}),
                               step("pipeline_step", step="plan", outcome="stop", ms=1234.5, tokens=20), step("pipeline_step", step="check", outcome="failed", ms=3.2, tokens=0),
                               "Done.", {"choices": [], "timings": timings}]
            self.chat(page, "Go")
            page.wait_for_selector("[role=status] >> text=files: read runs…")
            page.wait_for_selector(".steps li >> text=running…")
            seen.set()
            self.answered(page, 1)
            for _ in range(2):
                page.wait_for_selector(".steps li")
                lines = [line.split("\n")[0] for line in page.locator(".steps li").all_inner_texts()]
                wanted = ["Documents Kelm? 1 passage", "Tool files: read done 12 ms 2 KiB", "Tool files: fail failed 0.5 ms 9 bytes", "Web port of Kelm", "Page https://kelm.example/b not finished",
                          "Step plan stop 1,235 ms 20 tokens", "Step check failed 3.2 ms"]
                assert len(lines) == len(wanted) and all(want in line for want, line in zip(wanted, lines)), lines
                assert page.locator(".steps li.failed").count() == 2
                page.click(".steps summary >> nth=0")
                assert page.inner_text(".steps pre >> nth=1") == ATTACK and page.evaluate("window.hurt") is None
                page.wait_for_selector("text=The pipeline's budget of tokens is used up.")
                page.reload()
            page.wait_for_selector(".turn.assistant .text >> text=Wait. Done.")
        return page

    def tools_their_pins_and_pipelines_are_shown(self):
        with self._tools() as scripted:
            page = self.page(scripted.url)
            page.click("header nav >> text=Tools")
            page.wait_for_selector("h2 >> text=Pipelines")
            page.wait_for_selector("text=Answers from the store.")
            shown = page.inner_text(".page")
            for words in ("calls that write wait for an approval", "waits for an approval", "only reads", "changed since it was accepted, withheld", "new, withheld", "its name wants letters", SHOWN,
                          "chimere mcp accept late", f"It is not reached: {ATTACK}", f"Sends. {ATTACK}", "at most 2,000 tokens and 120 s", "experimental", "not served", "unknown field `sufix`", "plan"):
                assert words in shown, (words, shown)
            assert "chimere mcp accept files" not in shown and page.evaluate("window.hurt") is None
            scripted.answers |= {"/v1/tools": {"data": [], "web_search": False}, "/v1/pipelines": {"data": []}}
            page.click("text=Look again")
            page.wait_for_selector("pre >> text=[mcp.files]")
            page.wait_for_selector("text=There is no pipeline.")
        return page

    def tools_and_approvals_are_for_everybody(self):
        for theme, width in (("light", 1280), ("dark", 375)):
            with self._tools() as scripted:
                page = self.page(scripted.url, color_scheme=theme, bypass_csp=True, viewport={"width": width, "height": 740})
                self._choose(page, "files", "the web")
                scripted.script = [call("read", "completed", output="x"), call("fail", "failed", error="y"), waits('{"path": "' + "x" * 200 + '"}')]
                self.chat(page, "Go")
                page.wait_for_selector(".asks button.first")
                page.click(".composer summary >> text=Tools")
                page.wait_for_selector(".composer .menu label >> text=far")
                for view in ("Chat", "Tools"):
                    if view == "Tools":
                        page.click("header nav >> text=Tools")
                        page.wait_for_selector("text=Answers from the store.")
                    self._axe(page, f"{theme}, {view}")
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} scrolls sideways at {width}"
        return page

    def tools_travel_with_an_export(self):
        turns = {"a": {"id": "a", "parent": None, "role": "user", "content": "Go", "at": 1},
                 "b": {"id": "b", "parent": "a", "role": "assistant", "content": "So", "at": 2, "steps": [None, 7, {"kind": "bad"}, {"kind": "call", "server": ATTACK, "name": 3, "ms": "x", "output": "o", "status": "completed"}],
                       "calls": [{"id": "mcpr_1", "name": "files__write", "arguments": "{"}], "timings": {"turn": {"calls": 3, "pipeline": 4}}},
                 "c": {"id": "c", "parent": "b", "role": "tool", "content": "why", "at": 3, "callId": "mcpr_1", "name": "x", "approve": False}}
        page = self.page()
        page.set_input_files("input[accept*=json]", {"name": "c.json", "mimeType": "application/json",
                             "buffer": json.dumps({"id": "brought", "title": "Brought", "leaf": "c", "settings": {"servers": 3, "web": "yes", "model": "m"}, "turns": turns}).encode()})
        page.wait_for_selector(".turn.tool >> text=The call was refused. why")
        assert ATTACK in page.inner_text(".steps li") and page.locator(".steps li").count() == 1 and page.evaluate("window.hurt") is None
        page.click("[aria-label='More about Brought']")
        with page.expect_download() as download:
            page.click("text=Markdown")
        written = pathlib.Path(download.value.path()).read_text()
        assert "- Tool " in written and "Refused. why" in written, written
        return page

    def a_write_that_was_approved_happens_and_each_step_is_seen(self):
        """The program's own service and model, a server of tools that an operator added in four lines, and a pipeline."""
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "pipelines").mkdir()
        (folder / "pipelines/two.toml").write_text('[[steps]]\nname = "plan"\ngenerate = { tokens = 20 }\n\n[[steps]]\ngenerate = {}\n')
        file, log = folder / "tools.toml", folder / "log"
        file.write_text(f'[mcp.files]\nargv = {json.dumps([sys.executable, str(SERVER), str(log), "notes"])}\nread_only = ["list_files"]\napproval = "writes"\n')
        file.chmod(0o600)
        subprocess.run([self.args.chimere, "mcp", "accept", "files", "--tools", file], check=True, stdout=subprocess.DEVNULL)
        written = lambda: [line for line in log.read_text().splitlines() if line.startswith("write")]
        with self._serving(tools__file=file, pipelines__directory=folder / "pipelines") as service:
            page = self.page(service.url)
            self._choose(page, "files")
            self.chat(page, "Save the note hello.")
            page.wait_for_selector(".asks button.first")
            assert '"note": "hello"' in page.inner_text(".asks pre") and not written(), page.inner_text(".asks")
            page.click("button:has-text('Approve')")
            self.answered(page, 2)
            assert written() == ["write hello"], written()
            facts = page.inner_text(".steps li")
            assert "files: save_note" in facts and "done" in facts and " ms" in facts and "7 bytes" in facts, facts
            page.click(".turn.assistant.last footer >> text=Try again")
            page.wait_for_selector(".turn.assistant >> text=2 / 2")
            self.answered(page, 2)
            assert written() == ["write hello"], "it ran once"
            page.click("text=New conversation")
            self._choose(page, "files")
            self.chat(page, "List the files of the folder music")
            self.answered(page, 1)
            page.wait_for_selector(".steps li >> text=files: list_files")
            page.click("text=New conversation")
            page.get_by_label("Model", exact=True).select_option("two")
            self.chat(page, "What is 2 + 2?")
            self.answered(page, 1)
            lines = page.locator(".steps li").all_inner_texts()
            assert len(lines) == 2 and re.search(r"Step plan (stop|length) [\d.,]+ ms \d+ tokens", lines[0]) and "Step generate" in lines[1], lines
        return page
