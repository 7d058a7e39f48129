"""What is out of its domain: the model says plainly that it cannot, and what it can do.

The forms are in beyond.txt; one form in six and one name in six of each list are never trained. beyond_heldout.txt was written by hand, apart
from the forms: none of it is trained.
"""
import pathlib
import string
import zlib

from . import tools
from .sample import Sample, assistant, user
from .strings import DOCUMENTED, WORDS
from .words import ANIMALS, CITIES, COLORS, FIRST, JOBS, THINGS, full_name, invented

CANNOT = ("I am a very small model and do not know enough for that. I can do small sums, work with letters and words, answer from a text, "
          "extract JSON and call tools.")
MARK = "I can do small sums"        # what every such reply says
REFUSAL = "do not know enough for that"      # and what no other reply says
THOUGHT = "This is beyond what I know. I say so."
KEPT_ONE_IN = 6
NEVER_TRAINED = pathlib.Path(__file__).with_name("beyond_heldout.txt").read_text().strip().split("\n")

COUNTRIES = """Albania Algeria Angola Argentina Armenia Australia Austria Bangladesh Belgium Benin Bolivia Botswana Brazil Bulgaria Cambodia
Cameroon Canada Chad Chile China Colombia Croatia Cuba Cyprus Denmark Ecuador Egypt Estonia Ethiopia Finland France Gabon Georgia Germany
Ghana Greece Guatemala Haiti Honduras Hungary Iceland India Indonesia Iran Iraq Ireland Israel Italy Jamaica Japan Jordan Kenya Kuwait
Laos Latvia Lebanon Libya Lithuania Luxembourg Malaysia Mali Malta Mexico Moldova Mongolia Morocco Mozambique Namibia Nepal Netherlands
Nicaragua Niger Nigeria Norway Oman Pakistan Panama Paraguay Peru Philippines Poland Portugal Qatar Romania Russia Rwanda Scotland Senegal
Serbia Singapore Slovakia Slovenia Somalia Spain Sudan Sweden Switzerland Syria Tanzania Thailand Togo Tunisia Turkey Uganda Ukraine
Uruguay Venezuela Vietnam Wales Yemen Zambia Zimbabwe England Texas California Europe Africa Asia""".split() + [
    "the United States", "South Africa", "New Zealand", "Saudi Arabia", "North Korea", "South Korea", "Sri Lanka", "Costa Rica", "the UK", "the USA"]
