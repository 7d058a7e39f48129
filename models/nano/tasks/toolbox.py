"""Tools drawn anew from words: names, descriptions and parameters that no other conversation has, and requests that none of them serves.

The name of a function has to be copied from its declaration; a request for something that is not declared is refused. One verb, noun and
parameter in six is never trained: with those the tests ask. What training draws besides, so that words never seen are matched and copied
like any other, is in `drawn.py`.
"""
import json
import re
import zlib

from . import drawn, tools
from .sample import Sample, alone, assistant, go_on, held_out, plain, user
from .strings import DOCUMENTED
from .words import COMMON, THINGS, invented

KEPT_ONE_IN = 6
# verb: how users say it
VERBS = {
    "get": "get|give me|show me|what is", "fetch": "fetch|bring me|get me", "find": "find|look for|locate", "list": "list|show me|name",
    "create": "create|make|set up", "update": "update|change|edit", "delete": "delete|remove|erase", "check": "check|look at|test",
    "open": "open", "close": "close|shut", "start": "start|launch|begin", "stop": "stop|halt|end", "send": "send|ship off", "move": "move|shift",
    "copy": "copy|duplicate", "count": "count|tell me the number of", "measure": "measure", "book": "book|reserve", "cancel": "cancel|call off",
    "order": "order|buy", "track": "track|follow", "scan": "scan", "print": "print", "archive": "archive|store away", "restore": "restore|bring back",
    "approve": "approve|accept", "reject": "reject|refuse", "assign": "assign", "lock": "lock", "unlock": "unlock", "enable": "enable|switch on",
    "disable": "disable|switch off", "publish": "publish|post", "verify": "verify|confirm", "schedule": "schedule|plan", "pause": "pause",
    "resume": "resume|continue", "rename": "rename", "convert": "convert|turn", "compare": "compare", "merge": "merge|join", "split": "split",
    "export": "export|save", "import": "import|load", "upload": "upload", "download": "download", "register": "register|sign up", "rate": "rate",
    "review": "review", "estimate": "estimate|guess", "inspect": "inspect|examine", "repair": "repair|fix", "refund": "refund|pay back",
    "invite": "invite|ask in", "add": "add|put in", "remove": "remove|take out", "set": "set", "show": "show|display", "lookup": "look up|search",
    "query": "query|ask for", "calculate": "calculate|compute|work out", "notify": "notify|tell", "rotate": "rotate|turn", "paint": "paint",
    "clean": "clean", "charge": "charge", "weigh": "weigh", "translate": "translate", "tag": "tag|label", "deploy": "deploy|roll out",
}
NOUNS = sorted(set([w for w in DOCUMENTED if 3 < len(w) < 12] + COMMON + THINGS + """parcel invoice order ticket user account backup server report meeting shipment contract printer sensor
room table image video message thread channel playlist recipe patient appointment exercise student lesson exam grade book loan payment card
device pump valve motor drone camera alarm firewall certificate domain queue cluster container volume build release branch commit issue token
session cookie form survey poll vote badge locker vehicle truck route station gate flight seat booking hotel guest menu dish bill tip product
stock supplier warehouse pallet barcode label coupon discount refund review comment post story photo album song podcast episode channel""".split()))
PARAMETERS = sorted(set("""id name code number reason priority amount count size color date time day city country address email phone person owner
author customer user title text note message comment label tag category kind status level state unit language format version file folder path
url host port key value query limit offset start end from to source target origin destination weight height width length depth speed angle
temperature pressure volume price cost budget currency discount rate score year month week hour minute duration interval room floor building
street seat row table group team project task item product material model brand serial batch quantity position page section chapter line
password role region zone channel topic subject signature""".split()))
KIND_OF = {"date": "date", "day": "day", "time": "time", "email": "email", "color": "color", "city": "city", "person": "person", "owner": "person",
           "author": "person", "customer": "person", "priority": "level", "level": "level", "currency": "currency", "language": "language",
           "amount": "amount", "price": "amount", "cost": "amount", "budget": "amount", "discount": "percent", "file": "file", "id": "id",
           "count": "int", "limit": "int", "quantity": "int", "number": "id", "text": "message", "message": "message", "note": "message",
           "comment": "message", "title": "title", "room": "room", "item": "thing", "product": "thing", "user": "first", "name": "word"}
