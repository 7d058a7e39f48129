"""Layouts that no author thought of: labels of any words in front of the parts of a request, so that a part is known by what it is."""
from .. import words

LABELS = """text note notes input data source document content page extract file record entry sample letter report story article mail memo log info facts background reading
question task request query problem job order goal ask exercise assignment todo step prompt wish need work instruction""".split()
ENDS = (":", ":", ":", ":", " -", " =", " >", ".", " ->", " |", " --", ";", ":-", " =>")
RULES = ("---", "***", "===", "###", "~~~", "----------", "* * *", "____", "+++", "//")
WRAPS = ('"{t}"', "'{t}'", "<<{t}>>", "«{t}»", "[{t}]", "({t})", "{{{t}}}", "```\n{t}\n```", "<{w}>{t}</{w}>", "<{w}>\n{t}\n</{w}>", "“{t}”", "> {t}", "/* {t} */", "|{t}|", "## {w}\n{t}", "### {w}\n\n{t}")


def some(rng, least=1, most=2):
    return " ".join(rng.choice(LABELS) if rng.random() < 0.6 else words.rare(rng) for _ in range(rng.randint(least, most)))


def cased(rng, text):
    return rng.choice((str.capitalize, str.capitalize, str.title, str.upper, str.lower))(text)


def label(rng, least=1, most=2):
    """A word or two with a colon or the like behind it."""
    return cased(rng, some(rng, least, most)) + rng.choice(ENDS)


def lead(rng):
    """Words before a request that say nothing: an address, a courtesy, any words and a comma."""
    return rng.choice((
        lambda: f"{words.first(rng)}, ", lambda: f"Dear {rng.choice(LABELS)} helper, ", lambda: f"{cased(rng, words.phrase(rng, 1, 3))}, ", lambda: f"{cased(rng, words.phrase(rng, 1, 2))}: ",
        lambda: f"{words.rare(rng).capitalize()}! ", lambda: f"{words.rare(rng).capitalize()}. ", lambda: f"{words.phrase(rng, 1, 3).capitalize()} - ", lambda: f"My {words.rare(rng)}, ",
        lambda: f"Good {words.rare(rng)}, ", lambda: f"{words.phrase(rng, 2, 5).capitalize()}. "))()


def tail(rng):
    return rng.choice((lambda: f", {words.first(rng)}", lambda: f" ({words.phrase(rng, 1, 3)})", lambda: f" {words.phrase(rng, 1, 3).capitalize()}.", lambda: f" - {words.rare(rng)}"))()


def wrapped(rng, text):
    if rng.random() < 0.6 or "\n" in text and rng.random() < 0.5:
        return text
    return rng.choice(WRAPS).format(t=text, w=words.rare(rng))


def together(rng, shown, asked):
    """A text and what is asked about it, in either order, with any labels and rules between them."""
    first, second = wrapped(rng, shown), asked
    if rng.random() < 0.6:
        first = label(rng) + rng.choice((" ", "\n", "\n\n")) + first
    if rng.random() < 0.55:
        second = label(rng, 1, 3) + rng.choice((" ", " ", "\n")) + second
    if rng.random() < 0.3:
        first, second = second, first
    between = rng.choice(("\n", "\n\n", "\n\n", " ", f"\n{rng.choice(RULES)}\n", f"\n\n{rng.choice(RULES)}\n\n"))
    opening = f"{words.phrase(rng, 2, 6).capitalize()}{rng.choice(('.', ':', '!'))}{rng.choice((' ', chr(10), chr(10) * 2))}" if rng.random() < 0.15 else ""
    return opening + first + between + second


def numbering(rng):
    """A shape of numbered passages, with {i} and {t}."""
    word = cased(rng, some(rng, 1, 1)).replace("{", "").replace("}", "")
    return rng.choice((f"{word} {{i}}: {{t}}", f"{word} {{i}}\n{{t}}", f"{word} {{i}} - {{t}}", f"[{word} {{i}}] {{t}}", f"{word} #{{i}}: {{t}}", f"{word} {{i}} > {{t}}", f"{word}-{{i}} {{t}}",
                       "{i} - {t}", "{i}/ {t}", "({i}) {t}", "#{i} {t}", "{i} | {t}", "== {i} ==\n{t}", "<{i}> {t}", "~{i}~ {t}", "no. {i}: {t}", "{i} > {t}", "=== {i}\n{t}", "{i}.) {t}",
                       f"<{word.lower()} id=\"{{i}}\">{{t}}</{word.lower()}>", f"{word} {{i}}. {{t}}", f"*** {word} {{i}} ***\n{{t}}"))


def said(rng, text, share=0.3):
    """A request with words around it that say nothing, at times."""
    chance = rng.random()
    if chance < share * 0.7:
        begin = lead(rng)
        return begin + (text if rng.random() < 0.5 or text[:2].isupper() else text[:1].lower() + text[1:])
    return text.rstrip(".?") + tail(rng) if chance < share else text
