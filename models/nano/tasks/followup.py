"""Questions that refer back: to a number, a word or a list of the turn before, or to what was asked or answered earlier."""
import re

from . import arithmetic, facts, strings, talk, wording
from .conversation import history, turns
from .sample import Sample, assistant, go_on, held_out, letters, plain, user
from .words import ANIMALS, CITIES, COLORS, FRUIT, JOBS, THINGS

ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth"]
THEN = {
    "add": ["Now add {c}.", "And plus {c}?", "Add {c} to that.", "Plus {c}.", "now add {c}", "Then add {c}.", "Add another {c}.", "{c} more?",
            "Increase it by {c}.", "What if I add {c}?", "Add {c} to the result.", "+ {c}", "And {c} more makes?", "Please add {c} to it."],
    "sub": ["Now subtract {c}.", "Minus {c}?", "Take {c} away from that.", "Then subtract {c}.", "now minus {c}", "Subtract {c} from that.",
            "{c} less?", "Decrease it by {c}.", "And if I take away {c}?", "- {c}", "Take {c} from the result.", "Please subtract {c} from it."],
    "mul": ["Now multiply it by {c}.", "Times {c}?", "Multiply that by {c}.", "now times {c}", "Then multiply by {c}.", "And {c} times that?",
            "* {c}", "Multiply the result by {c}.", "Take it {c} times.", "Please multiply it by {c}."],
}
DOUBLE = ["Double that.", "Double it.", "Now double it.", "Twice that?"]
REVERSE = ["Reverse that.", "Now reverse it.", "Reverse that word.", "And backwards?", "reverse that", "Write it backwards.", "Now backwards.",
           "Turn it around.", "Please reverse it.", "Can you reverse that word?", "What is it backwards?"]
SPELL = ["Spell it.", "Now spell that.", "Spell that word.", "And letter by letter?", "Spell it out.", "How is it spelled?", "Please spell that."]
COUNT = ["How many {c}'s are in it?", "How many {c}'s does it have?", "Count the letter {c} in it.", "And how many {c}'s are in that?",
         "How often does {c} occur in that word?", "Now count the {c}'s."]
SAME = ["And {x}?", "What about {x}?", "Now {x}.", "The same for {x}.", "Do the same with {x}.", "and {x}", "Now the same for {x}, please.",
        "How about {x}?", "Next: {x}", "{x} too.", "Now do {x}."]
SURE = ["Are you sure?", "Is that right?", "Really?", "Check that, please.", "Can you check it?", "Are you certain?", "Please verify that.",
        "That looks wrong.", "Is this correct?", "Check again."]
ASKED = {"first": ["What did I ask first?", "What was my first question?", "Which question did I ask first?", "Repeat my first question.",
                   "What was the first thing I asked?", "what did i ask at the beginning?"],
         "last": ["What was my last question?", "What did I just ask?", "Repeat my last question.", "What did I ask before this?",
                  "Which question did I ask last?", "what was my previous question"],
         "nth": ["What was my {n} question?", "What did I ask {n}?", "Repeat my {n} question."]}
ANSWERED = {"first": ["What was your first answer?", "Repeat your first answer.", "What did you answer first?", "What did you say first?"],
            "last": ["Repeat that.", "Say that again.", "What was your last answer?", "Repeat your last answer.", "Once more?", "What did you say?",
                     "I did not understand. Again, please.", "Can you repeat that?"]}


def chain(rng, test):
    """A sum, then one to three further operations, each on the result before."""
    op = rng.choice(("add", "sub", "mul"))
    a, b = rng.randint(2, 499), rng.randint(2, 499)
    a, b = (max(a, b), min(a, b)) if op == "sub" else (a % 40 + 2, b % 40 + 2) if op == "mul" else (a, b)
    result = arithmetic.apply(op, a, b)
    messages = [user(first_sum(rng, op, a, b)), assistant(f"{a} {arithmetic.SIGN[op]} {b} = {result}.")]
    key = f"chain {op} {a} {b}"
    steps = rng.choice((1, 1, 2, 3))
    for i in range(steps):
        then = rng.choice(("add", "sub", "mul")) if result < 1000 else rng.choice(("add", "sub"))
        c = rng.randint(2, 9 if then == "mul" and rng.random() < 0.7 else 99 if then == "mul" else 499)
        if then == "sub" and i < steps - 1:
            c = rng.randint(0, result)
        ask = rng.choice(THEN[then]).format(c=c)
        if then == "mul" and c == 2:
            ask = rng.choice(DOUBLE)
        if i < steps - 1 and rng.random() < 0.1:
            messages += [user("Thanks!"), assistant("You are welcome!")]
        before, result = result, arithmetic.apply(then, result, c)
        messages += [user(ask), assistant(f"{before} {arithmetic.SIGN[then]} {c} = {result}.")]
        key += f" {then} {c}"
    return key, messages, arithmetic.derive(then, before, c), result


