"""Small talk and questions outside the domain, as people type them in a hurry."""
import sys

from .. import talking
from . import passages      # whose questions are outside where no text is there

BY_RULE = 0.5           # of the remarks
TALK = {
    "hello": ["yo", "hiya", "heya", "sup", "hello?", "anyone there", "hi hi", "gm", "howdy", "ahoy", "hey bot", "hallo", "test", "ping", "{first} is here", "evening!"],
    "thanks": ["thx", "ty", "tysm", "cheers mate", "much obliged", "great stuff", "awesome", "nice one", "you rock", "brilliant", "perfect", "lovely, that does it", "super", "well done you"],
    "bye": ["cya", "bb", "gotta go", "later", "signing off", "ciao", "take care", "gn", "i'm out", "so long"],
    "who": ["whats your name", "and you are?", "what r u", "identify yourself", "u a bot?", "name?", "who is speaking", "what model r u"],
    "can": ["what u good at", "capabilities?", "features?", "usage", "manual", "/help", "options?", "wat can u do", "list your skills", "so what do you offer", "how does this work", "what is this for", "explain yourself", "what now"],
    "feelings": ["how r u", "hows it going", "whats new with you", "you ok?", "everything alright?", "in a good mood?", "how goes it", "u good?"],
    "joke": ["joke pls", "say sth funny", "be funny", "cheer me up"], "human": ["r u human", "bot or not?", "are you sentient", "you got a body?"], "maker": ["who coded you", "your creator?", "which firm made u"],
    "senses": ["can u google", "see my screen?", "u hear that?", "got internet?"],
    "statement": ["so hungry, want {food}", "my {animal} is so cute", "just back from {town}", "cant sleep", "its {weekday} already", "been to {country} once", "love {hobby}", "new {thing} arrived", "met {first} today", "coffee time",
                  "{first} says hi", "raining again", "what a day", "finally done with work", "the {thing} broke", "lol", "haha"],
    "sorry": ["oops", "my bad", "pardon", "sry", "whoops wrong window"], "anger": ["thats wrong", "u suck", "bad bot", "rubbish", "you lie", "nope, wrong", "terrible", "wtf"],
    "okay": ["k", "kk", "yep", "nope", "sure", "alright then", "got it", "mhm", "aha", "fair enough", "right"], "bored": ["bored", "so bored rn", "got any ideas", "surprise me somehow", "kill some time with me"],
}
OUTSIDE = ["capital {country}", "{country} president", "population {town}", "birthday of {person}", "weather {town} tomorrow", "news", "define {word}", "{word} meaning", "synonym for {word}", "rhyme with {word}", "{phrase} in {tongue}",
           "how2 make {food}", "calories {food}", "best {kind} ever", "{sport} results", "{stock} price rn", "directions to {town}", "who is {full}", "wiki {name}", "{name} review", "is {name} any good", "why {topic}", "thoughts on {topic}",
           "essay on {topic}", "poem {topic}", "limerick about {first}", "story with a {animal} and a {thing}", "{code} hello world", "{code} {does}", "regex for {word}", "what's wrong here: {snippet}", "explain like im five: {concept2}",
           "{concept} in {code}?", "difference between {word} and {word}", "history of {topic}", "how many {animals} exist", "do {animals} swim", "can i eat {word}", "{body} pain causes", "dose of {word}", "am i pretty", "my future?",
           "lottery numbers", "what year is it", "current time", "my location", "timezone of {town}", "distance {town} {town}", "flight to {country}", "hotel in {town}", "cheap {thing}", "gift for {first}", "name for my {animal}",
           "movie tonight?", "song lyrics {name}", "plot of {name}", "who sang {name}", "nobel prize {year}", "world cup {year}", "what happened {date}", "inventor of {device}", "{device} repair", "tell me smth about {country}",
           "{country} currency", "{country} flag", "speak {tongue}", "are ghosts real", "who is stronger, a {animal} or a {animal}", "should i marry {first}", "tax law {country}", "write my cv", "cover letter {job}", "salary of a {job}"]


def talk(rng, thinking=None):
    return talking.talk(rng, sys.modules[__name__], thinking)


def outside(rng, thinking=None):
    return talking.outside(rng, sys.modules[__name__], thinking)


KINDS = ["talk", "outside"]
