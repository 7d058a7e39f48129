"""Tool calls: some 40 functions under several names, schemas drawn anew for each conversation, then an answer from the response.

A line of FUNCTIONS reads: names | description | parameters | requests | response fields | answer.
A parameter is `name/other/names:kind`, optional with a `?`. In a request, `[...]` is left out unless all its parameters are given.
"""
import json
import re

from .sample import Sample, alone, assistant, go_on, held_out, plain, user
from .words import CITIES, COLORS, DAYS, FIRST, FRUIT, THINGS, clock, full_name, invented, iso_date

KINDS = {       # kind -> (JSON schema, draw)
    "city": ({"type": "string"}, lambda r: r.choice(CITIES)),
    "first": ({"type": "string"}, lambda r: r.choice(FIRST)),
    "person": ({"type": "string"}, full_name),
    "date": ({"type": "string"}, iso_date),
    "time": ({"type": "string"}, clock),
    "day": ({"type": "string"}, lambda r: r.choice(DAYS)),
    "color": ({"type": "string"}, lambda r: r.choice(COLORS)),
    "thing": ({"type": "string"}, lambda r: r.choice(THINGS)),
    "fruit": ({"type": "string"}, lambda r: r.choice(FRUIT)),
    "word": ({"type": "string"}, lambda r: invented(r)),
    "title": ({"type": "string"}, lambda r: f"{invented(r).title()} {r.choice(THINGS)}"),
    "file": ({"type": "string"}, lambda r: f"{invented(r)}.{r.choice(('txt', 'csv', 'rs', 'md', 'log', 'json'))}"),
    "email": ({"type": "string"}, lambda r: f"{r.choice(FIRST).lower()}@{invented(r)}.com"),
    "message": ({"type": "string"}, lambda r: r.choice(("see you at {t}", "the {x} is ready", "bring the {x}", "call me at {t}", "{x} and {y}",
                                                       "the meeting moved to {t}", "I lost my {x}", "buy a {c} {x}")).format(
        t=clock(r), x=r.choice(THINGS), y=r.choice(THINGS), c=r.choice(COLORS))),
    "int": ({"type": "integer"}, lambda r: r.randint(1, 99)),
    "id": ({"type": "integer"}, lambda r: r.randint(100, 99999)),
    "amount": ({"type": "number"}, lambda r: r.choice((r.randint(1, 900), r.randint(100, 99999) / 100))),
    "percent": ({"type": "integer"}, lambda r: r.randint(0, 100)),
    "bool": ({"type": "boolean"}, lambda r: r.random() < 0.5),
    "names": ({"type": "array", "items": {"type": "string"}}, lambda r: r.sample(FIRST, r.randint(1, 3))),
    "unit": ({"type": "string", "enum": ["celsius", "fahrenheit"]}, lambda r: r.choice(("celsius", "fahrenheit"))),
    "level": ({"type": "string", "enum": ["low", "medium", "high"]}, lambda r: r.choice(("low", "medium", "high"))),
    "currency": ({"type": "string", "enum": ["EUR", "USD", "GBP", "JPY", "CHF"]}, lambda r: r.choice(("EUR", "USD", "GBP", "JPY", "CHF"))),
    "language": ({"type": "string"}, lambda r: r.choice(("French", "German", "Spanish", "Italian", "Polish", "Czech", "Dutch"))),
    "room": ({"type": "string", "enum": ["kitchen", "bedroom", "office", "hall", "garage"]},
             lambda r: r.choice(("kitchen", "bedroom", "office", "hall", "garage"))),
    "sky": ({"type": "string"}, lambda r: r.choice(("sunny", "cloudy", "rainy", "windy", "foggy", "snowy"))),
    "state": ({"type": "string"}, lambda r: r.choice(("running", "stopped", "waiting", "done", "failed"))),
}

