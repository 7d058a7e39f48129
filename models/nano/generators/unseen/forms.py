"""Values of a text as JSON of a given form: a form with types, an empty form, a JSON schema, or fields that are named in a sentence."""
import json

from tasks.sample import Sample, assistant, user

from .slots import Filler, blocks

TEXTS = blocks("forms.txt")
TYPES = {"text": "string", "number": "number", "date": "string", "written": "string", "truth": "boolean", "texts": "array", "numbers": "array"}
PLACES = {"text": "...", "number": 0, "date": "YYYY-MM-DD", "written": "the date as it is written", "truth": "true or false", "texts": ["..."], "numbers": [0]}
SAID = {"text": "a string", "number": "a number", "date": "a date as YYYY-MM-DD", "written": "the date as it is written", "truth": "true or false", "texts": "a list of strings",
        "numbers": "a list of numbers"}
MISSING = ["telephone_extension", "favourite_dish", "shoe_size", "car_registration", "middle_name"]
WRITTEN_SHARE = 0.4         # of the requests want dates as the text has them
MISSING_SHARE = 0.1         # of the requests have a field that no text answers, and say that it is null then

FORM = ["{text}\n\nPut this into JSON of the form {form} and write nothing else.",
        "Fill in this form from the text and reply with the JSON only.\n\nForm: {form}\n\nText: {text}",
        "I need the data of the following message in this shape:\n{form}\nOnly the JSON, please.\n\n{text}",
        "Text:\n{text}\n\nTurn it into a JSON object like {form} - no other words.",
        "{form}\n\nThat is the form. Fill it from what follows, and answer in JSON alone.\n\n{text}"]
SCHEMA = ["Answer with JSON that fits this schema: {form}\n\nThe text to take it from: {text}", "{text}\n\nWhich values has this text for the schema below? Reply with the JSON object only.\n{form}",
          "JSON schema:\n{form}\n\nInput:\n{text}\n\nGive me only the object."]
FIELDS = ["From the text below, collect {form}. Reply with one JSON object only.\n\n{text}", "{text}\n\nGive me a JSON object, and nothing but it, with these fields: {form}.",
          "Reply in JSON with exactly these fields: {form}.\n\n{text}"]
NULL = "Where the text has no value for a field, write null.\n\n"


def schema(kinds):
    def of(kind):
        items = {"texts": {"type": "string"}, "numbers": {"type": "number"}}.get(kind)
        more = {"date": {"format": "date"}, "written": {"description": "as it is written"}}.get(kind, {})
        return {"type": TYPES[kind]} | ({"items": items} if items else {}) | more
    return {"type": "object", "properties": {name: of(kind) for name, kind in kinds.items()}, "required": list(kinds)}


def dumped(rng, value):
    return json.dumps(value, ensure_ascii=False, indent=2 if rng.random() < 0.3 else None)


def posed(rng, kinds, missing):
    """-> the wording of a request and how it shows the form."""
    how = rng.choice(("typed", "places", "schema", "fields"))
    if how == "schema" and not missing:
        return rng.choice(SCHEMA), dumped(rng, schema(kinds))
    if how == "fields":
        return rng.choice(FIELDS), ", ".join(f"{name} ({SAID[kind]})" for name, kind in kinds.items())
    shown = PLACES if how == "places" else SAID
    return rng.choice(FORM), dumped(rng, {name: shown[kind] for name, kind in kinds.items()})


def make(rng, thinking=None):
    name, lines = rng.choice(TEXTS)
    filler = Filler(rng)
    text = filler.filled(" ".join(line for line in lines if line[0] != "="))
    kinds = dict(line[2:].split() for line in lines if line[0] == "=")
    chosen = rng.sample(list(kinds), rng.randint(2, len(kinds)))
    kinds = {field: kinds[field] for field in chosen}
    if rng.random() < WRITTEN_SHARE:
        kinds = {field: "written" if kind == "date" else kind for field, kind in kinds.items()}
    expect = {field: (filler.shown if kinds[field] == "written" else filler.values)[field] for field in chosen}
    missing = rng.choice(MISSING) if rng.random() < MISSING_SHARE else None
    if missing:
        kinds[missing], expect[missing] = "text", None
    ask, form = posed(rng, kinds, missing)
    ask = NULL * bool(missing) + ask.format(text=text, form=form)
    thinking = rng.random() < 0.7 if thinking is None else thinking
    return Sample("form", ask, [user(ask), assistant(json.dumps(expect, ensure_ascii=False))], thinking, expect=expect)
