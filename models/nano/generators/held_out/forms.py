"""Extraction that chooses between trainings: other texts, other keys, other ways to give the form."""
import json

from tasks.sample import Sample, assistant, user

from .. import solve, values

# text with its slots; key: kind
TEXTS = [
    ("Extract the name and the age as JSON: {name} is {age} years old.", {"name": "first", "age": "small"}),
    ("Passenger {passenger} flies to {destination} on {date} in seat {seat}.", {"passenger": "person", "destination": "town", "date": "date", "seat": "code"}),
    ("{patient} was treated for {days} days. The file is {file}.", {"patient": "person", "days": "small", "file": "file"}),
    ("The choir of {town} has {singers} singers and meets every {weekday}.", {"town": "town", "singers": "int", "weekday": "weekday"}),
    ("Winners: {winners}. The prize was {prize} dollars.", {"winners": "people", "prize": "int"}),
    ("{artist} painted {painting} with {colors}.", {"artist": "person", "painting": "proper", "colors": "words"}),
    ("Sensor {sensor} measured {values} on {date}.", {"sensor": "code", "values": "numbers", "date": "date"}),
    ("The contract with {partner} ends on {end} and costs {fee} a month.", {"partner": "proper", "end": "iso", "fee": "decimal"}),
    ("Please send {amount} bags of {material} to {receiver} in {city}.", {"amount": "small", "material": "material", "receiver": "person", "city": "town"}),
    ("{student} answered {points} points' worth of questions; mail: {mail}.", {"student": "person", "points": "int", "mail": "email"}),
]
ASK = ["Pull out {k} and hand back a JSON object. {t}", "{t} Now write the JSON: {k}", "Structured data wanted ({k}). Sentence: {t}"]
FORM = ["Sentence: {t}\nShape of the reply: {k}", "{k}\nApply the above to: {t}"]


def make(rng, thinking=None, test=True):
    text, kinds = rng.choice(TEXTS)
    drawn = {k: values.draw(rng, kind) for k, kind in kinds.items()}
    value = {k: v for k, (v, _) in drawn.items()}
    ask = text.format(**{k: said for k, (_, said) in drawn.items()})
    if not text.startswith("Extract"):
        if "iso" in kinds.values() or rng.random() < 0.5:
            ask = rng.choice(FORM).format(t=ask, k=json.dumps(values.object_schema(rng, kinds)))
        else:
            ask = rng.choice(ASK).format(t=ask, k=", ".join(value))
    return Sample("form", ask, [user(ask), assistant(solve.value_text(value), solve.fields(value) if thinking else None)], bool(thinking), expect=value)