OTHER_KINDS = ["word", "word", "int", "id", "thing", "title", "bool", "person", "city", "first", "amount", "fruit"]


def apart(word):
    return zlib.crc32(f"toolbox {word}".encode()) % KEPT_ONE_IN == 0


def part(words, test):
    return [w for w in words if apart(w) == test]


SPLIT = {test: dict(verbs=part(VERBS, test), nouns=part(NOUNS, test), parameters=part(PARAMETERS, test)) for test in (False, True)}
# The parameters whose kind follows from their name are few: a test may ask with those that were trained too.
SPLIT[True]["parameters"] += [p for p in KIND_OF if p not in SPLIT[True]["parameters"]][:10]
# What people say for a verb that a tool calls by another name, and that is no tool's own verb.
COLLOQUIAL = sorted({said for table in (VERBS, drawn.VERBS) for verb, line in table.items() if verb in drawn.VERBS or not apart(verb)
                     for said in line.split("|")} - set(VERBS) - set(drawn.VERBS))


def camel(words):
    return words[0] + "".join(w.title() for w in words[1:])


def styled(rng, words):
    style = rng.choice(("_", "_", "_", "_", "_", "_", "camel", "camel", "-", "pascal", "."))
    if style == "camel":
        return camel(words)
    if style == "pascal":
        return "".join(w.title() for w in words)
    return style.join(words)


def name_of(rng, nouns, verb, noun):
    chance = rng.random()
    if chance < 0.55:
        return styled(rng, [verb, noun])
    if chance < 0.68:
        return styled(rng, [noun, verb])
    if chance < 0.8:
        return styled(rng, [verb, noun, rng.choice(("by", "for", "in", "now", "v2", "data", "info", "item", "api", rng.choice(nouns)))])
    if chance < 0.87:
        return noun
    # Says nothing: only the description tells what it is for.
    return styled(rng, [invented(rng), invented(rng)]) if rng.random() < 0.6 else f"{invented(rng)}{rng.randint(1, 99)}"


def described(rng, verb, noun, article):
    return rng.choice((f"{verb.capitalize()} {article} {noun}", f"{verb.capitalize()} the {noun}", f"{verb.capitalize()} {article} {noun} of the system.",
                       f"Use this to {verb} {article} {noun}.", f"{verb.capitalize()} one {noun}", f"{verb}s {article} {noun}"))


