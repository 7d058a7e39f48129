"""Names and values: random strings, rare words and common ones, so that a value is copied letter by letter and never known by heart."""
import string

from tasks.words import ANIMALS, CITIES, COLORS, COMMON, FIRST, FRUIT, JOBS, LAST, THINGS

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
ONSETS = "b br c ch cl d dr f fl g gr h j k kr l m n p pr qu r s sh sk st t th tr v w x y z".split() + [""] * 3
CODAS = ["", "", "", "n", "r", "l", "s", "x", "nd", "rt", "k", "m", "th", "ck", "ng", "b", "st"]
MORE_FIRST = """Aaron Abena Adele Agnes Aisha Akira Albert Aldo Amara Amelia Andre Anika Arjun Arthur Aya Basil Beatrice Bruno Callum Camille Cecil Chidi
Chloe Cyrus Dalia Damir Dara Demi Dina Dorian Edith Edgar Efua Elias Ellen Enzo Esther Faisal Fatima Flora Freya Gavin Gita Greta Gustav Hamid Harriet
Hector Helga Hiro Ibrahim Imani Ingrid Iris Isaac Ismail Ivy Jade Jamal Jasper Joan Jorge Judith Kamal Kira Klaus Kofi Lara Leif Lena Liam Linus Lorenzo
Lucy Magnus Malik Mara Marek Margot Mateo Maya Mei Mira Mohan Nadir Naomi Nico Nils Odette Omar Orla Otto Pavel Pilar Priya Quentin Rania Ravi Remy Rhea
Rory Rufus Ruth Sasha Selma Silas Simone Stella Tamsin Tara Tessa Tobias Ulrich Ursula Vikram Viola Walter Wanda Willem Xavier Ximena Yasmin Yuki Zane
Zara Zora""".split()
COUNTRIES = """Norway Kenya Brazil Japan Portugal Chile Egypt Canada Greece Poland Vietnam Iceland Ghana Peru Nepal Austria Morocco Finland Cuba Jordan Latvia
Malta Oman Panama Qatar Serbia Tunisia Uganda Yemen Zambia""".split()
MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
MATERIALS = "copper iron glass wood stone steel paper wool silk clay brass leather cotton marble plastic bronze slate rubber linen tin".split()
FOOD = """soup rice bread cheese noodles beans pancakes salad porridge dumplings stew pie curry omelette waffles lentils pasta pizza tacos sushi yoghurt
mushrooms carrots onions potatoes""".split()
HOBBIES = """chess pottery sailing knitting climbing painting cycling fencing archery juggling gardening rowing surfing baking photography skating singing
origami yoga beekeeping astronomy carpentry running fishing""".split()
RARE = list(COMMON)         # more words once the passages are read


def learn(words):
    """Takes the words of the passages for rare ones."""
    RARE.extend(words)


def pick(rng, *lists):
    return rng.choice(rng.choice(lists))


def syllables(rng, count):
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if rng.random() < 0.6 else "") for _ in range(count))


def made_up(rng, least=1, most=3):
    word = syllables(rng, rng.randint(least, most))
    return word if 3 <= len(word) <= 13 else made_up(rng, least, most)


def scrambled(rng, letters=string.ascii_lowercase, least=3, most=9):
    return "".join(rng.choice(letters) for _ in range(rng.randint(least, most)))


def rare(rng):
    """One lower-case word: of a language, of the passages, or of no language."""
    chance = rng.random()
    return rng.choice(RARE) if chance < 0.6 else made_up(rng) if chance < 0.9 else scrambled(rng)


def first(rng):
    return pick(rng, FIRST, MORE_FIRST) if rng.random() < 0.65 else made_up(rng, 2, 3).capitalize()


def surname(rng):
    chance = rng.random()
    if chance < 0.1:
        return f"{rng.choice(('Mc', 'O', 'De ', 'van '))}{made_up(rng, 2, 2).capitalize()}".replace("O", "O'", 1) if chance < 0.02 else made_up(rng, 2, 3).capitalize()
    return rng.choice(LAST) if chance < 0.5 else rng.choice(RARE).capitalize() if chance < 0.65 else made_up(rng, 2, 3).capitalize()


def person(rng):
    chance = rng.random()
    if chance < 0.08:
        return f"{first(rng)} {rng.choice(string.ascii_uppercase)}. {surname(rng)}"
    if chance < 0.14:
        return f"{rng.choice(('Dr.', 'Mr.', 'Mrs.', 'Prof.'))} {surname(rng)}"
    return f"{first(rng)} {surname(rng)}"


def who(rng):
    return first(rng) if rng.random() < 0.6 else person(rng)


def town(rng):
    return rng.choice(CITIES) if rng.random() < 0.5 else made_up(rng, 2, 3).capitalize() + rng.choice(("", "", "", "ville", "burg", "ton", " Bay", " Hill"))


def proper(rng):
    """A name of a thing: a project, a ship, a firm."""
    word = made_up(rng, 2, 3) if rng.random() < 0.6 else rng.choice(RARE)
    return rng.choice((word.capitalize(), word.capitalize(), word.upper() if len(word) < 6 else word.capitalize(), f"{word.capitalize()} {rng.randint(2, 99)}"))


