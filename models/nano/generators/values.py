"""Values of forms and calls: what JSON has, and how a text says it."""
from . import words


def spoken_number(rng, n):
    return words.NUMBER_WORDS[n] if n < len(words.NUMBER_WORDS) and rng.random() < 0.2 else str(n)


def listed(rng, items):
    if len(items) == 1:
        return items[0]
    chance = rng.random()
    if chance < 0.6:
        return ", ".join(items[:-1]) + rng.choice((" and ", ", and ")) + items[-1]
    return ", ".join(items) if chance < 0.85 else " and ".join(items)


def several(rng, draw, most=4):
    return list(dict.fromkeys(draw(rng) for _ in range(rng.randint(1, most))))


def number(rng):
    n = words.whole(rng)
    return n, str(n)


def small(rng):
    n = rng.randint(1, 60)
    return n, spoken_number(rng, n)


def decimal(rng):
    n = words.decimal(rng)
    return n, str(n)


def text(draw):
    def both(rng):
        value = draw(rng)
        return value, value
    return both


def date(rng):
    """As it is said."""
    value = words.long_date(rng, words.day(rng)) if rng.random() < 0.6 else words.iso(words.day(rng))
    return value, value


def iso_date(rng):
    """Said in words, wanted as YYYY-MM-DD."""
    day = words.day(rng)
    return words.iso(day), words.long_date(rng, day) if rng.random() < 0.75 else words.iso(day)


def names(draw):
    def both(rng):
        items = several(rng, draw)
        return items, listed(rng, items)
    return both


def numbers(rng):
    items = [rng.randint(1, 500) for _ in range(rng.randint(2, 5))]
    return items, listed(rng, [str(i) for i in items])


def truth(rng):
    value = rng.random() < 0.5
    return value, rng.choice(("yes", "true") if value else ("no", "false"))


# kind: how it is drawn, its type in a JSON schema
KINDS = {
    "person": (text(words.person), "string"), "first": (text(words.first), "string"), "town": (text(words.town), "string"), "proper": (text(words.proper), "string"),
    "country": (text(words.KINDS["country"]), "string"), "word": (text(words.rare), "string"), "code": (text(words.code), "string"), "email": (text(words.email), "string"),
    "phone": (text(words.phone), "string"), "file": (text(words.file_name), "string"), "url": (text(words.url), "string"), "color": (text(words.KINDS["color"]), "string"),
    "job": (text(words.KINDS["job"]), "string"), "time": (text(words.clock), "string"), "weekday": (text(words.KINDS["weekday"]), "string"), "date": (date, "string"),
    "iso": (iso_date, "date"), "phrase": (text(words.phrase), "string"), "thing": (text(words.thing), "string"), "small": (small, "integer"), "int": (number, "integer"),
    "decimal": (decimal, "number"), "bool": (truth, "boolean"), "words": (names(words.rare), "strings"), "people": (names(words.first), "strings"),
    "towns": (names(words.town), "strings"), "codes": (names(words.code), "strings"), "foods": (names(words.KINDS["food"]), "strings"), "numbers": (numbers, "integers"),
    "material": (text(words.KINDS["material"]), "string"), "hobby": (text(words.KINDS["hobby"]), "string"),
}
SCHEMAS = {"string": {"type": "string"}, "integer": {"type": "integer"}, "number": {"type": "number"}, "boolean": {"type": "boolean"},
           "date": {"type": "string", "format": "date"}, "strings": {"type": "array", "items": {"type": "string"}}, "integers": {"type": "array", "items": {"type": "integer"}}}


def draw(rng, kind):
    """-> the value, how it is said."""
    return KINDS[kind][0](rng)


def schema(kind):
    return dict(SCHEMAS[KINDS[kind][1]])


def type_of(kind):
    return KINDS[kind][1]


def object_schema(rng, kinds, required=None):
    """kinds: {key: kind or another such table}."""
    properties = {k: object_schema(rng, v) if isinstance(v, dict) else schema(v) for k, v in kinds.items()}
    found = {"type": "object", "properties": properties, "required": list(kinds) if required is None else required}
    if rng.random() < 0.25:
        found["additionalProperties"] = False
    return found