FUNCTIONS = """
get_weather weather_lookup current_weather | Get the current weather of a city | city/location/place:city unit/units?:unit | What is the weather in {city}[ in {unit}]?; How is the weather in {city} now[, in {unit}]?; Weather for {city}[ in {unit}], please. | temperature:percent sky:sky | It is {temperature} degrees and {sky} in {city}.
get_forecast forecast weather_forecast | Get the weather forecast for a day | city/location:city date/day:date | What will the weather be in {city} on {date}?; Forecast for {city} on {date}, please. | sky:sky high:percent | On {date} it will be {sky} in {city}, up to {high} degrees.
get_time current_time local_time | Get the local time of a city | city/place:city | What time is it in {city}?; Tell me the local time in {city}. | time:time | It is {time} in {city}.
send_email mail_send email | Send an email | to/recipient/address:email subject/title?:title body/text/message:message | Send an email to {to}[ with the subject {subject}] saying: {body}; Mail {to}[, subject {subject}]: {body} | id:id | The email to {to} was sent with number {id}.
send_message message text_person | Send a text message to a person | to/person/contact:person text/message/body:message | Text {to}: {text}; Send a message to {to}: {text} | id:id | The message to {to} was sent with number {id}.
set_alarm alarm_set create_alarm | Set an alarm | time/at:time label/name?:thing | Set an alarm for {time}[ called {label}].; Wake me at {time}[ with the label {label}]. | id:id | The alarm for {time} is set, number {id}.
set_timer timer start_timer | Start a timer in minutes | minutes/duration:int label/name?:thing | Start a timer of {minutes} minutes[ for the {label}].; Set a {minutes} minute timer[ called {label}]. | id:id | The timer of {minutes} minutes runs, number {id}.
add_event create_event calendar_add | Add an event to the calendar | title/name/event:title date/day:date time/start?:time people/guests?:names | Add {title} to my calendar on {date}[ at {time}][ with {people}].; Plan {title} for {date}[ at {time}][ with {people}]. | id:id | {title} is in your calendar on {date}, number {id}.
list_events calendar_list get_events | List the events of a day | date/day:date limit/max?:int | What is in my calendar on {date}?[ Show at most {limit}.]; List my events on {date}[, {limit} at most]. | count:int first:title | You have {count} events on {date}; the first is {first}.
convert_currency currency exchange | Convert an amount between currencies | amount/value:amount from/source:currency to/target:currency | Convert {amount} {from} to {to}.; How much is {amount} {from} in {to}? | result:amount | {amount} {from} are {result} {to}.
translate translate_text translation | Translate a text | text/phrase:message language/target/to:language | Translate to {language}: {text}; How do you say this in {language}: {text} | text_id:id | The translation to {language} has number {text_id}.
search_web web_search search | Search the web | query/q/text:title limit/max_results?:int | Search the web for {query}[, {limit} results].; Look up {query} online[ and show {limit} results]. | hits:id | I found {hits} pages about {query}.
search_files find_files file_search | Search files by name | pattern/name/query:file folder/path?:word | Find the file {pattern}[ in the folder {folder}].; Search for {pattern}[ under {folder}]. | hits:int | I found {hits} files for {pattern}.
read_file open_file file_read | Read a file | path/file/name:file lines/limit?:int | Read the file {path}[, the first {lines} lines].; Open {path}[ and show {lines} lines]. | size:id | {path} has {size} bytes.
write_file save_file file_write | Write text to a file | path/file:file text/content:message append?:bool | Write to {path}: {text}; Save this in {path}: {text} | size:id | I wrote {size} bytes to {path}.
delete_file remove_file file_delete | Delete a file | path/file/name:file force?:bool | Delete the file {path}.; Remove {path}, please. | freed:id | {path} is deleted, {freed} bytes are free.
run_command shell execute | Run a shell command | command/program/name:word timeout/seconds?:int | Run the command {command}[ with a timeout of {timeout} seconds].; Execute {command}[ for at most {timeout} seconds]. | code:int | {command} ended with code {code}.
get_stock stock_price quote | Get the price of a stock | symbol/ticker/stock:word currency?:currency | What is the stock price of {symbol}[ in {currency}]?; Quote {symbol}[ in {currency}], please. | price:amount | {symbol} is at {price}.
book_table reserve_table restaurant_booking | Reserve a table in a restaurant | restaurant/place:word people/guests/seats:int date/day:date time/at:time | Book a table at {restaurant} for {people} on {date} at {time}.; Reserve {restaurant} on {date} at {time} for {people} people. | id:id | Your table at {restaurant} is booked, number {id}.
book_flight flight_booking reserve_flight | Book a flight | from/origin:city to/destination:city date/day:date seats/passengers?:int | Book a flight from {from} to {to} on {date}[ for {seats} people].; I need a flight from {from} to {to} on {date}[, {seats} seats]. | id:id price:amount | The flight to {to} is booked for {price}, number {id}.
find_train train_search trains | Find a train | from/origin:city to/destination:city date/day?:date | Find a train from {from} to {to}[ on {date}].; Which train goes from {from} to {to}[ on {date}]? | time:time | A train to {to} leaves at {time}.
book_hotel hotel_booking reserve_hotel | Book a hotel room | city/place:city nights/count:int date/arrival/from?:date | Book a hotel in {city} for {nights} nights[ from {date}].; I need a room in {city} for {nights} nights[, arriving {date}]. | hotel:word price:amount | The hotel {hotel} in {city} is booked for {price}.
turn_light set_light light_switch | Turn the light of a room on or off | room/place:room on/state:bool | Set the {room} light: on is {on}.; Light in the {room}, on: {on}. | watts:int | The {room} light now takes {watts} watts.
set_brightness dim_light brightness | Set the brightness of a room's light | room/place:room percent/level/value:percent | Dim the {room} to {percent} percent.; Set the brightness in the {room} to {percent}. | watts:int | The {room} light now takes {watts} watts.
set_temperature thermostat heat | Set the temperature of a room | room/place:room degrees/value/temperature:int unit?:unit | Set the {room} to {degrees} degrees[ {unit}].; Heat the {room} to {degrees}[ {unit}]. | minutes:int | The {room} will be at {degrees} degrees in {minutes} minutes.
play_music play music_play | Play a song | title/song/name:title volume?:percent | Play {title}[ at volume {volume}].; I want to hear {title}[ at volume {volume}]. | length:time | {title} is playing, length {length}.
set_volume volume sound_level | Set the volume | percent/level/volume:percent room?:room | Set the volume to {percent}[ in the {room}].; Volume {percent}[ for the {room}], please. | before:percent | The volume is {percent}, it was {before}.
create_note add_note note | Create a note | title/name:title text/body/content:message | Make a note {title}: {text}; Note under {title}: {text} | id:id | The note {title} has number {id}.
create_task add_task todo | Create a task | title/name/task:title due/date?:date priority/level?:level | Create the task {title}[ due {due}][ with {priority} priority].; Add a task {title}[ for {due}][, priority {priority}]. | id:id | The task {title} has number {id}.
close_ticket resolve_ticket finish_ticket | Close a ticket | id/ticket/number:id comment/note?:message | Close ticket {id}[ with the comment: {comment}]; Resolve the ticket {id}[, comment: {comment}] | open:int | Ticket {id} is closed, {open} are still open.
get_order order_status track_order | Get the state of an order | id/order/number:id | Where is my order {id}?; What is the state of order {id}? | state:state day:day | Order {id} is {state} and arrives on {day}.
order_item buy place_order | Order an article | item/article/product:thing count/quantity/number:int color?:color | Order {count} of the {item}[ in {color}].; Buy {count} times the {item}[ in {color}]. | price:amount id:id | The order {id} costs {price}.
add_to_cart cart_add put_in_cart | Put an article into the cart | item/product/name:fruit count/quantity:int | Put {count} {item} in my cart.; Add {count} {item} to the cart. | total:amount | {count} {item} are in your cart, the total is {total}.
get_user user_info find_user | Look up a user | name/user/person:person details?:bool | Look up the user {name}.; Who is the user {name}? | email:email id:id | {name} has the number {id} and the address {email}.
create_user add_user register | Create a user | name/person:person email/mail/address:email admin?:bool | Create a user {name} with the address {email}.; Register {name}, email {email}. | id:id | The user {name} has number {id}.
get_distance distance route_length | Get the distance between two cities | from/start/origin:city to/end/destination:city | How far is it from {from} to {to}?; Distance between {from} and {to}? | km:id | From {from} to {to} it is {km} kilometres.
get_population population inhabitants | Get the number of inhabitants of a city | city/place/name:city year?:id | How many people live in {city}?; What is the population of {city}? | people:id | {people} people live in {city}.
roll_dice dice throw_dice | Roll dice | count/dice/number:int sides?:int | Roll {count} dice[ with {sides} sides].; Throw {count} dice[ of {sides} sides]. | total:int | The dice show {total}.
restart_service service_restart restart | Restart a service | service/name:word host/server?:word | Restart the service {service}[ on {host}].; Please restart {service}[ on the host {host}]. | state:state | {service} is {state}.
get_metric read_metric metric | Read a metric of a server | host/server/machine:word metric/name/key:word | What is the metric {metric} on {host}?; Read {metric} from the server {host}. | value:amount | {metric} on {host} is {value}.
block_address firewall_block deny | Block an address in the firewall | address/host/target:word hours/duration?:int | Block {address}[ for {hours} hours].; Deny access from {address}[ for {hours} hours]. | rule:id | {address} is blocked by rule {rule}.
log_exercise add_exercise record_exercise | Record a physiotherapy exercise | patient/name/person:person exercise/title:word count/repetitions?:int | Record the exercise {exercise} for {patient}[, {count} times].; {patient} did {exercise}[ {count} times], record it. | session:int | {exercise} is recorded for {patient} as session {session}.
""".strip().splitlines()


