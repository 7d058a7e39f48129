"""Ways to ask for sums, letters and lists, put together by rule: what is wanted, as an order or as a noun, inside a sentence of any kind."""
import random
import sys

from .. import exercise, words
from . import frames

# kind: orders | nouns for the result | little stories, each with the fields of exercise.py
WANTED = {
    "add": ["add {a} to {b};add {a} and {b};put {b} on top of {a};join {a} with {b};sum {a} and {b};combine {a} and {b};total {a} and {b};count {a} and {b} together;raise {a} by {b};let {a} grow by {b};throw {a} and {b} into one pot",
            "{a} plus {b};{a} + {b};{a}+{b};the sum of {a} and {b};the total of {a} and {b};{a} and {b} together;{a} with {b} on top;{b} more than {a};{a} and another {b};{a} added to {b};both {a} and {b} taken as one;{a} and {b} in all",
            "I had {a} and someone gave me {b}. How many now?;A shelf holds {a} books, {b} more arrive. How many are there?;First I pay {a}, later {b}. What did I pay in all?;It was {a} degrees and rose by {b}. How warm is it?;My walk was {a} km, then {b} km. How long in all?"],
    "sub": ["take {b} off {a};remove {b} from {a};take {b} out of {a};reduce {a} by {b};lower {a} by {b};cut {b} off {a};deduct {b} from {a};make {a} smaller by {b};let {a} lose {b};pull {b} from {a};count back {b} from {a}",
            "{a} minus {b};{a} - {b};{a}-{b};the difference between {a} and {b};{a} less {b};{a} without {b};{b} below {a};{b} less than {a};{a} reduced by {b};the rest of {a} after {b};{a} take away {b};what {a} has more than {b}",
            "I had {a} and gave away {b}. How many are left?;Of {a} eggs {b} broke. How many are whole?;It was {a} degrees and fell by {b}. How cold is it?;A bill of {a} is paid with {b} less. How much?;From a rope of {a} m I cut {b} m. What is left?"],
    "mul": ["multiply {a} with {b};multiply {b} and {a};take {a} {b} times;take {b} times {a};make {b} times {a};let {a} count {b} times;scale {a} by {b};work out {a} times {b};form the product of {a} and {b};repeat {a} a total of {b} times",
            "{a} times {b};{a} * {b};{a}*{b};{a} x {b};{a} × {b};the product of {a} and {b};{b} lots of {a};{a} multiplied with {b};{b} times as much as {a};{a} taken {b} times;{b} groups of {a}",
            "One box weighs {a}, I have {b} boxes. How much do they weigh?;I run {a} km on each of {b} days. How far is that?;A row has {a} seats and there are {b} rows. How many seats?;A pen is {a} euros. What are {b} pens?"],
    "div": ["divide {a} by {b};share {a} among {b};split {a} by {b};cut {a} into {b} parts;break {a} into {b} equal pieces;divide {a} into {b};halve, third or whatever: {a} by {b};spread {a} over {b};put {a} into {b} equal heaps;find how often {b} goes into {a}",
            "{a} divided by {b};{a} / {b};{a}/{b};{a} ÷ {b};{a} : {b};the quotient of {a} and {b};one part of {a} split by {b};{a} over {b};{a} shared by {b};how often {b} is in {a}",
            "{b} friends share {a} euros. What does each get?;A rope of {a} m is cut into {b} equal parts. How long is one?;{a} litres fill {b} jars. How much is in one?;I need {b} hours for {a} km. How many a hour?"],
    "percent": ["take {a} percent of {b};find {a} % of {b};calculate {a} percent of {b};get {a}% of {b};show {a} hundredths of {b};say how much {a} % of {b} is",
                "{a} percent of {b};{a} % of {b};{a}% of {b};a share of {a} percent of {b};{a} hundredths of {b};{a} out of every hundred of {b};a part of {a} % of {b}",
                "A shop has {b} customers, {a} percent of them pay by card. How many?;The tax on {b} is {a} %. How much tax?;Of {b} votes she got {a} percent. How many?;I saved {a}% of {b} euros. What did I save?"],
    "more": ["raise {b} by {a} percent;add {a} % to {b};put {a} percent on {b};let {b} grow by {a} %;make {b} larger by {a}%", "{b} plus {a} percent;{b} with {a} % more;{b} raised by {a}%;{b} and {a} percent on top",
             "My rent of {b} goes up by {a} percent. What is the new rent?;A plant of {b} cm grew {a} %. How tall is it?;{b} guests, then {a}% more. How many?"],
    "less": ["lower {b} by {a} percent;take {a} % off {b};cut {b} by {a}%;let {b} shrink by {a} percent;make {b} smaller by {a} %", "{b} minus {a} percent;{b} with {a} % less;{b} lowered by {a}%;{b} after a discount of {a} percent",
             "A coat of {b} euros is {a} percent cheaper today. What does it cost?;The stock of {b} fell by {a} %. What is left?;{b} minus a rebate of {a}%: how much?"],
    "power": ["raise {a} to the power {n};take {a} to the {n};calculate {a}^{n};work out {a} {w};put {a} to the power of {n};multiply {a} by itself until you have {a}^{n}", "{a} {w};{a}^{n};{a} ^ {n};{a}**{n};{a} to the power of {n};{a} to the {n};the power {n} of {a}", ""],
    "root": ["take the root of {a};take the square root of {a};find the square root of {a};find what times itself is {a};draw the root from {a};undo the square that made {a}", "the square root of {a};the root of {a};root of {a};sqrt({a});sqrt {a};√{a};√({a});the second root of {a};the side of a square of {a};the number whose square is {a}",
             "A square has an area of {a}. How long is its side?;Some number squared is {a}. Which one?;x * x = {a}. What is x, above nought?"],
    "cube_root": ["take the cube root of {a};find the third root of {a}", "the cube root of {a};cbrt({a});∛{a};the third root of {a};the edge of a cube of {a}", "A cube has a volume of {a}. How long is its edge?"],
    "letter": ["count the {c} in {w};count each {c} in {w};count how often {c} is in {w};find all {c} in {w} and count them;look for {c} in {w} and say how many;see how many {c} are in {w};go through {w} and count {c};tell the number of {c} in {w};check {w} for {c} and count;number the {c}'s of {w}",
               "the number of {c} in {w};the number of {c}'s in \"{w}\";the count of the letter {c} in {w};how often {c} is in {w};how many times {w} has {c};the amount of {c} that '{w}' has;how many letters {c} the word {w} has",
               "How many {c} does {w} have?;How many {c}'s does the word \"{w}\" have?;How many times is {c} in {w}?;Is {c} in {w}? How many times?;How often do you see {c} in {w}?;I write {w}. How many {c} do I need?;{w}: how many {c}?;How many {c} in '{w}'?;The word is {w}, the letter {c}. How many?"],
    "spell": ["spell {w};spell out {w};spell the word {w};write {w} one letter after another;say every letter of {w};write {w} with dashes;take {w} apart letter by letter;show the letters of {w};break {w} into letters", "the spelling of {w};the letters of {w} one by one;{w} letter by letter;{w} spelled",
              "How do you spell {w}?;I never know how to spell {w}. Help me?;Which letters does {w} have, one by one?"],
    "backwards": ["reverse {w};write {w} backwards;turn {w} around;flip {w};write the word {w} from the back;mirror {w};read {w} from the end;say {w} from the last letter to the first;spell {w} backwards as a word;type {w} the other way", "{w} backwards;{w} in reverse;{w} from the end;{w} reversed;the reverse of {w};{w} the other way round;{w} from back to front;the mirror of {w}",
                  "What does {w} look like in a mirror?;If I start at the end of {w}, what do I read?;What is left to right of {w} when it is turned?"],
    "length": ["count the letters of {w};count the letters in {w};measure the word {w};find the length of {w};count the characters of '{w}'", "the length of {w};the number of letters in {w};the letter count of {w};the size of the word {w};how long {w} is;how many letters {w} has",
               "How many letters are in {w}?;How many letters does the word {w} need?;Is {w} a long word? How many letters?;How many characters does \"{w}\" take?"],
    "first_letter": ["give the first letter of {w};find the first letter of {w};say how {w} begins", "the first letter of {w};the letter that {w} begins with;the beginning of {w}, as a letter", "With what letter does {w} start?;How does {w} begin, with which letter?"],
    "last_letter": ["give the last letter of {w};find the last letter of {w};say which letter ends {w}", "the last letter of {w};the letter that {w} ends with;the final letter of {w};the end of {w}, as a letter", "With what letter does {w} end?;Which letter closes {w}?;What letter is last in {w}?;{w} stops with which letter?"],
    "nth_letter": ["give the {n} letter of {w};find the {n} letter in {w};pick the {n} letter from {w}", "the {n} letter of {w};the {n} letter in \"{w}\";letter number {n} of {w};the {n} of the letters in {w}", "Which letter is {n} in {w}?;What stands {n} in {w}?;In {w}, what is the {n} letter?"],
    "upper": ["write {w} in capitals;put {w} in upper case;capitalise every letter of {w};shout {w}, in capitals", "{w} in capitals;{w} in upper case;{w} with all letters large", "What is {w} in capitals?;How is {w} written in large letters?"],
    "numbers_up": ["sort {l};sort the numbers {l};sort upwards: {l};order {l} from low to high;put {l} in order;arrange from the least to the greatest: {l};rank from small to big: {l};line up by size: {l};write in growing order: {l};list smallest first: {l};bring order into {l}, small ones first;order by value: {l}",
                   "the order of {l}, from small to large;{l}, sorted;{l} in ascending order;{l} from the smallest on;the numbers {l} by size", "Which comes first, second and so on, by size: {l}?;What is the order of {l} if the smallest leads?"],
    "numbers_down": ["sort downwards: {l};sort {l} from high to low;order {l}, largest first;arrange from the greatest to the least: {l};rank from big to small: {l};list biggest first: {l};write in shrinking order: {l};put {l} in descending order", "{l} in descending order;{l} from the largest on;the order of {l}, from large to small;{l}, sorted downwards",
                     "What is the order of {l} if the largest leads?;Which comes first if the biggest is first: {l}?"],
    "words_up": ["sort {l};sort the words {l};sort by letter: {l};order by the alphabet: {l};alphabetise {l};put {l} in ABC order;arrange from a to z: {l};list as in a dictionary: {l};file by first letter: {l};put in the order of a phone book: {l};order {l} from A to Z",
                 "the alphabetical order of {l};{l} in alphabetical order;{l}, sorted by the alphabet;the words {l} from a to z;{l} as an index has them", "In a dictionary, how would {l} follow each other?;Which of these comes first, which next: {l}?;What is the ABC order of {l}?"],
    "words_down": ["sort from z to a: {l};order {l} from Z to A;sort against the alphabet: {l};put {l} in reverse ABC order", "{l} from z to a;{l} in reverse alphabetical order;the words {l}, z first", "How do {l} follow each other from z to a?"],
    "largest": ["find the largest of {l};pick the biggest of {l};give the highest of {l};say which is most: {l};choose the greatest of {l}", "the largest of {l};the highest number in {l};the maximum of {l};the biggest in this list: {l};max({l});the top value of {l}", "Which is the largest: {l}?;What number is on top: {l}?;Who is biggest: {l}?;No number is larger than which one here: {l}?"],
    "smallest": ["find the smallest of {l};pick the lowest of {l};give the least of {l};choose the minimum of {l}", "the smallest of {l};the lowest number in {l};the minimum of {l};the least in this list: {l};min({l});the bottom value of {l}", "Which is the smallest: {l}?;What number is at the bottom: {l}?;Who is least: {l}?"],
    "reversed_list": ["reverse {l};turn around the list {l};list from the last on: {l};write in the opposite order: {l};flip this list: {l};say backwards, item by item: {l};read from the end: {l}", "{l} in reverse order;{l} from the last to the first;the list {l} turned around;{l} from back to front;the reverse of the list {l}",
                      "How is {l} read from the end?;What is the opposite order of {l}?"],
    "count_up": ["count from {a} to {b};count up from {a} to {b};list all numbers from {a} to {b};go from {a} to {b};say each number from {a} to {b};write {a} up to {b};name the numbers from {a} to {b};step from {a} up to {b};print {a} through {b};enumerate {a} to {b}",
                 "the numbers from {a} to {b};all whole numbers between {a} and {b}, ends included;{a} through {b};every number from {a} up to {b};{a} to {b}, one by one", "Which numbers do I pass from {a} to {b}?;I climb from step {a} to step {b}. Which steps?"],
    "count_down": ["count down from {a} to {b};count back from {a} to {b};go back from {a} to {b};list the numbers from {a} down to {b};say each number from {a} back to {b};step down from {a} to {b}", "the numbers from {a} down to {b};{a} down to {b}, one by one;the countdown from {a} to {b};every number from {a} back to {b}",
                   "Which numbers do I pass from {a} down to {b}?;A rocket counts from {a} to {b}. What does it say?"],
    "count_by": ["count from {a} to {b} by {s};count in steps of {s} from {a} to {b};go from {a} to {b}, {s} at a time;list every {s} from {a} to {b};jump from {a} to {b} by {s}", "the numbers from {a} to {b} in steps of {s};{a} to {b} by {s};every {s} from {a} up to {b}", ""],
}
ORDERED = ["{x}", "{x}", "{x}", "please {x}", "can you {x}", "could you {x} for me", "will you {x}", "i want to {x}", "i have to {x}", "help me to {x}", "help me {x}", "i need you to {x}", "my teacher says: {x}", "my boss wants me to {x}", "now {x}", "first {x}", "let us {x}", "try to {x}",
           "{x} and tell me", "{x} and show it", "the task is to {x}", "your job: {x}", "do this: {x}", "kindly {x}", "i cannot {x}, can you", "how do i {x}", "what comes out if i {x}", "what do i get when i {x}", "if you {x}, what do you have", "when we {x}, what is it", "say i {x}; what then",
           "let me see you {x}", "the exercise says: {x}", "are you able to {x}", "is it hard to {x}", "what happens if you {x}", "somebody asked me to {x}", "{x}, my dear", "quickly {x}", "{x} if you can", "{x}. The answer, please", "what is it if one has to {x}"]
