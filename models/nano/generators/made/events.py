"""Sentences about what somebody did with something, each part of which has a key in a form: whom, to whom, where, when, for how much.

A form is understood when its keys are found in a sentence by the part that a word plays there, so the parts are put together anew each time.
"""
from .. import values, words

# past, base, participle; what the one who did it may be called in a form
DEEDS = """sent:send:sent:sender author|sold:sell:sold:seller vendor|bought:buy:bought:buyer customer|delivered:deliver:delivered:courier carrier driver|lent:lend:lent:lender owner
borrowed:borrow:borrowed:borrower user|ordered:order:ordered:customer client|packed:pack:packed:packer worker|painted:paint:painted:painter artist|repaired:repair:repaired:mechanic technician
wrote:write:written:author writer|donated:donate:donated:donor giver|collected:collect:collected:collector|stored:store:stored:keeper owner|shipped:ship:shipped:shipper exporter
booked:book:booked:guest client|cancelled:cancel:cancelled:client member|found:find:found:finder|lost:lose:lost:owner loser|measured:measure:measured:examiner engineer
tested:test:tested:tester engineer|built:build:built:builder maker|baked:bake:baked:baker cook|grew:grow:grown:farmer grower|checked:check:checked:inspector reviewer
returned:return:returned:client member|rented:rent:rented:tenant customer|brought:bring:brought:bearer|weighed:weigh:weighed:inspector|reported:report:reported:reporter witness
requested:request:requested:applicant member|approved:approve:approved:manager approver|planned:plan:planned:planner organiser|printed:print:printed:printer|cleaned:clean:cleaned:cleaner
loaded:load:loaded:loader driver|caught:catch:caught:fisher hunter|picked:pick:picked:picker|washed:wash:washed:cleaner|signed:sign:signed:signer""".replace("\n", "|").split("|")
# how it is said; the kind; the keys
PARTS = [("to {v}", "person", "recipient addressee to target client"), ("for {v}", "first", "for_whom beneficiary customer friend"), ("from {v}", "town", "origin source from start"),
         ("in {v}", "town", "town place location where site"), ("near {v}", "town", "near landmark nearby_town"), ("on {v}", "date", "date day when on"), ("on {v}", "weekday", "weekday day"),
         ("at {v}", "time", "time hour clock at"), ("for {v} euros", "decimal", "price cost euros amount_paid total"), ("at {v} dollars each", "decimal", "unit_price dollars price_each"),
         ("with {v}", "first", "companion helper partner colleague"), ("together with {v}", "people", "companions team helpers others"), ("under number {v}", "code", "number id ticket reference_number"),
         ("within {v} days", "small", "days term deadline_days"), ("after {v} hours", "small", "hours duration_hours"), ("by {v}", "weekday", "due deadline"), ("via {v}", "town", "via stopover"),
         ("as file {v}", "file", "file attachment document"), ("because of {v}", "phrase", "reason cause"), ("using a {v}", "thing", "tool device instrument"), ("in the name of {v}", "proper", "company firm employer"),
         ("to {v}", "country", "destination country destination_country"), ("from {v}", "country", "home_country country_of_origin"), ("at {v} degrees", "small", "temperature degrees"),
         ("through {v}", "proper", "agency dealer broker"), ("in room {v}", "int", "room room_number"), ("on floor {v}", "small", "floor level storey"), ("at a speed of {v} km/h", "small", "speed speed_kmh kmh"),
         ("over {v} kilometres", "decimal", "distance kilometres km"), ("{v} times", "small", "times repetitions"), ("with code {v}", "code", "code access_code pin"), ("in the year {v}", "int", "year in_year"),
         ("against {v}", "proper", "opponent rival"), ("despite {v}", "phrase", "obstacle difficulty"), ("until {v}", "date", "until end end_date last_day"), ("since {v}", "date", "since start_date first_day"),
         ("by mail to {v}", "email", "mail mail_address contact_mail"), ("by phone on {v}", "phone", "phone phone_number telephone"), ("at the {v} shop", "proper", "shop store market"),
         ("for the {v} project", "proper", "project programme"), ("in {v} minutes", "small", "minutes time_taken"), ("with a discount of {v} percent", "small", "discount discount_percent rebate"),
         ("between {v}", "towns", "between route towns"), ("called {v}", "proper", "title name called"), ("on gate {v}", "small", "gate dock")]