PEOPLE = """Albert Einstein|Isaac Newton|Marie Curie|Charles Darwin|Galileo|Shakespeare|Mozart|Beethoven|Bach|Picasso|Leonardo da Vinci|Napoleon
Julius Caesar|Cleopatra|Alexander the Great|Abraham Lincoln|George Washington|Winston Churchill|Nelson Mandela|Gandhi|Martin Luther King|Obama
Queen Victoria|Elon Musk|Bill Gates|Steve Jobs|Alan Turing|Ada Lovelace|Linus Torvalds|Madonna|Elvis Presley|Michael Jackson|Taylor Swift
Lionel Messi|Pele|Muhammad Ali|Usain Bolt|Plato|Aristotle|Socrates|Kant|Nietzsche|Confucius|Buddha|Jane Austen|Charles Dickens|Mark Twain
Tolstoy|Goethe|Kafka|Homer|Dante|Victor Hugo|Hemingway|Agatha Christie|Tolkien|Harry Potter|Sherlock Holmes|Batman|Darth Vader|Santa Claus
Christopher Columbus|Marco Polo|Neil Armstrong|Stephen Hawking|Sigmund Freud|Nikola Tesla|Thomas Edison|Louis Pasteur|Rembrandt|Van Gogh
Chopin|Vivaldi|Frida Kahlo|Angela Merkel|Joan of Arc|Genghis Khan|Karl Marx|Lenin|John F. Kennedy|Walt Disney""".replace("\n", "|").split("|")
LISTS = {
    "country": COUNTRIES, "city": CITIES, "person": PEOPLE, "thing": THINGS, "animal": ANIMALS, "animals": [a + "s" for a in ANIMALS],
    "color": COLORS, "job": JOBS, "name": FIRST + ["mother", "my brother", "my boss", "Aunt May"],
    "code": "Python|Rust|C|C++|Java|JavaScript|TypeScript|Go|Ruby|PHP|Haskell|Swift|Kotlin|Perl|Lua|Bash|SQL|HTML|CSS|R|Scala|Fortran".split("|"),
    "does": """sorts a list|reads a file|prints the numbers|adds two numbers|opens a window|downloads a page|counts words|sends a mail|reverses a string
finds the largest number|connects to a database|parses JSON|draws a circle|deletes duplicates|computes primes|checks a password|merges two lists
starts a server|renames files|solves a maze|encrypts a text|lists all users|converts dates|plays a sound""".replace("\n", "|").split("|"),
    "concept": """recursion|a pointer|a closure|inheritance|a hash map|binary search|garbage collection|a lambda|a mutex|polymorphism|an interface
a linked list|dynamic programming|a monad|a trait|async code|a compiler|unit testing|a race condition|quicksort|a REST API|a stack overflow
the borrow checker|a decorator|a deadlock""".replace("\n", "|").split("|"),
    "snippet": """for i in range(10): print(i)|if (x > 0) { return x; }|let mut v = Vec::new();|int main() { return 0; }|SELECT name FROM users
import os|fn main() {}|def f(x): return x + 1|while (true) {}|console.log(x);|<div class="a"></div>|x = [i for i in y]|git push origin main
#include <stdio.h>|print("hello")|var a = b + c;|cargo build --release|docker run -it ubuntu|public class A {}|lambda x: x * 2
NullPointerException|segmentation fault (core dumped)|TypeError: x is not a function|error[E0382]: use of moved value""".replace("\n", "|").split("|"),
    "concept2": """gravity|quantum physics|evolution|electricity|magnetism|photosynthesis|relativity|climate change|a black hole|radioactivity|the big bang
DNA|inflation|an atom|energy|light|sound|thunder|an earthquake|a volcano|the immune system|a virus|entropy|the tide|nuclear fusion|a rainbow
machine learning|artificial intelligence|a neural network|blockchain|time|consciousness""".replace("\n", "|").split("|"),
    "device": "microwave|computer|car engine|radio|telephone|plane|fridge|laser|camera|washing machine|battery|rocket|printer|watch".split("|"),
    "food": """bread|pizza|coffee|tea|rice|pasta|cheese|chocolate|soup|milk|beer|wine|cake|fish|eggs|potatoes|tomatoes|honey|sugar|salt|curry
sushi|salad|pancakes|apples|lemons|water|butter|beans|ice cream""".replace("\n", "|").split("|"),
    "topic": """the sea|history|love|football|politics|the weather|music|bread|the moon|life|war|chess|coffee|religion|money|friendship|school
art|cars|the future|happiness|death|space travel|holidays|winter|summer|freedom|justice|dogs|cats|gardening|cooking|computers|video games
the internet|philosophy|democracy|vaccines|climate|fashion|sleep|dreams|marriage|children|work|taxes|crime|nature|forests|robots|poetry
dance|photography|mountains|tennis|mathematics|the stars|yoga|books|television|smartphones|electric cars|nuclear power|capitalism|ghosts
astrology|magic|tattoos|social media|homework|parents|aliens|trains|flying|bicycles|snow|rain|fire|colours|language|Rust|Linux""".replace("\n", "|").split("|"),
    "letter": list("abcdefghilmnoprst"),
    "kind": "colour film song book food animal number season sport city word game".split(),
    "sport": "football tennis basketball hockey cricket rugby golf boxing chess volleyball baseball".split(),
    "stock": "gold oil bitcoin wheat silver Apple Tesla Google Microsoft gas".split(),
    "body": "head back knee foot hand eye ear tooth stomach neck shoulder arm leg heart".split(),
    "tongue": "French German Spanish Italian Polish Czech Dutch Chinese Japanese Russian Arabic Latin Greek Turkish Hindi Swedish".split(),
    "phrase": """good morning|I love you|where is the station|see you tomorrow|the house is red|thank you very much|I am hungry|how much is it
he go to school|the dog sleeps|what is your name|we was late|open the door|my friend is here|I have no time|it is cold today|guten Tag""".replace("\n", "|").split("|"),
    "foreign": """Bonjour, comment vas-tu ?|Quelle heure est-il ?|Où est la gare ?|Je ne comprends pas.|Quel temps fait-il ?|Merci beaucoup|Qui es-tu ?
Wie geht es dir?|Was ist das?|Ich verstehe nicht.|Wo ist der Bahnhof?|Guten Tag|Erzähl mir einen Witz.|Wer bist du?|Was kostet das?|Wie heißt du?
Hola, ¿qué tal?|¿Dónde está la playa?|¿Qué hora es?|No entiendo nada.|¿Quién eres?|Buenos días|Ciao, come stai?|Dove sei?|Che ore sono?|Chi sei?
Olá, tudo bem?|Qual é o seu nome?|Hej, hur mår du?|Cześć, jak się masz?|Dzień dobry|Привет|Как тебя зовут?|Что это?|Спасибо|你好|你是谁？|今天天气怎么样？
谢谢|こんにちは|ありがとう|お元気ですか|안녕하세요|مرحبا|كيف حالك؟|Merhaba, nasılsın?|Γεια σου|नमस्ते|Salut|Tak for mad|Hyvää päivää""".replace("\n", "|").split("|"),
    "mark": "? ! . ... ??? !!! :) :( ;-) <3 - -- # @ & % $ * / // () [] {} <> ~ ^ = == + , ; : \" ' 😀 👍 🎉 ❤️ 🤔 ok yes no maybe hmm".split(),
}


