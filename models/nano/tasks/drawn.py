"""What tools do and are called in training beyond the tables of `toolbox.py`: more verbs with how users say them, any word as a verb or a
parameter, names that nobody could guess. Nothing here is asked in a test.

A word that was never seen is matched and copied token by token. So words are made of any token of the vocabulary too: `composed` puts one before
a syllable, which makes a word of no language, also where the token alone is a word that the tests keep for themselves.
"""
import json
import pathlib
import string
import zlib

from .words import invented

PIECES = sorted({word for token in json.loads(pathlib.Path(__file__).parents[1].joinpath("tokenizer.json").read_text())["model"]["vocab"]
                 if (word := token.lstrip("\u0120_.-<=/").lower()).isascii() and word.isalpha() and 3 <= len(word) <= 12})

# verb: how users say it. None of them is one that toolbox.py keeps for the tests.
VERBS = {
    "activate": "activate|switch on|turn on", "deactivate": "deactivate|switch off|turn off", "initiate": "initiate|begin|launch|kick off",
    "terminate": "terminate|end|finish", "suspend": "suspend|hold up", "halt": "halt|stop", "reboot": "reboot|turn off and on", "boot": "boot|launch",
    "store": "store|put away|store away", "preserve": "preserve|keep|save", "stash": "stash|put aside", "retrieve": "retrieve|get back",
    "request": "request|ask for", "demand": "demand|ask for", "obtain": "obtain|get", "acquire": "acquire|get hold of", "hire": "hire|take on",
    "hold": "hold|reserve|set aside", "rent": "rent|take", "purchase": "purchase|buy", "sell": "sell", "flip": "flip|turn over", "spin": "spin|turn",
    "twist": "twist|turn", "bend": "bend", "divide": "divide|cut up|break up", "slice": "slice|cut", "combine": "combine|put together",
    "attach": "attach|fix on", "detach": "detach|take off", "connect": "connect|join up", "disconnect": "disconnect|unplug", "assess": "assess|judge",
    "evaluate": "evaluate|judge", "score": "score|give marks to", "rank": "rank|put in order", "sort": "sort|put in order", "wash": "wash|rinse",
    "wipe": "wipe|clear", "polish": "polish|shine", "draw": "draw|sketch", "decorate": "decorate|dress up", "colour": "colour|dye",
    "describe": "describe|tell me about", "explain": "explain|make clear", "summarize": "summarize|sum up", "analyze": "analyze|study",
    "diagnose": "diagnose|find the fault of", "monitor": "monitor|watch", "observe": "observe|watch", "detect": "detect|spot", "identify": "identify|recognise",
    "locate": "locate|find", "discover": "discover|come across", "search": "search|look through", "browse": "browse|look through", "filter": "filter|sift",
    "select": "select|choose|pick", "pick": "pick|choose", "insert": "insert|put in", "append": "append|add on", "extend": "extend|make longer",
    "shorten": "shorten|make shorter", "increase": "increase|raise|turn up", "decrease": "decrease|lower|turn down", "adjust": "adjust|tune",
    "configure": "configure|set up", "install": "install|put in", "uninstall": "uninstall|take out", "upgrade": "upgrade|bring up to date",
    "migrate": "migrate|move over", "transfer": "transfer|pass on", "forward": "forward|pass on", "deliver": "deliver|bring", "dispatch": "dispatch|send off",
    "ship": "ship|send", "receive": "receive|take in", "collect": "collect|pick up", "gather": "gather|bring together", "return": "return|give back",
    "lend": "lend|loan", "borrow": "borrow", "pay": "pay|settle", "withdraw": "withdraw|take out", "deposit": "deposit|pay in", "donate": "donate|give away",
    "bill": "bill|invoice", "accept": "accept|agree to", "decline": "decline|turn down", "confirm": "confirm|make sure of", "validate": "validate|check",
    "sign": "sign|put my name to", "submit": "submit|hand in", "apply": "apply|use", "grant": "grant|give", "revoke": "revoke|take back", "block": "block|shut out",
    "allow": "allow|let in", "ban": "ban|shut out", "hide": "hide|cover", "reveal": "reveal|uncover", "highlight": "highlight|mark", "mark": "mark",
    "replace": "replace|swap", "swap": "swap|exchange", "reset": "reset|put back", "undo": "undo|take back",
    "repeat": "repeat|do again", "skip": "skip|leave out", "delay": "delay|put off", "postpone": "postpone|put off", "remind": "remind", "warn": "warn|alert",
    "greet": "greet|say hello to", "call": "call|ring", "contact": "contact|get in touch with", "join": "join|come into", "leave": "leave|get out of",
    "follow": "follow|keep up with", "share": "share|pass round", "record": "record|write down", "log": "log|write down", "read": "read|read out",
    "write": "write|put down", "edit": "edit|change", "format": "format|lay out", "compress": "compress|pack", "extract": "extract|pull out|unpack",
    "encrypt": "encrypt|scramble", "decrypt": "decrypt|unscramble", "render": "render|draw", "play": "play|put on", "mute": "mute|silence",
    "brew": "brew|make", "cook": "cook|make", "bake": "bake", "heat": "heat|warm up", "cool": "cool|chill", "feed": "feed", "water": "water",
    "plant": "plant", "harvest": "harvest|bring in", "build": "build|put up", "destroy": "destroy|knock down", "design": "design|think up",
    "test": "test|try out", "run": "run|carry out", "execute": "execute|carry out", "train": "train|teach", "fill": "fill|top up", "empty": "empty|clear out",
    "load": "load|fill", "unload": "unload|clear", "lift": "lift|pick up", "drop": "drop|let go of", "push": "push", "pull": "pull", "park": "park|leave",
    "refuel": "refuel|fill up", "navigate": "navigate|steer", "visit": "visit|go to", "explore": "explore|look round", "subscribe": "subscribe|sign on for",
    "unsubscribe": "unsubscribe|get off", "escalate": "escalate|take further", "resolve": "resolve|settle", "investigate": "investigate|look into",
}
VERBS = {verb: said for verb, said in VERBS.items() if zlib.crc32(f"toolbox {verb}".encode()) % 6}
KINDS = ["word", "word", "int", "id", "thing", "title", "bool", "person", "city", "first", "amount", "fruit", "time", "time", "date", "day", "email", "file",
         "level", "percent", "message", "currency", "color", "language"]


