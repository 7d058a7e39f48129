"""Tests of the console's models, which `scripts/console.py` runs. Answers and models are scripted."""
import contextlib

from console_documents import HOSTILE, SHOWN


class ToolTests:
    """Tests as those of `console.Tests`, which they become a part of."""

    @contextlib.contextmanager
    def _tools(self, **more):
        """A service whose chat and models are scripted."""
        names = ["Chimere-Nano", "short", "docs", HOSTILE]
        models = [{"id": name, "object": "model", "max_model_len": 4096} for name in names] + [{"id": "encoder", "type": "embeddings", "max_model_len": 256}]
        lists = {"/v1/models": models} | more
        with self._scripted(self.service, None) as scripted:
            scripted.answers = {path: {"object": "list", "data": data, "web_search": True} for path, data in lists.items()}
            yield scripted

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
