"""Tests of feedback on answers in the console, which `scripts/console.py` runs."""
import json
import tempfile

GROUP = "[aria-label='What do you think of this answer?']"


class FeedbackTests:
    """Tests as those of `console.Tests`, which they become a part of."""

    def an_answer_is_rated_and_put_right_where_that_is_kept_and_nowhere_else(self):
        with tempfile.TemporaryDirectory() as kept, self._serving(learning__directory=kept, learning__learn="feedback") as service:
            page = self.page(service.url)
            self.chat(page, "What is 2 + 2?")
            self.answered(page, 1)
            page.get_by_role("button", name="Good answer").click()
            page.wait_for_selector(f"{GROUP} >> text=Kept: a good answer.")
            page.wait_for_selector("button:has-text('Good answer')[aria-pressed=true]")
            page.get_by_role("button", name="Give the right answer").click()
            field = page.get_by_label("The right answer", exact=True)
            page.wait_for_function("() => document.activeElement.tagName === 'TEXTAREA'")
            rated = json.loads(service.ask("GET", "/v1/learning/mine").body)["data"]
            assert [example["answer"] for example in rated] == [field.input_value()], f"{rated}, where the field has {field.input_value()!r}"
            page.keyboard.press("Escape")
            # The focus comes back.
            page.wait_for_function("() => document.activeElement.textContent === 'Give the right answer'")
            page.get_by_role("button", name="Give the right answer").click()
            field.fill("It is four.")
            page.get_by_role("button", name="Send it").click()
            page.wait_for_selector(f"{GROUP} >> text=Kept: the right answer.")
            mine = json.loads(service.ask("GET", "/v1/learning/mine").body)
            answers = {example["answer"]: example for example in mine["data"]}
            assert len(answers) == 2 and answers["It is four."]["truth"] == ["correction"], mine
            thumbs = [example["rating"] for example in mine["data"] if "rating" in example]
            assert thumbs == [1], mine
            page.reload()
            self.answered(page, 1)
            page.wait_for_selector("button:has-text('Bad answer')[aria-pressed=true]")
            return page

    def nothing_asks_for_feedback_where_none_is_kept(self):
        page = self.page()
        with page.expect_response("**/v1/learning"):
            self.chat(page, "What is 2 + 2?")
            self.answered(page, 1)
        page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true)))")
        assert not page.query_selector(GROUP)
        return page