NAMED = ["{x}", "{x}", "what is {x}", "what is {x}", "what's {x}", "tell me {x}", "give me {x}", "i need {x}", "i look for {x}", "find {x}", "show {x}", "say {x}", "work out {x}", "compute {x}", "do you know {x}", "what would be {x}", "{x} is what", "{x} is", "{x} =", "{x}, please", "my homework: {x}",
         "my brother asks for {x}", "we want {x}", "what might {x} be", "could you tell me {x}", "can you give me {x}", "i would like to know {x}", "i wonder about {x}", "have you got {x}", "state {x}", "the question is: {x}", "then {x}", "let me know {x}", "{x} would be what", "name {x}", "determine {x}",
         "{x}, what is that", "so what is {x}", "to know {x} would help", "{x} - can you", "answer me: {x}"]
SUM_NAMED = ["how much is {x}", "how much is {x}", "what does {x} make", "what does {x} come to", "{x} makes how much", "{x} comes to what", "{x} = ?", "{x} equals what", "calculate {x}", "solve {x}", "what is the value of {x}", "evaluate {x}", "how much would {x} be", "{x} gives what", "reckon {x}"]
FORMS_MAX = 1500            # of a kind


def cased(rng, text):
    text = text[0].upper() + text[1:] if text[0].isalpha() and rng.random() < 0.8 and not text.startswith(("sqrt", "cbrt", "max(", "min(")) else text
    return text.replace(" i ", " I ") if rng.random() < 0.8 else text


