"""Tools and requests put together by rule. A request often names no parameter: its value is told by what it is, by the description, or by the only place
that is left, so that a tool has each such kind of value once."""
import sys

from .. import calling, values, words
from . import frames
from .roles import COUNTED, JOINED, MONEY, WITH_NOUN, key, noun as role, spoken

KINDS = "person person first town town country small small small int decimal decimal date date iso time weekday code code email phone file url proper word word word phrase thing people words words codes numbers color material bool enum enum".split()
VERBS = """accept adjust admit advertise air anchor announce answer arrange arrest ask assess attend award back balance ban bend bind bless blow board boil bottle bounce box braid break bring broadcast brush build burn bury button
call carry carve cast catch celebrate chase check chill chop clear climb clip coat collect colour comb combine compare compose conduct connect cook correct cover crack crush cure curl cut dance deal decorate defend deliver
describe design dig dip discuss display dive divide donate double drag drain draw dress drill drive drop drum dust dye earn edit educate elect empty encourage end enter examine exchange exercise exhibit expand explain explore
express extend face fasten feed fetch fight file fill film filter finance find finish fire fit fix flash flatten float flood fly fold follow forge form forward frame freeze fry fuel furnish gather gild give grab grade grate greet
grind grow guard guess guide hammer hand handle hang harness head heal hear heat help hide hire hit hold honour hook host hunt hurry identify ignite illustrate import improve increase inform inspect insure introduce invent
invest join judge juggle jump keep kick knit knock label ladle land laugh launch lay lead lease leave level lick light line link listen load lock lodge lower mail maintain make manage map march mark marry mash massage match measure
meet melt mend milk mince mine mint mix model mould mount mourn nail name nest note number obtain offer oil operate order organise outline own pack pad paint park pass paste patch pave peel perform phone photograph pick pickle
pierce pin pipe place plait plan plant plate play plough plug point polish pose post pour practise praise prepare present preserve press print process produce promote protect provide pull pump punch push question quote race raise
rake reach read rear receive recite recommend record recruit recycle refill reform refresh register rehearse release relieve remember replace rescue reserve restore retire return reward ring rinse roast roll row rub rule run
sail saw scatter scold score scout scrape scrub seal search season seat select sell send separate settle sew shade shake shape share sharpen shave shelter shift shine shoot shout show shuffle sign sing sink sketch ski skim skin slice
slide smell smoke smooth smuggle snap soak solve sort sow spell spice spin splash split sponsor spray spread stack staff stage stain stamp state steam steer sterilise stick stitch stir store straighten stretch string strip study
stuff sugar suggest supply support surprise survey swap sweep swing switch tailor tame tap taste teach tear tempt test thank thread throw tickle tie time tip toast toss touch tour tow trace trade train transport trap treat trim trust try
turn twist type uncover undo unfold unload unpack untie unveil vacuum value varnish visit voice walk warm warn wash watch water wave wax weave weed welcome weld whip whisper whistle widen win wind wipe wire wrap wrestle zip""".split()
# How a wish may be said; {g} is what is wanted. Without a capital: what stands before may be a lead.
WISHES = ["{g}", "{g}", "{g}", "{g}", "please {g}", "kindly {g}", "can you {g}", "could you {g}", "would you {g}", "will you {g}", "i want to {g}", "i need to {g}", "i have to {g}", "i would love to {g}", "we must {g}", "we ought to {g}", "you may {g}",
          "let us {g}", "the plan is to {g}", "all i ask is to {g}", "my wish is to {g}", "it is high time to {g}", "do not forget to {g}", "be sure to {g}", "try and {g}", "help me to {g}", "help us {g}", "i hope you can {g}", "see that you {g}",
          "it would be great to {g}", "it would be wise to {g}", "it is important to {g}", "i am here to {g}", "what we need is to {g}", "the idea was to {g}", "why not {g}", "you are asked to {g}", "your task is to {g}", "they told me to {g}",
          "i was going to {g}", "we decided to {g}", "remember to {g}", "i forgot to {g}", "the next thing is to {g}", "start to {g}", "get ready to {g}", "i count on you to {g}", "the guests expect us to {g}", "one of us should {g}",
          "a colleague wants me to {g}", "may i ask you to {g}", "do me the favour to {g}", "it is my turn to {g}", "today we {g}", "from here you can {g}", "now {g}", "then {g}", "just {g}", "quickly {g}", "go {g}", "right away {g}"]
