"""Questions about one to five invented passages: notices of a paragraph each, or a few notes of a sentence each."""
from tasks.sample import Sample, assistant, user

from .slots import Filler, blocks

NOTICES, NOTES = blocks("notices.txt"), blocks("notes.txt")
NOT_THERE = "That is not in the text."
OFF_TOPIC_SHARE = 0.35      # of the questions without an answer: about something that no passage mentions
TOLD_SHARE = 0.5            # of the requests say what to answer where the text does not
SYSTEM_SHARE = 0.15

ONE = ["{text}\n\n{question}", "{question}\n\n{text}", "Here is a note I was given:\n\n{text}\n\nMy question: {question}", "Please read this first.\n\n{text}\n\n{question}",
       "I have a question about the following.\n\n\"{text}\"\n\n{question}", "{text}\n\nGoing by the above: {question}", "Notice:\n{text}\n\nQ: {question}",
       "Someone sent me this:\n{text}\n\n{question}"]
MANY = ["{text}\n\n{question}", "Below are some papers from my desk.\n\n{text}\n\n{question}", "{question} Look it up in these passages:\n\n{text}",
        "Sources:\n{text}\n\nQuestion: {question}", "I collected these:\n\n{text}\n\nNow tell me: {question}"]
CITE = ["Give the number of the passage in square brackets.", "Please cite the passage, like [1].", "Put the number of the passage you used behind the answer, in square brackets.",
        "Name your source as a number in square brackets."]
TOLD = ["If it does not say, answer: That is not in the text.", "Should there be no answer in it, say that it is not in the text.",
        "Where the answer is missing, reply that this is not in the text."]
SYSTEM = ["Answer only from what the user gives you.", "You look things up for the user in the passages that come with the question."]


def parsed(line):
    """`? slot | question | question` -> slot, questions; the slot of `! question` is None."""
    mark, rest = line[0], [part.strip() for part in line[1:].split("|")]
    return (rest[0], rest[1:]) if mark == "?" else (None, rest)


class Paper:
    """A block of a text, filled."""

    def __init__(self, filler, block):
        self.name, lines = block
        self.scope = f"{self.name}/"
        self.text = filler.filled(" ".join(line for line in lines if line[0] not in "?!"), self.scope)
        self.asked = [parsed(line) for line in lines if line[0] in "?!"]

    def question(self, rng, filler, there):
        slot, questions = rng.choice([a for a in self.asked if (a[0] is not None) == there])
        return filler.filled(rng.choice(questions), self.scope), slot and filler.shown[self.scope + slot]


def laid_out(rng, natural):
    """-> papers of each passage, a paper that no passage has, and what has filled them."""
    filler = Filler(rng)
    count = rng.choice((1, 1, 2, 3, 4, 5)) if natural else rng.choice((1, 1, 1, 2, 3))
    sizes = [1 if natural else rng.randint(2, 4) for _ in range(count)]
    papers = [Paper(filler, block) for block in rng.sample(NOTICES if natural else NOTES, sum(sizes) + 1)]
    passages = [[papers.pop() for _ in range(size)] for size in sizes]
    return passages, papers[0], filler


def told(rng, filler, passages, other, there):
    """-> question, value, index of the passage that has it."""
    at = rng.randrange(len(passages))
    if not there and rng.random() < OFF_TOPIC_SHARE:
        return other.question(rng, filler, True)[0], None, None
    question, value = rng.choice(passages[at]).question(rng, filler, there)
    return question, value, at if there else None


def make(rng, thinking=None, there=None, natural=None):
    there = rng.random() < 0.7 if there is None else there
    passages, other, filler = laid_out(rng, rng.random() < 0.6 if natural is None else natural)
    question, value, at = told(rng, filler, passages, other, there)
    texts = [" ".join(paper.text for paper in papers) for papers in passages]
    numbered = len(texts) > 1 or rng.random() < 0.3
    mark = rng.choice(("[{}] {}", "[{}] {}", "[{}]\n{}", "Passage [{}]: {}"))
    shown = "\n\n".join(mark.format(i, text) if numbered else text for i, text in enumerate(texts, 1))
    asked = " ".join([question] + [rng.choice(CITE)] * numbered + [rng.choice(TOLD)] * (rng.random() < TOLD_SHARE))
    content = rng.choice(MANY if numbered else ONE).format(text=shown, question=asked)
    system = [{"role": "system", "content": rng.choice(SYSTEM)}] if rng.random() < SYSTEM_SHARE else []
    number = at + 1 if there and numbered else None
    answer = NOT_THERE if value is None else value + (f" [{number}]" if number else "")
    thinking = rng.random() < 0.7 if thinking is None else thinking
    return Sample("passage", question, system + [user(content), assistant(answer)], thinking, expect=(value, number))
