"""The passages that questions are asked about: paragraphs of prose.py, their sentences, and the parts of a sentence that a question can ask for."""
import collections
import lzma
import re

from prose import HELD_OUT

from . import words

END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
SHORTENED = re.compile(r"\b(e\.g|i\.e|etc|cf|vs|Dr|Mr|Mrs|Prof|No|Sect|Fig|St|[A-Z])\.$")
AUXILIARY = "is are was were can must should will may has have cannot".split()
# Verbs in the present, third person; the question has the first form.
VERBS = dict(line.split(":") for line in """means:mean provides:provide returns:return contains:contain supports:support uses:use requires:require allows:allow
describes:describe takes:take creates:create prints:print includes:include defines:define specifies:specify gives:give causes:cause makes:make shows:show
lists:list determines:determine performs:perform accepts:accept controls:control indicates:indicate represents:represent consists:consist depends:depend
displays:display removes:remove opens:open sets:set stores:store reads:read writes:write implements:implement handles:handle changes:change
produces:produce helps:help enables:enable holds:hold converts:convert offers:offer runs:run starts:start works:work adds:add deletes:delete needs:need
checks:check follows:follow belongs:belong refers:refer raises:raise sends:send ignores:ignore affects:affect calls:call begins:begin""".split())
PARSED = re.compile(rf"^(?P<lead>(?:In|On|At|By|For|From|Since|Before|After|With|Under|During) [^,]{{3,50}}, )?(?P<subject>[^,;:()]{{2,64}}?) "
                    rf"(?P<verb>{'|'.join(AUXILIARY + list(VERBS))}) (?P<rest>[^;:]{{8,}})[.]$")
VAGUE = """it this that there they these those you we i he she if when while as such one some all each any both who which what where how but and or so because
although however also then here its their your another either since for in on at by to most many no note use using see""".split()
STOP = set("""a an the of to in on at by for from with and or but is are was were be been being it its this that these those there as if then than can could must
should will would may might do does did has have had not no you your we our they their he she his her which who whom whose what when where why how all any
each some such only also more most other into about over under out up down so very just per via etc one two used use using same whether between""".split())
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,.]*\d|(?<![\w.,-])\d(?![\w.,-])")
QUESTION_WORDS_MAX = 45     # longer sentences are no answers: they would be quoted

Fact = collections.namedtuple("Fact", "sentence lead subject verb rest")


class Library:
    def __init__(self, path):
        texts = lzma.open(path, "rt").read().split("\x00")
        self.documents = {False: [], True: []}
        counted = collections.Counter()
        for text in texts:
            head, *paragraphs = text.split("\n")
            source, title = head.split("\t")
            held_out = source in HELD_OUT
            self.documents[held_out].append((source, title, paragraphs))
            if not held_out:
                counted.update(re.findall(r"\b[a-z]{4,12}\b", text))
        self.weights = {part: [len(d[2]) ** 0.7 for d in documents] for part, documents in self.documents.items()}
        words.learn(sorted(w for w, n in counted.items() if n > 2))
        self.cumulated = {part: accumulated(weights) for part, weights in self.weights.items()}

    def document(self, rng, held_out=False):
        return rng.choices(self.documents[held_out], cum_weights=self.cumulated[held_out])[0]

    def passages(self, rng, count, held_out=False, most=160, near=0.5):
        """-> so many passages of one to three sentences or more; some of them of one document."""
        found = []
        while len(found) < count:
            _, _, paragraphs = self.document(rng, held_out)
            for _ in range(rng.randint(1, 3) if rng.random() < near else 1):
                text = shortened(rng, rng.choice(paragraphs), most)
                if len(found) < count and text and all(text[:40] != other[:40] for other in found):
                    found.append(text)
        rng.shuffle(found)
        return found


LIBRARY = None


def load(path):
    global LIBRARY
    LIBRARY = Library(path)


def accumulated(weights):
    total, out = 0.0, []
    for w in weights:
        total += w
        out.append(total)
    return out


def sentences(paragraph):
    found = []
    for part in END.split(paragraph):
        if found and SHORTENED.search(found[-1]):
            found[-1] += " " + part
        else:
            found.append(part)
    return found


def shortened(rng, paragraph, most):
    """Whole sentences in a row of at most so many words."""
    found, begin = sentences(paragraph), 0
    if len(found) > 2 and rng.random() < 0.4:
        begin = rng.randrange(len(found) - 1)
    kept, used = [], 0
    for sentence in found[begin:]:
        used += len(sentence.split())
        if kept and used > most:
            break
        kept.append(sentence)
    return " ".join(kept) if used <= most or len(kept) > 1 else ""


def fact(sentence):
    """-> the parts of a sentence of the form subject, verb, rest; None of others."""
    if not 5 <= len(sentence.split()) <= QUESTION_WORDS_MAX:
        return None
    found = PARSED.match(sentence)
    if not found or len(found["subject"].split()) > 9:
        return None
    first_word = found["subject"].split()[0].lower()
    if first_word in VAGUE or first_word.endswith("ly") or found["subject"].split()[-1].lower() in STOP:
        return None
    return Fact(sentence, found["lead"] or "", lowered(found["subject"]), found["verb"], found["rest"])


def lowered(subject):
    """Without the capital of a sentence's beginning, where the word is an ordinary one."""
    first_word, _, rest = subject.partition(" ")
    ordinary = first_word.lower() in STOP or (first_word[1:].islower() and first_word.lower() in ORDINARY and not rest[:1].isupper())
    return subject[0].lower() + subject[1:] if ordinary else subject


ORDINARY = set("""every several many few other another certain different new old most common local global default standard text file files data users user
programs program system systems functions function packages package commands command options option values value""".split())


def keywords(text):
    return [w for w in re.findall(r"[A-Za-z][A-Za-z_-]{2,}|\d[\d.]*\d", text) if w.lower() not in STOP]


def stem(word):
    word = word.lower()
    for ending in ("ing", "ies", "es", "ed", "s", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[:-len(ending)]
    return word


def covered(question, passage):
    """Share of the question's words that stand in the passage."""
    there = {stem(w) for w in keywords(passage)}
    asked = [stem(w) for w in keywords(question)]
    return sum(w in there for w in asked) / max(1, len(asked))