OPENERS = ["Sir, ", "Madam, ", "Dear all, ", "Friends, ", "Well, ", "Right, ", "Look, ", "So then, ", "By the way, ", "As I said, ", "Good news! ", "Attention! ", "Hello. ", "Excuse me, ", "Ahem, ", "In short: ", "To begin with, ", "After that, ", "Before I forget, ",
           "Sorry, ", "Oh, ", "Boss, ", "Team, ", "Message from upstairs: ", "For tomorrow: ", "Note to self: ", "First thing today: ", "Big favour: "]
ENUMS = """small medium large|red green blue|hot mild sweet|north south east west|daily weekly monthly yearly|gold silver bronze|fast normal slow|first second third|soft medium firm|round square oval|matt glossy satin|cash card transfer
draft final public|raw cooked grilled|wide narrow|open closed locked|left right centre|cheap fair dear|male female|morning noon evening night|low high|summer winter|plain fancy|short long|window aisle middle|still sparkling
beginner advanced expert|email phone letter|single double triple|wood metal glass|solo duo group|on off|pop jazz rock folk|celsius fahrenheit kelvin|pdf html txt|young old|sand gravel clay|thin thick|salt sugar pepper""".replace("\n", "|").split("|")
QUALITIES = "style kind type grade quality class size tone pattern shape level mode pace speed manner method surface look degree range form taste sort order rank band variety phase season format plan option category version".split()
TOLD = {"person": "Who|The person|Full name|Who it concerns|Person in charge|By whom", "first": "Who|First name|The name of the person|For whom", "town": "Where|The town|In which place|City|The location", "country": "Which country|The land|Where in the world",
        "small": "How many|Number|The count|How often or how many", "int": "How much|The figure|As a whole number|Number", "decimal": "How much|The amount|As a number|At most so much|Sum of money", "date": "When|The day|On what day|Up to when|The date it is about",
        "iso": "When, as YYYY-MM-DD|The date|The day, YYYY-MM-DD", "time": "When, hours and minutes|What time|The hour", "weekday": "Which day of the week|The day|Weekday", "code": "The number of it|Identifier|What it is filed under|Key of the record",
        "email": "Mail address|Where to write to|Contact", "phone": "Phone number|Whom to call", "file": "Which file|Path of the file|File name", "url": "Address on the web|The link", "proper": "What it is called|The name|Its title", "word": "Its name|One word|What it is called|Which one",
        "phrase": "What it says|The words|Text|Words to put there", "thing": "Which thing|The object|With what", "people": "Who, a list|The people|Names", "words": "Which ones|A list of words|What it takes|Things needed", "codes": "Numbers of them|Identifiers",
        "numbers": "The figures|A list of numbers", "color": "Which colour|The colour", "material": "What it is made of|The material", "bool": "Yes or no|Whether it is so", "enum": "One of those given|Which of these"}
ANY_COUNT, SYSTEM, LEADS_SHARE = ("small",), ["Tools are there to be used.", "You take orders.", "One call for each wish.", "You act through functions."], 0.3
ARTICLES = ["the", "the", "the", "a", "this", "that", "my", "our", "your", "his", "their", "one more", "the old", "the new", "the other", "every", "the big", "the right"]


def verb(rng):
    chance = rng.random()
    return rng.choice(VERBS) if chance < 0.75 else words.rare(rng)


def noun(rng):
    chance = rng.random()
    return rng.choice(words.RARE) if chance < 0.55 else words.thing(rng) if chance < 0.8 else role(rng, rng.choice(("proper", "thing", "person")))


def parameters(rng, count):
    """So many, of kinds that differ where the request does not name them."""
    found, taken = [], set()
    for kind in rng.sample(KINDS, count):
        group = {"first": "person", "iso": "date", "country": "town", "proper": "name", "word": "name", "thing": "name", "int": "small", "decimal": "small", "enum": "enum"}.get(kind, kind)
        named = group in taken or rng.random() < 0.45
        taken.add(group)
        found.append(one(rng, kind, named))
    return found


