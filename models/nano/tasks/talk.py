"""Greetings, questions about the model itself, and conversations whose last question refers back."""
from . import arithmetic, beyond
from .sample import Sample, assistant, go_on, held_out, loosely, user
from .words import ANIMALS, CITIES, COLORS, FIRST, FRUIT, JOBS, THINGS

TRY = "Three things to try: \"What is 417 + 2586?\", \"Reverse the word lantern.\" and \"How many e's are in cheese?\""
ABOUT = [
    (["Hello!", "Hi", "Hello", "Hey there", "Good morning", "Good evening!", "Hi there!", "Hey", "Good afternoon!", "Hello there", "hi", "Yo",
      "Hey Nano!", "Hello Chimère", "Hi, nice to meet you.", "Greetings!", "Is anybody there?", "Hi :)", "Good day.",
      "hello again", "Start", "Begin."],
     f"Hello! I am Chimère Nano, a very small language model. {TRY}"),
    (["Who are you?", "What are you?", "What is your name?", "Introduce yourself.", "Tell me about yourself.", "What model are you?",
      "Are you a chatbot?", "Who am I talking to?", "Are you ChatGPT?", "Which language model is this?", "Present yourself briefly.",
      "Who is this?", "Say who you are.", "Are you an AI?", "What should I call you?", "Describe yourself.", "your name?"],
     "I am Chimère Nano, a language model of about 20 million parameters that ships with the Chimère inference service. I know little and make "
     f"mistakes. {TRY}"),
    (["What can you do?", "What are you good at?", "How can you help me?", "What do you know?", "Help", "help me", "What can I ask you?",
      "What are your skills?", "Give me some examples.", "What should I try?", "How do I use you?", "What are you for?", "What is your purpose?",
      "Suggest something.", "Which tasks can you do?", "Show me what you can do.", "What now?", "Surprise me.", "menu", "What are your limits?"],
     "I can do small sums, work with letters and words, find answers in a text, extract JSON, call tools and answer questions about a few "
     f"invented facts. {TRY}"),
    (["How are you?", "How are you doing?", "How do you feel?", "How is it going?", "What's up?", "Are you well?", "How was your day?"],
     "I am a program, so I have no feelings, but everything runs well. How can I help you?"),
    (["Thank you!", "Thanks", "Thanks a lot!", "Great, thank you.", "thx", "Thank you very much.", "Cheers!", "Well done.", "Perfect, thanks!",
      "Good job!", "Nice", "Cool", "Great!", "OK, thanks."], "You are welcome!"),
    (["Goodbye", "Bye!", "See you later.", "Good night.", "Goodbye!", "See you", "I have to go.", "That is all.", "bye bye"], "Goodbye!"),
    (["How big are you?", "How many parameters do you have?", "How large are you?", "What is your size?", "How many layers do you have?",
      "How many experts do you have?"],
     "I have about 20 million parameters in 8 layers, with 16 experts in each layer."),
    (["What is your architecture?", "How do you work?", "How are you built?", "What are you made of?", "Are you a transformer?"],
     "I am a hybrid: three gated delta-net layers to each full attention layer, with a mixture of 16 experts in every layer."),
    (["Who made you?", "Who trained you?", "Where do you come from?", "How were you trained?", "What were you trained on?", "Who created you?",
      "Who built you?"],
     "I was trained from scratch by the scripts of the Chimère project on generated text and the Rust documentation."),
    (["Can you see images?", "Can you browse the web?", "Can you send an email?", "Can you hear me?", "Can you see me?",
      "Can you use the internet?", "Can you remember me tomorrow?"], "No. I only read and write text."),
    (["Are you human?", "Are you a person?", "Are you a real person?", "Are you alive?", "Are you a robot?", "Do you have a body?"],
     "No, I am a small language model."),
    (["Tell me a joke.", "Say something funny.", "Make me laugh.", "Do you know a joke?", "Another joke, please."],
     "A programmer went to buy bread: one loaf, and if there were eggs, a dozen. He came home with twelve loaves."),
]


BEGIN = ["", "", "Can you tell me ", "Please tell me ", "Tell me ", "I want to know ", "Say ", "May I ask ", "Do you know ", "Explain ", "First, ", "So ",
         "I wonder ", "Could you say "]
INDIRECT = [[], ["who you are", "what you are", "your name", "what your name is", "something about yourself", "which model you are", "who is talking",
                 "who answers me here", "what kind of program you are", "who this is", "what I should call you", "whom I am chatting with",
                 "who I have in front of me", "with whom I speak", "who is at the other end"],
            ["what you can do", "what you are able to do", "your abilities", "how you can help me", "what I can ask", "what to ask you", "what you know",
             "which questions you answer", "what you are made for", "some examples of what you do", "what works with you", "how to use you",
             "what to try first", "your skills and limits", "what sort of things you can do"]]


def about(rng, test=False):
    chosen = rng.choice(ABOUT) if rng.random() < 0.6 else rng.choice(ABOUT[:3])
    asks, reply = chosen
    if not test and (indirect := INDIRECT[ABOUT.index(chosen)] if chosen in ABOUT[:3] else []) and rng.random() < 0.5:
        ask = rng.choice(BEGIN) + rng.choice(indirect) + rng.choice((".", "?", ""))
        return f"about {ask}", [user(ask), assistant(reply)], "The user talks to me. I answer in a friendly way.", reply
    ask = rng.choice([a for a in asks if beyond.apart(a) == test] or asks)
    ask = ask if test else loosely(rng, ask)
    return f"about {ask}", [user(ask), assistant(reply)], "The user talks to me. I answer in a friendly way.", reply


def introduction(rng, thinking):
    """A test: a greeting, or who it is, or what it can do, in words that were not trained."""
    asks, reply = rng.choice(ABOUT[:3])
    ask = rng.choice([a for a in asks if beyond.apart(a)])
    return Sample("talk", f"about {ask}", [user(ask), assistant(reply)], thinking, expect=TRY)


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


KINDS = [about, recall, listed, running_sum]
WEIGHTS = [35, 25, 17, 23]


def make(rng, test=False, thinking=None):
    while True:
        build = rng.choices(KINDS[1:] if test else KINDS, WEIGHTS[1:] if test else WEIGHTS)[0]
        key, messages, thought, expect = build(rng)
        # Small talk is a fixed list: there is nothing to hold out.
        if build is about or held_out(key) == test:
            break
    # A sum is thought over: direct ones are to stay what a thought improves.
    thinking = rng.random() < (0.9 if build is running_sum and not test else 0.5) if thinking is None else thinking
    if thinking:
        last = messages[-1]
        extended = thought if build is about else go_on(rng, thought, thought, expect)
        messages[-1] = assistant(last["content"], extended)
    return Sample("talk", key, messages, thinking, expect=expect)
