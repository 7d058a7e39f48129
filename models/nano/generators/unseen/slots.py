"""Values that are drawn into a text, and what each of them is as JSON."""
import datetime
import pathlib
import re

HERE = pathlib.Path(__file__).parent
SLOT = re.compile(r"\{(?P<set>=)?(?P<name>[\w.]+)(?::(?P<kind>\w+)(?: (?P<argument>[^}]*))?)?\}")
OPTION = re.compile(r"\[([^\[\]]*)\]")
OPTION_SHARE = 0.5
ATTEMPTS_MAX = 200          # to find a value that the text does not have yet

FIRST = """Ottilie Bram Farah Kofi Ingrid Malachy Noor Piet Rosalind Tomasz Yusra Wanda Leopold Saskia Hamish Ines Dagny Emrys Goran Haruka Imogen
Lorcan Mireille Priya Quentin Renske Siobhan Teodor Ulla Viggo Winifred Xenia Zoltan Beatrix Cosmo Delphine Ewan Fenna Gwendolyn Hedda Isidro Jolanta
Kwame Ludmila Mehmet Nadine Osvaldo Perpetua Rufus Svetlana Tariq Ursula Valentin Wilhelmina Yannick Zora""".split()
LAST = """Abernathy Brandvold Castellan Dunmore Eskelund Fairweather Grotenhuis Hathersage Ibsley Jankowski Kettering Lindqvist Marchbanks Nakagawa
Oyelaran Pemberton Quarrington Rasmussen Sandoval Thackeray Underhill Vasquez Wetherby Yarrow Zielinski Achterberg Bellamy Coombes Dragomir Evenden
Featherstone Guerrero Holmquist Ironside Juhasz Kilbride Lovelace Mbeki Norrington Okonkwo Petrakis Rosenthal Sutcliffe Tregenza Upchurch Vandermeer
Winterbourne Yamashita Zimmerman""".split()
TOWNS = """Aldermoor Brixholt Carrowby Dunsley Eskerford Fennimore Garthwick Hollinsea Inverloch Kelderness Lambourne Merrowdale Netherby Osterwick
Pellingham Quenby Ravenscar Saltmere Thornaby Uplyme Vennington Wexcombe Yarmley Zennorby Ashcombe Bracklesham Coldharbour Drumbeg Elmstead Foxcote""".split()
STREETS = """Tanner's Row|Mill Lane|Cobbler Street|Harbour Road|Chapel Close|Orchard Way|Station Parade|Foundry Street|Larkspur Avenue|Quarry Hill|Bishop's
Walk|Canal Street|Weavers Yard|Lighthouse Road|Poplar Drive|Granary Square|Old Ferry Road|Sexton Lane""".replace("\n", " ").split("|")
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COLOURS = "red blue green yellow white black purple orange brown grey pink silver turquoise".split()
MONTHS = "January February March April May June July August September October November December".split()
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


def day(rng):
    return datetime.date(2027, 1, 1) + datetime.timedelta(rng.randrange(730))


def said_date(date, year=True):
    return f"{date.day} {MONTHS[date.month - 1]}" + (f" {date.year}" if year else "")


def bounds(argument):
    """`4-20`, or `100-900/50` in steps."""
    low, high, step = re.fullmatch(r"(-?\d+)-(-?\d+)(?:/(\d+))?", argument).groups()
    return int(low), int(high), int(step or 1)


def whole(rng, argument):
    low, high, step = bounds(argument)
    n = rng.randrange(low, high + 1, step)
    return str(n), n


def decimal(rng, argument):
    """`1-9 2`: between 1 and 9, with exactly two places."""
    span, places = argument.split()
    low, high, _ = bounds(span)
    shown = f"{rng.randint(low, high - 1)}.{rng.randint(1, 10 ** int(places) - 1):0{places}}"
    return shown, float(shown)


def several(rng, argument):
    chosen = rng.sample(argument.split("|"), rng.randint(2, 4))
    return ", ".join(chosen[:-1]) + " and " + chosen[-1], chosen


def people(rng, argument):
    chosen = rng.sample(FIRST, rng.randint(2, 4))
    return ", ".join(chosen[:-1]) + " and " + chosen[-1], chosen


