"""Extraction from sentences about people, things and events into a form that the question gives."""
import json
import sys

from tasks.sample import Sample, assistant, user

from .. import filling, solve, values, words

# slots: kind and the keys that it may go by; the texts that have them
KEYS = {"name": ("person", "name full_name person who"), "given": ("first", "name first_name given_name"), "age": ("small", "age years age_years"),
        "city": ("town", "city town place location home"), "job": ("job", "job profession occupation work"), "mail": ("email", "email mail email_address contact"),
        "phone": ("phone", "phone telephone phone_number tel"), "country": ("country", "country nation"), "hobby": ("hobby", "hobby pastime sport"),
        "children": ("people", "children kids"), "thing": ("thing", "item product article thing object"), "price": ("decimal", "price cost amount total"),
        "count": ("small", "quantity count number units"), "color": ("color", "color colour"), "firm": ("proper", "company firm shop seller organisation"),
        "date": ("date", "date day when"), "iso": ("iso", "date day event_date"), "time": ("time", "time start hour"), "event": ("proper", "event title name"),
        "guests": ("people", "guests people participants names"), "code": ("code", "code id reference number"), "weekday": ("weekday", "day weekday"),
        "material": ("material", "material"), "foods": ("foods", "ingredients food dishes items"), "dish": ("proper", "dish recipe name"), "minutes": ("small", "minutes duration time_minutes"),
        "weight": ("decimal", "weight weight_kg kg"), "numbers": ("numbers", "numbers scores results values"), "towns": ("towns", "stops cities route places"), "file": ("file", "file filename path"),
        "version": ("code", "version release"), "size": ("int", "size bytes kilobytes")}
TEXTS = """{given} is {age} years old.|{given} is {age}.|{given} is {age} and lives in {city}.|{name} ({age}) works as a {job}.|{name} is a {age}-year-old {job} from {city}.
{name} lives in {city}, {country}.|My name is {name} and I am {age} years old.|I am {given}, {age}, a {job} in {city}.|{name} likes {hobby}. Write to {mail}.
{name}, phone {phone}, mail {mail}.|Call {name} on {phone}.|{given} has children: {children}.|{given} from {country} turned {age} on {date}.|{name} was born on {iso} in {city}.
{firm} sells the {thing} for {price} euros.|The {color} {thing} costs {price}.|We ordered {count} of the {thing} from {firm}.|Order {code}: {count} x {thing} at {price}.
A {thing} made of {material} weighs {weight} kg and costs {price}.|{firm} delivered {count} boxes on {date}.|Invoice {code} of {firm} over {price} euros is due on {iso}.
The {event} takes place in {city} on {date} at {time}.|On {weekday} at {time} {guests} meet in {city}.|{event} starts on {iso}.|{name} invites {guests} to {city} on {date}.
For {dish} you need {foods} and {minutes} minutes.|{dish} takes {minutes} minutes. It contains {foods}.|The bus stops at {towns}.|{given} scored {numbers}.|The results were {numbers}.
The file {file} has {size} bytes and version {version}.|{name} uploaded {file} on {date}.|{given} travelled to {towns} in {count} days.|Ticket {code} was opened by {name} at {time}.
{name} bought a {thing} for {price} at {firm} in {city}.|{given} plays with {guests}. The hobby is {hobby}.|{firm} is based in {city} and has {count} employees.""".replace("\n", "|").split("|")
ORDERS = {"named": ["Extract {f} as JSON.", "Give me {f} as JSON.", "Write {f} as a JSON object.", "Answer with JSON that has {f}.", "Which JSON holds {f}?", "I need {f} in JSON form."],
          "shaped": ["Fill in this form: {f}", "{f}", "The answer has this form:\n{f}", "Answer as {f}", "Fill it from the text.\n{f}", "Give JSON of this kind:\n{f}", "JSON that fits this schema:\n{f}",
                     "The form:\n{f}", "Complete the form {f}", "Write JSON after this pattern: {f}"]}
