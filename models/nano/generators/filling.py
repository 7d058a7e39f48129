"""Forms of any shape, filled from sentences whose parts play any role, in any layout. An author brings the wording of the task, ORDERS."""
from tasks.sample import Sample, assistant, user

from . import solve, words
from .made import events, frames, shapes


def restyled(rng, keys):
    """The keys in one of the ways that programs have."""
    chance = rng.random()
    parts = [k.split("_") for k in keys]
    if chance < 0.6:
        return keys
    if chance < 0.75:
        return [p[0] + "".join(w.capitalize() for w in p[1:]) for p in parts]
    if chance < 0.85:
        return ["-".join(p) for p in parts]
    if chance < 0.92:
        return ["".join(w.capitalize() for w in p) for p in parts]
    return [f"{rng.choice(frames.LABELS)}_{k}" for k in keys]


def listed(rng, keys):
    chance = rng.random()
    if chance < 0.4:
        named = [f"the {shapes.spoken(k)}" if "_" not in k else k for k in keys]
        return named[0] if len(named) == 1 else ", ".join(named[:-1]) + " and " + named[-1]
    return rng.choice((", ", " / ", "; ", " | ")).join(keys if chance < 0.8 else [f'"{k}"' for k in keys])


def make(rng, author, thinking=None):
    text, found = events.told(rng)
    if rng.random() < 0.3:
        text = rng.choice((f"{text} {words.phrase(rng, 3, 8).capitalize()}.", f"{words.phrase(rng, 2, 7).capitalize()}. {text}"))
    chosen = [k for k in found if rng.random() < 0.8] or list(found)
    if rng.random() < 0.3:
        rng.shuffle(chosen)
    names = restyled(rng, chosen)
    if len(set(names)) < len(names):
        return make(rng, author, thinking)
    kinds, value = {n: found[k][0] for n, k in zip(names, chosen)}, {n: found[k][1] for n, k in zip(names, chosen)}
    if rng.random() < 0.3 and all("_" not in n and n == k for n, k in zip(names, chosen)):
        order = rng.choice(author.ORDERS["named"]).format(f=listed(rng, names))
    else:
        order = rng.choice(author.ORDERS["shaped"]).replace("{f}", shapes.shape(rng, kinds))
    ask = frames.together(rng, text, order)
    thinking = rng.random() < 0.55 if thinking is None else thinking
    return Sample("form", ask, [user(ask), assistant(solve.value_text(value), solve.fields(value) if thinking else None)], thinking, expect=value)
