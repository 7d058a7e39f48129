"""Small talk put together by rule: greetings, thanks, leave-taking, and statements about anybody's day, which ask for nothing."""
from .. import words

GREET = "Hello Hi Hey Good_morning Good_evening Good_day Greetings Hi_there Hello_again Hey_there Good_afternoon Welcome_back Hello_everyone Salutations".split()
WHOM = ["", "", "", " my friend", " bot", " computer", " machine", " dear model", " little one", " Nano", " assistant", " everybody", " old friend", " stranger"]
SINCE = ["", "", "", " It is me again.", " I am new here.", " I am back.", " Long time no see.", " Nice to meet you.", " This is my first time here.", " I just wanted to say hello.", " Are you there?", " I hope you are well."]
THANKS = "Thanks|Thank you|Many thanks|Thanks a lot|Thank you so much|A thousand thanks|My thanks|Thx|Big thanks|Thanks again".split("|")
FOR_WHAT = ["", "", " for the answer", " for your time", " for helping", " for that", " for all of this", " for the explanation", " for your patience", " for the quick reply", " for today", " anyway"]
PRAISE = [f"{a} {b}" for a in ("That was", "This is", "It was", "Your answer was", "That is", "You are", "Your help was") for b in (
    "very kind", "really good", "so useful", "just right", "exactly it", "clever", "fantastic", "quite impressive", "very helpful", "lovely", "correct, well done", "excellent", "what I needed")]
LEAVE = [f"{a} {b}" for a in ("I have to", "I need to", "I should", "We have to", "I want to", "I will", "Now I", "It is late, I") for b in (
    "go now", "leave", "run", "stop here", "go to bed", "get back to work", "catch my bus", "cook dinner", "log out", "say goodbye", "close the window", "end this", "head home", "switch off")]
WHO = ["Which {n} am I {t} to?", "What kind of {n} are you?", "Are you a {n}?", "I would like to know who you are.", "Please introduce yourself to me.", "Say something about yourself.", "What sort of {n} is this?", "Is this a {n}?",
       "With whom am I {t}?", "Whose voice is this?", "Give me your name.", "What name do you have?"]
NOUNS = "model program machine bot robot system assistant computer thing software".split()
CAN = ["What can you {d}?", "Which things can you {d}?", "What are you able to {d}?", "Tell me what you can {d}.", "What do you {d} best?", "Show me what you are able to {d}.", "What would you {d} for me?", "How can you be of use?",
       "What kind of help do you give?", "What may I ask you?", "For what can I use you?", "What are you made for?", "Which questions can you answer?", "What should I ask you first?", "Where can you help?", "What do you offer?",
       "Do you have any talents?", "Name your abilities.", "What are your talents?", "How do I use this?"]
DO = "do handle solve answer help_with manage work_on".split()
WHO_ACTS = ["I", "I", "I", "We", "My {relation}", "Our {relation}", "{first}", "My {animal}", "The {animal}", "The {thing}", "Someone", "My {thing}", "Everyone", "Our {thing}"]
ACTS = """went home|fell asleep|broke down|came late|had {food} for lunch|ate {food}|lost the {thing}|found a {thing}|bought a {thing}|moved to {town}|arrived in {town}|met {first}|called {first}|likes {food}
was in {town}|is tired|is happy|is sick|is hungry|is at home|is late again|is on holiday|is in the garden|needs a break|needs a new {thing}|wants some {food}|learns {hobby}|started {hobby}|made {food}|forgot the {thing}
stayed in bed|worked a lot|sang a song|cleaned the {thing}|fixed the {thing}|is from {country}|travelled to {country}|won a game|missed the train|slept badly|slept well|cooked {food}|watched a film|read a book
drank too much tea|went for a walk|took a nap|painted the {thing}|lives in {town}|works as a {job}|is a {job}|hates {food}|cannot sleep|laughed a lot|waited for hours|dreamt of {country}|burnt the {food}""".replace("\n", "|").split("|")
WHEN = ["", "", "", " today", " yesterday", " this morning", " last night", " again", " on {weekday}", " for the first time", " with {first}", " in {town}", " at last", " and it was great", " and that is fine", " all day", " as usual"]
STATES = ["It is {a} in {town} today", "It is {a} outside", "What a {a} {weekday}", "The {thing} is {a}", "The {food} was {a}", "My {relation} is {a}", "Life is {a}", "This day is {a}", "I feel {a}", "I am feeling {a} today", "I feel so {a} right now",
          "The weather is {a}", "The sky is {a}", "My coffee is {a}", "Everything is {a} here", "That sounds {a}", "It has been {a} since {weekday}", "{weekday} is my favourite day", "My name is {first}", "I am {first} from {town}", "They call me {first}"]
HOW = "cold warm wonderful grey quiet noisy long short strange lovely sad busy calm windy rainy sunny foggy lazy nice terrible boring exciting lonely cheerful sleepy nervous relaxed awful bright dark".split()
RELATION = "brother sister mother father aunt uncle boss friend neighbour daughter son team teacher wife husband cousin grandmother grandfather roommate colleague".split()


def filled(rng, form):
    fields = {"relation": rng.choice(RELATION), "a": rng.choice(HOW), "n": rng.choice(NOUNS), "t": rng.choice(("talking", "speaking", "writing", "chatting")), "d": rng.choice(DO).replace("_", " ")}
    return form.format_map({name: fields[name] if name in fields else str(words.KINDS[name](rng)) for name in [*fields, *words.KINDS] if "{" + name + "}" in form})


def statement(rng):
    if rng.random() < 0.35:
        return filled(rng, rng.choice(STATES))
    who, act = rng.choice(WHO_ACTS), rng.choice(ACTS)
    if who in ("I", "We"):
        first, _, rest = act.partition(" ")
        act = {"is": "am" if who == "I" else "are", "likes": "like", "needs": "need", "wants": "want", "learns": "learn", "lives": "live", "works": "work", "hates": "hate", "was": "was" if who == "I" else "were"}.get(first, first) + " " + rest
    return filled(rng, f"{who} {act.strip()}{rng.choice(WHEN)}")


MADE = {"hello": lambda r: r.choice(GREET).replace("_", " ") + r.choice(WHOM) + r.choice((".", "!", ",")) + r.choice(SINCE), "statement": lambda r: statement(r) + r.choice((".", ".", "!", "")),
        "thanks": lambda r: r.choice(THANKS) + r.choice(FOR_WHAT) + r.choice((".", "!", "")) if r.random() < 0.5 else r.choice(PRAISE) + r.choice((".", "!", "")),
        "bye": lambda r: r.choice(LEAVE) + r.choice((".", "!", ", bye.", ". Goodbye!", "")), "who": lambda r: filled(r, r.choice(WHO)), "can": lambda r: filled(r, r.choice(CAN))}


def made(rng, kind):
    """A remark of that kind, or None where there is no rule for it."""
    return MADE[kind](rng) if kind in MADE else None
