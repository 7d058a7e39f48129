"""Extraction whose texts, keys, orders and forms are all put together by rule: flat forms, objects inside objects, and lists of objects."""
import json

from tasks.sample import Sample, assistant, user

from .. import solve, values, words
from . import events, frames, shapes
from .roles import COUNTED, JOINED, MONEY, ROLES, WITH_NOUN, key, noun, spoken

KINDS = """person person person person first first town town town country small small small small int int decimal decimal decimal date date iso iso time weekday code code email phone file url proper proper word phrase thing
people people words words codes foods numbers numbers towns color job material hobby bool""".split()
LISTS = ("people", "towns", "words", "codes", "foods", "numbers")
DID = """travelled went flew moved came waited worked registered appeared signed applied reported called paid asked stayed performed played ran spoke answered joined left arrived won lost passed failed helped
complained enrolled taught exhibited lectured competed retired resigned reserved checked sailed drove rode stopped slept rested""".split()
FACES = "was seen|was treated|was examined|was invited|was hired|was paid|was fined|was elected|was born|was married|was promoted|was admitted|was rescued|was tested|was interviewed|was trained|was photographed|was registered".split("|")
HAPPENS = "takes place|starts|opens|meets|runs|is held|is open|is kept|closes|stands|lies|was built|is planned|was moved|goes on|is offered|is shown|stays|gathers|trains|plays|works|can be seen|is delivered|is on sale".split("|")
# When, how much, how long: what the verb makes of the value, and what that is called.
BY_VERB = [("begins on {v}", "date", "begin start start_date beginning first_day"), ("starts on {v}", "date", "start begins start_date start_day"), ("ends on {v}", "date", "finish end_date last_day close term_end"),
           ("expires on {v}", "date", "expiry expires_on valid_until expiration"), ("is due on {v}", "date", "due due_date deadline payable_on"), ("was born on {v}", "date", "birthday date_of_birth born birth_date"),
           ("arrives on {v}", "date", "arrival arrives_on arrival_date"), ("leaves on {v}", "date", "departure leaves_on departure_date"), ("was founded on {v}", "date", "founded foundation founding_date"),
           ("was last seen on {v}", "date", "last_seen seen_on"), ("costs {v} {m}", "decimal", "price cost charge amount cost_total"), ("sells for {v} {m}", "decimal", "price sale_price value"), ("earns {v} {m}", "int", "salary wage income pay earnings"),
           ("paid {v} {m}", "decimal", "payment amount paid sum"), ("owes {v} {m}", "decimal", "debt amount owed balance"), ("costs {v} {m} a month", "decimal", "rent monthly_cost rate price_per_month"), ("is worth {v} {m}", "int", "value worth estimate"),
           ("weighs {v} kilograms", "decimal", "weight mass kg weight_kg"), ("is {v} metres long", "decimal", "length metres size length_m"), ("is {v} centimetres tall", "small", "height size height_cm"), ("lasts {v} minutes", "small", "duration length_minutes time"),
           ("lasted {v} days", "small", "duration length_days days_taken"), ("is {v} years old", "small", "age age_in_years years_old"), ("holds {v} litres", "decimal", "volume litres capacity"), ("turned {v}", "small", "age new_age"),
           ("measured {v} degrees", "decimal", "temperature degrees reading"), ("lives in {v}", "town", "home residence town_of_residence city_name"), ("comes from {v}", "town", "origin home_town birthplace"), ("was sent to {v}", "town", "destination target_town"),
           ("belongs to {v}", "person", "owner holder owner_name"), ("was made by {v}", "person", "maker author creator"), ("is led by {v}", "person", "leader head chief director"), ("works as a {v}", "job", "job profession occupation work"),
           ("plays {v}", "word", "instrument sport game"), ("speaks {v}", "words", "languages speaks tongues"), ("scored {v}", "numbers", "scores results goals_scored"), ("is painted {v}", "color", "color paint finish_color"),
           ("is written in {v}", "word", "language written_in"), ("can be reached at {v}", "email", "contact email mail"), ("answers the phone on {v}", "phone", "phone telephone line"), ("is stored in {v}", "file", "file path stored_in")]
PLAIN = ["the {n} is {v}", "{v} is the {n}", "the {n} was {v}", "{n}: {v}", "as the {n} we have {v}", "it has the {n} {v}", "the {n} will be {v}", "{v} is given as the {n}", "for the {n} take {v}", "we put down {v} as the {n}", "its {n} is {v}",
         "the {n} in question is {v}", "{n} is {v}", "the {n} can only be {v}", "they set the {n} to {v}", "our {n} is {v}"]
