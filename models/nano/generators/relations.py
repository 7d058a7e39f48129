"""Small worlds of people and things, from an author's own table of statements and questions."""
import collections
import pathlib

from . import words

Relation = collections.namedtuple("Relation", "subject value statements questions")
PEOPLE = ("first", "person", "full")
PRONOUN_ONE_IN = 4          # a statement about the person of the statement before


def table(path):
    found = []
    for line in pathlib.Path(path).read_text().splitlines():
        kinds, statements, questions = (part.strip() for part in line.split(" | "))
        found.append(Relation(*kinds.split(), statements.split(";"), questions.split(";")))
    return found


class World:
    """`told`: (relation's number, subject, value, sentence); several subjects share relations, so that a question has to name the right one."""

    def __init__(self, rng, relations, count):
        self.relations, self.told = relations, []
        first = relations[rng.randrange(len(relations))].subject
        kinds = [first] + [rng.choice(relations).subject for _ in range(rng.randint(0, 2))]
        self.subjects = {kind: list({words.KINDS[kind](rng) for _ in range(rng.randint(1, 3) + count // 12)}) for kind in sorted(set(kinds))}
        for names in self.subjects.values():
            names.sort()
        taken, before = set(), None
        for _ in range(count):
            n = rng.choice([n for n, r in enumerate(relations) if r.subject in self.subjects])
            r = relations[n]
            s = rng.choice(self.subjects[r.subject]) if before is None or rng.random() < 0.6 or before[0] != r.subject else before[1]
            if (n, s) in taken:
                continue
            taken.add((n, s))
            v = words.KINDS[r.value](rng)
            statement = rng.choice(r.statements).format(s=s, v=v)
            if before == (r.subject, s) and r.subject in PEOPLE and statement.startswith(s + " ") and rng.randrange(PRONOUN_ONE_IN) == 0:
                statement = ("He" if sum(map(ord, s)) % 2 else "She") + statement[len(s):]
            before = (r.subject, s)
            self.told.append((n, s, v, statement[0].upper() + statement[1:] + "."))

    def question(self, rng, told):
        n, s, _, _ = told
        return rng.choice(self.relations[n].questions).format(s=s)

    def missing(self, rng):
        """A question that nothing told answers: of a subject that is there, if one is of that kind, and else of another."""
        taken = {(n, s) for n, s, _, _ in self.told}
        while True:
            n = rng.randrange(len(self.relations))
            r = self.relations[n]
            names = self.subjects.get(r.subject, [])
            s = rng.choice(names) if names and rng.random() < 0.6 else words.KINDS[r.subject](rng)
            if (n, s) not in taken and all(s != other or not kin(r, self.relations[m]) for m, other in taken):
                return rng.choice(r.questions).format(s=s)


def kin(a, b):
    """Whether statements of one relation may answer questions of the other."""
    return a.subject == b.subject and a.value == b.value
