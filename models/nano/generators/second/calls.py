"""Tools of programs and services with names that were made up, whose parameters a request gives one by one."""
import sys

from .. import calling, words

BASES = """query fetch list compute render compile deploy rollback migrate index crawl parse validate encrypt decrypt compress extract upload download sync mirror clone commit tag
revoke grant issue renew expire bind route balance throttle cache flush purge snapshot restore replicate shard rebalance poll push subscribe publish ingest
transform aggregate forecast simulate calibrate align annotate classify score rank match dedupe normalize tokenize transcribe summarize plot sample audit trace
profile benchmark lint patch upgrade provision allocate release suspend kill spawn attach detach resize""".split()
OBJECTS = """cluster node pod volume bucket queue topic stream shard replica token secret certificate session cookie policy quota zone region subnet gateway proxy firewall tunnel
dataset table column row view schema cursor ledger wallet contract block metric gauge counter alert incident ticket sprint branch release artifact package module
plugin widget dashboard layer mesh texture shader frame clip track voxel molecule sequence genome assay cohort trial dose orbit probe rover telemetry waypoint
airspace runway manifest cargo lane fleet depot tariff quote premium claim ledger2 invoice payroll roster shift badge""".replace("ledger2 ", "").split()
KNOWN = """id key value limit offset size depth level rank rate ratio score mode kind state scope owner region zone label prefix suffix pattern query path host port user group
team channel topic version branch format locale currency unit width height count total interval retries threshold budget deadline alias origin""".split()
KINDS = ["word", "word", "code", "code", "proper", "small", "int", "int", "decimal", "file", "url", "email", "phrase", "town", "person", "date", "time", "bool", "words", "codes", "numbers"]
JOINTS = ["{n} {v}", "{n}: {v}", "{n}={v}", "{n} = {v}", "{n} is {v}", "{n} set to {v}", "the {n} {v}", "{v} as {n}", "{v} for {n}", "using {v} as the {n}", "whose {n} is {v}", "having the {n} {v}", "{v} being the {n}", "{n} at {v}", "{n} of {v}", "with {n} {v}",
          "where the {n} equals {v}", "{n} := {v}", "{n} -> {v}", "a {n} of {v}", "{v} ({n})", "and {v} for its {n}", "make the {n} {v}", "its {n} should be {v}", "put {v} into {n}", "{n}: \"{v}\"", "take {v} as {n}"]
FRAMES = ["{g}{p}", "{g}{p}", "run it: {g}{p}", "Task: {g}{p}.", "We have to {g}{p}.", "todo: {g}{p}", "{g}{p} - thanks", "Kindly {g}{p}.", "It is necessary to {g}{p}.", "Next step, {g}{p}.",
          "You should {g}{p}.", "i need to {g}{p}", "{g}{p} ASAP", "> {g}{p}", "My job is to {g}{p}. Do it.", "Try to {g}{p}."]
LEADS = [" with ", ", ", ": ", " where ", " ", " (", " using "]
LEADS_SHARE = 0.3
OPENERS = ["ticket 4711: ", "@bot ", "fyi team: ", "new request - ", "step 2: ", "[urgent] ", "msg from ops: ", "re: your question. ", "continue: ", "plan: ", "it would help to ", "let's ", "shall we ", "pls ",
           "cmd> ", "$ ", "user story: as an admin i want to ", "the customer asks to ", "according to the runbook, ", "once more: ", "before lunch, ", "go ahead and ", "we agreed to ", "someone has to ",
           "kick off: ", "action item: ", "could this bot ", "looks like we should ", "tomorrow is too late, so "]
DETAILS = ("mode policy layout palette codec encoding protocol backend tier plan strategy order level variant flavor profile preset channel lane stage phase class family driver engine runtime cipher index grain".split(),
           "basic strict lazy eager verbose silent hybrid local remote shared private public stable beta nightly legacy modern compact full partial cold hot primary secondary weekly daily random sorted flat deep".split())
SYSTEM = ["You operate a platform through tools.", "Use the functions.", "Agent mode."]


def verb(rng):
    return rng.choice(BASES) if rng.random() < 0.5 else words.rare(rng) if rng.random() < 0.6 else words.made_up(rng)


def noun(rng):
    return rng.choice(OBJECTS) if rng.random() < 0.45 else words.rare(rng) if rng.random() < 0.6 else words.made_up(rng)


def parameter(rng, noun):
    if rng.random() < 0.12:
        return calling.detailed(rng, DETAILS)
    some = [rng.choice(KNOWN) if rng.random() < 0.55 else words.rare(rng)]
    if rng.random() < 0.3:
        some.insert(0, rng.choice((noun, words.rare(rng), "new", "max", "min", "target")))
    some = list(dict.fromkeys(some))
    name = "_".join(some)
    joint = rng.choice(JOINTS)
    description = rng.choice((f"{' '.join(some)} of the {noun}", f"the {' '.join(some)}", f"{some[-1]}"))
    chance = rng.random()
    if chance < 0.15:
        schema, draw = calling.chosen(rng, sorted({words.rare(rng) + (f"_{words.rare(rng)}" if rng.random() < 0.2 else "") for _ in range(rng.randint(2, 5))}))
        return calling.parameter(rng, name, None, (joint,), description, schema, draw)
    if chance < 0.22:
        return calling.parameter(rng, name, None, ("{n} from {v}", "{n} {v}"), description, calling.SPAN, calling.span)
    return calling.parameter(rng, name, rng.choice(KINDS), (joint,), description)


def tool_name(rng, verb, noun):
    chance = rng.random()
    if chance < 0.5:
        return calling.named(rng, [verb, noun])
    if chance < 0.75:
        return calling.named(rng, [words.rare(rng), verb, noun])
    return calling.named(rng, [noun, verb]) if chance < 0.88 else f"{words.made_up(rng)}_{rng.randint(1, 99)}"


def description(rng, verb, noun):
    return rng.choice((f"{verb} {noun}", f"Will {verb} one {noun} of the caller", f"{verb.capitalize()} any {noun} by its data.", f"Endpoint: {verb} {noun}", f"{verb.capitalize()}s the given {noun}.",
                       f"Function to {verb} every {noun} that matches"))


def goal(rng, verb, noun):
    return verb, f"{rng.choice(('', 'the ', 'one ', 'that ', 'any ', 'some ', 'your '))}{noun}"


def sentence(rng, goal, phrases):
    lead = rng.choice(LEADS)
    joined = rng.choice((", ", " and ", "; ", ", ")).join(phrases)
    frame = rng.choice(FRAMES)
    goal = goal if frame.startswith("{g}") else goal[0].lower() + goal[1:]
    return frame.format(g=goal, p=lead + joined + (")" if lead == " (" else "") if phrases else "")


def make(rng, thinking=None, **wanted):
    return calling.make(rng, sys.modules[__name__], thinking, **wanted)
