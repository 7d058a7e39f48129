"""Questions with 12 options each about records of the extraction task that were never trained, for `chimere eval decisions`: which of 12
cities, colours, jobs or things a field has. Writes `services/tests/data/decisions.jsonl` of the tests with `--each 9`."""
import argparse
import json
import random

from tasks import extract, words
from tasks.sample import held_out

CLASSES = 12
KINDS = {"city": words.CITIES, "color": words.COLORS, "job": words.JOBS, "thing": words.THINGS}


def classes(kind):
    """The same 12 in every question of a kind."""
    return random.Random(f"classes of {kind}").sample(KINDS[kind], CLASSES)


def record(rng, kind, answer):
    """-> text, the field's name and its record's, of an instance that training leaves out; other fields of the kind have other options as
    their values."""
    while True:
        name = rng.choice(list(extract.RECORDS))
        fields = rng.sample(extract.RECORDS[name], rng.randint(2, min(6, len(extract.RECORDS[name]))))
        asked = [field for field in fields if field[1] == kind]
        if not asked:
            continue
        chosen, others = rng.choice(asked), [c for c in classes(kind) if c != answer]
        names = [rng.choice(field[0].split()) for field in fields]
        values = [rng.choice(others) if field[1] == kind else extract.KINDS[field[1]][1](rng) for field in fields]
        values[fields.index(chosen)] = answer
        if held_out("extract " + json.dumps(dict(zip(names, values)), sort_keys=True)):
            break
    told = [field[2].format(extract.KINDS[field[1]][2](value)) for field, value in zip(fields, values)]
    return f"{name.capitalize()}: " + rng.choice((", ", "; ")).join(told) + ".", names[fields.index(chosen)], name


def questions(rng, each):
    """The classes in turns, so that all are asked for."""
    for kind in KINDS:
        for i in range(each):
            answer = classes(kind)[i % CLASSES]
            text, field, name = record(rng, kind, answer)
            choices = rng.sample(classes(kind), CLASSES)
            question = {"type": "choice", "name": field, "instructions": f"What is the {field.replace('_', ' ')} of the {name}?",
                        "choices": [{"value": value} for value in choices]}
            yield {"input": text, "question": question, "answer": answer}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=150, help="questions of each of the four kinds")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.out, "w", encoding="utf-8") as out:
        for question in questions(random.Random(args.seed), args.each):
            out.write(json.dumps(question) + "\n")


if __name__ == "__main__":
    main()