def odd(rng):
    """A name of letters, and sometimes digits, that is no word."""
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 6))) + (str(rng.randint(0, 99)) if rng.random() < 0.3 else "")


def composed(rng):
    return rng.choice(PIECES) + invented(rng, 1)


def verb(rng, words):
    chance = rng.random()
    if chance < 0.15:
        return rng.choice(words["verbs"])
    if chance < 0.3:
        return rng.choice(list(VERBS))
    if chance < 0.65:
        return rng.choice(words["nouns"])
    return composed(rng) if chance < 0.93 else invented(rng) if chance < 0.97 else odd(rng)


def noun(rng, words):
    chance = rng.random()
    return rng.choice(words["nouns"]) if chance < 0.75 else composed(rng) if chance < 0.92 else invented(rng)


def parameter(rng, words):
    chance = rng.random()
    return rng.choice(words["parameters"] if chance < 0.4 else words["nouns"]) if chance < 0.65 else composed(rng) if chance < 0.92 else invented(rng)


def renamed(rng, name):
    """Some names say nothing, or have a part that no description explains, as those of real services do."""
    if rng.random() < 0.08:
        return f"{composed(rng)}{rng.choice(('', '_', '.'))}{rng.choice((odd(rng), invented(rng), rng.choice(PIECES)[:3]))}"
    chance = rng.random()
    if chance < 0.88:
        return name
    part = rng.choice(("api", "svc", "x", "my", "mcp", "v1", "fn", "tool", odd(rng), odd(rng), invented(rng)))
    return f"{part}{rng.choice('_-.')}{name}" if chance < 0.95 else f"{name}{rng.choice('_-.')}{part}"


def described(rng, verb, noun, article, usual):
    if rng.random() < 0.75:
        return usual(rng, verb, noun, article)
    return rng.choice((f"A tool to {verb} {article} {noun}.", f"Can {verb} {article} {noun}", f"{verb.capitalize()} {noun}", f"To {verb} the {noun}",
                       f"{verb.capitalize()} an existing {noun}.", f"{verb.capitalize()} {article} {noun} for the user", f"Will {verb} {article} {noun}.",
                       f"{verb.capitalize()} {article} {noun} by its {rng.choice(('id', 'name', 'number'))}."))
