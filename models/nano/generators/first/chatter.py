"""Small talk and questions outside the domain, in full sentences."""
import sys

from .. import talking
from . import passages      # whose questions are outside where no text is there

BY_RULE = 0.5           # of the remarks
TALK = {
    "hello": ["Hello!", "Hi!", "Good morning!", "Good evening.", "Hello, how do you do?", "Hi, I am {first}.", "Hey, {first} here.", "Greetings from {town}!", "Welcome!", "Hello computer", "Hi bot", "Dear Nano, hello."],
    "thanks": ["Thank you.", "Thanks!", "Thank you so much!", "That helped, thanks.", "Many thanks.", "I appreciate it.", "Wonderful, thank you.", "Thanks for your help.", "That was right, thanks!", "Very good."],
    "bye": ["Bye!", "Goodbye.", "See you tomorrow.", "I am leaving now.", "Until next time.", "Good night!", "That was all for today.", "Farewell."],
    "who": ["Who are you?", "What are you called?", "Tell me who you are.", "Are you a person or a program?", "Which model am I talking with?", "What kind of AI are you?", "Do you have a name?"],
    "can": ["What can you do?", "What are you able to do?", "Which things can you do?", "What can I use you for?", "How can you help?", "Tell me your abilities.", "What are your strengths?", "What should I ask?",
            "Can you give me an example of your skills?", "What kind of tasks do you handle?"],
    "feelings": ["How are you?", "How are you today?", "How do you feel today?", "Did you sleep well?", "Are you happy?", "Is everything fine with you?", "How is life?"],
    "joke": ["Tell me a joke.", "Do you know something funny?", "Make me smile.", "I want to hear a joke."], "human": ["Are you human?", "Are you a machine?", "Do you live?", "Are you real?"],
    "maker": ["Who made you?", "Who built you?", "Who trained you?", "Where were you made?"], "senses": ["Can you see me?", "Can you hear me?", "Can you go online?", "Can you send mails?"],
    "statement": ["I like {food}.", "It is raining in {town}.", "My {animal} is sleeping.", "I am tired.", "I had {food} today.", "Today is {weekday}.", "I just came home.", "My name is {first}.", "I work as a {job}.",
                  "I am learning {hobby}.", "My favourite colour is {color}.", "We won the game!", "I am from {town}.", "I feel great today."],
    "sorry": ["Sorry.", "I am sorry.", "Excuse me.", "My mistake.", "Sorry, I did not mean that."], "anger": ["You are wrong.", "That is nonsense.", "You are stupid.", "This is useless.", "Wrong answer!", "You make no sense."],
    "okay": ["OK.", "Okay", "Yes.", "No.", "Fine.", "All right.", "Maybe.", "Understood.", "I see.", "Hmm."], "bored": ["I am bored.", "What shall we do?", "Entertain me.", "Let us play.", "I do not know what to ask."],
}
OUTSIDE = ["What is the capital of {country}?", "Who is the president of {country}?", "How many people live in {town}?", "When was {person} born?", "Who invented the {device}?", "What is {concept2}?", "Explain {concept2}.",
           "Why is the sky blue?", "How does a {device} work?", "Write a poem about {topic}.", "Write a story about a {animal}.", "Translate \"{phrase}\" into {tongue}.", "How do I cook {food}?", "Give me a recipe for {food}.",
           "What is the weather in {town}?", "What is the news today?", "Who won the {sport} match yesterday?", "How tall is Mount Everest?", "What is the meaning of life?", "Should I buy a {thing}?", "Is {topic} good or bad?",
           "What do you think of {topic}?", "Write a program in {code} that {does}.", "How do I {word} in {code}?", "What does {word} mean?", "What is a {word}?", "Who was {full}?", "Tell me about {name}.", "Where is {town}?",
           "How far is the moon?", "How old is the universe?", "What is the largest {animal}?", "Which {kind} is the best?", "Recommend a {kind}.", "My {body} hurts. What should I do?", "What is the price of {stock}?",
           "What time is it?", "What day is today?", "Where am I?", "What did I eat yesterday?", "Do you know {full}?", "What is the population of {country}?", "Which language is spoken in {country}?", "When did the war end?",
           "What is the chemical formula of {word}?", "How many legs has a {animal}?", "What do {animals} eat?", "Summarise the book {name}.", "What happened in {year}?", "Who wrote {name}?", "Is there life on Mars?",
           "Plan a trip to {town}.", "Write an email to my boss about {topic}.", "Draw a {thing}.", "Sing a song.", "Play some music.", "What is love?", "How can I become a {job}?", "Give me advice on {topic}.", "Why do {animals} sleep?",
           "Prove that there are infinitely many primes.", "Solve the equation of {word}.", "What is the derivative of x squared?", "Fix this code: {snippet}", "How do I install {name}?", "Which is better, {food} or {food}?"]


def talk(rng, thinking=None):
    return talking.talk(rng, sys.modules[__name__], thinking)


def outside(rng, thinking=None):
    return talking.outside(rng, sys.modules[__name__], thinking)


KINDS = ["talk", "outside"]
