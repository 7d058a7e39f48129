"""Other ways to ask for each task. Three of each task are never trained: what is learned from the rest is measured on them.

The forms that a task's own module has (`ASK`) are trained and asked in the rows of the card; these come on top. Which three are kept
apart follows from their hash.
"""
import zlib

KEPT_APART = 3      # of each task

MORE = {
    "add": """What do you get when you add {a} and {b}?|What does {a} plus {b} make?|Can you add {a} to {b}?|Give me the sum of {a} and {b}.
I need the total of {a} and {b}.|{a} and {b} together make what?|Work out {a} + {b}.|Find {a} + {b}.|Sum up {a} and {b}.|{a} plus {b} equals?
{a} + {b} =|How much do {a} and {b} make together?|What's {a}+{b}?|Add up {a} and {b}.|Solve {a} + {b}.|Tell me {a} plus {b}.
If I have {a} and get {b} more, how many do I have?|The sum of {a} and {b} is?|Evaluate {a} + {b}.|{a} added to {b} is what?
Do the sum {a} + {b}.|What number is {a} + {b}?|{a} plus {b}|add {a} {b}|What is the total if I put {a} and {b} together?""",
    "sub": """What do you get when you take {b} from {a}?|What does {a} minus {b} make?|Can you subtract {b} from {a}?|Give me {a} less {b}.
I need {a} minus {b}.|Take {b} away from {a}.|Work out {a} - {b}.|Find {a} - {b}.|From {a}, subtract {b}.|{a} minus {b} equals?
{a} - {b} =|How much remains of {a} when {b} is taken away?|What's {a}-{b}?|{a} take away {b}|Solve {a} - {b}.|Tell me {a} minus {b}.
If I have {a} and lose {b}, how many do I have?|{a} less {b} is?|Evaluate {a} - {b}.|What is left of {a} without {b}?
Do the subtraction {a} - {b}.|What number is {a} - {b}?|{a} minus {b}|Deduct {b} from {a}.|Reduce {a} by {b}.""",
    "mul": """What do you get when you multiply {a} and {b}?|What does {a} times {b} make?|Can you multiply {a} by {b}?
Give me the product of {a} and {b}.|I need {a} times {b}.|{a} multiplied by {b} is what?|Work out {a} * {b}.|Find {a} * {b}.|Multiply {a} and {b}.
{a} times {b} equals?|{a} * {b} =|How much is {a} multiplied by {b}?|What's {a}*{b}?|{a} x {b}|Solve {a} * {b}.|Tell me {a} times {b}.
If I have {a} bags of {b} nuts, how many nuts do I have?|The product of {a} and {b} is?|Evaluate {a} * {b}.|What is {a} × {b}?
Do the multiplication {a} * {b}.|What number is {a} * {b}?|{a} times {b}|multiply {a} {b}|Take {a} {b} times: how much is it?""",
    "reverse": """Turn {w} around.|Reverse {w}|Can you reverse {w}?|Flip the letters of {w}.|Give me {w} in reverse.
What do you get if you read {w} backwards?|Say {w} backwards.|{w} backwards|{w} reversed?|How is {w} written from back to front?
Write the letters of {w} in reverse order.|Type {w} from the last letter to the first.|Mirror the word {w}.|I want the word {w} reversed.
Reverse the letters in {w}.|Show me {w} in reverse order.|Read {w} from right to left.|Please write the word {w} the other way round.
What does {w} look like reversed?|Reverse this word: {w}|Backwards: {w}|Put the letters of {w} in the opposite order.|Invert the word {w}.
Begin at the end of {w} and write it backwards.|Spell {w} backwards.""",
    "spell": """What are the letters of {w}?|Spell out {w}.|Give me the letters of {w} one by one.|List the letters in {w}.
Which letters does the word {w} have, in order?|Write {w} letter by letter.|Break {w} into letters.|Can you spell {w} for me?|Letter by letter: {w}
{w}, spelled out|Separate the letters of {w}.|How is {w} spelled?|Show the spelling of {w}.|What is the spelling of {w}?
Split the word {w} into its letters.|Name each letter of {w}.|Read out the letters of {w}.|I cannot spell {w}. Can you?|Spelling of {w}, please.
Cut {w} into single letters.""",
    "count": """How many {c}s does {w} have?|How many {c} in {w}?|Number of {c} in {w}?|In {w}, how many times do you see {c}?
How many times is {c} in {w}?|Count {c} in {w}|Tell me how many {c}'s the word {w} contains.|How often is the letter {c} used in {w}?
Look at the word {w}. How many {c}'s does it have?|What is the count of {c} in {w}?|The word {w}: how many letters {c}?
How many of the letters in {w} are {c}?|Find the number of {c}'s in the word {w}.|How many occurrences of {c} are in {w}?
Give me the number of letters {c} in {w}.|{w} contains how many {c}'s?|Check {w}: how many {c}?|Does {w} have a {c}? How many?
If I read {w}, how often do I meet the letter {c}?|How many times do I write {c} when I write {w}?|Count every {c} in the word {w}.
how many {c}'s in {w}|What is the number of {c}'s in {w}?""",
    "sort": """Order these words: {s}|Arrange these words alphabetically: {s}.|Sort the list {s}.|Sort the words {s} from a to z.
Which order do these words have in a dictionary: {s}?|Alphabetize: {s}|Can you sort {s}?|Please put {s} in order.
Bring these words into alphabetical order: {s}.|List alphabetically: {s}|Give me {s} sorted.|What is the alphabetical order of {s}?
Rank these words from a to z: {s}.|Sorted, please: {s}|How would a dictionary order {s}?|Write these words in alphabetical order: {s}
I have the words {s}. Sort them.|Take {s} and sort them.|From a to z: {s}|Make an alphabetical list of {s}.|Sort alphabetically: {s}
Put {s} into alphabetical order.|Which comes first in the alphabet, and what then: {s}?""",
    "nth": """Which is the {n} word here: {s}|The {n} word of {q} is?|Pick the {n} word from {q}.|Take the {n} word of: {s}
Tell me the {n} word in this sentence: {s}|Find the {n} word: {s}|I need the {n} word of {q}.|What word comes {n} in {q}?
What word is in {n} place: {s}|Name the {n} word in {q}.|From {q} give me the {n} word.|Can you tell me the {n} word of {q}?
Show the {n} word from: {s}|Return the {n} word of {q}.|In this list of words, which is the {n}? {s}|Read {q}. Which word is the {n}?
Word number {i} of {q}?|What is word {i} in: {s}|Word {i}, please: {s}|The words are {q}. What is the {n} one?|In {q}, which word stands {n}?
Look at {q} and say the {n} word.|What's the {n} word in {q}?""",
    "words": """How many words does {q} have?|What is the number of words in {q}?|Number of words: {s}|How many words is this: {s}
Count how many words there are in {q}.|Tell me how many words I wrote: {s}|Word count of {q}?|word count: {s}|{q} - how many words?
Give me the word count for {q}.|How long is {q} in words?|Of how many words does {q} consist?|Can you count the words in {q}?
How many words did I write here? {s}|The text {q} has how many words?|Please count these words: {s}|How many words do you see in {q}?
Count words: {s}|I wrote {q}. How many words is that?""",
    "facts": """Which {r} does {e} have?|I want to know the {r} of {e}.|What is {e}'s {r}?|Can you tell me {e}'s {r}?|{e}: {r}?|The {r} of {e}?
The {r} of the {k} {e} is what?|Look up the {r} of {e}.|What do you know about the {r} of {e}?|Say the {r} of the {k} {e}.
Remind me of the {r} of {e}.|Do you remember {e}'s {r}?|For the {k} {e}, what is the {r}?|{e} has which {r}?|I forgot the {r} of {e}.
What's the {r} of {e}?|There is a {k} named {e}. What is its {r}?|{r} of {e}|What is the {k} {e}'s {r}?""",
    "context": """{t}\\n\\nUsing only the text above: {q}|My notes:\\n{t}\\n\\nMy question: {q}|{q}\\nThe answer is in this text:\\n{t}
Text: {t}\\n\\n{q}|Please read:\\n\\n{t}\\n\\nNow tell me: {q}|I have a text and a question. Text: {t} Question: {q}|Given the following:\\n{t}\\n{q}
Here is a report.\\n\\n{t}\\n\\nAccording to the report: {q}|Look into this and answer. {q}\\n\\n{t}|Document:\\n"{t}"\\n\\nQ: {q}\\nA:
{q} Use this:\\n\\n{t}|"{t}"\\n\\nWhat does it say? {q}|Story:\\n{t}\\n\\nAfter the story: {q}|{t} {q}|Find the answer below. {q}\\n---\\n{t}
<text>\\n{t}\\n</text>\\n{q}|This is what I know. {t}\\nSo, {q}|Information: {t}\\nUser question: {q}""",
    "extract": """Read the text and give me JSON.\\nText: {text}\\nSchema: {schema}|Schema:\\n{schema}\\n\\nWrite this as JSON: {text}
Parse into JSON following {schema}:\\n{text}|{text}\\n\\nTurn this into JSON with this schema:\\n{schema}|I need JSON. The schema is {schema} and the text is: {text}
Given the schema {schema}\\nextract the fields of:\\n{text}|Here is a record: {text}\\nAnswer with JSON for {schema}|JSON only, please.\\n{schema}\\n{text}
Structure this text as JSON.\\n\\n{text}\\n\\nThe schema:\\n{schema}|Make a JSON object of this text: {text}\\nIt must follow: {schema}
Which values does this text have? Reply in JSON after this schema: {schema}\\n{text}|Extract JSON.\\nInput: {text}\\nOutput schema: {schema}
Transform "{text}" to JSON. Schema: {schema}|Use the schema {schema} for this input: {text}|Data: {text}\\nFormat: {schema}\\nJSON:""",
}


def _split(task):
    forms = [form.replace("\\n", "\n") for line in MORE[task].split("\n") for form in line.split("|")]
    forms = [form for form in forms if form]
    assert len(set(forms)) == len(forms) >= 12, task
    apart = sorted(forms, key=lambda form: zlib.crc32(f"{task} {form}".encode()))[:KEPT_APART]
    return [form for form in forms if form not in apart], apart


_SPLIT = {task: _split(task) for task in MORE}
TRAINED = {task: trained for task, (trained, _) in _SPLIT.items()}
NEW = {task: apart for task, (_, apart) in _SPLIT.items()}
