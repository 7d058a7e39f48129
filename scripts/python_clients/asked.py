"""What the programs are asked, and what of it there can be."""
import json

QUESTION = "What is the weather in Paris?"
DESCRIPTION = "Get the current weather of a city"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": DESCRIPTION,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
# By the names of a weather service, which are not those of the model's own training table: its card has a row of such.
RESULT = json.dumps({"city": "Paris", "temperature_c": 21, "condition": "sunny"})

# What typed answers are asked for: the text, and what of it there can be.
PLACE = 'Which city does it name? "Anna moved to Paris in 2019."'


def place():
    """A type that only a few short answers have. It takes no other fields: of those a small model finds no end."""
    import typing

    import pydantic

    class Place(pydantic.BaseModel, extra="forbid"):
        city: typing.Literal["Paris", "London", "Rome"]
        year: int = pydantic.Field(ge=1900, le=2100)

    return Place
