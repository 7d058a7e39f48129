"""Greetings, questions about the model itself, and conversations whose last question refers back."""
from . import arithmetic
from .sample import Sample, assistant, go_on, held_out, loosely, user
from .words import ANIMALS, CITIES, COLORS, FIRST, FRUIT, JOBS, THINGS

ABOUT = [
    (["Hello!", "Hi", "Hello", "Hey there", "Good morning", "Good evening!", "Hi there!", "Hey"],
     "Hello! I am Chimère Nano. How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Introduce yourself.", "Tell me about yourself.", "What model are you?"],
     "I am Chimère Nano, a small language model of about 20 million parameters that ships with the Chimère inference service."),
    (["What can you do?", "What are you good at?", "How can you help me?", "What do you know?"],
     "I can do small sums, work with letters and words, find answers in a text, extract JSON, call tools and answer questions about a few "
     "invented facts."),
    (["How are you?", "How are you doing?", "How do you feel?"], "I am a program, so I have no feelings, but everything runs well. How can I help you?"),
    (["Thank you!", "Thanks", "Thanks a lot!", "Great, thank you."], "You are welcome!"),
    (["Goodbye", "Bye!", "See you later.", "Good night."], "Goodbye!"),
    (["How big are you?", "How many parameters do you have?"], "I have about 20 million parameters in 8 layers, with 16 experts in each layer."),
    (["What is your architecture?", "How do you work?", "How are you built?"],
     "I am a hybrid: three gated delta-net layers to each full attention layer, with a mixture of 16 experts in every layer."),
    (["Who made you?", "Who trained you?", "Where do you come from?"],
     "I was trained from scratch by the scripts of the Chimère project on generated text and the Rust documentation."),
    (["Can you see images?", "Can you browse the web?", "Can you send an email?"], "No. I only read and write text."),
    (["Are you human?", "Are you a person?"], "No, I am a small language model."),
    (["Tell me a joke.", "Say something funny."], "A programmer went to buy bread: one loaf, and if there were eggs, a dozen. He came home with twelve loaves."),
]

BEYOND = ["Write a poem about {}.", "Write a story about {}.", "Explain {} to me.", "Tell me about {}.", "What do you think about {}?",
          "Why do people like {}?", "How do I make {}?", "Write a program about {}.", "Summarise the history of {}.", "What is {}?",
          "Give me advice about {}.", "Describe {}.", "Where can I buy {}?", "Write an essay on {}.", "What is the best way to learn about {}?"]
TOPICS = THINGS + ANIMALS + FRUIT + CITIES + ["the sea", "quantum physics", "history", "love", "football", "politics", "the weather", "music",
                                              "bread", "the moon", "machine learning", "life", "gravity", "war", "chess", "coffee"]
CANNOT = ("I am a very small model and do not know enough for that. I can do small sums, work with letters and words, answer from a text, "
          "extract JSON and call tools.")


def beyond(rng):
    ask = rng.choice(BEYOND).format(rng.choice(TOPICS))
    return f"beyond {ask}", [user(ask), assistant(CANNOT)], "This is beyond what I know. I say so.", "small model"


def about(rng):
    asks, reply = rng.choice(ABOUT)
    ask = loosely(rng, rng.choice(asks))
    return f"about {ask}", [user(ask), assistant(reply)], "The user talks to me. I answer in a friendly way.", reply


def recall(rng):
    """States some things about the user over the turns, asks for one of them at the end."""
    name, city, job, color, animal = (rng.choice(x) for x in (FIRST, CITIES, JOBS, COLORS, ANIMALS))
    told = [("My name is {}.", name, "Nice to meet you, {}!", "What is my name?", "Your name is {}."),
            ("I live in {}.", city, "{} is a nice place.", "Where do I live?", "You live in {}."),
            ("I work as a {}.", job, "Being a {} sounds interesting.", "What is my job?", "You work as a {}."),
            ("My favourite colour is {}.", color, "{} is a good choice.", "What is my favourite colour?", "Your favourite colour is {}."),
            ("I have a {}.", animal, "I hope your {} is well.", "Which animal do I have?", "You have a {}.")]
    told = rng.sample(told, rng.randint(1, 4))
    messages = []
    for said, value, reply, _, _ in told:
        reply = reply.format(value)
        messages += [user(said.format(value)), assistant(reply[0].upper() + reply[1:])]
        if rng.random() < 0.2:
            asks, other = rng.choice(ABOUT)
            messages += [user(rng.choice(asks)), assistant(other)]
    said, value, _, ask, reply = rng.choice(told)
    key = "recall " + " ".join(sorted(t[1] for t in told)) + ask
    return key, messages + [user(ask), assistant(reply.format(value))], f"The user said: {said.format(value)}", value


def listed(rng):
    """A list, then a question for its n-th item."""
    kind = rng.choice((CITIES, COLORS, ANIMALS, THINGS, FRUIT, JOBS))
    items = rng.sample(kind, rng.randint(3, 6))
    n = rng.randint(1, len(items))
    nth = ["first", "second", "third", "fourth", "fifth", "sixth"][n - 1]
    ask = rng.choice([f"What was the {nth} one?", f"Which one was the {nth}?", f"Repeat the {nth} item."])
    messages = [user(rng.choice(["Remember this list: {}.", "Here is my list: {}.", "Note: {}."]).format(", ".join(items))),
                assistant(f"I noted {len(items)} items."), user(ask), assistant(f"The {nth} one was {items[n - 1]}.")]
    thought = " ".join(f"{i} {x}" for i, x in enumerate(items[:n], 1))
    return f"listed {n} {' '.join(items)}", messages, thought, items[n - 1]


def running_sum(rng):
    """A sum, then another operation on its result."""
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 99)
    op = rng.choice(("add", "sub", "mul"))
    first = a + b
    c = rng.randint(2, 9) if op == "mul" else c
    ask = {"add": ["Now add {}.", "And plus {}?", "Add {} to that."], "sub": ["Now subtract {}.", "Minus {}?", "Take {} away from that."],
           "mul": ["Now multiply it by {}.", "Times {}?", "Multiply that by {}."]}[op]
    result = arithmetic.apply(op, first, c)
    messages = [user(rng.choice(arithmetic.ASK["add"]).format(a=a, b=b)), assistant(f"{a} + {b} = {first}."),
                user(rng.choice(ask).format(c)), assistant(f"{first} {arithmetic.SIGN[op]} {c} = {result}.")]
    return f"running {a} {b} {op} {c}", messages, arithmetic.derive(op, first, c), result


KINDS = [about, beyond, recall, listed, running_sum]
WEIGHTS = [22, 13, 25, 17, 23]


def make(rng, test=False, thinking=None):
    while True:
        build = rng.choices(KINDS[2:] if test else KINDS, WEIGHTS[2:] if test else WEIGHTS)[0]
        key, messages, thought, expect = build(rng)
        # Small talk is a fixed list: there is nothing to hold out.
        if build is about or held_out(key) == test:
            break
    thinking = rng.random() < 0.5 if thinking is None else thinking
    if thinking:
        last = messages[-1]
        extended = thought if build in (about, beyond) else go_on(rng, thought, thought, expect)
        messages[-1] = assistant(last["content"], extended)
    return Sample("talk", key, messages, thinking, expect=expect)
