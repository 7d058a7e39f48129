"""JSON extraction: a short text and a stated schema, answered with JSON and nothing else."""
import json

from . import wording
from .sample import Sample, assistant, held_out, user
from .words import CITIES, COLORS, FIRST, JOBS, LAST, THINGS, clock, full_name, invented, iso_date

# kind -> (JSON schema, how a value is drawn, how it reads in the text)
KINDS = {
    "name": ({"type": "string"}, full_name, str),
    "first": ({"type": "string"}, lambda r: r.choice(FIRST), str),
    "last": ({"type": "string"}, lambda r: r.choice(LAST), str),
    "city": ({"type": "string"}, lambda r: r.choice(CITIES), str),
    "color": ({"type": "string"}, lambda r: r.choice(COLORS), str),
    "job": ({"type": "string"}, lambda r: r.choice(JOBS), str),
    "thing": ({"type": "string"}, lambda r: r.choice(THINGS), str),
    "word": ({"type": "string"}, lambda r: invented(r).title(), str),
    "date": ({"type": "string"}, iso_date, str),
    "time": ({"type": "string"}, clock, str),
    "email": ({"type": "string"}, lambda r: f"{r.choice(FIRST).lower()}.{r.choice(LAST).lower()}@{invented(r)}.com", str),
    "age": ({"type": "integer"}, lambda r: r.randint(18, 90), str),
    "count": ({"type": "integer"}, lambda r: r.randint(1, 400), str),
    "year": ({"type": "integer"}, lambda r: r.randint(1900, 2030), str),
    "price": ({"type": "number"}, lambda r: r.randint(100, 9999) / 100, str),
    "flag": ({"type": "boolean"}, lambda r: r.random() < 0.5, lambda v: "yes" if v else "no"),
    "level": ({"type": "string", "enum": ["low", "medium", "high"]}, lambda r: r.choice(("low", "medium", "high")), str),
    "words": ({"type": "array", "items": {"type": "string"}}, lambda r: r.sample(THINGS, r.randint(1, 3)), ", ".join),
    "people": ({"type": "array", "items": {"type": "string"}}, lambda r: r.sample(FIRST, r.randint(1, 3)), ", ".join),
}

# record -> [(keys that may name the field, kind, phrase)]
RECORDS = {
    "person": [("name full_name person", "name", "{} is the name"), ("age years", "age", "aged {}"), ("city home town", "city", "lives in {}"),
               ("job occupation profession", "job", "works as a {}"), ("email mail", "email", "email {}"),
               ("married is_married", "flag", "married: {}"), ("hobbies items", "words", "collects {}"), ("birthday born", "date", "born {}")],
    "order": [("order_id id", "count", "order {}"), ("product item article", "thing", "one {}"), ("color colour", "color", "in {}"),
              ("price cost amount", "price", "for {} euros"), ("customer buyer client", "name", "bought by {}"),
              ("paid is_paid", "flag", "paid: {}"), ("delivery delivery_date due", "date", "delivery on {}"), ("priority", "level", "priority {}")],
    "event": [("title event name", "word", "event {}"), ("date day when", "date", "on {}"), ("start time starts_at", "time", "starting at {}"),
              ("place location city", "city", "in {}"), ("guests attendees seats", "count", "with {} seats"),
              ("speakers hosts", "people", "hosted by {}"), ("public is_public", "flag", "open to the public: {}")],
    "book": [("title name", "word", "the book {}"), ("author writer", "name", "written by {}"), ("year published", "year", "published in {}"),
             ("pages page_count", "count", "{} pages"), ("price cost", "price", "price {}"), ("publisher house", "last", "from the house of {}")],
    "trip": [("from origin departure", "city", "from {}"), ("to destination arrival", "city", "to {}"), ("date day", "date", "on {}"),
             ("time departs_at", "time", "leaving at {}"), ("passengers travellers", "people", "travellers: {}"),
             ("price fare", "price", "fare {}"), ("direct nonstop", "flag", "direct: {}")],
    "ticket": [("id number ticket", "count", "ticket {}"), ("owner assignee", "first", "assigned to {}"), ("component module", "word", "in the module {}"),
               ("severity priority", "level", "severity {}"), ("opened created", "date", "opened {}"), ("closed resolved", "flag", "closed: {}"),
               ("watchers followers", "people", "followed by {}")],
    "device": [("model name", "word", "model {}"), ("kind type device", "thing", "a {}"), ("color finish", "color", "finish {}"),
               ("year made", "year", "made in {}"), ("price cost", "price", "at {} euros"), ("stock quantity", "count", "{} in stock"),
               ("available in_stock", "flag", "available: {}")],
}

ASK = ["Extract the data as JSON that follows this schema:\n{schema}\n\nText: {text}",
       "Text: {text}\n\nReturn JSON for this schema, nothing else:\n{schema}",
       "{text}\n\nFill this JSON schema from the text above: {schema}",
       "Convert to JSON. Schema: {schema}\nInput: {text}"]


def make(rng, test=False, thinking=None, form=None):
    """`form` as in arithmetic.py."""
    record = rng.choice(list(RECORDS))
    fields = rng.sample(RECORDS[record], rng.randint(2, min(6, len(RECORDS[record]))))
    told = [(rng.choice(names.split()), kind, phrase, KINDS[kind][1](rng)) for names, kind, phrase in fields]
    phrases = [phrase.format(KINDS[kind][2](value)) for _, kind, phrase, value in told]
    if rng.random() < 0.5:
        rng.shuffle(phrases)
    if rng.random() < 0.3:          # a field of the text that the schema does not ask for
        extra = rng.choice([f for f in RECORDS[record]])
        if all(extra[2] != phrase for _, _, phrase, _ in told):
            phrases.insert(rng.randrange(len(phrases) + 1), extra[2].format(KINDS[extra[1]][2](KINDS[extra[1]][1](rng))))
    text = f"{record.capitalize()}: " + rng.choice((", ", "; ")).join(phrases) + "."
    properties = {name: KINDS[kind][0] for name, kind, _, _ in told}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    if rng.random() < 0.3:
        schema["additionalProperties"] = False
    value = {name: v for name, _, _, v in told}
    key = "extract " + json.dumps(value, sort_keys=True)
    if len(properties) < len(told) or held_out(key) != test:
        return make(rng, test, thinking, form)
    thinking = rng.random() < 0.3 if thinking is None else thinking
    thought = None
    if thinking:
        thought = "The fields: " + "; ".join(f"{name} is {json.dumps(v)}" for name, v in value.items()) + "."
    fields = dict(schema=json.dumps(schema), text=text)
    if form or (not test and rng.random() < 0.5):
        ask = wording.request(rng, "extract", fields, form == "new")
    else:
        ask = rng.choice(ASK).format(**fields)
    return Sample("extract", key, [user(ask), assistant(json.dumps(value), thought)], thinking, expect=(value, schema))
