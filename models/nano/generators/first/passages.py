"""Questions about passages: of the sentence's own form, turned around."""
import pathlib
import sys

from tasks.sample import user

from .. import library, reading, relations

RELATIONS = relations.table(pathlib.Path(__file__).with_name("relations.txt"))
SHAPES = ["[{i}] {t}"] * 6 + ["Passage {i}: {t}", "Passage {i}:\n{t}", "({i}) {t}", "{i}. {t}", "[{i}] {h}\n{t}", "Document {i}: {t}", "Source [{i}]: {t}",
          "<passage id={i}>\n{t}\n</passage>", "### {i}\n{t}", "[{i}]: \"{t}\""]
ONE = ["Text: {p} {q}", "Text: {p}\n{q}", "Text:\n{p}\n\n{q}", "{p}\n\n{q}", "{p} {q}", "{q}\n\n{p}", "{q} Text: {p}", "Read the text: \"{p}\"\n{q}", "\"{p}\"\n\n{q}",
       "Here is a text.\n\n{p}\n\n{q}", "Given the text \"{p}\", {q}", "Context: {p}\nQuestion: {q}", "Context:\n{p}\n\nQ: {q}", "Q: {q}\nText: {p}\nA:", "- {p}\n\n{q}",
       "{q} Answer from this text: {p}", "I read: {p}\n{q}", "text: {p}\nquestion: {q}", "'{p}' {q}", "Paragraph: {p}\n\nTell me: {q}"]
MANY = ["{p}\n\n{q}", "{p}\n\nQuestion: {q}", "{q}\n\n{p}", "Answer with the help of the passages and cite.\n\n{p}\n\n{q}", "Passages:\n\n{p}\n\n{q}", "Context:\n{p}\n\n{q}",
        "Use these sources:\n{p}\n\n{q}", "{q} Use the passages and give the number.\n\n{p}", "Below are some passages.\n\n{p}\n\nQuestion: {q} Cite like [1].",
        "{p}\n---\n{q}", "Search results:\n\n{p}\n\n{q}", "Question: {q}\n\nSources:\n{p}", "# Passages\n{p}\n\n# Question\n{q}",
        "If the passages do not say it, say so.\n\n{p}\n\n{q}"]
SYSTEM = ["Answer from the passages and cite them.\n\n{p}", "You know only this:\n{p}", "{p}"]
BEFORE = ["Please tell me: ", "Hi, ", "Question: ", "I would like to know: ", "So: ", "Quick one: ", "Hello! ", "Now, ", "Can you answer this? ", "ok, "]
AFTER = [" Please.", " Thanks!", " Be brief.", " (short answer)", " Cite it.", " Only from the text, please.", " Thank you."]


def posed(rng, shown, question, numbered):
    if rng.random() < 0.12:
        return [{"role": "system", "content": rng.choice(SYSTEM).format(p=shown)}, user(question)]
    return [user(rng.choice(MANY if numbered else ONE).format(p=shown, q=question))]


def question(rng, fact):
    """-> a question that the sentence answers, and the words that show it; None if none can be made."""
    made = rng.choice(MADE.get(fact.verb, [acting]))(rng, fact)
    return made and (made[0][0].upper() + made[0][1:], made[1])


def start(text, most):
    """The first words of a text, up to a comma."""
    return " ".join(text.split(",")[0].split()[:most])


def naming(rng, fact):
    """The subject is what it is."""
    if fact.verb not in ("is", "are", "was", "were"):
        return acting(rng, fact)
    form = rng.choice(("What {v} {s}?", "what {v} {s}", "What {v} {s} according to the text?", "Tell me what {s} {v}.", "What does the text say about {s}?",
                       "How {v} {s} described?", "Explain: {s}", "I would like to know what {s} {v}.", "Can you say what {s} {v}?", "Define {s}.", "What is known about {s}?", "What do you read about {s}?",
                       "In short, what {v} {s}?", "Please explain what {s} {v}.", "What information is there on {s}?", "Do the sources say what {s} {v}?", "I do not know what {s} {v}.", "What is written on {s}?", "What exactly {v} {s}?", "What can you tell me about {s}?"))
    return form.format(v=fact.verb, s=fact.subject), start(fact.rest, 5)


def asked_for(rng, fact):
    """Which thing has what is said of it?"""
    rest = start(fact.rest, 11)
    if len(rest.split()) < 3:
        return None
    form = rng.choice(("What {v} {r}?", "Which thing {v} {r}?", "What, according to the text, {v} {r}?", "What {v} {r}?", "Find out what {v} {r}.", "Tell me which thing {v} {r}.", "Something {v} {r}. What is it?",
                       "Do you see what {v} {r}?", "Who or what {v} {r}?", "Identify what {v} {r}.", "I am looking for something that {v} {r}.", "Please find what {v} {r}.", "Of which thing is it said that it {v} {r}?"))
    return form.format(v=fact.verb, r=rest), fact.subject


def acting(rng, fact):
    """What the subject does, can or must do."""
    if fact.verb in library.VERBS:
        verb = library.VERBS[fact.verb]
        form = rng.choice(("What does {s} {v}?", "what does {s} {v}", "What will {s} {v}?", "Say what {s} does {v}.", "I want to know what {s} does {v}.", "Can you tell what {s} will {v}?", "What can {s} {v}?", "What, by the text, does {s} {v}?", "Does {s} {v} anything, and what?",
                           "Find what {s} does {v}.", "There is something that {s} will {v}. What?", "What is it that {s} does {v}?"))
        if rng.random() < 0.3:
            return asked_for(rng, fact)
        return form.format(s=fact.subject, v=verb), start(fact.rest, 4)
    rest = fact.rest.split()
    form = rng.choice(("What {a} {s} {r}?", "How {a} {s} {r}?", "When {a} {s} {r}?", "Why {a} {s} {r}?", "Tell me how {s} {a} {r}.", "Is it said that {s} {a} {r}?", "I ask myself whether {s} {a} {r}.", "In which way {a} {s} {r}?", "Find the sentence on how {s} {a} {r}.", "{a} {s} {r}?"))
    return form.format(a=fact.verb, s=fact.subject, r=" ".join(rest[:rng.randint(1, 4)])), " ".join(rest[:4])


def measured(rng, fact):
    """A number in the sentence."""
    found = [m for m in library.NUMBER.finditer(fact.rest)]
    if not found:
        return naming(rng, fact)
    number = rng.choice(found)
    after = fact.rest[number.end():].strip(" .,").split()
    if after and after[0].isalpha() and after[0].endswith("s"):
        return rng.choice(("How many {n} {v} {s}?", "How many {n} does the text give for {s}?", "What number of {n} is given for {s}?")).format(
            n=after[0], v=fact.verb, s=fact.subject), number.group()
    return rng.choice(("Which number is given for {s}?", "When {v} {s} {r}?", "What figure does the text have on {s}?")).format(
        s=fact.subject, v=fact.verb, r=" ".join(fact.rest[:number.start()].split()[:3])), number.group()


BEING = [naming, naming, asked_for, measured]
MADE = {"is": BEING, "are": BEING, "was": BEING, "were": BEING}


def make(rng, thinking=None, **wanted):
    return reading.make(rng, sys.modules[__name__], thinking, **wanted)