def draw(rng, test, verb=None, noun=None):
    """-> a function: its declaration, verb, noun and [(name, how it is said, kind, needed)]."""
    words = SPLIT[test]
    verb = verb or (rng.choice(words["verbs"]) if test else drawn.verb(rng, words))
    noun = noun or (rng.choice(words["nouns"]) if test else drawn.noun(rng, words))
    name = name_of(rng, words["nouns"], verb, noun)
    if not test:
        name = drawn.renamed(rng, name)
    article = "an" if noun[0] in "aeiou" else "a"
    description = described(rng, verb, noun, article) if test else drawn.described(rng, verb, noun, article, described)
    fields, said = [], set()
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4))):
        base = rng.choice(words["parameters"]) if test else drawn.parameter(rng, words)
        spoken = [base] if rng.random() < 0.7 else [rng.choice((noun, rng.choice(words["parameters"]))), base]
        if base in said or len(set(spoken)) < len(spoken):
            continue
        said.add(base)
        fields.append((camel(spoken) if rng.random() < 0.3 else "_".join(spoken), " ".join(spoken),
                       KIND_OF.get(base) or rng.choice(OTHER_KINDS if test else drawn.KINDS), rng.random() < 0.75))
    properties = {}
    for own, spoken, kind, _ in fields:
        properties[own] = dict(tools.KINDS[kind][0])
        if rng.random() < 0.45:
            properties[own]["description"] = rng.choice((f"The {spoken}", f"{spoken.capitalize()} of the {noun}", f"The {spoken} to use"))
    parameters = {"type": "object", "properties": properties, "required": [own for own, _, _, needed in fields if needed]}
    if rng.random() < 0.15:
        parameters["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}, verb, noun, fields


def wish(rng, verb, noun, fields, said=None):
    """-> a request for this function, {parameter: value}, how the verb was said."""
    values = {own: tools.KINDS[kind][1](rng) for own, _, kind, needed in fields if needed or rng.random() < 0.5}
    said = said or (rng.choice(phrases(verb)) if rng.random() < 0.5 else verb)
    article = rng.choice(("the", "the", "a" if noun[0] not in "aeiou" else "an", "my", "this"))
    if said == verb and rng.random() < 0.25:
        begin = rng.choice((f"I want to {verb} {article} {noun}", f"Can you {verb} {article} {noun}", f"Please {verb} {article} {noun}",
                            f"I need to {verb} {article} {noun}", f"Could you {verb} {article} {noun}", f"Let's {verb} {article} {noun}"))
    else:
        begin = f"{said.capitalize()} {article} {noun}"
    spoken = [(name, tools.as_text(values[own])) for own, name, _, _ in fields if own in values]
    if len(spoken) == 1 and rng.random() < 0.45 and spoken[0][1] not in ("true", "false"):
        text = f"{begin} {spoken[0][1]}"
    elif spoken:
        joint = rng.choice((" {n} {v}", " {n}: {v}", " {n} = {v}", " {n}={v}", " {n} {v}", " the {n} {v}", " {n} is {v}"))
        parts = [joint.format(n=n, v=v).strip() for n, v in spoken]
        lead = rng.choice((" with ", ", ", " with ", ": ", ". ", " for ", " using "))
        text = begin + lead + rng.choice((", ", " and ", ", ", "; ")).join(parts)
    else:
        text = begin
    chance = rng.random()
    text = text.lower() if chance < 0.08 and text.lower() == begin.lower() else text
    text += "?" if begin.startswith(("Can", "Could", "What")) else rng.choice((".", ".", "", "!", " please"))
    return text, values, said


def phrases(verb):
    """How users say a verb."""
    return (VERBS.get(verb) or drawn.VERBS.get(verb) or verb).split("|")


def known(verb):
    return verb in VERBS or verb in drawn.VERBS


def confusable(functions, verb, noun):
    """Whether a request for this verb and noun may be meant for a function that is there already."""
    return any(f[2] == noun and set(phrases(f[1])) & set(phrases(verb)) for f in functions)


def toolset(rng, test):
    """-> functions with different names; half of the time one is like the first, with another verb or noun."""
    first = draw(rng, test)
    functions = [first]
    for i in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5))):
        near = i == 0 and rng.random() < 0.5 if test else rng.random() < 0.35
        functions.append(draw(rng, test, *(((None, first[2]) if rng.random() < 0.5 else (first[1], None)) if near else ())))
    names = {f[0]["function"]["name"] for f in functions}
    pairs = {(f[1], f[2]) for f in functions}
    clear = test or not any(confusable(functions[:i], f[1], f[2]) for i, f in enumerate(functions))
    return functions if clear and len(names) == len(pairs) == len(functions) else toolset(rng, test)


def declared_in(rng, functions):
    declared = [f[0] for f in rng.sample(functions, len(functions))]
    return json.loads(json.dumps(declared, sort_keys=True)) if rng.random() < 0.25 else declared


def serve(rng, functions, test, thinking):
    """A request that the first function serves, and the answer from its response."""
    declaration, verb, noun, fields = functions[0]
    # A verb that means nothing to the model may be what a common word for it stands for, where nothing else is done with that noun.
    alone_with = not test and not known(verb) and all(f[2] != noun for f in functions[1:])
    text, values, asked = wish(rng, verb, noun, fields, rng.choice(COLLOQUIAL) if alone_with and rng.random() < 0.15 else None)
    call = (declaration["function"]["name"], values)
    response, said = reply_of(rng)
    thought = f"{wanted(text, asked, verb, noun)}{declaration['function']['description']}: {tools.call_thought(*call)}" if thinking else None
    if thinking and rng.random() < 0.1:
        thought = go_on(rng, thought, thought, alone(call[0]))
    messages = [user(text), assistant("", thought, [call]), {"role": "tool", "content": response},
                assistant(said, "The tool answered." if thinking else None)]
    return "toolbox " + json.dumps(call, sort_keys=True), messages, ([call], said)