def forms(kind):
    """All ways to ask for something of a kind, or as many of them as are enough; the same in every process."""
    rng, found = random.Random(kind), []
    orders, nouns, stories = (part.split(";") if part else [] for part in WANTED[kind])
    for shapes, parts in ((ORDERED, orders), (NAMED + (SUM_NAMED if kind in exercise.SUMS else []), nouns)):
        for shape in shapes:
            for x in parts:
                asks = shape.split()[0] in ("what", "how", "can", "could", "will", "do", "is", "are", "have", "what's") or "what" in shape
                end = rng.choice(("?", "?", "")) if asks else rng.choice((".", ".", "", "!"))
                if x.endswith("{l}") and shape.endswith("{x}") and rng.random() < 0.8:
                    end = ""
                found.append(cased(rng, shape.replace("{x}", x)) + end)
    for story in stories:       # a few of many, so that they are seen as often as the rest
        found += [story] * max(1, len(found) // (8 * len(stories)))
    return found if len(found) <= FORMS_MAX else rng.sample(found, FORMS_MAX)


ASK = {kind: forms(kind) for kind in WANTED}


def dressed(rng, form, kind):
    chance = rng.random()
    if chance < 0.12:
        lead = frames.lead(rng).replace("{", "").replace("}", "")
        return lead + (form if rng.random() < 0.5 or form.startswith("{") else form[0].lower() + form[1:])
    if chance < 0.17 and not form.endswith("}"):
        return form + " " + rng.choice(("Thanks!", "Please.", "Just the result.", "Take your time.", "I am curious.", "It matters to me."))
    if chance < 0.21 and "{" in form:
        head, brace, rest = form.partition("{")
        return words.typo(rng, head) + brace + rest
    return form.lower() if chance < 0.26 and "{L}" not in form else form


def make(rng, thinking=None, kind=None):
    return exercise.make(rng, sys.modules[__name__], thinking, kind)