def code(rng):
    upper, digit = (lambda n: scrambled(rng, string.ascii_uppercase, n, n)), (lambda n: scrambled(rng, string.digits, n, n))
    return rng.choice((
        lambda: f"{upper(2)}-{digit(4)}", lambda: f"{upper(1)}{digit(3)}", lambda: scrambled(rng, "0123456789abcdef", 6, 10), lambda: f"{upper(3)}{digit(2)}-{upper(1)}",
        lambda: digit(rng.randint(4, 8)), lambda: f"{rare(rng)}-{digit(2)}", lambda: f"{upper(3)}-20{digit(2)}-{digit(4)}", lambda: f"v{digit(1)}.{digit(1)}.{digit(2)}",
        lambda: f"{rare(rng)}_{rare(rng)}", lambda: scrambled(rng, string.ascii_letters + string.digits, 5, 11)))()


def email(rng):
    name = rng.choice((first(rng).lower(), f"{first(rng)}.{made_up(rng)}".lower(), scrambled(rng), f"{made_up(rng)}{rng.randint(1, 99)}"))
    return f"{name}@{made_up(rng)}.{rng.choice(('com', 'org', 'net', 'de', 'io', 'example', 'co.uk'))}"


def file_name(rng):
    return f"{rare(rng)}{rng.choice(('', '_' + rare(rng), '-' + str(rng.randint(1, 40))))}.{rng.choice('txt csv pdf md json png log xlsx rs py wav zip'.split())}"


def url(rng):
    return f"https://{rng.choice(('', 'www.', 'api.'))}{made_up(rng)}.{rng.choice(('com', 'org', 'io', 'net'))}{rng.choice(('', '/' + rare(rng)))}"


def phone(rng):
    return rng.choice(("+{} {} {}", "{}-{}-{}", "0{} {}{}")).format(rng.randint(1, 99), rng.randint(100, 999), rng.randint(1000, 999999))


def clock(rng):
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randint(0, 59))):02d}"


def day(rng):
    """-> year, month, day."""
    return rng.randint(1950, 2032), rng.randint(1, 12), rng.randint(1, 28)


def iso(date):
    return f"{date[0]}-{date[1]:02d}-{date[2]:02d}"


def long_date(rng, date):
    month = MONTHS[date[1] - 1]
    return rng.choice((f"{date[2]} {month} {date[0]}", f"{month} {date[2]}, {date[0]}", f"{month} {date[2]}, {date[0]}"))


def whole(rng):
    return rng.randint(0, 9) if rng.random() < 0.2 else rng.randint(2, 10 ** rng.randint(2, 4))


def decimal(rng):
    return round(rng.uniform(0, 10 ** rng.randint(1, 3)), rng.choice((1, 1, 2)))


def thing(rng):
    return rng.choice((rng.choice(THINGS), rng.choice(COMMON), rare(rng)))


def phrase(rng, least=2, most=6):
    """Some words in a row, as a title or a message has."""
    return " ".join(rare(rng) if rng.random() < 0.5 else rng.choice(COMMON) for _ in range(rng.randint(least, most)))


def typo(rng, text):
    """Two letters of a lower-case word exchanged, one left out or one doubled."""
    words = text.split(" ")
    long = [i for i, w in enumerate(words) if len(w) > 4 and w.isalpha() and w.islower()]
    if not long:
        return text
    i = rng.choice(long)
    w, at = words[i], rng.randrange(1, len(words[i]) - 2)
    words[i] = rng.choice((w[:at] + w[at + 1] + w[at] + w[at + 2:], w[:at] + w[at + 1:], w[:at] + w[at] + w[at:]))
    return " ".join(words)


# Kinds of values, as the tables of relations name them.
KINDS = {
    "person": who, "first": first, "full": person, "town": town, "country": lambda r: r.choice(COUNTRIES), "color": lambda r: r.choice(COLORS),
    "animal": lambda r: r.choice(ANIMALS), "job": lambda r: r.choice(JOBS), "food": lambda r: r.choice(FOOD), "fruit": lambda r: r.choice(FRUIT),
    "hobby": lambda r: r.choice(HOBBIES), "material": lambda r: r.choice(MATERIALS), "thing": thing, "name": proper, "word": rare, "code": code, "email": email,
    "file": file_name, "url": url, "phone": phone, "time": clock, "date": lambda r: long_date(r, day(r)), "year": lambda r: str(r.randint(1400, 2035)),
    "weekday": lambda r: r.choice(WEEKDAYS), "month": lambda r: r.choice(MONTHS), "count": lambda r: str(r.randint(2, 99)), "big": lambda r: str(r.randint(100, 99999)),
    "small": lambda r: str(r.randint(2, 12)), "age": lambda r: str(r.randint(3, 97)), "price": lambda r: price(r), "decimal": lambda r: str(decimal(r)),
    "percent": lambda r: f"{r.randint(1, 99)} percent", "adjective": lambda r: r.choice("large tiny heavy quiet empty narrow modern ancient damp warm cold bright".split()),
}


def price(rng):
    amount = rng.choice((str(rng.randint(2, 900)), f"{rng.randint(1, 99)}.{rng.randint(0, 99):02d}"))
    return rng.choice((f"{amount} euros", f"{amount} dollars", f"${amount}", f"{amount} EUR"))
