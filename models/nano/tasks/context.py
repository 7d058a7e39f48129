"""Answers that stand in the prompt: records among filler, from 40 to 3,000 tokens, one question or several."""
from . import wording
from .sample import Sample, assistant, held_out, user
from .words import ANIMALS, CITIES, COLORS, DAYS, FIRST, JOBS, LAST, THINGS, clock, date, full_name, invented

TOKENS_PER_WORD = 1.45      # of this text under the model's tokenizer, measured


def code(rng):
    return str(rng.randint(1000, 9999))


def pick(values):
    return lambda rng: rng.choice(values)


# (record, question, how a subject is drawn, how a value is drawn)
RECORDS = [
    ("The access code of the {s} locker is {v}.", "What is the access code of the {s} locker?", lambda r: invented(r).title(), code),
    ("The password for {s} is {v}.", "What is the password for {s}?", full_name, lambda r: invented(r, 3)),
    ("{s} works as a {v}.", "What does {s} work as?", full_name, pick(JOBS)),
    ("{s} was born in {v}.", "Where was {s} born?", full_name, pick(CITIES)),
    ("The favourite colour of {s} is {v}.", "What is the favourite colour of {s}?", full_name, pick(COLORS)),
    ("The {s} project is led by {v}.", "Who leads the {s} project?", lambda r: invented(r).title(), full_name),
    ("The meeting with {s} is at {v}.", "At what time is the meeting with {s}?", full_name, clock),
    ("The {s} train leaves on {v}.", "On which day does the {s} train leave?", lambda r: invented(r).title(), pick(DAYS)),
    ("{s} owns a {v}.", "Which animal does {s} own?", full_name, pick(ANIMALS)),
    ("Room {s} is reserved for {v}.", "For whom is room {s} reserved?", lambda r: str(r.randint(100, 999)), full_name),
    ("The {s} contract was signed on {v}.", "When was the {s} contract signed?", lambda r: invented(r).title(), date),
    ("The serial number of the {s} is {v}.", "What is the serial number of the {s}?",
     lambda r: f"{r.choice(COLORS)} {r.choice(THINGS)}", lambda r: invented(r, 1).upper() + "-" + code(r)),
]

WHO = ["The old miller", "A tired traveller", "The young clerk", "My neighbour", "The captain", "A quiet child", "The gardener", "Our guide",
       "The librarian", "A street musician", "The night guard", "The baker's son", "A group of students", "The postman", "The innkeeper"]
DID = ["walked slowly across", "waited a long time near", "looked for a key behind", "sang a song in front of", "found an old coin under",
       "took a photograph of", "told a story about", "painted a picture of", "left a letter beside", "swept the leaves away from",
       "rested in the shade of", "drew a small map of", "forgot an umbrella at", "bought some bread close to"]
WHERE = ["the stone bridge", "the market hall", "the river bank", "the empty station", "the school garden", "the harbour wall", "the bell tower",
         "the village well", "the town library", "the north gate", "the wooden pier", "the mountain road", "the glass house", "the mill pond"]
WHEN = ["at noon", "in the early morning", "before the rain came", "late in the evening", "on a cold day", "while the bells rang", "last summer",
        "after the harvest", "without saying a word", "as the sun went down", "during the holidays", "for no clear reason"]


def filler(rng):
    return f"{rng.choice(WHO)} {rng.choice(DID)} {rng.choice(WHERE)} {rng.choice(WHEN)}."


def record(rng):
    text, question, subject, value = rng.choice(RECORDS)
    s, v = subject(rng), value(rng)
    return text.format(s=s, v=v), question.format(s=s), (text, s), v


def document(rng, tokens):
    """-> text of about that many tokens, its records [(statement, question, value)], no subject twice in one relation."""
    words, lines, records, seen = tokens / TOKENS_PER_WORD, [], [], set()
    density, used = rng.choice((0.15, 0.4, 0.8)), 0
    while used < words or not records:
        if rng.random() < density or (used >= words and not records):
            statement, question, subject, value = record(rng)
            if subject in seen:
                continue
            seen.add(subject)
            records.append((statement, question, value))
            line = statement
        else:
            line = filler(rng)
        lines.append(line)
        used += len(line.split())
    if not rng.randrange(4):
        return "\n".join(f"- {line}" for line in lines), records
    paragraph, text = rng.randint(3, 9), []
    for i, line in enumerate(lines):
        text.append(line + ("\n\n" if i % paragraph == paragraph - 1 else " "))
    return "".join(text).strip(), records