def parse(line):
    names, description, parameters, requests, response, answer = [part.strip() for part in line.split(" | ")]
    fields = []
    for item in parameters.split():
        aliases, kind = item.rsplit(":", 1)
        fields.append((aliases.rstrip("?").split("/"), kind, aliases.endswith("?")))
    reply = [item.split(":") for item in response.split()]
    return names.split(), description, fields, requests.split("; "), reply, answer


TABLE = [parse(line) for line in FUNCTIONS]
# What other services call what a tool sends back; the last two of each are never trained, the exam draws from all.
ALSO = {name: names.split() for name, names in {
    "temperature": "temperature_c temperature_f temp celsius degrees current_temperature temp_c degrees_c",
    "sky": "condition conditions weather description outlook weather_main summary sky_state",
    "high": "max high_c temperature_max max_temp highest", "price": "amount cost price_usd total_price rate price_eur value",
    "id": "number identifier ref reference code uid key ticket", "state": "status phase current_state stage condition_now",
    "time": "at departure leaves_at clock local_time datetime hour_minute", "day": "date arrival eta delivery_date expected due_on",
    "total": "sum grand_total amount total_count all", "email": "mail address email_address contact e_mail",
}.items()}
FORMS = "{}_value the_{} {}_1 current_{} result_{} {}Value result value {}_out my_{}".split()       # for any name; the last two likewise
WRAPPERS = "result data response current output".split()
NOTES = ["The {}", "{} to use", "Value of {}", "The {} to use"]


