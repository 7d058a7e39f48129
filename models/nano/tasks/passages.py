"""Questions over several given passages: the answer names the number of the passage that it stands in, or says that none has it."""
from . import context, wording
from .context import NOT_THERE, record, stranger
from .sample import Sample, assistant, held_out, user
from .words import THINGS

# how a passage is shown; {i} its number, {t} its text
SHAPES = ["[{i}] {t}"] * 7 + ["Passage {i}: {t}", "({i}) {t}", "Document {i}:\n{t}", "<passage id=\"{i}\">\n{t}\n</passage>", "{i}. {t}",
          "Source {i}: {t}", "[{i}]\n{t}", "### Passage {i}\n{t}", "[{i}] Title: {h}\n{t}", "Text {i}: {t}", "<doc number={i}>{t}</doc>", "{i}) {t}",
          "Result {i} ({h}): {t}"]
ASK = ["{p}\n\n{q}", "{p}\n\nQuestion: {q}", "Answer from these passages and cite the number.\n\n{p}\n\n{q}", "{q}\n\n{p}",
       "Use the passages below.\n\n{p}\n\n{q}", "Passages:\n{p}\n\nQuestion: {q}\nCite the passage.", "Search results:\n\n{p}\n\n{q}",
       "Here are some passages.\n\n{p}\n\nWhich passage answers this? {q}", "Context:\n{p}\n\n{q} Give the source.",
       "Answer only from the passages. If it is not there, say so.\n\n{p}\n\n{q}", "I found this:\n\n{p}\n\nTell me: {q}",
       "Question: {q}\n\nPassages:\n{p}\n\nAnswer with a citation like [1]."]
SYSTEM = ["Answer from these passages and cite them by number.\n\n{p}", "Use only this:\n\n{p}", "You answer questions from passages.\n\n{p}", "{p}"]


def drawn(rng, tokens):
    """-> [(number, text)], [(statement, question, value, number)], {(form, subject): True}."""
    count = rng.randint(2, 7)
    numbers = list(range(1, count + 1))
    if rng.random() < 0.15:
        numbers = sorted(rng.sample(range(1, 40), count)) if rng.random() < 0.5 else rng.sample(range(1, 30), count)
    shown, records, subjects = [], [], {}
    density = rng.choice((0.4, 0.7, 1.0))
    for number in numbers:
        lines, used = [], 0
        words = max(8, tokens / context.TOKENS_PER_WORD / count * rng.uniform(0.5, 1.5))
        while used < words:
            if rng.random() < density:
                statement, question, subject, value = record(rng)
                if subject in subjects:
                    continue
                subjects[subject] = True
                records.append((statement, question, value, number))
                lines.append(statement)
            else:
                lines.append(context.filler(rng))
            used += len(lines[-1].split())
        shown.append((number, " ".join(lines)))
    return (shown, records, subjects) if records else drawn(rng, tokens)


def laid_out(rng, shown):
    shape, between = rng.choice(SHAPES), rng.choice(("\n", "\n\n", "\n\n"))
    return between.join(shape.format(i=i, t=t, h=f"The {rng.choice(THINGS)}") for i, t in shown)


def cited(statement, number):
    return f"{statement} [{number}]"


def pose(rng, shown, first, test):
    """The first question with its passages: in the question, or in the system turn before it."""
    p = laid_out(rng, shown)
    if rng.random() < 0.15:
        return [{"role": "system", "content": rng.choice(SYSTEM).format(p=p)}, user(first)]
    form = rng.choice(ASK)
    return [user((form if test else wording.dressed(rng, form) if rng.random() < 0.2 else form).format(p=p, q=first))]


def make(rng, test=False, thinking=None, tokens=None, there=None):
    """`there`: whether the last question has its answer in a passage; else mostly."""
    shown, records, subjects = drawn(rng, tokens or int(40 * (20 if rng.random() < 0.6 else 40) ** rng.random()))
    thinking = rng.random() < 0.6 if thinking is None else thinking
    several = 1 if test else rng.choice((1, 2, 4, 6, 8))
    asked, left = [], rng.sample(records, len(records))     # none twice: its answer could be copied from the first
    for _ in range(several):
        if not left or (rng.random() < 0.3 if there is None else not there):
            question, would_be, begin = stranger(rng, subjects)
            asked.append((NOT_THERE, question, would_be, begin))
        else:
            asked.append(left.pop())
    statement, question, value, number = asked[-1]
    absent = statement == NOT_THERE
    key = f"passages {value if absent else statement}"      # an absent one is told apart by what would have been said
    if held_out(key) != test:
        return make(rng, test, thinking, tokens, there)
    messages = []
    for i, (said, ask, value, source) in enumerate(asked):
        messages += [user(ask)] if i else pose(rng, shown, ask, test)
        last = thinking and i == len(asked) - 1
        if said == NOT_THERE:
            messages.append(assistant(NOT_THERE, context.thought_of(source, NOT_THERE, "The text") if last else None))
        else:
            thought = context.thought_of(context.sought(said, value), said) + f"\nThat is in passage {source}."
            messages.append(assistant(cited(said, source), thought if last else None))
    return Sample("passages", key, messages, thinking, expect=(None, None) if absent else (asked[-1][2], number), learn_history=True)