def first_sum(rng, op, a, b):
    if rng.random() < 0.5:
        return rng.choice(arithmetic.ASK[op]).format(a=a, b=b)
    return wording.request(rng, op, dict(a=a, b=b))


def word_task(rng):
    """-> messages about a word, and the word that "it" then means."""
    kind = rng.choice(("reverse", "spell", "count", "nth", "nth"))
    while True:
        _, ask, fields, _, answer, expect = strings.KINDS[kind](rng)
        if rng.random() < 0.5:
            ask = wording.request(rng, kind, fields)
        else:
            ask = ask.format(**fields)
        it = expect if kind in ("reverse", "nth") else fields["w"]
        return kind, [user(ask), assistant(answer)], it, fields


def that_word(rng, test):
    kind, messages, it, _ = word_task(rng)
    then = rng.choice(("reverse", "reverse", "spell", "count"))
    if then == "reverse":
        ask, thought, answer, expect = rng.choice(REVERSE), strings.reversing(it), letters(it[::-1]), it[::-1]
    elif then == "spell":
        ask, thought, answer, expect = rng.choice(SPELL), f"{it}: " + " ".join(it), "-".join(it), "-".join(it)
    else:
        c = rng.choice(it)
        ask = rng.choice(COUNT).format(c=c)
        thought, answer, expect = strings.counting(c, it)
    return f"that {kind} {then} {it}", messages + [user(ask), assistant(answer)], f"It is the word {it}.\n{thought}", expect


def same_for(rng, test):
    """The task of the turn before, for another word or other numbers."""
    if rng.random() < 0.3:
        op = rng.choice(("add", "sub", "mul"))
        (a, b), (c, d) = ([rng.randint(2, 99 if op == "mul" else 999) for _ in "ab"] for _ in "ab")
        messages = [user(first_sum(rng, op, a, b)), assistant(f"{a} {arithmetic.SIGN[op]} {b} = {arithmetic.apply(op, a, b)}.")]
        result = arithmetic.apply(op, c, d)
        messages += [user(rng.choice(SAME).format(x=f"{c} {arithmetic.SIGN[op]} {d}")), assistant(f"{c} {arithmetic.SIGN[op]} {d} = {result}.")]
        return f"same {op} {c} {d}", messages, arithmetic.derive(op, c, d), result
    while True:
        kind, messages, _, fields = word_task(rng)
        if kind != "nth":
            break
    w = strings.word(rng, 4)
    ask = user(rng.choice(SAME).format(x=wording.quoted(rng, w, 0.25)))
    if kind == "reverse":
        thought, answer, expect = strings.reversing(w), letters(w[::-1]), w[::-1]
    elif kind == "spell":
        thought, answer, expect = f"{w}: " + " ".join(w), "-".join(w), "-".join(w)
    else:
        thought, answer, expect = strings.counting(fields["c"], w)
    return f"same {kind} {w}", messages + [ask, assistant(answer)], thought, expect


def asked_before(rng, test):
    samples = turns(rng, test, rng.randint(1, 4), short=True)
    which = rng.choice(("first", "first", "last", "nth"))
    i = 0 if which == "first" else len(samples) - 1 if which == "last" else rng.randrange(len(samples))
    name = ORDINALS[i] if which == "nth" else which
    said = samples[i].messages[0]["content"].strip()
    ask = rng.choice(ASKED[which]).format(n=ORDINALS[i])
    return f"asked {name} {said}", history(samples) + [user(ask), assistant(f"Your {name} question was: {said}")], f"The {name} question: {said}", said


def answered_before(rng, test):
    samples = turns(rng, test, rng.randint(1, 4), short=True)
    which = rng.choice(("first", "last", "last"))
    said = samples[0 if which == "first" else -1].messages[-1]["content"]
    ask = rng.choice(ANSWERED[which])
    return f"answered {which} {said}", history(samples) + [user(ask), assistant(said)], f"The {which} answer again.", plain(said)


def sure(rng, test):
    """The answer before is right: it is worked out again."""
    if rng.random() < 0.6:
        sample = arithmetic.make(rng, test, True)
        op, a, b = sample.key.split()[1:]
        a, b = map(int, re.findall(r"\d+", sample.messages[-1]["content"])[:2])
        answer, thought = sample.messages[-1]["content"], arithmetic.derive(op, a, b)
    else:
        sample = strings.make(rng, test, True)
        answer, thought = sample.messages[-1]["content"], sample.messages[-1]["reasoning_content"]
    ask = rng.choice(SURE)
    messages = history([sample]) + [user(ask), assistant(f"Yes: {answer}")]
    return f"sure {sample.key}", messages, thought, plain(answer)