def as_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return " and ".join(value) if isinstance(value, list) else str(value)


def declare(rng, function):
    """-> (tool declaration, {canonical parameter: name in this schema})."""
    names, description, fields, *_ = function
    name = rng.choice(names) + rng.choice(("", "", "", "", f"_{rng.choice(('v2', 'now', 'api', 'tool'))}"))
    renamed, properties, required = {}, {}, []
    for aliases, kind, optional in rng.sample(fields, len(fields)):
        alias = rng.choice([a for a in aliases if a not in properties] or aliases[:1])
        renamed[aliases[0]] = alias
        schema = dict(KINDS[kind][0])
        if rng.random() < 0.5:
            schema["description"] = rng.choice(NOTES).format(alias)
        properties[alias] = schema
        if not optional:
            required.append(alias)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}, renamed


def ask_for(rng, function):
    """-> request text, {canonical parameter: value}."""
    _, _, fields, requests, *_ = function
    text = rng.choice(requests)
    values = {}
    for aliases, kind, optional in fields:
        if "{" + aliases[0] + "}" in text and (not optional or rng.random() < 0.5):
            values[aliases[0]] = KINDS[kind][1](rng)
    if values.get("from") is not None and values.get("from") == values.get("to"):
        return ask_for(rng, function)

    def section(match):
        wanted = re.findall(r"{(\w+)}", match.group(1))
        return match.group(1) if all(w in values for w in wanted) else ""

    text = re.sub(r"\[(.*?)\]", section, text)
    return text.format(**{k: as_text(v) for k, v in values.items()}), values


def call_thought(name, arguments):
    if not arguments:
        return f"I call {alone(name)}."
    return f"I call {alone(name)}: " + "; ".join(f"{alone(k)} is {as_text(v)}" for k, v in arguments.items()) + "."


def without_tool(rng, tools, test, thinking):
    """Tools are offered, but the question needs none of them."""
    from . import arithmetic, talk
    sample = (arithmetic if rng.random() < 0.5 else talk).make(rng, test, thinking)
    sample.family, sample.tools, sample.expect = "tools", tools, ([], sample.expect)
    return sample


NONE = "I have no tool for that. I can call {}."