NOISE = ["It was a good day.", "Nothing else happened.", "Please confirm.", "The weather was fine.", "More will follow.", "Many thanks.", "We are looking forward to it.", "See below."]
ASK = ["Extract {f} as JSON: {t}", "Extract {f} as JSON.\n\n{t}", "{t}\n\nGive me {f} as JSON.", "Return {f} in JSON form. Text: {t}", "From the text, extract {f}. Answer with JSON.\n{t}",
       "Text: {t}\nJSON with {f}:", "Read: \"{t}\" Write {f} as a JSON object.", "{t} -> JSON ({f})", "Please turn this into JSON with the keys {f}: {t}", "Fields: {f}\nText: {t}\nAnswer in JSON only.",
       "Get {f} from this text and reply in JSON.\n\"{t}\"", "convert to json, keys {f}: {t}"]
FORM = ["Fill in this form: {f}\n\n{t}", "{t}\n\nFill this JSON: {f}", "Extract the data as {f}. Text: {t}", "Answer in the form {f}\n\nText: {t}", "Output format: {f}\nInput: {t}",
        "Text: {t}\n\nSchema: {f}", "Extract JSON that fits this schema.\n{f}\n\n{t}", "Here is a JSON schema:\n{f}\n\nHere is a text:\n{t}\n\nGive the object.", "schema = {f}\ntext = \"{t}\""]
TYPE_NAMES = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "date": "YYYY-MM-DD", "strings": "list of strings", "integers": "list of integers"}


def told(rng):
    """-> a text, {key: (kind, value)} in the order of the text."""
    texts = rng.sample(TEXTS, rng.choice((1, 1, 1, 2, 2, 3)))
    found, parts = {}, []
    for text in texts:
        said = {}
        for slot, (kind, keys) in KEYS.items():
            if "{" + slot + "}" in text:
                value, said[slot] = values.draw(rng, kind)
                key = rng.choice(keys.split())
                if key in found:
                    return told(rng)
                found[key] = (kind, value, text.index("{" + slot + "}") + 1000 * len(parts))
        parts.append(text.format(**said))
        if rng.random() < 0.15:
            parts.append(rng.choice(NOISE))
    return " ".join(parts), {k: v[:2] for k, v in sorted(found.items(), key=lambda item: item[1][2])}


def form(rng, kinds):
    """How the form is written down."""
    types = {k: values.type_of(kind) for k, kind in kinds.items()}
    return rng.choice((
        lambda: json.dumps(values.object_schema(rng, kinds)), lambda: json.dumps(values.object_schema(rng, kinds)), lambda: json.dumps({k: TYPE_NAMES[t] for k, t in types.items()}),
        lambda: json.dumps({k: {"string": "...", "date": "YYYY-MM-DD", "integer": 0, "number": 0.0, "boolean": True, "strings": ["..."], "integers": [0]}[t] for k, t in types.items()}),
        lambda: json.dumps({k: f"<{TYPE_NAMES[t]}>" for k, t in types.items()}), lambda: json.dumps(values.object_schema(rng, kinds), indent=2)))()


def make(rng, thinking=None, test=False):
    text, found = told(rng)
    chosen = [k for k in found if rng.random() < 0.75] or list(found)
    if rng.random() < 0.2:
        rng.shuffle(chosen)
    kinds, value = {k: found[k][0] for k in chosen}, {k: found[k][1] for k in chosen}
    if "iso" not in kinds.values() and rng.random() < 0.5:
        ask = rng.choice(ASK).format(f=named(rng, chosen), t=text)
    else:
        ask = rng.choice(FORM).format(f=form(rng, kinds), t=text)
    if rng.random() < 0.05:
        ask = words.typo(rng, ask.split("\n")[0]) + ask[len(ask.split("\n")[0]):] if "{" not in ask and not text[0].islower() and text not in ask.split("\n")[0] else ask
    thinking = rng.random() < 0.4 if thinking is None else thinking
    return Sample("form", ask, [user(ask), assistant(solve.value_text(value), solve.fields(value) if thinking else None)], thinking, expect=value)


def named(rng, keys):
    """The keys in words or as they are."""
    chance = rng.random()
    if chance < 0.45:
        article = [f"the {k}" for k in keys]
        return article[0] if len(keys) == 1 else ", ".join(article[:-1]) + " and " + article[-1]
    if chance < 0.7:
        return ", ".join(keys)
    return ", ".join(f'"{k}"' if chance < 0.85 else f"`{k}`" for k in keys)


def filled(rng, thinking=None):
    """The same task with texts and forms that are made by rule."""
    return filling.make(rng, sys.modules[__name__], thinking)