OF_LISTS = ["the {n} are {v}", "{n}: {v}", "{v} are the {n}", "its {n} are {v}", "the {n} were {v}", "among the {n} are {v}", "we saw these {n}: {v}", "as {n} there are {v}", "{v} were chosen as {n}", "the list of {n} says {v}", "{n} are {v}"]
OF_COUNTS = ["it has {v} {n}", "there are {v} {n}", "it needs {v} {n}", "we counted {v} {n}", "it comes with {v} {n}", "{v} {n} belong to it", "they own {v} {n}", "{v} {n} were there", "it takes {v} {n}", "she asked for {v} {n}", "he brought {v} {n}",
             "{v} {n} remain", "it offers {v} {n}", "we used {v} {n}", "only {v} {n} are left", "it was {v} {n} in all"]


class Told:
    """A text in the making: its keys in the order in which the text has them."""

    def __init__(self, rng):
        self.rng, self.found = rng, {}

    def add(self, kind, name, value):
        if name in self.found:
            raise ValueError(name)
        self.found[name] = (kind, value)

    def field(self, kind):
        """-> how it is said, the noun for it."""
        value, said = values.draw(self.rng, kind)
        while kind == "code" and value.isdigit():
            value, said = values.draw(self.rng, kind)
        called = noun(self.rng, kind)
        self.add(kind, key(self.rng, kind, called), value)
        return said, spoken(called)

    def part(self, kind):
        """A value behind a verb: by its kind, or with the noun for it."""
        rng = self.rng
        if kind in ("small", "int"):
            said, n = self.field(kind)
            return rng.choice(COUNTED if kind == "small" else WITH_NOUN).format(v=said, n=n)
        said, n = self.field(kind)
        if kind == "decimal" and rng.random() < 0.7:
            said += " " + rng.choice(MONEY)
        forms = JOINED[kind] if kind in JOINED and rng.random() < 0.6 else WITH_NOUN
        return rng.choice(forms).format(v=said, n=n)

    def by_verb(self):
        rng = self.rng
        form, kind, keys = rng.choice(BY_VERB)
        kind = "iso" if kind == "date" and rng.random() < 0.5 else kind
        value, said = values.draw(rng, kind)
        self.add(kind, rng.choice(keys.split()), value)
        return form.format(v=said, m=rng.choice(MONEY))

    def subject(self):
        """-> who or what a sentence is about, whether it is somebody."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.4:
            kind = rng.choice(("person", "person", "first"))
            said, n = self.field(kind)
            return rng.choice(("{v}", "{v}", "{N} {v}", "The {n} {v}", "{v}, the {n},", "Our {n} {v}", "{v} ({n})", "A {n} called {v}", "{v} as {n}", "{v}, our new {n},")).format(v=said, n=n, N=n.capitalize()), True
        if chance < 0.6:
            said, n = self.field("proper")
            return rng.choice(("{v}", "The {n} {v}", "{N} {v}", "The {v} {n}", "The {n} called {v}", "Our {n}, {v},")).format(v=said, n=n, N=n.capitalize()), False
        if chance < 0.72:
            said, n = self.field("code")
            return rng.choice(("{N} {v}", "The {n} {v}", "{N} number {v}", "{N} no. {v}", "The {n} with the number {v}")).format(v=said, n=n, N=n.capitalize()), False
        what = rng.choice(ROLES["proper"]) if rng.random() < 0.6 else words.rare(rng)
        if chance < 0.86:
            said, _ = self.field("town")
            return rng.choice(("The {w} of {v}", "The {v} {w}", "The {w} in {v}", "A {w} near {v}")).format(w=what, v=said), False
        return rng.choice(("The {w}", "Our {w}", "This {w}", "A {w}", "My {w}", "That new {w}", "It", "The other {w}")).format(w=what), False

    def sentence(self):
        rng = self.rng
        subject, somebody = self.subject()
        chance = rng.random()
        if chance < 0.3:
            verb = self.by_verb()
        elif chance < 0.5 and not somebody:
            verb = rng.choice(("has", "needs", "offers", "counts", "takes", "uses", "holds")) + " " + " ".join(self.field("small"))
        else:
            past = rng.choice(events.DEEDS).split(":")[0]
            verb = rng.choice(HAPPENS) if not somebody else rng.choice((rng.choice(DID), rng.choice(FACES), f"{past} {rng.choice(('the', 'a', 'this', 'our'))} {words.thing(rng)}", f"{past} {' '.join(self.field('small'))}", f"{past} {self.field('proper')[0]}"))
        parts = [self.part(rng.choice(KINDS)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
        more = f"{rng.choice((' and', ', and', ', but', ' and it'))} {self.by_verb()}" if rng.random() < 0.25 else ""
        joined = "".join(rng.choice((" ", " ", " ", ", ")) + p for p in parts)
        return f"{subject} {verb}{joined}{more}."

    def clause(self):
        rng, kind = self.rng, self.rng.choice(KINDS)
        said, n = self.field(kind)
        if kind == "decimal" and rng.random() < 0.5:
            said += " " + rng.choice(MONEY)
        form = rng.choice(OF_COUNTS if kind == "small" else OF_LISTS if kind in LISTS else PLAIN)
        text = form.format(v=said, n=n)
        return text if form.startswith("{v}") or rng.random() < 0.1 else text[0].upper() + text[1:]     # a value keeps its capitals

    def text(self):
        rng, chance = self.rng, self.rng.random()
        if chance < 0.55:
            made = [self.sentence() for _ in range(rng.choice((1, 1, 1, 2)))]
            if rng.random() < 0.3:
                made.append(self.clause() + ".")
            return rng.choice((" ", " ", " ", "\n")).join(made)
        clauses = [self.clause() for _ in range(rng.randint(1, 5))]
        if chance < 0.8:
            return " ".join(c + "." for c in clauses)
        joint = rng.choice((", ", "; ", " and ", "\n", ". ", " / ", ", and "))
        return joint.join(clauses) + rng.choice((".", ""))


def told(rng):
    """-> a text, {key: (kind, value)} in its order."""
    while True:
        made = Told(rng)
        try:
            text = made.text()
        except ValueError:      # a key twice
            continue
        if made.found:
            return text, made.found


def rows(rng):
    """Things of one kind, one behind another -> the text, the values, what each has: (key, kind)."""
    kinds = [(rng.choice(("first", "proper", "word", "code", "town", "person")), None)] + [(rng.choice(("small", "decimal", "date", "code", "color", "time", "email", "town")), None) for _ in range(rng.randint(1, 2))]
    keys = [(key(rng, kind, noun(rng, kind)), kind) for kind, _ in kinds]
    if len({k for k, _ in keys}) < len(keys):
        return rows(rng)
    shape = rng.choice(("{0}: {1}", "{0} - {1}", "{0} ({1})", "{0}, {1}", "{0} with {1}", "{0} has {1}", "{0} | {1}", "{0} {1}", "{0} gets {1}", "{0} at {1}"))
    found, lines = [], []
    for _ in range(rng.randint(1, 4)):
        drawn = [values.draw(rng, kind) for _, kind in keys]
        found.append({k: v for (k, _), (v, _) in zip(keys, drawn)})
        said = [s if kind != "small" or rng.random() < 0.4 else f"{s} {spoken(k)}" for (k, kind), (_, s) in zip(keys, drawn)]
        lines.append(shape.format(said[0], rng.choice((", ", ", ", " / ")).join(said[1:])))
    return rng.choice(("; ", "\n", "\n", ". ", "\n- ")).join(lines) + rng.choice((".", "")), found, keys


# ---- the order
DO = "extract collect gather take note get return produce write find report record store show provide fetch deliver compile save output list give isolate grab transcribe read supply print state enter send".split()
TAILS = ["as JSON", "as JSON", "as JSON", "as a JSON object", "as a JSON object", "in JSON", "in JSON format", "as one JSON object", "in a JSON object", "as JSON and nothing else", "as valid JSON", "in JSON notation", "formatted as JSON", "as an object in JSON",
         "as JSON, please", "in the form of JSON", "as machine-readable JSON", "encoded as JSON", "as JSON text"]
WHENCE = ["", "", "", " from this", " from the text", " from that", " from the sentence", " from it", " out of this text", " from what is written", " found here", " from the message", " from the lines", " as it is told", " from the note", " that you read there"]
ASKED = ["{D} {f}{w} {t}.", "{D} {f}{w} {t}.", "Please {d} {f}{w} {t}.", "{f} {t}", "{D} {f} {t}, nothing more.", "I need {f}{w} {t}.", "I want {f} {t}", "Can you {d} {f}{w} {t}?", "JSON with {f}.", "JSON: {f}", "A JSON object with {f} is needed.", "What are {f}? Answer {t}.",
         "{D} {f}, then {e} the JSON object.", "{D} {f} and {e} a JSON object.", "{D} {f} and {e} JSON", "{D} a JSON object with {f}.", "{D} a JSON object that has {f}.", "{D} JSON whose keys are {f}.", "Only {f}, {t}.", "Turn this into JSON with {f}.",
         "Make JSON of it: {f}", "Keys: {f}. {D} the object {t}.", "Wanted {t}: {f}", "The object has {f}; {d} it {t}.", "My program reads JSON with {f}. {D} it.", "{f}? {D} them {t}.", "Look for {f} and {e} them {t}.", "Our database wants {f} {t}.",
         "{f} wanted ({t})", "to JSON ({f})", "Convert to JSON. Keys are {f}.", "fields {f}, {t}", "Let me have {f} {t}.", "{t}: {f}", "Which values do {f} have? {D} them {t}.", "{D} what is said of {f} {t}."]
SHAPED = ["{D} an object like {f}", "{D} JSON of the form {f}", "{f}", "{f}\n{D} it.", "Fill {f}", "Use this template: {f}", "The template: {f}", "The form of the answer is {f}", "JSON must look like this:\n{f}", "{D} it in this form:\n{f}", "Put it into {f}",
          "Following {f}, {d} the JSON.", "According to\n{f}\n{d} the object.", "{f}\nThis is the form. {D} the answer in it.", "Schema:\n{f}", "It has to fit {f}", "Model: {f}", "Complete\n{f}", "The result is of this type: {f}", "{D} what fits\n{f}", "With the schema {f} {d} the JSON.",
          "I expect {f}", "My parser takes {f}", "{f}\nNow fill it with what is said.", "Do it like this: {f}", "As in the pattern\n{f}", "Form to fill:\n{f}\n", "Keep to {f}", "{D} the JSON that {f} describes.", "(form: {f})"]


def order(rng, form, shaped):
    d = rng.choice(DO)
    text = rng.choice(SHAPED if shaped else ASKED)
    text = text.replace("{t}", rng.choice(TAILS)).replace("{w}", rng.choice(WHENCE)).replace("{D}", d.capitalize()).replace("{d}", d).replace("{e}", rng.choice(DO)).replace("{f}", form)
    return text[0].upper() + text[1:] if rng.random() < 0.8 and not form.startswith(text[:3]) else text


def nested(rng, value, kinds):
    """Some of the keys inside an object."""
    inside = [k for k in value if rng.random() < 0.5][:4] or list(value)[:2]
    outer = noun(rng, rng.choice(("proper", "thing", "person", "phrase")))
    if outer in value or len(inside) == len(value):
        return value, kinds
    first, out, types = True, {}, {}
    for k in value:
        if k not in inside:
            out[k], types[k] = value[k], kinds[k]
        elif first:
            first, out[outer], types[outer] = False, {i: value[i] for i in inside}, {i: kinds[i] for i in inside}
    return out, types


def example(kinds):
    """The form as an object with placeholders."""
    return {k: example(kind) if isinstance(kind, dict) else shapes.EMPTY[values.type_of(kind)] for k, kind in kinds.items()}


def flat(rng, listed):
    text, found = told(rng) if rng.random() < 0.7 else events.told(rng)
    if rng.random() < 0.25:
        text = rng.choice((f"{text} {words.phrase(rng, 3, 8).capitalize()}.", f"{words.phrase(rng, 2, 7).capitalize()}. {text}"))
    kept = [k for k in found if rng.random() < 0.85] or list(found)
    if rng.random() < 0.2:
        rng.shuffle(kept)
    kinds, value = {k: found[k][0] for k in kept}, {k: found[k][1] for k in kept}
    if len(value) > 2 and rng.random() < 0.2:
        value, kinds = nested(rng, value, kinds)
    inner = any(isinstance(kind, dict) for kind in kinds.values())
    if not inner and "iso" not in kinds.values() and rng.random() < 0.55:
        return text, order(rng, listed(rng, list(value)), False), value
    form = json.dumps(values.object_schema(rng, kinds) if rng.random() < 0.6 else example(kinds)) if inner or rng.random() < 0.3 else shapes.shape(rng, kinds)
    return text, order(rng, form, True), value


def several(rng):
    text, found, keys = rows(rng)
    outer, kinds = noun(rng, rng.choice(("people", "words", "codes", "numbers"))), dict(keys)
    inner = values.object_schema(rng, kinds)
    schema = {"type": "object", "properties": {outer: {"type": "array", "items": inner}}, "required": [outer]}
    form = json.dumps(rng.choice((schema, schema, {outer: [example(kinds)]})))
    return text, order(rng, form, True), {outer: found}


def make(rng, listed, thinking=None):
    """`listed` writes down the keys of a form."""
    text, ask, value = several(rng) if rng.random() < 0.1 else flat(rng, listed)
    chance = rng.random()
    if chance < 0.55:
        ask = frames.together(rng, text, ask)
    else:
        pair = (text, ask) if rng.random() < 0.5 else (ask, text)
        ask = rng.choice((" ", "\n", "\n\n", " - ", ": ", "\n---\n")).join(pair)
    thinking = rng.random() < 0.55 if thinking is None else thinking
    return Sample("form", ask, [user(ask), assistant(solve.value_text(value), solve.fields(value) if thinking else None)], thinking, expect=value)
