"""Statements put together by rule, with the questions that they answer: many verbs, measures, kin and parts, so that a question's words need not be the text's."""
from . import events
from ..relations import Relation

THINGS = """mural canal chapel windmill lighthouse opera poem ballad clock organ fountain castle harp quilt vase atlas dictionary robot rocket submarine glider satellite compass prism
telescope tapestry mosaic pavilion monument sculpture chair sofa cabinet violin drum flute trumpet bell crown sword shield helmet saddle wagon sleigh raft canoe tent cabin barn
silo vineyard orchard meadow quarry mine shaft gallery archive academy college clinic bakery brewery dairy foundry sawmill laundry nursery aquarium stadium arena gym rink pool
marina pier wharf airport depot plaza avenue alley cellar attic terrace balcony""".split()
# measure, adjective, unit, kind
MEASURES = """length long metres decimal|width wide centimetres decimal|depth deep metres decimal|weight heavy grams big|age old years count|thickness thick millimetres small|speed fast knots count
height high metres decimal|temperature hot degrees count|capacity large litres big|duration long hours small|distance far miles decimal""".replace("\n", "|").split("|")
TIMES = """opens open|closes close|starts start|ends end|departs depart|leaves leave|begins begin|finishes finish|rings ring|stops stop|reopens reopen|shuts shut""".split("|")
WHENS = [("at {v}", "time", ("At what time", "When", "What time")), ("on {v}", "weekday", ("On which day", "When", "Which weekday")), ("in {v}", "month", ("In which month", "When")),
         ("on {v}", "date", ("On which date", "When"))]
PLACES = "stands lies is_kept is_located sits is_found was_opened is_stored is_shown stays was_built".split()
PARTS = "doors windows pages seats strings keys wheels steps halls rows towers arches lamps pillars chapters cabins beds members visitors workers pupils bells sails engines knobs drawers shelves".split()
KIN = "uncle aunt cousin boss teacher neighbour doctor landlord nephew niece coach partner colleague tutor rival lawyer grandfather grandmother daughter son mentor dentist nurse guide".split()
FAVOURITES = [("drink", "food"), ("fruit", "fruit"), ("animal", "animal"), ("sport", "hobby"), ("colour", "color"), ("month", "month"), ("city", "town"), ("word", "word"), ("number", "count"), ("fabric", "material")]
TOOK = """found find|lost lose|sold sell|carried carry|wanted want|hid hide|broke break|borrowed borrow|stole steal|drew draw|threw throw|ate eat|saw see|brought bring|kept keep|wore wear|chose choose
mended mend|built build|polished polish|bought buy|forgot forget|received receive|dropped drop|caught catch|made make""".replace("\n", "|").split("|")


def deed(rng):
    past, _, participle, doers = rng.choice(events.DEEDS).split(":")
    thing, doer = rng.choice(THINGS), rng.choice(doers.split())
    return Relation("name", rng.choice(("full", "person", "first")), [f"{{v}} {past} the {{s}} {thing}", f"The {{s}} {thing} was {participle} by {{v}}", f"It was {{v}} who {past} the {{s}} {thing}",
                                                                     f"The {doer} of the {{s}} {thing} is {{v}}"],
                    [f"Who {past} the {{s}} {thing}?", f"Who is the {doer} of the {{s}} {thing}?", f"By whom was the {{s}} {thing} {participle}?", f"Which person {past} the {{s}} {thing}?",
                     f"Whose name goes with the {{s}} {thing}?"])


def measure(rng):
    noun, adjective, unit, kind = rng.choice(MEASURES).split()
    thing = rng.choice(THINGS)
    return Relation("name", kind, [f"The {{s}} {thing} is {{v}} {unit} {adjective}", f"The {noun} of the {{s}} {thing} is {{v}} {unit}", f"The {{s}} {thing} has a {noun} of {{v}} {unit}",
                                   f"With {{v}} {unit} of {noun} the {{s}} {thing} is known"],
                    [f"How {adjective} is the {{s}} {thing}?", f"What {noun} does the {{s}} {thing} have?", f"What is the {noun} of the {{s}} {thing}?", f"How many {unit} {adjective} is the {{s}} {thing}?",
                     f"Tell me the {noun} of the {{s}} {thing}."])


def when(rng):
    (third, base), (phrase, kind, asks) = rng.choice(TIMES).split(), rng.choice(WHENS)
    thing = rng.choice(THINGS)
    return Relation("name", kind, [f"The {{s}} {thing} {third} {phrase}", f"{phrase} the {{s}} {thing} {third}", f"We hear that the {{s}} {thing} {third} {phrase}"],
                    [f"{rng.choice(asks)} does the {{s}} {thing} {base}?" for _ in range(2)] + [f"When will the {{s}} {thing} {base}?"])


def where(rng):
    verb, thing = rng.choice(PLACES).replace("_", " "), rng.choice(THINGS)
    return Relation("name", rng.choice(("town", "country", "town")), [f"The {{s}} {thing} {verb} in {{v}}", f"In {{v}} {verb} the {{s}} {thing}", f"You can see the {{s}} {thing} in {{v}}"],
                    [f"Where is the {{s}} {thing}?", f"In which place is the {{s}} {thing}?", f"Where can I see the {{s}} {thing}?", f"What is the location of the {{s}} {thing}?"])


def parts(rng):
    part, thing = rng.choice(PARTS), rng.choice(THINGS)
    return Relation("name", rng.choice(("count", "small", "big")), [f"The {{s}} {thing} has {{v}} {part}", f"There are {{v}} {part} in the {{s}} {thing}", f"{{v}} {part} belong to the {{s}} {thing}",
                                                                   f"The {{s}} {thing} counts {{v}} {part}"],
                    [f"How many {part} does the {{s}} {thing} have?", f"How many {part} are in the {{s}} {thing}?", f"What is the number of {part} of the {{s}} {thing}?", f"How many {part} belong to {{s}}?"])


def kin(rng):
    who = rng.choice(KIN)
    return Relation("first", rng.choice(("first", "person")), [f"{{v}} is the {who} of {{s}}", f"{{s}}'s {who} is {{v}}", f"{{s}} has a {who} called {{v}}", f"The {who} of {{s}} goes by the name of {{v}}"],
                    [f"Who is {{s}}'s {who}?", f"What is the name of {{s}}'s {who}?", f"Who is the {who} of {{s}}?", f"How is {{s}}'s {who} called?"])


def favourite(rng):
    what, kind = rng.choice(FAVOURITES)
    return Relation(rng.choice(("first", "person")), kind, [f"{{s}}'s favourite {what} is {{v}}", f"Of all, {{s}} likes {{v}} best as a {what}", f"The {what} that {{s}} prefers is {{v}}"],
                    [f"What is {{s}}'s favourite {what}?", f"Which {what} does {{s}} prefer?", f"What {what} does {{s}} like best?"])


def taken(rng):
    past, base = rng.choice(TOOK).split()
    return Relation(rng.choice(("first", "full")), rng.choice(("thing", "word")), [f"{{s}} {past} a {{v}}", f"A {{v}} is what {{s}} {past}", f"On the way {{s}} {past} the {{v}}"],
                    [f"What did {{s}} {base}?", f"What was it that {{s}} {past}?", f"Which thing did {{s}} {base}?", f"{{s}} {past} something. What?"])


def relations(rng, count):
    return [rng.choice((deed, measure, when, where, parts, kin, favourite, taken))(rng) for _ in range(count)]
