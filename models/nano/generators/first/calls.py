"""Tools of a house, a shop, an office, with parameters that a request says in prepositions and units."""
import sys

from .. import calling, words
from ..made import events
from ..calling import chosen

VERBS = """open close start stop lock unlock order cancel book move send fill empty heat cool water feed paint clean repair check weigh measure count sort copy rename
delete archive publish print scan record play pause resume skip record translate convert split merge assign invite remind call notify charge refund pay rate review
schedule postpone confirm reject approve enable disable mount launch land dock rotate lift lower dim brighten mute ring test reset update install remove attach track
find search list show fetch get create add set write read save load pack ship return exchange rent buy sell lend register enter leave plant harvest mow dry wash iron
bake grill boil mix stir slice pour serve""".split()
NOUNS = """gate door window lamp heater oven kettle pump valve tank boiler garden fence field bed plant tree pool sauna shutter curtain alarm camera drone robot mower car
van truck bus train ticket seat table room desk locker parcel letter invoice order bill receipt cart coupon product shelf pallet crate box bag bottle barrel
meeting call reminder note task project report chart slide photo song film playlist episode book page chapter recipe meal course lesson exam student patient
visit dose sample test machine belt press drill saw lift crane engine battery panel screen printer scanner phone router server backup folder file table2 record form
survey vote poll badge key card account loan transfer fund share fee fine tax permit licence route stop station port berth ship boat kayak bike scooter horse dog
cat fish bee hive nest farm barn mill bridge tunnel road lane signal sensor beacon antenna telescope microscope furnace kiln loom""".replace("table2 ", "").split()
# names, kind, how it is said, description
PLAIN = [
    ("name label title", "word", ("called {v}", "named {v}", "with the name {v}", "by the name of {v}"), "The name"), ("minutes duration duration_minutes mins", "small", ("for {v} minutes",), "Minutes"),
    ("seconds timeout", "small", ("for {v} seconds", "after {v} seconds"), "Time in seconds"), ("hours", "small", ("for {v} hours",), "Hours"), ("days", "small", ("for {v} days", "in {v} days"), "Number of days"),
    ("time at start_time", "time", ("at {v}",), "Time of day"), ("weekday day", "weekday", ("on {v}",), "Day of the week"), ("date on_date when", "date", ("on {v}",), "The date"),
    ("city town place", "town", ("in {v}",), "The town"), ("owner person customer guest", "person", ("for {v}", "of {v}"), "Whom it is for"), ("to recipient target", "first", ("to {v}",), "Who gets it"),
    ("source origin sender", "town", ("from {v}",), "Where it comes from"), ("amount price budget", "decimal", ("for {v} euros", "worth {v} euros", "at {v} euros"), "Amount in euros"),
    ("times repeat count", "small", ("{v} times",), "How often"), ("color colour paint", "color", ("in {v}", "with {v} paint"), "The colour"), ("percent level_percent", "small", ("to {v} percent", "by {v} percent"), "Percentage"),
    ("temperature degrees celsius", "small", ("to {v} degrees", "at {v} degrees"), "Degrees Celsius"), ("file path file_name", "file", ("from the file {v}", "with the file {v}", "using {v}"), "The file"),
    ("message text note", "phrase", ("saying \"{v}\"", "with the text \"{v}\"", "and write \"{v}\"", "with the message '{v}'"), "What it says"), ("email mail", "email", ("at {v}", "and mail {v}"), "Mail address"),
    ("id number code ref", "code", ("number {v}", "with the code {v}", "with id {v}", "{v}"), "Its number"), ("material", "material", ("of {v}", "made of {v}"), "What it is made of"),
    ("weight kg", "decimal", ("of {v} kilograms", "with {v} kg"), "Weight in kg"), ("items parts things", "words", ("with {v}", "containing {v}"), "What belongs to it"),
    ("guests members people", "people", ("together with {v}", "for {v}"), "Who takes part"), ("speed rpm", "int", ("at speed {v}", "with {v} rpm"), "Speed"), ("floor row shelf line lane", "small", ("on {n} {v}", "in {n} {v}"), "Where it is")]
ENUMS = [("priority urgency", ["low", "medium", "high"], ("with {v} priority", "at {v} priority")), ("mode", ["fast", "slow", "automatic"], ("in {v} mode",)), ("size", ["small", "medium", "large"], ("in size {v}", "size {v}")),
         ("unit units", ["metric", "imperial"], ("in {v} units",)), ("format", ["pdf", "csv", "html", "json"], ("as {v}",)), ("direction", ["left", "right", "up", "down"], ("to the {v}", "going {v}")),
         ("side", ["north", "south", "east", "west"], ("on the {v} side",)), ("season", ["spring", "summer", "autumn", "winter"], ("in {v}",))]
FRAMES = ["{g}{p}.", "{g}{p}.", "{g}{p}", "Please {g}{p}.", "Can you {g}{p}?", "Could you please {g}{p}?", "I want you to {g}{p}.", "{g}{p}, please.", "I need you to {g}{p}", "Would you {g}{p}?",
          "hey, {g}{p}", "Go and {g}{p}.", "Now {g}{p}!", "I'd like to {g}{p}.", "Time to {g}{p}.", "{g}{p} now", "Let us {g}{p}."]
