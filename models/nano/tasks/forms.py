"""Words by themselves: one in many forms, lower case, with a capital, as part of a name in snake or camel case; which of several is another
word for one; which of several names has one in it. Each form of a word is cut into other tokens ("rotate" is one, "Rotate" three others), and
only use tells that they are the same word: what is asked of a tool is found by it in its declaration. Words that the tests of tools keep for
themselves are here too, without tools. Trained, not asked in a row of its own.
"""
from . import drawn, toolbox
from .sample import Sample, alone, assistant, held_out, plain, user

WORDS = sorted(set([*toolbox.NOUNS, *toolbox.VERBS, *drawn.VERBS, *toolbox.PARAMETERS]))
# (how a verb is said, the verb)
SAID = [(said, verb) for table in (toolbox.VERBS, drawn.VERBS) for verb, line in table.items() for said in line.split("|") if said != verb]
STYLES = {
    "lower case": lambda words: " ".join(words), "capitals at the beginning": lambda words: " ".join(w.capitalize() for w in words),
    "snake case": "_".join, "kebab case": "-".join, "camel case": toolbox.camel, "pascal case": lambda words: "".join(w.capitalize() for w in words),
    "dotted": ".".join, "a sentence": lambda words: " ".join(words).capitalize() + ".",
}
ASKS = ["Write {w} in {s}.", "{w} in {s}", "Write this in {s}: {w}", "What is {w} in {s}?", "Put {w} into {s}."]
MEANINGS = ["Which of these is another word for {s}: {w}?", "Another word for {s}, out of {w}?", "{w}: which of them means {s}?",
            "Which of {w} could somebody mean who says {s}?"]
NAMES = ["Which of these names has {s} in it: {w}?", "Find {s} among these names: {w}", "{w}: which one is about {s}?"]


def word(rng):
    """Any that is known, or one that nobody knows."""
    return rng.choice(WORDS) if rng.random() < 0.7 else drawn.composed(rng)


def shown(rng, word):
    return rng.choice((word, word, word.capitalize(), f'"{word}"'))


def in_style(rng):
    """Several groups of words, each in any style, in one of them."""
    wanted = rng.choice(list(STYLES))
    groups = [[word(rng) for _ in range(rng.choice((1, 2, 2, 3)))] for _ in range(rng.choice((1, 2, 3, 3, 4, 5)))]
    given = [STYLES[rng.choice(list(STYLES))](words) for words in groups]
    made = [STYLES[wanted](words) for words in groups]
    joined = ", ".join(rng.choice((g, g, f'"{g}"')) for g in given)
    thought = "\n".join(f"{alone(words)}: {alone(own)}" for words, own in zip(given, made))
    return rng.choice(ASKS).format(w=joined, s=wanted), ", ".join(map(alone, made)), thought


def means(rng):
    """One verb of several, told by what people say for it. The others are not said so."""
    said, verb = rng.choice(SAID)
    others = [v for v in (*toolbox.VERBS, *drawn.VERBS) if said not in toolbox.phrases(v) and v != said]
    among = [verb, *rng.sample(others, rng.choice((1, 2, 3, 4)))]
    rng.shuffle(among)
    text = rng.choice(MEANINGS).format(s=shown(rng, said), w=", ".join(shown(rng, v) for v in among))
    return text[0].upper() + text[1:], alone(verb), f"{alone(said)}: {alone(verb)} {alone(verb.capitalize())}"


def has(rng):
    """One name of several, told by a word in it."""
    groups = [[word(rng) for _ in range(rng.choice((2, 2, 3)))] for _ in range(rng.choice((2, 3, 4, 5, 6)))]
    wanted = rng.choice(groups[0])
    if any(wanted in words for words in groups[1:]):
        return has(rng)
    names = [toolbox.styled(rng, words) for words in groups]
    order = rng.sample(names, len(names))
    text = rng.choice(NAMES).format(s=shown(rng, wanted), w=", ".join(order))
    return text, alone(names[0]), f"{wanted} {alone(wanted)} {alone(wanted.capitalize())}: {alone(names[0])}"


def make(rng, test=False, thinking=None):
    text, reply, thought = rng.choice((in_style, in_style, means, has))(rng)
    key = f"forms {text}"
    if held_out(key) != test:
        return make(rng, test, thinking)
    thinking = rng.random() < 0.6 if thinking is None else thinking
    return Sample("strings", key, [user(text), assistant(reply, thought if thinking else None)], thinking, expect=("forms", plain(reply)))
