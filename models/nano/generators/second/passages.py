"""Questions about passages: by their keywords, with gaps, and claims to check."""
import pathlib
import sys

from tasks.sample import user

from .. import library, reading, relations

RELATIONS = relations.table(pathlib.Path(__file__).with_name("relations.txt"))
SHAPES = ["[{i}] {t}"] * 4 + ["[{i}]\n{t}", "{i}) {t}", "Text {i}: {t}", "Paragraph {i}\n{t}", "Result {i} - {h}\n{t}", "<doc n=\"{i}\">{t}</doc>", "Excerpt {i}: {t}", "* [{i}] {t}",
          "{i}: {t}", "**[{i}]** {t}", "Snippet {i}. {t}", "[{i}] ({h}) {t}"]
BARE = ["{p}\n\n{q}", "{q}\n{p}", "CONTEXT\n{p}\n\nQUERY\n{q}", "\"\"\"\n{p}\n\"\"\"\n{q}", "Based on this: {p} -- {q}", "My notes: {p}\n\n{q}", "{q}\n\n> {p}", "Article: {p}\n\n{q}",
        "From the manual: {p}\n\n{q}", "We know the following. {p} {q}", "* {p}\n* {q}", "<text>{p}</text>\n{q}", "info: {p}\nq: {q}", "Source text:\n{p}\nMy question: {q}",
        "look at this: {p}\n{q}", "Someone wrote: {p} {q}", "Passage: {p}\n\n{q}", "Using only the following, answer.\n{p}\n{q}"]
LISTED = ["{p}\n\n{q}", "{q}\n\n{p}", "CONTEXT\n{p}\n\nQUERY\n{q}", "Evidence:\n{p}\n\nGive an answer and its source: {q}", "I have these excerpts.\n{p}\n\n{q}", "{p}\n\n>> {q}",
          "Retrieved:\n{p}\n\nuser: {q}", "Based on the documents, {q}\n\n{p}", "Documents\n=========\n{p}\n\n{q}", "Answer the query; name the source in brackets.\n{p}\nQuery: {q}",
          "{q}\nHere is what I found:\n\n{p}", "The following may or may not help.\n{p}\n\n{q}"]
RULES = ["Cite sources as [n]. Sources:\n{p}", "Knowledge base:\n\n{p}", "Stick to these excerpts.\n{p}"]
BEFORE = ["Help: ", "hey ", "Do you know, ", "Look it up: ", "Could you say ", "Excuse me. ", "For my notes: ", "Hm. ", "Right, "]
AFTER = [" Source?", " One sentence.", " thx", " Which source?", " Quote it.", " I am in a hurry.", " pls", " Do not guess."]


def posed(rng, shown, question, numbered):
    if rng.random() < 0.15:
        return [{"role": "system", "content": rng.choice(RULES).format(p=shown)}, user(question)]
    return [user(rng.choice(LISTED if numbered else BARE).format(p=shown, q=question))]


def question(rng, fact):
    """-> a question that the sentence answers, and the words that show it."""
    return rng.choice((by_words, by_words, by_words, by_topic, with_gap, claimed, by_use))(rng, fact)


def by_words(rng, fact):
    """Some of its words, in their order or not."""
    found = list(dict.fromkeys(library.keywords(fact.sentence)))
    if len(found) < 4:
        return None
    chosen = sorted(rng.sample(range(len(found)), min(len(found), rng.randint(3, 5))))
    some = [found[i] for i in chosen]
    if rng.random() < 0.2:
        rng.shuffle(some)
    form = rng.choice(("{w}?", "{w}", "about {w}", "how about {w}?", "what do we know on {w}", "Find: {w}", "Where is something on {w}?", "which source covers {w}?", "info on {w}",
                       "anything on {w}?", "keywords: {w}", "search {w}", "I need the part about {w}."))
    answer = [w for w in library.keywords(fact.rest) if w not in some] or some
    return form.format(w=rng.choice((" ", " ", ", ")).join(some)), answer[0]


def by_topic(rng, fact):
    """The subject, with a word or two of what is said."""
    said = [w for w in library.keywords(fact.rest)][:6]
    if len(said) < 2 or len(fact.subject.split()) < 2:
        return by_words(rng, fact)
    some = " and ".join(rng.sample(said, rng.randint(1, 2)))
    form = rng.choice(("What have {s} and {w} to do with each other?", "How are {s} and {w} connected?", "{s}: what about {w}?", "Is there anything on {s} and {w}?",
                       "In connection with {w}, what is said of {s}?", "{s} / {w}?", "relation of {s} to {w}", "{w} in the context of {s}", "what has {s} got to do with {w}", "something on {s} plus {w}",
                       "link between {s} and {w}?", "{s}. {w}. explain", "where do {s} and {w} come up together?", "and {s}, with regard to {w}?"))
    return form.format(s=fact.subject, w=some), " ".join(fact.rest.split()[:3])


def with_gap(rng, fact):
    """The sentence with a gap at its end or where its subject was."""
    rest = fact.rest.split()
    gap = rng.choice(("___", "...", "_____", "[?]"))
    if rng.random() < 0.5 and len(rest) > 5:
        kept = rng.randint(2, len(rest) - 3)
        return rng.choice(("Complete: {t}", "{t} -- how does it go on?", "Fill the gap: {t}", "finish this: {t}")).format(
            t=f"{fact.subject} {fact.verb} {' '.join(rest[:kept])} {gap}"), " ".join(rest[kept:kept + 3]).rstrip(".,;")
    return f"Fill in: {gap} {fact.verb} {' '.join(rest[:12])}", fact.subject


def claimed(rng, fact):
    """A claim that the sentence makes, to be shown."""
    rest = " ".join(fact.rest.split()[:rng.randint(5, 12)])
    form = rng.choice(("Where does it say that {s} {v} {r}?", "is it so that {s} {v} {r}?", "Show me that {s} {v} {r}.", "Does any source confirm that {s} {v} {r}?",
                       "I heard that {s} {v} {r}. Right?", "prove that {s} {v} {r}", "citation for: {s} {v} {r}", "{s} {v} {r}, true?", "who says {s} {v} {r}", "evidence: {s} {v} {r}"))
    return form.format(s=fact.subject, v=fact.verb, r=rest), " ".join(fact.rest.split()[:3])


def by_use(rng, fact):
    """What one would ask without the sentence in sight: the subject and the bare verb."""
    verb = library.VERBS.get(fact.verb)
    form = rng.choice(("purpose of {s}?", "role of {s}", "{s} - what for?", "and {s}?", "Remind me what {s} is about.", "meaning of {s}", "lookup {s}", "summary for {s}", "the gist on {s}", "any word on {s}?", "how does the source treat {s}", "fact about {s} pls", "details on {s}", "what's said regarding {s}"))
    if verb and rng.random() < 0.6:
        form = rng.choice(("{s} will {b} what?", "So {s} can {b} ... what?", "whatever does {s} {b}?", "the things {s} might {b}"))
    return form.format(s=fact.subject, b=verb), " ".join(fact.rest.split()[:3])


def make(rng, thinking=None, **wanted):
    return reading.make(rng, sys.modules[__name__], thinking, **wanted)
