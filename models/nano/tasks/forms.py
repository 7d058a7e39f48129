"""One word in many forms: lower case, with a capital, as part of a name in snake or camel case. Each form of a word is cut into other tokens
("rotate" is one, "Rotate" three others), and only use tells that they are the same word: what is asked of a tool is found by it in its
declaration. Trained, not asked in a row of its own.
"""
from . import toolbox
from .sample import Sample, alone, assistant, held_out, plain, user

WORDS = sorted(set([*toolbox.NOUNS, *toolbox.VERBS, *toolbox.drawn.VERBS, *toolbox.PARAMETERS]))
STYLES = {
    "lower case": lambda words: " ".join(words), "capitals at the beginning": lambda words: " ".join(w.capitalize() for w in words),
    "snake case": "_".join, "kebab case": "-".join, "camel case": toolbox.camel, "pascal case": lambda words: "".join(w.capitalize() for w in words),
    "dotted": ".".join, "a sentence": lambda words: " ".join(words).capitalize() + ".",
}
ASKS = ["Write {w} in {s}.", "{w} in {s}", "Write this in {s}: {w}", "What is {w} in {s}?", "Put {w} into {s}."]


def make(rng, test=False, thinking=None):
    wanted = rng.choice(list(STYLES))
    count = rng.choice((1, 2, 3, 3, 4, 5))
    groups = [[rng.choice(WORDS) for _ in range(rng.choice((1, 2, 2, 3)))] for _ in range(count)]
    shown = [STYLES[rng.choice(list(STYLES))](words) for words in groups]
    made = [STYLES[wanted](words) for words in groups]
    key = "forms " + " ".join(made)
    if held_out(key) != test:
        return make(rng, test, thinking)
    joined = ", ".join(rng.choice((f"{w}", f"{w}", f'"{w}"')) for w in shown)
    text = rng.choice(ASKS).format(w=joined, s=wanted)
    reply = ", ".join(map(alone, made))
    thinking = rng.random() < 0.5 if thinking is None else thinking
    thought = "\n".join(f"{alone(words)}: {alone(own)}" for words, own in zip(shown, made)) if thinking else None
    return Sample("strings", key, [user(text), assistant(reply, thought)], thinking, expect=("forms", plain(reply)))