def of_whom(rng, test):
    """A fact, then another one of the same entity, or the same of another one."""
    row = rng.choice(facts.TRAINED)
    ask = user(rng.choice(facts.ASK).format(e=row["entity"], r=row["relation"], k=facts.DOMAINS[row["domain"]][0]))
    if rng.random() < 0.5:
        other = rng.choice([r for r in facts.TRAINED if r["entity"] == row["entity"] and r is not row])
        then = rng.choice(("And its {r}?", "And the {r}?", "What is its {r}?", "What about the {r}?", "its {r}?")).format(r=other["relation"])
    else:
        other = rng.choice([r for r in facts.TRAINED if r["relation"] == row["relation"] and r["domain"] == row["domain"] and r is not row])
        then = rng.choice(("And of {e}?", "And for {e}?", "What about {e}?", "And {e}?", "the same for {e}")).format(e=other["entity"])
    thought = f"The question is about {other['entity']}: the {other['relation']}."
    # The table of facts is known whole: a test asks for a pair of questions that was not trained.
    key = f"of whom {row['entity']} {row['relation']} {other['entity']} {other['relation']}"
    return key, [ask, assistant(facts.answer(row)), user(then), assistant(facts.answer(other))], thought, other["value"]


def of_list(rng, test):
    """A list that the user gave: an item of it, their number, or the list in order."""
    items = rng.sample(rng.choice((CITIES, COLORS, ANIMALS, THINGS, FRUIT, JOBS)), rng.randint(3, 6))
    messages = [user(rng.choice(("Remember this list: {}.", "Here is my list: {}.", "Note: {}.", "My list: {}", "I have these: {}.", "Keep in mind: {}."))
                     .format(", ".join(items))), assistant(f"I noted {len(items)} items.")]
    if rng.random() < 0.4:
        messages += history(turns(rng, test, 1, short=True))
    chance, thought = rng.random(), " ".join(f"{i} {x}" for i, x in enumerate(items, 1))
    if chance < 0.25:
        ask, answer, expect = rng.choice(("How many items are in my list?", "How many things did I list?", "How long is my list?")), \
            f"There are {len(items)} items.", len(items)
    elif chance < 0.45:
        ask = rng.choice(("What was my list?", "Repeat my list.", "Tell me my list again."))
        answer = expect = ", ".join(items)
    elif chance < 0.6:
        ask, answer, expect = rng.choice(("What was the last one?", "Which one was last?", "And the last item?")), f"The last one was {items[-1]}.", items[-1]
    else:
        n = rng.randrange(len(items))
        ask = rng.choice(("What was the {n} one?", "Which one was the {n}?", "Repeat the {n} item.", "And the {n} one?", "Give me the {n} item of my list."))
        ask, answer, expect = ask.format(n=ORDINALS[n]), f"The {ORDINALS[n]} one was {items[n]}.", items[n]
        thought = " ".join(f"{i} {x}" for i, x in enumerate(items[:n + 1], 1))
    return f"of list {ask} {' '.join(items)}", messages + [user(ask), assistant(answer)], thought, expect


def recall(rng, test):
    """What the user said of themselves, with other questions in between."""
    key, messages, thought, expect = talk.recall(rng)
    between = history(turns(rng, test, rng.randint(1, 2), short=True))
    return key + " between", messages[:-2] + between + messages[-2:], thought, expect


KINDS = {"chain": chain, "that word": that_word, "same": same_for, "asked": asked_before, "answered": answered_before, "sure": sure,
         "of whom": of_whom, "of list": of_list, "recall": recall}
WEIGHTS = [24, 18, 12, 12, 7, 6, 7, 8, 8]


def make(rng, test=False, thinking=None, kind=None):
    while True:
        chosen = kind or rng.choices(list(KINDS), WEIGHTS)[0]
        key, messages, thought, expect = KINDS[chosen](rng, test)
        if held_out(key) == test:
            break
    if rng.random() < 0.2:          # another question before all of it
        messages = history(turns(rng, test, 1, short=True)) + messages if chosen not in ("asked", "answered") else messages
    if thinking is None:
        thinking = rng.random() < (0.93 if isinstance(expect, int) and not isinstance(expect, bool) else 0.7)
    if thinking:
        messages[-1] = assistant(messages[-1]["content"], go_on(rng, thought, thought, expect) if rng.random() < 0.4 else thought)
    return Sample("talk", f"followup {chosen} {key}", messages, thinking, expect=expect)
