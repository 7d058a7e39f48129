"""How a request is dressed: quotes around what it is about, capitals, punctuation, words before and after it. Forms keep their `{fields}`."""
import re

from . import phrases

BEFORE = ["Please: ", "Can you tell me: ", "Hey, ", "Quick question: ", "Tell me, ", "Hello, ", "Hi! ", "Hi Nano, ", "OK. ", "Now: ", "So, ",
          "I have a question. ", "One more thing: ", "Question: ", "Could you help me? ", "Help me please. ", "Next: ", "Well, ",
          "Good morning. ", "I wonder: ", "Let's see. ", "Alright, ", "For my homework: ", "My boss asks: ", "Task: ", "Just a test: ",
          "Try this: ", "And now: ", "Excuse me, ", "Q: ", "1) ", "- ", "> ", "ok ", "hey ", "um, ", "Please, ", "please "]
AFTER = [" Thanks!", " Thank you.", " Please.", " :)", " Answer briefly.", " Just the answer.", " It is important.", " I am curious.",
         " Be quick.", " Think about it.", " Nothing else.", " (no tricks)", " This is for school.", " thx", " I need it now."]
ENDINGS = ["!", "?", "??", "...", " ?", " .", "!!", ""]
QUOTES = ["\"{}\"", "'{}'", "`{}`", "“{}”", "*{}*", "«{}»", "**{}**", "[{}]"]
FIELD = re.compile(r"({\w+})")


def quoted(rng, text, chance=0.45):
    if rng.random() > chance:
        return text
    return (QUOTES[0] if rng.random() < 0.45 else rng.choice(QUOTES)).format(text)


def cased(rng, word):
    """As it is, mostly; else with one capital or all in capitals."""
    chance = rng.random()
    return word.title() if chance < 0.1 else word.upper() if chance < 0.14 else word


def dressed(rng, form):
    """-> the form in other clothes. What stands at its very end may be the text that it is about, so nothing is put behind that."""
    chance = rng.random()
    if chance < 0.15:
        form = form.lower()
    elif chance < 0.18:
        form = "".join(part if FIELD.match(part) else part.upper() for part in FIELD.split(form))
    elif chance < 0.22:
        form = form[0].upper() + form[1:]
    ended = form[-1] in ".?"
    if ended and rng.random() < 0.25:
        form = form[:-1] + rng.choice(ENDINGS)
    elif ended and rng.random() < 0.15:
        form += rng.choice(AFTER)
    if rng.random() < 0.18:
        form = rng.choice(BEFORE) + form
    if rng.random() < 0.04:
        form = form.replace(" ", "  ", 1) if rng.random() < 0.5 else f"\n{form} "
    return form


def request(rng, task, fields, new=False):
    """One of a task's other forms, trained or kept apart, dressed and filled in."""
    form = dressed(rng, rng.choice((phrases.NEW if new else phrases.TRAINED)[task]))
    if task in ("add", "sub", "mul") and rng.random() < 0.15:
        form = re.sub(r" ([+*-]) ", rng.choice((r"\1", r" \1", r"\1 ")), form)
    return form.format(**fields)