LEADS_SHARE = 0.3
OPENERS = ["If you have a minute, ", "When you are free, ", "Would it be possible to ", "I was told to ask you: ", "Be so good and ", "My wish for today: ", "Listen, ", "One more thing: ", "Here is a job: ",
           "As agreed, ", "For the evening: ", "Could someone ", "I would be glad if you could ", "What about this: ", "First of all, ", "Make sure to ", "The boss says: ", "Your turn: ", "It is time to ",
           "Everybody waits for us to ", "We would like you to ", "They asked me to ", "Finally, ", "Quickly, ", "Sorry to bother you, but ", "Good evening, ", "Hello there, ", "Next on my list: ", "Do me a favour and "]
DETAILS = ("handle edge surface border tone taste pattern cover frame label background grip shape hem ribbon lid sole lining texture glow smell rhythm mood theme accent style collar button strap base top".split(),
           "soft hard bright dark thick thin round square plain striped wet dry hot cold sweet sour loud quiet narrow wide simple fancy glossy dull warm cool heavy light old new clear cloudy golden floral".split())
SYSTEM = ["You control a house.", "You are the assistant of a small firm.", "Call tools where they help."]
ASK_ALSO = {"get": ["show me", "give me"], "find": ["look for"], "delete": ["erase", "remove"], "buy": ["purchase"], "start": ["begin"], "stop": ["halt"], "repair": ["fix"], "book": ["reserve"],
            "postpone": ["put off"], "cancel": ["call off"], "show": ["display"], "enable": ["turn on"], "disable": ["turn off"], "fetch": ["bring"], "create": ["make"]}


def verb(rng):
    return rng.choice(VERBS) if rng.random() < 0.75 else words.rare(rng)


def noun(rng):
    return rng.choice(NOUNS) if rng.random() < 0.6 else words.rare(rng)


def parameter(rng, noun):
    if rng.random() < 0.3:
        phrase, kind, names = rng.choice(events.PARTS)
        return calling.parameter(rng, names, kind, (phrase,), names.split()[-1].replace("_", " ").capitalize())
    if rng.random() < 0.18:
        return calling.detailed(rng, DETAILS)
    chance = rng.random()
    if chance < 0.72:
        names, kind, phrases, description = rng.choice(PLAIN)
        if names.startswith("name") and rng.random() < 0.4:
            names += f" {noun}_name {noun}"
        return calling.parameter(rng, names, kind, phrases, description)
    if chance < 0.86:
        names, enum, phrases = rng.choice(ENUMS)
        schema, draw = chosen(rng, enum)
        return calling.parameter(rng, names, None, phrases, "One of the given", schema, draw)
    if chance < 0.93:
        return calling.parameter(rng, "address location site", None, ("at {v}", "near {v}"), "Where", calling.PLACE, calling.place)
    return calling.parameter(rng, "silent verbose force dry_run urgent".replace(" ", "_on ", 1), None, ("with {n} {v}", "{n}: {v}"), "A switch", {"type": "boolean"}, calling.flag)


def tool_name(rng, verb, noun):
    chance = rng.random()
    if chance < 0.65:
        return calling.named(rng, [verb, noun])
    if chance < 0.8:
        return calling.named(rng, [noun, verb])
    return calling.named(rng, [verb, rng.choice(("the", "one", "new", "my", "home", "this")), noun]) if chance < 0.92 else calling.named(rng, [words.made_up(rng), words.made_up(rng)])


def description(rng, verb, noun):
    article = "an" if noun[0] in "aeiou" else "a"
    return rng.choice((f"{verb.capitalize()} {article} {noun}.", f"{verb.capitalize()} the {noun}", f"Lets you {verb} {article} {noun}.", f"{verb.capitalize()} {article} {noun} and report back.",
                       f"To {verb} {article} {noun}"))


def goal(rng, verb, noun):
    verb = rng.choice(ASK_ALSO.get(verb, [verb])) if rng.random() < 0.3 else verb
    return verb, f"{rng.choice(('the', 'the', 'the', 'my', 'our', 'a' if noun[0] not in 'aeiou' else 'an', 'this', 'that'))} {noun}"


def sentence(rng, goal, phrases):
    """The goal, then what is said of it; at times the first of it before the goal."""
    phrases = list(phrases)
    frame = rng.choice(FRAMES)
    goal = goal if frame.startswith("{g}") else goal[0].lower() + goal[1:]
    if phrases and phrases[0].startswith(("at ", "on ", "in ")) and frame.startswith("{g}") and rng.random() < 0.15:
        return f"{phrases[0][0].upper()}{phrases[0][1:]}, {goal[0].lower()}{goal[1:]}{''.join(' ' + p for p in phrases[1:])}."
    joined = "".join(" " + p for p in phrases[:-1]) + ((rng.choice((" ", " ", " and ")) if len(phrases) > 1 else " ") + phrases[-1] if phrases else "")
    return frame.format(g=goal, p=joined)


def make(rng, thinking=None, **wanted):
    return calling.make(rng, sys.modules[__name__], thinking, **wanted)