def readings(rng, argument):
    chosen = [whole(rng, argument)[1] for _ in range(rng.randint(3, 5))]
    return ", ".join(map(str, chosen[:-1])) + f" and {chosen[-1]}", chosen


def few(rng, argument):
    n = rng.randint(2, 12)
    return WORDS[n], n


def flag(rng, argument):
    """`is paid|is not paid`: the first is true."""
    n = rng.randrange(2)
    return argument.split("|")[n], n == 0


def long_date(rng, argument):
    """A date in words that a form may want as YYYY-MM-DD."""
    date = day(rng)
    return said_date(date), date.isoformat()


def code(rng, argument):
    """`AA-99`: letters and digits in the places of A, a and 9."""
    drawn = {"A": lambda: rng.choice(CODE_LETTERS), "a": lambda: rng.choice(CODE_LETTERS).lower(), "9": lambda: str(rng.randint(1, 9))}
    return "".join(drawn.get(c, lambda c=c: c)() for c in argument or "AA-999")


TEXTS = {
    "first": lambda rng, _: rng.choice(FIRST),
    "last": lambda rng, _: rng.choice(LAST),
    "person": lambda rng, _: f"{rng.choice(FIRST)} {rng.choice(LAST)}",
    "town": lambda rng, _: rng.choice(TOWNS),
    "street": lambda rng, _: rng.choice(STREETS),
    "address": lambda rng, _: f"{rng.randint(2, 180)} {rng.choice(STREETS)}",
    "weekday": lambda rng, _: rng.choice(WEEKDAYS),
    "colour": lambda rng, _: rng.choice(COLOURS),
    "month": lambda rng, _: rng.choice(MONTHS),
    "date": lambda rng, _: said_date(day(rng), year=False),
    "fulldate": lambda rng, _: said_date(day(rng)),
    "iso": lambda rng, _: day(rng).isoformat(),
    "clock": lambda rng, span: f"{rng.randint(*bounds(span or '7-21')[:2])}:{rng.randrange(0, 60, 5):02}",
    "clock24": lambda rng, _: f"{rng.randint(6, 22):02}:{rng.randrange(0, 60, 5):02}",
    "code": code,
    "mail": lambda rng, _: f"{rng.choice(FIRST)}.{rng.choice(LAST)}@{rng.choice(TOWNS)}.example".lower(),
    "phone": lambda rng, _: f"0{rng.randint(11, 99)} {rng.randint(1000, 9999)} {rng.randint(100, 999)}",
    "pick": lambda rng, choices: rng.choice(choices.split("|")),
}
VALUES = {"int": whole, "dec": decimal, "list": several, "people": people, "ints": readings, "few": few, "flag": flag, "longdate": long_date}


class Filler:
    """Fills the slots of one conversation: no value is drawn twice, so that a question has one answer."""

    def __init__(self, rng):
        self.rng, self.shown, self.values = rng, {}, {}

    def drawn(self, kind, argument):
        for _ in range(ATTEMPTS_MAX):
            if kind in TEXTS:
                shown = value = TEXTS[kind](self.rng, argument)
            else:
                shown, value = VALUES[kind](self.rng, argument)
            if kind == "flag" or shown not in self.shown.values():
                return shown, value
        raise ValueError(f"{kind} {argument}: every value is in the text already")

    def filled(self, text, scope=""):
        """The text with its slots filled; names are apart in each `scope`."""
        def put(match):
            name = scope + match["name"]
            if match["set"]:
                self.values[name] = {"true": True, "false": False}[match["kind"]]
                return ""
            if match["kind"]:
                assert name not in self.shown, f"{name} is drawn twice"
                self.shown[name], self.values[name] = self.drawn(match["kind"], match["argument"])
            return self.shown[name]
        return SLOT.sub(put, text)

    def trimmed(self, text):
        """Without some of what stands in brackets."""
        return OPTION.sub(lambda m: m[1] if self.rng.random() < OPTION_SHARE else "", text)


def blocks(name):
    """-> [(head, lines)] of a text: a block begins with `== head`."""
    found = []
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            found.append((line[3:], []))
        elif line.strip() and not line.startswith("#"):
            found[-1][1].append(line)
    return found
