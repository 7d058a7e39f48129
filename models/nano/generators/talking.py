"""Small talk, and questions outside the domain. An author brings TALK {kind: forms} and OUTSIDE, forms with fields."""
import string

from tasks import beyond
from tasks.sample import Sample, assistant, user

from . import library, solve, words
from .made import smalltalk

# What has no reply among those of the other families.
OFFER = beyond.CANNOT[beyond.CANNOT.index(beyond.MARK):]
OWN = {"statement": f"I see. {OFFER} What shall it be?", "sorry": "No problem. How can I help you?", "anger": "I am sorry. I am a very small model and make mistakes.",
       "okay": f"OK. {OFFER} What shall it be?", "bored": "Let us try something: give me a sum, a word to reverse or a text with a question."}
FROM_PASSAGES = 0.3         # of the questions outside are about what some documentation says, and no text is there


def field(rng, name):
    """What a form names: a kind of words.py, or one of the lists of the other families that training reads."""
    if name in beyond.TRAINED_LISTS:
        return str(rng.choice(beyond.TRAINED_LISTS[name]))
    return str(words.KINDS[name](rng))


def filled(rng, form):
    return form.format_map({name: field(rng, name) for _, name, _, _ in string.Formatter().parse(form) if name})


def loose(rng, text):
    chance = rng.random()
    if chance < 0.18:
        text = text.lower()
    elif chance < 0.3:
        text = text.rstrip(".?!")
    elif chance < 0.36:
        text = words.typo(rng, text)
    elif chance < 0.40:
        text = text.upper()
    elif chance < 0.46:
        text += rng.choice(("!", "!!", " :)", "...", " ?"))
    return text


def talk(rng, author, thinking=None):
    kind = "statement" if author.BY_RULE and rng.random() < 0.2 else rng.choice(list(author.TALK))
    by_rule = author.BY_RULE and rng.random() < author.BY_RULE and smalltalk.made(rng, kind)
    ask = loose(rng, by_rule or filled(rng, rng.choice(author.TALK[kind])))
    reply = OWN.get(kind) or solve.REPLIES[kind]
    thinking = rng.random() < 0.6 if thinking is None else thinking
    return Sample("said", ask, [user(ask), assistant(reply, solve.TALK_THOUGHT if thinking else None)], thinking)


def outside(rng, author, thinking=None, held_out=False):
    if rng.random() < FROM_PASSAGES:
        ask = None
        while ask is None:
            _, _, paragraphs = library.LIBRARY.document(rng, held_out)
            facts = list(filter(None, map(library.fact, library.sentences(rng.choice(paragraphs)))))
            ask = facts and author.passages.question(rng, rng.choice(facts)) or None
        ask = ask[0]
    else:
        ask = filled(rng, rng.choice(author.OUTSIDE))
    ask = loose(rng, ask)
    thinking = rng.random() < 0.6 if thinking is None else thinking
    return Sample("outside", ask, [user(ask), assistant(solve.CANNOT, solve.CANNOT_THOUGHT if thinking else None)], thinking)
