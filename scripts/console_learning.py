"""Tests of what was learned in the console, which `scripts/console.py` runs."""
import json
import pathlib
import tempfile

ATTACK = "<img src=x onerror=\"window.hurt=1\">"
# As the service says it of a candidate that passed.
COUNTS = {"questions": 500, "both": 430, "gains": 1, "losses": 2}
HELD = {"name": "sums", "role": "held", "counts": COUNTS, "before": 0.864, "after": 0.862, "lower": -0.0091, "upper": 0.0052, "needed": 430, "outcome": "held"}
TARGET = HELD | {"name": "facts", "role": "target", "before": 0, "after": 0.955, "lower": 0.914, "upper": 0.976, "outcome": "better"}
VERDICT = {"outcome": "passed", "reasons": [], "families": [TARGET, HELD], "divergence": {"probes": 256, "mean": 0.001, "largest": 0.2},
           "canaries": {"asked": 40, "fired": 0}, "speed": 1.0, "batch": {"large_shares": [], "unconfirmed": [], "contradictions": []}}
CHANGED = {"family": "sums", "question": f"What is 2 + 2? {ATTACK}", "before": "4", "after": f"5 {ATTACK}", "was_right": True, "is_right": False}
RUN = {"at": 1_764_558_000, "seconds": 61, "dry": False, "outcome": "passed", "version": 2, "stage": "shadow", "facts": 480, "new_facts": 480,
       "left_out": {"unchecked": 0, "unconfirmed": 3, "contradicted": 0, "over_share": 0}, "contradictions": [["ex_a", "ex_b"]], "verdict": VERDICT,
       "vault": None, "changed": [CHANGED], "error": None}


def version(number, stage):
    return {"number": number, "at": RUN["at"], "sha256": "aa", "bytes": 1000 * number, "base": "m", "parent": None, "stage": stage, "verdict": VERDICT, "stale": False}


class LearningTests:
    """Tests as those of `console.Tests`, which they become a part of."""

    def a_run_is_begun_and_its_verdict_shown_by_family(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name in ("tables", "families"):
                (folder / name).mkdir()
            lines = [{"prompt": f"What is {n} + {n}?", "check": {"matches": str(2 * n)}, "max_tokens": 24, "thinking": False} for n in range(12)]
            (folder / "families/sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            settings = {"learning__directory": folder / "kept", "learning__table": "facts", "learning__families": folder / "families", "engram__directory": folder / "tables"}
            with self._serving(**settings) as service:
                said = [{"messages": [{"role": "user", "content": f"What is the capital of Land{n}?"}, {"role": "assistant", "content": f"The Land{n} capital is Town{n}ville."}],
                         "set": "train"} for n in range(40)]
                body = "".join(json.dumps(line) + "\n" for line in said)
                assert service.ask("POST", "/v1/learning/examples", {"content-type": "application/jsonl"}, body).status == 200
                page = self.page(service.url)
                page.click("header nav >> text=Learning")
                page.wait_for_selector("text=Nothing was learned since the service started.")
                page.click("text=Learn now")
                page.wait_for_selector("caption >> text=What changed, by family of questions")
                row = page.get_by_role("row", name="sums").first
                assert "short" in row.inner_text(), row.inner_text()
                page.wait_for_selector("li >> text=refusals: 0 were measured, at least 1 are")
                page.wait_for_selector(".cards strong >> text=Version 1")
                assert not page.locator("button:has-text('Accept')").count(), "what has not passed cannot be accepted"
                return page

    def what_passed_is_accepted_and_taken_back_and_texts_are_no_markup(self):
        page = self.page(bypass_csp=True)
        state, sent = {"versions": [version(1, "current"), version(2, "shadow")]}, []
        of = lambda: {"object": "list", "data": [{"object": "learning.lineage", "id": "facts", "current": 1, **state}], "running": False, "last_run": RUN, "why": []}
        page.route("**/v1/learning/versions", lambda route: route.fulfill(json=of()))

        def change(route):
            sent.append((route.request.url.rsplit("/", 1)[1], json.loads(route.request.post_data)))
            stages = {"promote": ("former", "current"), "rollback": ("current", "refused")}[sent[-1][0]]
            state["versions"] = [version(1, stages[0]), version(2, stages[1])]
            route.fulfill(json={})

        page.route("**/v1/learning/promote", change)
        page.route("**/v1/learning/rollback", change)
        page.click("header nav >> text=Learning")
        cells = page.get_by_role("row", name="facts").first.inner_text().split()
        assert cells == "facts 500 0.0 % 95.5 % +91.4 to +97.6 better".split(), cells
        page.wait_for_selector("text=Left out: 3 said by too few people.")
        page.wait_for_selector(f"td >> text={ATTACK.split('>')[0]}")
        assert page.evaluate("window.hurt") is None and not page.query_selector(".page img")
        self._axe(page, "Learning")
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("text=Accept version 2")
        page.wait_for_selector("[role=status] >> text=Version 2 answers everybody now.")
        page.click("text=Take version 2 back")
        page.wait_for_selector("[role=status] >> text=Version 2 was taken back.")
        assert sent == [("promote", {"version": 2}), ("rollback", {})], sent
        page.set_viewport_size({"width": 390, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
        return page

    def who_may_not_see_what_was_learned_is_told_and_so_is_who_keeps_nothing(self):
        page = self.page()
        page.click("header nav >> text=Learning")
        page.wait_for_selector("code >> text=learning.directory")
        (ours, line), (_, admins) = [self._new_key() for _ in range(2)]
        with self._with_keys(line, f"{admins} scope=admin") as service:
            other = self.page(service.url)
            self._use_key(other, ours)
            other.click("header nav >> text=Learning")
            other.wait_for_selector("[role=alert] >> text=scope=admin")
            other.wait_for_selector("text=Use another key")
            return other
