"""What is asked of the model: the rows of its card, with how many questions, the floor below which it does not ship, and the aim."""
from tasks import arithmetic, beyond, context, conversation, extract, facts, followup, passages, strings, talk, toolbox, tools
from tasks.sample import Sample

# label -> (instances, how one is made, floor to ship or None, aim or None)
TASKS = {
    "arithmetic, thinking": (200, lambda r: arithmetic.make(r, True, True), 0.90, 0.95),
    "arithmetic, direct": (200, lambda r: arithmetic.make(r, True, False), None, None),
    "arithmetic, 3 x 3 digits": (50, lambda r: products(r), None, 0.95),
    "strings": (160, lambda r: strings.make(r, True, True), 0.80, 0.90),
    "strings, direct": (80, lambda r: strings.make(r, True, False), None, None),
    "context, 256 tokens": (80, lambda r: context.make(r, True, tokens=256), 0.95, 0.98),
    "context, 1,024 tokens": (60, lambda r: context.make(r, True, tokens=1024), None, 0.95),
    "context, 3,000 tokens": (40, lambda r: context.make(r, True, tokens=3000), None, 0.90),
    "tool calls": (120, lambda r: tools.make(r, True), 0.90, 0.97),
    "answers from a tool": (60, lambda r: tools.make(r, True), None, None),
    "answers from a tool, other names": (120, lambda r: tools.make(r, True, foreign=True), 0.85, 0.95),
    "JSON to schema": (120, lambda r: extract.make(r, True), None, 0.95),
    "facts, trained": (120, lambda r: facts.make(r, True, row=r.choice(facts.TRAINED)), None, 0.95),
    "facts, withheld": (120, lambda r: facts.make(r, True, row=r.choice(facts.WITHHELD)), None, None),
    "several turns": (80, lambda r: talk.make(r, True), None, None),
}

# How it behaves: as a user of a chat or of an agent meets it, thinking as by default.
BEHAVIOUR = {
    "follow-ups": (200, lambda r: followup.make(r, True, True), 0.90, 0.95),
    "wording, trained forms": (240, lambda r: worded(r, "trained"), 0.90, 0.95),
    "wording, new forms": (240, lambda r: worded(r, "new"), 0.80, 0.85),
    "out of its domain": (300, lambda r: beyond.make(r, True, True), 0.90, 0.95),
    "introduction, new words": (40, lambda r: talk.introduction(r, True), None, None),
    "tools never seen": (160, lambda r: toolbox.make(r, True, True, trap=False), 0.90, 0.98),
    "no tool for it": (80, lambda r: toolbox.make(r, True, True, trap=True), None, None),
    "cited passages": (160, lambda r: passages.make(r, True, True, there=True), 0.90, 0.95),
    "not in the passages": (100, lambda r: passages.make(r, True, True, there=False), 0.90, 0.95),
    "not in the text": (60, lambda r: context.absent(r, True, r.choice((60, 150, 400))), None, 0.95),
}
# label -> (conversations, how the samples of one are made, floor, aim): every turn is asked and counted, after the model's own answers.
CONVERSATIONS = {"independent questions": (60, lambda r: conversation.mixed(r, True, 4, True), 0.90, 0.95)}

# Rows that ask nothing twice.
DISTINCT = ["out of its domain"]
# Rows whose questions are inside its domain: none of them is to be refused.
INSIDE = [label for label in (*TASKS, *BEHAVIOUR) if label not in ("facts, withheld", "out of its domain", "no tool for it", "not in the passages",
                                                                  "not in the text")]
REFUSED_MAX = 0.02
# Of all answers where tools are declared.
UNDECLARED_MAX = 0.02
TOOL_ROWS = ["tool calls", "tools never seen", "no tool for it"]


def instances(rng, label, count):
    """So many questions, or conversations, of a row."""
    make = (TASKS | BEHAVIOUR | CONVERSATIONS)[label][1]
    if label not in DISTINCT:
        return [make(rng) for _ in range(count)]
    found = {}
    while len(found) < count:
        sample = make(rng)
        found[sample.key] = sample
    return list(found.values())


def products(rng):
    while True:
        sample = arithmetic.make(rng, True, True, "mul")
        _, _, a, b = sample.key.split()
        if len(a) == len(b) == 3:
            return sample


WORDED = {kind: lambda r, form, kind=kind: strings.make(r, True, True, kind, form) for kind in strings.KINDS}
WORDED |= {op: lambda r, form, op=op: arithmetic.make(r, True, True, op, form) for op in arithmetic.SIGN}
WORDED |= {"facts": lambda r, form: facts.make(r, True, True, r.choice(facts.TRAINED), form),
           "context": lambda r, form: context.make(r, True, True, r.randint(50, 200), form), "extract": lambda r, form: extract.make(r, True, None, form)}


def worded(rng, form):
    """A question of any task in one of its other forms, dressed in any way: quotes, capitals, punctuation, words around it."""
    return WORDED[rng.choice(list(WORDED))](rng, form)


def after(samples, i):
    """Turn `i` of a conversation, after the right answers to the turns before."""
    last = samples[i]
    return Sample(last.family, last.key, conversation.history(samples[:i]) + last.messages, last.thinking, last.expect, last.tools)


def instance(rng, label):
    """One question of any row; of a conversation one of its turns."""
    if label in CONVERSATIONS:
        samples = CONVERSATIONS[label][1](rng)
        return after(samples, rng.randrange(len(samples)))
    return (TASKS.get(label) or BEHAVIOUR[label])[1](rng)