ASK = ["{t}\n\nQuestion: {q}", "Read this text.\n\n{t}\n\n{q}", "{q}\n\n{t}", "Here are some notes:\n\n{t}\n\n{q}",
       "{t}\n\nAnswer from the text: {q}", "Context:\n{t}\n\nQuestion: {q}"]


def length(rng):
    """Log-uniform in 40..3,300 tokens, the far end seen a little more than it would be."""
    if rng.random() < 0.25:
        return rng.randint(2000, 3300)
    return int(40 * (80 ** rng.random()))


NOT_THERE = "That is not in the text."
NOT_THERE_ONE_IN = 5        # of the questions in training


def stranger(rng, subjects):
    """-> a question whose answer is not there: of someone who is not in the text, or is, with another thing said of them; what would
    answer it; and how that would begin."""
    known = [(other, s) for other, s in subjects if rng.random() < 0.5]
    while True:
        text, question, subject, value = rng.choice(RECORDS)
        kin = [s for other, s in known if other != text and SUBJECT_OF[other] == SUBJECT_OF[text]]
        s = rng.choice(kin) if kin else subject(rng)
        if (text, s) not in subjects:
            return question.format(s=s), text.format(s=s, v=value(rng)), text.split("{v}")[0].format(s=s).strip()


# Which statements are of subjects of one kind.
SUBJECT_OF = {text: ("person" if subject is full_name else "room" if "Room" in text else "thing" if "serial" in text else "name")
              for text, _, subject, _ in RECORDS}


def subjects_of(records):
    """-> {(statement's form, subject): True} of a document's records, in their order: a set's order is another one in each process."""
    found = {}
    for statement, question, value in records:
        for text, _, _, _ in RECORDS:
            before, after = text.split("{s}")
            middle, end = after.split("{v}")
            if statement.startswith(before) and statement.endswith(f"{middle}{value}{end}"):
                found[text, statement[len(before):len(statement) - len(f"{middle}{value}{end}")]] = True
    return found


def make(rng, test=False, thinking=None, tokens=None, form=None, several=None):
    """`form` as in arithmetic.py; one question where `several` is false."""
    text, records = document(rng, tokens or length(rng))
    if several is None:
        several = not test and rng.random() < 0.65
    chosen = rng.sample(records, min(len(records), rng.randint(2, 8))) if several else [rng.choice(records)]
    if not test:
        subjects = subjects_of(records)
        for i in range(len(chosen)):
            if not rng.randrange(NOT_THERE_ONE_IN):
                question, begin = unanswered(rng, subjects, test)
                chosen[i] = (NOT_THERE, question, begin)
    statement, question, value = chosen[-1]
    key = f"context {statement}"
    if statement != NOT_THERE and held_out(key) != test:
        return make(rng, test, thinking, tokens, form, several)
    thinking = rng.random() < 0.5 if thinking is None else thinking
    messages = []
    for i, (said, asked, _) in enumerate(chosen):
        messages.append(user(asked if i else first_ask(rng, text, asked, test, form)))
        last = thinking and i == len(chosen) - 1
        messages.append(assistant(said, thought_of(value if said == NOT_THERE else sought(said, value), said) if last else None))
    return Sample("context", key, messages, thinking, expect=NOT_THERE if statement == NOT_THERE else value, learn_history=True)


def first_ask(rng, text, question, test, form):
    if form or (not test and rng.random() < 0.5):
        return wording.request(rng, "context", dict(t=text, q=question), form == "new")
    return rng.choice(ASK).format(t=text, q=question)


def thought_of(sought, said, where="The text"):
    """First the words that stand before the value where it is told, then what follows them, if they are there at all."""
    return f"I look for: {sought}\n" + (f"{where} does not say it." if said == NOT_THERE else f"{where} says: {said}")


def sought(statement, value):
    return statement[:statement.rindex(value)].strip()


def unanswered(rng, subjects, test):
    while True:
        question, would_be, begin = stranger(rng, subjects)
        if held_out(f"context absent {would_be}") == test:
            return question, begin


def absent(rng, thinking, tokens):
    """A test: a question that the text does not answer."""
    text, records = document(rng, tokens)
    question, begin = unanswered(rng, subjects_of(records), True)
    messages = [user(rng.choice(ASK).format(t=text, q=question)), assistant(NOT_THERE, thought_of(begin, NOT_THERE) if thinking else None)]
    return Sample("context", f"context absent {question}", messages, thinking, expect="not in the text")