def apart(text):
    return zlib.crc32(f"beyond {text}".encode()) % KEPT_ONE_IN == 0


FORMS = [tuple(line.split(" ", 1)) for line in pathlib.Path(__file__).with_name("beyond.txt").read_text().splitlines() if not line.startswith("#")]
TRAINED_FORMS, NEW_FORMS = [f for f in FORMS if not apart(f[1])], [f for f in FORMS if apart(f[1])]
TRAINED_LISTS = {name: [x for x in names if not apart(x)] for name, names in LISTS.items()}
NEW_LISTS = {name: [x for x in names if apart(x)] or names for name, names in LISTS.items()}


def mash(rng):
    letters = rng.choice((string.ascii_lowercase, "asdfghjkl", "qwertyuiop", "asdfjkl;", "abc", string.ascii_letters + string.digits + "!?$%"))
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 14)))


class Fields(dict):
    """Draws what a form names: from its list, or made up; a digit behind the name asks for another one."""

    def __init__(self, rng, lists):
        super().__init__()
        self.rng, self.lists = rng, lists

    def __missing__(self, name):
        rng, base = self.rng, name.rstrip("23")
        if name in self.lists or base in self.lists:
            return rng.choice(self.lists[name if name in self.lists else base])
        made = {"word": lambda: rng.choice(DOCUMENTED if rng.random() < 0.6 else WORDS), "mash": lambda: mash(rng),
                "a": lambda: rng.randint(2, 999), "b": lambda: rng.randint(2, 20), "year": lambda: rng.randint(1000, 2026),
                "number": lambda: rng.randint(0, 10 ** rng.randint(1, 9)), "place": lambda: invented(rng).title(), "person": lambda: full_name(rng)}
        return made[base]()


def question(rng, test=False):
    """-> a question out of the domain; a test's form and, where it has any, names were never trained."""
    if test and rng.random() < 0.4:
        return rng.choice(NEVER_TRAINED)
    if not test and rng.random() < 0.06:        # what a tool would do, and none is there
        return tools.ask_for(rng, rng.choice(tools.TABLE))[0]
    forms = NEW_FORMS if test else TRAINED_FORMS
    kind = rng.choice(KINDS[test])
    form = rng.choice([form for own, form in forms if own == kind])
    fields = Fields(rng, NEW_LISTS if test else TRAINED_LISTS)
    if "{person2}" in form:
        form = form.replace("{person2}", full_name(rng))
    ask = form.format_map(fields)
    chance = rng.random()
    if chance < 0.12:
        ask = ask.lower()
    elif chance < 0.25:
        ask = ask.rstrip(".?")
    elif chance < 0.36:
        ask = rng.choice(("Please: ", "Hey, ", "Quick question: ", "Hi! ", "Can you help me? ", "So, ", "ok ", "I wonder: ")) + ask
    elif chance < 0.42:
        ask += rng.choice((" Thanks!", " Please.", " Be brief.", " Explain it simply.", " I need it for school."))
    return ask


KINDS = {test: sorted({kind for kind, _ in (NEW_FORMS if test else TRAINED_FORMS)}) for test in (False, True)}


def make(rng, test=False, thinking=None):
    ask = question(rng, test)
    if not ask.strip():
        return make(rng, test, thinking)
    thinking = rng.random() < 0.6 if thinking is None else thinking
    return Sample("beyond", f"beyond {ask}", [user(ask), assistant(CANNOT, THOUGHT if thinking else None)], thinking, expect=MARK)