def names_of(declared):
    names = [alone(d["function"]["name"]) for d in declared]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def refusal(text, declared, thinking, begin=""):
    """-> a request that nothing declared serves, and what is said to it."""
    thought = f"{begin}None of the tools does that: {names_of(declared)}." if thinking else None
    return [user(text), assistant(NONE.format(names_of(declared)), thought)]


def without_fitting(rng, function, declared, thinking):
    """A request for one of the functions, and only others are declared."""
    text, values = ask_for(rng, function)
    thinking = rng.random() < 0.5 if thinking is None else thinking
    messages = refusal(text, declared, thinking)
    return Sample("tools", f"tools none {text}", messages, thinking, expect=([], plain(messages[-1]["content"])), tools=declared)


def as_lines(value, begin=""):
    return "\n".join(as_lines(v, f"{begin}{k} ") if isinstance(v, dict) else f"{begin}{k}: {as_text(v)}" for k, v in value.items())


def renamed_field(rng, name, test):
    names = ALSO.get(name, []) if rng.random() < 0.8 else []
    names, unseen = (names or [form.format(name) for form in FORMS]), 0 if test else 2
    return rng.choice(names[:len(names) - unseen])


def sent_back(rng, fields, asked, test):
    """The same from somebody else's tool: under other names, often with what it was asked for beside it, at times inside an object."""
    names = {name: renamed_field(rng, name, test) for name in fields}
    if len(set(names.values())) < len(names):
        return sent_back(rng, fields, asked, test)
    fields = {names[name]: value for name, value in fields.items()}
    beside = rng.choice(list(asked)) if asked and rng.random() < 0.6 else None
    if beside is not None and beside not in fields:
        own = {beside: asked[beside]}
        fields = own | fields if rng.random() < 0.7 else fields | own
    return {rng.choice(WRAPPERS): fields} if rng.random() < 0.1 else fields


def make(rng, test=False, thinking=None, foreign=None):
    """`foreign`: whether tools send back what no other sample says by these names; else it is drawn, and never in tests."""
    chosen = rng.sample(TABLE, rng.choice((1, 2, 2, 3, 3, 4, 5)))
    declared = [declare(rng, function) for function in chosen]
    if len({d["function"]["name"] for d, _ in declared}) < len(declared):
        return make(rng, test, thinking, foreign)
    tools = [d for d, _ in rng.sample(declared, len(declared))]
    if rng.random() < 0.25:         # a client or a server may sort the keys
        tools = json.loads(json.dumps(tools, sort_keys=True))
    if not test and rng.random() < 0.08:
        return without_tool(rng, tools, test, thinking)
    if not test and len(tools) > 1 and rng.random() < 0.1:
        return without_fitting(rng, chosen[0], [t for t in tools if t["function"] != declared[0][0]["function"]], thinking)
    wanted = [0, 1] if len(chosen) > 1 and rng.random() < 0.12 else [0]
    asks, calls, canonical = [], [], []
    for i in wanted:
        text, values = ask_for(rng, chosen[i])
        asks.append(text)
        declaration, renamed = declared[i]
        canonical.append(values)
        calls.append((declaration["function"]["name"], {renamed[k]: v for k, v in values.items()}))
    key = "tools " + json.dumps(calls, sort_keys=True)
    if held_out(key) != test:
        return make(rng, test, thinking, foreign)
    thinking = rng.random() < 0.5 if thinking is None else thinking
    thought = "\n".join(call_thought(*call) for call in calls) if thinking else None
    if thinking and rng.random() < 0.2:
        thought = go_on(rng, thought, thought, " and ".join(name for name, _ in calls))
    messages = [user("\n".join(asks)), assistant("", thought, calls)]
    replies = []
    for i, values in zip(wanted, canonical):
        fields = {name: KINDS[kind][1](rng) for name, kind in chosen[i][4]}
        others = not test and rng.random() < 0.4 if foreign is None else foreign
        sent = sent_back(rng, fields, values, test) if others else fields
        lines = others and not test and rng.random() < 0.08     # some services send lines
        messages.append({"role": "tool", "content": as_lines(sent) if lines else json.dumps(sent)})
        replies.append(chosen[i][5].format(**{k: as_text(v) for k, v in {**values, **fields}.items()}))
    reply = " ".join(replies)
    messages.append(assistant(reply, "The tools answered." if len(wanted) > 1 and thinking else "The tool answered." if thinking else None))
    return Sample("tools", key, messages, thinking, expect=(calls, plain(reply)), tools=tools)