def wanted(text, said, verb, noun):
    """What is asked for, in the very tokens of the request, and in those that a declaration may have for it: behind a blank, at the beginning
    of a name, with a capital. Next to each other they are found there, or not."""
    begin = text[:len(said)]
    own = " ".join(alone(word) for form in (verb, noun) for word in (form, form.capitalize()))
    return f"Wanted: {alone(begin) if begin.lower() == said.lower() else said} {noun}.\nWords: {verb} {noun} {own}\n"


def reply_of(rng):
    """-> what a tool sends back, and what is said of it."""
    if rng.random() < 0.12:
        error = rng.choice(("not found", "no such id", "permission denied", "timeout", "invalid value", "service unavailable"))
        return json.dumps({"error": error}), f"The tool reported an error: {error}."
    names = rng.sample(SPLIT[False]["parameters"], rng.choice((1, 1, 2, 3)))
    values = {name: tools.KINDS[KIND_OF.get(name) or rng.choice(OTHER_KINDS)][1](rng) for name in names}
    return json.dumps(values), "The result: " + ", ".join(f"{name} is {tools.as_text(value)}" for name, value in values.items()) + "."


def refuse(rng, functions, declared, test, thinking):
    """A request that nothing declared serves: another drawn function's, or one of the trained ones'."""
    if rng.random() < 0.6:
        text, begin = other_wish(rng, functions, test)
    else:
        (text, _), begin = tools.ask_for(rng, rng.choice(tools.TABLE)), ""
    messages = tools.refusal(text, declared, thinking, begin)
    return f"toolbox none {text}", messages, ([], plain(messages[-1]["content"]))


def other_wish(rng, functions, test):
    """-> a request for what no declared function does, half of the time with the verb or the noun of one; how a thought of it begins."""
    taken = {(f[1], f[2]) for f in functions}
    like = functions[0] if rng.random() < 0.5 else None
    while True:
        _, verb, noun, fields = draw(rng, test, *(rng.choice(((like[1], None), (None, like[2]))) if like else ()))
        if (verb, noun) not in taken and not any({verb, noun} <= set(re.findall("[a-z]+", str(f[0]).lower())) for f in functions) \
                and (test or not confusable(functions, verb, noun)):
            break
    # A common word for a verb, where a function of this noun has a verb that means nothing, is that function's: here it would teach the opposite.
    plainly = not test and any(f[2] == noun and not known(f[1]) for f in functions)
    text, _, asked = wish(rng, verb, noun, fields, verb if plainly else None)
    return text, wanted(text, asked, verb, noun)


def beside(rng, functions, declared, test, thinking):
    """Tools are there, and the question has nothing to do with them."""
    from . import conversation
    sample = conversation.turns(rng, test, 1, thinking, short=True)[0]
    return f"toolbox beside {sample.key}", sample.messages, ([], sample.messages[-1]["content"])


def make(rng, test=False, thinking=None, trap=None):
    """`trap`: whether the request is one that no declared function serves; else it is drawn."""
    functions = toolset(rng, test)
    declared = declared_in(rng, functions)
    thinking = rng.random() < 0.7 if thinking is None else thinking
    chance = rng.random()
    if trap or (trap is None and chance < 0.22):
        key, messages, expect = refuse(rng, functions, declared, test, thinking)
    elif trap is None and chance < 0.34 and not test:
        key, messages, expect = beside(rng, functions, declared, test, thinking)
    else:
        key, messages, expect = serve(rng, functions, test, thinking)
    if held_out(key) != test and not test:
        return make(rng, test, thinking, trap)
    if not test:
        messages = before(rng, functions, declared) + messages
    # A service sends earlier calls as text, where a name is cut into tokens with what stands before it: without loss they are read so.
    return Sample("tools", key, messages, thinking, expect=expect, tools=declared, learn_history=test or rng.random() < 0.85)


def before(rng, functions, declared):
    """Earlier turns with the same tools, whose calls are learned too: a declaration is long, and read only once."""
    messages = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
        if rng.random() < 0.8:
            functions = rng.sample(functions, len(functions))
            messages += serve(rng, functions, False, False)[1]
        else:
            messages += refuse(rng, functions, declared, False, False)[1]
    return messages