UNITS = "bags boxes crates bottles sheets rolls litres kilos tons pieces barrels packs buckets jars cartons pallets bundles metres cans trays".split()
SORTS = "material substance ware contents goods stuff".split()


def object_of(rng):
    """What it is about -> the words, [(keys, kind, value)]."""
    count, thing = values.draw(rng, "small"), values.draw(rng, rng.choice(("thing", "word")))
    color, material = values.draw(rng, "color"), values.draw(rng, rng.choice(("material", "word")))
    code, weight = values.draw(rng, "code"), values.draw(rng, "decimal")
    counted, named = ("quantity count number how_many units", "small", count[0]), ("item thing object article product", "thing", thing[0])
    return rng.choice((
        lambda: (f"{count[1]} {rng.choice(UNITS)} of {material[1]}", [counted, (" ".join(SORTS), "material", material[0])]),
        lambda: (f"{count[1]} {thing[1]}s", [counted]),
        lambda: (f"the {color[1]} {thing[1]}", [("color colour shade", "color", color[0]), named]),
        lambda: (f"a {thing[1]} made of {material[1]}", [named, (" ".join(SORTS), "material", material[0])]),
        lambda: (f"the {thing[1]} {code[1]}", [named, ("code id number serial", "code", code[0])]),
        lambda: (f"a {thing[1]} of {weight[1]} kilograms", [named, ("weight kilograms mass kg", "decimal", weight[0])]),
        lambda: (f"{count[1]} {color[1]} {thing[1]}s", [counted, ("color colour shade", "color", color[0])]),
        lambda: (f"the {thing[1]}", [named])))()


def sentence(rng):
    """-> the text, [(keys, kind, value)] in the order of the text."""
    past, base, participle, doers = rng.choice(DEEDS).split(":")
    thing, about = object_of(rng)
    parts, said = rng.sample(PARTS, rng.randint(1, 4)), []
    for phrase, kind, keys in parts:
        value, spoken = values.draw(rng, kind)
        said.append((phrase.format(v=spoken), (keys, kind, value)))
    who = values.draw(rng, rng.choice(("person", "first", "person", "proper")))
    doer = (doers + " who name", "person", who[0])
    tail, told = " ".join(p for p, _ in said), [key for _, key in said]
    first, rest = said[0], said[1:]
    behind, beside = " ".join(p for p, _ in rest), [key for _, key in rest]
    front = first[0][0].upper() + first[0][1:]
    please = rng.choice(("Please {b}", "{B}", "You must {b}", "Remember to {b}", "Do not forget to {b}", "We need to {b}"))
    return rng.choice((
        lambda: (f"{who[1]} {past} {thing} {tail}.", [doer, *about, *told]), lambda: (f"{who[1]} {past} {thing} {tail}.", [doer, *about, *told]),
        lambda: (f"{thing[0].upper()}{thing[1:]} {'were' if thing[0].isdigit() else 'was'} {participle} by {who[1]} {tail}.", [*about, doer, *told]),
        lambda: (f"{front}, {who[1]} {past} {thing} {behind}".rstrip() + ".", [told[0], doer, *about, *beside]),
        lambda: (f"{please.format(b=base, B=base.capitalize())} {thing} {tail}.", [*about, *told]),
        lambda: (f"{who[1]} wants to {base} {thing} {tail}.", [doer, *about, *told]), lambda: (f"{who[1]}: {thing}, {tail}", [doer, *about, *told]),
        lambda: (f"It was {who[1]} who {past} {thing} {tail}.", [doer, *about, *told]), lambda: (f"I, {who[1]}, {past} {thing} {tail}.", [doer, *about, *told]),
        lambda: (f"{thing[0].upper()}{thing[1:]} will be {participle} {tail}.", [*about, *told])))()


def told(rng):
    """-> a text of a sentence or two, {key: (kind, value)} in the order of the text; no key twice."""
    texts, found = [], {}
    for _ in range(rng.choice((1, 1, 1, 2))):
        text, parts = sentence(rng)
        texts.append(text)
        for keys, kind, value in parts:
            key = rng.choice(keys.split())
            if key in found:
                return told(rng)
            found[key] = (kind, value)
    return " ".join(texts), found
