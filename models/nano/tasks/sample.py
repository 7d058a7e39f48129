"""One training or test conversation, and the split that keeps the two apart."""
import dataclasses
import zlib

HELD_OUT_ONE_IN = 20

# Text between these marks is encoded one letter a token: reversing a word is then a copy of letters, not a new way to
# cut it into tokens. The marks never reach the text that a user sees.
LETTERS_OPEN, LETTERS_CLOSE = "\x02", "\x03"


# Text between two of these is cut into tokens by itself, whatever stands before and after it: the name of a function is then the
# same tokens in a call as in its declaration, and calling it is a copy.
ALONE = "\x04"

# Text between these marks stands in the prompt, and is cut into the tokens that it has there: to copy a name is then to copy tokens, whatever
# stood before it.
COPY_OPEN, COPY_CLOSE = "\x05", "\x06"


def letters(word):
    return LETTERS_OPEN + word + LETTERS_CLOSE


def alone(name):
    return ALONE + name + ALONE


def copied(text):
    return COPY_OPEN + text + COPY_CLOSE


MARKS = str.maketrans("", "", LETTERS_OPEN + LETTERS_CLOSE + ALONE + COPY_OPEN + COPY_CLOSE)


def plain(text):
    return text.translate(MARKS)


def held_out(key):
    """The split is a property of the instance alone, so no list of test instances has to be kept."""
    return zlib.crc32(key.encode()) % HELD_OUT_ONE_IN == 0


@dataclasses.dataclass
class Sample:
    """`messages` end with the assistant turns to learn; `expect` is what eval.py compares with."""
    family: str
    key: str
    messages: list
    thinking: bool
    expect: object = None
    tools: list | None = None
    learn_history: bool = False     # earlier assistant turns carry loss too (several questions about one context)

    def prompt(self):
        """The messages up to the first assistant turn after the last user turn: what a client sends."""
        last = max(i for i, m in enumerate(self.messages) if m["role"] == "user")
        return [dict(m, content=plain(m["content"])) for m in self.messages[:last + 1]]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, thought=None, calls=None):
    message = {"role": "assistant", "content": text}
    if thought is not None:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return message


def loosely(rng, ask):
    """People leave out capitals and full stops, and add a word or two. Only for requests whose case means nothing."""
    chance = rng.random()
    if chance < 0.12:
        ask = ask.lower()
    if 0.06 < chance < 0.2:
        ask = ask.rstrip(".?:")
    if chance > 0.93:
        ask = rng.choice(("Please: ", "Can you tell me: ", "Hey, ", "Quick question: ", "Tell me, ")) + ask
    return ask


GO_ON = ["Wait, let me check that.", "Let me check it again.", "Let me derive it again.", "Wait. Once more, to be sure.",
         "Hmm, is that right?"]
SETTLED = ["So the answer is still {}.", "Same result: {}.", "Yes, {}.", "It is {}, as before."]


def go_on(rng, thought, again, answer):
    """A third of the thoughts continue after the answer is settled: that is what an early stop can save."""
    if rng.random() > 1 / 3:
        return thought
    parts = [thought]
    for _ in range(rng.choice((1, 1, 2))):
        parts.append(rng.choice(GO_ON))
        if rng.random() < 0.6:
            parts.append(again)
        parts.append(rng.choice(SETTLED).format(answer))
    return "\n".join(parts)
