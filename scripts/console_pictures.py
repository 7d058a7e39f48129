#!/usr/bin/env python3
"""Makes pictures of the console: twelve states, at 1,280 and 375 pixels, light and dark, as DIR/STATE-WIDTH-THEME.png.

    scripts/console_pictures.py DIR --chimere target/release/chimere [--files services/console] [--only STATE]

For those who change how the page looks: look at them. Needs what `scripts/console.py` needs.
"""
import argparse
import pathlib
import tempfile

from playwright.sync_api import sync_playwright

from console import FLAGS, FORMULAS, Scripted, Service, Tests
from console_tools import PIPELINES, SERVERS, call, waits

SIZES = {1280: 850, 375: 720}
ANSWER = """Here is a **plan** with `code`, a table and a note[^1].

## Steps

1. Read the file.
2. Count its words.

> A quotation that says why.

| Word | Count | Share |
|:--|--:|:-:|
| the | 1,204 | 6 % |
| of | 981 | 5 % |

```python
def count(text):
    \"\"\"Words of a text.\"\"\"
    return len(text.split())  # by spaces
```

[^1]: Notes come at the end.
"""


class States:
    """Each method shows a state and gives its page; `view` has the width and the theme."""

    def __init__(self, tests, scripted, taught, view):
        self.tests, self.scripted, self.taught, self.view = tests, scripted, taught, view

    def page(self, url=None):
        return self.tests.page(url or self.scripted.url, **self.view)

    def asked(self, text, script, pause=0):
        self.scripted.script, self.scripted.pause = script, pause
        page = self.page()
        self.tests.chat(page, text)
        return page

    def empty(self):
        page = self.page()
        page.wait_for_selector(".suggestions")
        return page

    def answer(self):
        page = self.asked("How many words has a text?", [ANSWER])
        self.tests.answered(page, 1)
        page.wait_for_selector(".code-keyword")
        return page

    def formulas(self):
        page = self.asked("Forty formulas, please.", [f"{i + 1}. ${formula}$\n" for i, formula in enumerate(FORMULAS)])
        page.wait_for_function("n => document.querySelectorAll('math').length === n", arg=len(FORMULAS))
        return page

    def answering(self):
        page = self.asked("Tell me a long story.", [f"word{i} " for i in range(400)], 0.05)
        page.wait_for_selector("text=word20")
        return page

    def cut_off(self):
        page = self.answering()
        page.wait_for_timeout(1500)
        self.scripted.pause = 0
        page.reload()
        page.wait_for_selector("text=cut off")
        return page

    def settings(self):
        page = self.answer()
        page.click("text=Settings")
        page.click("text=Sampling in numbers")
        return page

    def inspector(self):
        page = self.page(self.tests.service.url)
        page.click("text=Settings")
        self.tests._inspect_an_answer(page)
        page.click(".token >> nth=2")
        return page

    def live(self):
        page = self.page(self.tests.service.url)
        page.click("header nav >> text=Live")
        page.wait_for_selector("dl")
        page.evaluate("""() => Promise.all([60, 90, 120].map(n => fetch('/v1/completions', { method: 'POST', headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ prompt: 'Count: 1, 2, 3,', max_tokens: n, ignore_eos: true }) }).then(r => r.text())))""")
        page.wait_for_timeout(600)
        return page

    def approval(self):
        page = self.asked("Write it down.", [call("read", "completed", output="hello"), "I write it down.", waits('{"path": "a.txt", "text": "hello"}')])
        page.wait_for_selector("button:has-text('Approve')")
        return page

    def tools(self):
        self.scripted.answers = {"/v1/tools": {"data": SERVERS, "web_search": True}, "/v1/pipelines": {"data": PIPELINES}}
        page = self.page()
        page.click("header nav >> text=Tools")
        page.wait_for_selector("text=Answers from the store.")
        return page

    def memory(self):
        page = self.page(self.taught.url)
        page.click("header nav >> text=Memory")
        page.wait_for_selector(".cards li")
        return page

    def system(self):
        page = self.page(self.tests.service.url)
        page.click("header nav >> text=System")
        page.wait_for_selector("tbody tr")
        return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--chimere", default="target/release/chimere")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--files", type=pathlib.Path)
    parser.add_argument("--only", default="", help="a part of a state's name")
    args = parser.parse_args()
    args.chimere = str(pathlib.Path(args.chimere).resolve())
    args.into.mkdir(parents=True, exist_ok=True)
    names = [name for name, of in vars(States).items() if callable(of) and name not in ("__init__", "page", "asked") and args.only in name]
    with sync_playwright() as playwright, Service(args.chimere, engram__directory=tempfile.mkdtemp()) as taught:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS)
        tests = Tests(browser, args)
        taught.ask("POST", "/v1/engram/tables/pets/learn", body='{"texts": ["The cat sat on the mat."], "quality": 1}')
        taught.ask("PUT", "/v1/engram/collections/notes")
        with Scripted(tests.service) as scripted:
            for width, height in SIZES.items():
                for theme in ("light", "dark"):
                    states = States(tests, scripted, taught, {"viewport": {"width": width, "height": height}, "color_scheme": theme})
                    for name in names:
                        page = getattr(states, name)()
                        page.wait_for_timeout(400)
                        page.screenshot(path=args.into / f"{name}-{width}-{theme}.png")
                        wide = page.evaluate("document.documentElement.scrollWidth")
                        print(f"{name}-{width}-{theme}.png{f': it is {wide} wide' if wide > width else ''}", flush=True)
                        page.context.close()
        tests.service.end()
        browser.close()


if __name__ == "__main__":
    main()