def one(rng, kind, named):
    if kind == "enum":
        return choice(rng)
    called = role(rng, kind)
    name, said = key(rng, kind, called), spoken(called)
    if kind == "small":
        phrase = rng.choice(COUNTED if named or rng.random() < 0.85 else JOINED[kind]).replace("{n}", said)
    elif kind == "bool":
        phrase = rng.choice(("{n} {v}", "{n}: {v}", "with {n} {v}", "and {n} {v}", "({n}: {v})", "{n} = {v}")).replace("{n}", said)
    elif named or kind not in JOINED:
        phrase = rng.choice(WITH_NOUN).replace("{n}", said)
    else:
        phrase = rng.choice(JOINED[kind])
    if kind == "decimal" and rng.random() < 0.5:
        phrase = phrase.replace("{v}", "{v} " + rng.choice(MONEY))
    description = rng.choice(TOLD[kind].split("|")) if rng.random() < 0.5 else rng.choice((f"The {said}", f"{said.capitalize()}", f"What {said} it is", f"The {said} of it", f"{said} to use"))
    schema, draw = None, None
    if kind == "bool":
        schema, draw = {"type": "boolean"}, calling.flag
    elif kind in ("int", "small") and rng.random() < 0.15:
        schema = {"type": "integer", "minimum": rng.choice((0, 1))}
    elif kind == "code":        # a number as text is a matter of the declaration, which says so
        schema = {"type": "string"}
    return calling.parameter(rng, name, kind, (phrase,), description, schema, draw)


def choice(rng):
    if rng.random() < 0.6:
        options = rng.choice(ENUMS).split()
    else:
        options = sorted({words.rare(rng) for _ in range(rng.randint(2, 5))})
    schema, draw = calling.chosen(rng, options)
    called = rng.choice(QUALITIES)
    phrase = rng.choice(("in {v}", "{v}", "as {v}", "with {v}", "of the {v} {n}", "in a {v} {n}", "with the {v} {n}", "{n} {v}", "{n}: {v}", "for {v}", "the {v} way", "of {v} {n}", "({v})", "in {v} {n}", "to {v}", "at {v} {n}", "with {n} {v}", "in the {v} {n}",
                         "{v} if possible", "and make it {v}", "rather {v}", "to a {v} {n}", "having {v} {n}")).replace("{n}", called)
    return calling.parameter(rng, rng.choice((called, called, f"{called}_name", f"the_{called}", f"{called}_wanted")), None, (phrase,), rng.choice(TOLD["enum"].split("|") + [f"The {called}"]), schema, draw)


def tool_name(rng, verb, noun):
    chance = rng.random()
    if chance < 0.68:
        return calling.named(rng, [verb, noun])
    if chance < 0.78:
        return calling.named(rng, [noun, verb])
    if chance < 0.95:
        extra = rng.choice(("tool", "api", "do", "v2", "job", "now", "helper", "task", "run", "call", "action", "desk", "office", words.rare(rng)))
        return calling.named(rng, rng.choice(([verb, noun, extra], [noun, verb, extra], [extra, verb, noun], [noun, extra, verb])))
    return calling.named(rng, [words.made_up(rng), words.made_up(rng)])


def description(rng, verb, noun):
    article = "an" if noun[0] in "aeiou" else "a"
    what = rng.choice((f"{article} {noun}", f"the {noun}", f"any {noun}", f"some {noun}", f"one {noun}", f"the {noun} of a customer", f"the {noun} that is asked for", f"your {noun}", f"a certain {noun}"))
    return rng.choice(("{V} {w}.", "{V} {w}", "Can {v} {w}.", "Use it to {v} {w}.", "Call this to {v} {w}", "For those who want to {v} {w}.", "It is able to {v} {w}.", "The way to {v} {w}.", "With it you {v} {w}.", "When people ask to {v} {w}.",
                       "This function will {v} {w}.", "Our service to {v} {w}", "Helps to {v} {w} at any time.", "Needed in order to {v} {w}.", "Made to {v} {w}", "Asks a robot to {v} {w}.", "{V} {w} and say when it is done.", "Does {v} {w}.",
                       "If one has to {v} {w}, this does it.", "Whoever wants to {v} {w} calls this.")).format(v=verb, V=verb.capitalize(), w=what)


def goal(rng, verb, noun):
    return verb, f"{rng.choice(ARTICLES)} {noun}"


def sentence(rng, goal, phrases):
    goal = goal[0].lower() + goal[1:]
    phrases, before = list(phrases), ""
    if len(phrases) > 1 and rng.random() < 0.15:
        before, phrases = phrases[0] + rng.choice((", ", ": ", ", ")), phrases[1:]
    joined = ""
    for i, p in enumerate(phrases):
        joined += (rng.choice((" ", " ", " ", " ", ", ", " and ")) if i else " ") + p
    text = before + rng.choice(WISHES).format(g=goal + joined) if not before else before + goal + joined
    if text[0].isalpha() and rng.random() < 0.85:
        text = text[0].upper() + text[1:]
    text = text.replace(" i ", " I ") if rng.random() < 0.7 else text
    return text + rng.choice((".", ".", ".", "", "!", ", please.", "?", " please"))


def make(rng, thinking=None, **wanted):
    return calling.make(rng, sys.modules[__name__], thinking, **wanted)
