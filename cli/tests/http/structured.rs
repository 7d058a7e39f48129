//! Answers of a form: JSON of a schema, expressions, choices, grammars, calls that must come. Behind the socket the
//! golden model computes: its weights are random, so what holds is the grammar's doing.

use crate::support::client::joined;
use crate::support::*;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn server() -> Server {
    Server::start(Options { real: true, ..Options::default() })
}

fn asked(fields: Value) -> Value {
    with(
        json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "temperature": 1, "seed": 3}),
        fields,
    )
}

/// Without a thought, which random weights would never end.
fn at_once(fields: Value) -> Value {
    asked(with(json!({"reasoning_effort": "none"}), fields))
}

fn schema_of(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}}})
}

#[track_caller]
fn choice(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["choices"][0].clone()
}

fn content(choice: &Value) -> &str {
    choice["message"]["content"].as_str().unwrap()
}

/// Small numbers from a seed: which, does not matter, but they are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A schema of the kinds that programs send, whose values are small enough to end.
fn schema(dice: &mut Dice, depth: u32) -> Value {
    match dice.roll(if depth == 0 { 6 } else { 9 }) {
        0 => json!({"type": "integer", "minimum": -(dice.roll(50) as i64), "maximum": dice.roll(2000)}),
        1 => json!({"type": "boolean"}),
        2 => json!({"type": "string", "minLength": dice.roll(3), "maxLength": 3 + dice.roll(6)}),
        3 => json!({"enum": ["red", "gr\u{fc}n \"x\"", 5, null, [1, {"a": 2}]]}),
        4 => json!({"type": ["null", "boolean"]}),
        5 => json!({"const": {"k": dice.roll(9)}}),
        6 => {
            let (items, least, most) = (schema(dice, depth - 1), dice.roll(2), 1 + dice.roll(3));
            json!({"type": "array", "items": items, "minItems": least, "maxItems": most})
        }
        7 => json!({"anyOf": [schema(dice, depth - 1), schema(dice, depth - 1)]}),
        _ => {
            let names = ["a", "b c", "\u{e9}\"", "dd"];
            let count = 1 + dice.roll(4) as usize;
            let properties: serde_json::Map<String, Value> =
                names[..count].iter().map(|name| ((*name).to_owned(), schema(dice, depth - 1))).collect();
            let required: Vec<&str> = names[..count].iter().filter(|_| dice.roll(2) == 0).copied().collect();
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
        }
    }
}

/// Whether a value is one of a schema's, as JSON Schema defines the keywords above.
fn is_valid(schema: &Value, value: &Value) -> bool {
    let number = |key: &str, bound: &dyn Fn(f64, f64) -> bool| {
        schema[key].as_f64().zip(value.as_f64()).is_none_or(|(limit, value)| bound(value, limit))
    };
    let size = |key: &str, size: Option<usize>, bound: &dyn Fn(usize, usize) -> bool| {
        schema[key].as_u64().zip(size).is_none_or(|(limit, size)| bound(size, limit as usize))
    };
    let is = |kind: &Value| match kind.as_str().unwrap() {
        // Also -0, which is read as a double.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let types = match &schema["type"] {
        Value::Null => true,
        Value::Array(types) => types.iter().any(is),
        one => is(one),
    };
    let listed = schema["enum"].as_array().is_none_or(|values| values.contains(value));
    let constant = schema.get("const").is_none_or(|constant| constant == value);
    let any = schema["anyOf"].as_array().is_none_or(|schemas| schemas.iter().any(|s| is_valid(s, value)));
    let items =
        value.as_array().is_none_or(|items| schema.get("items").is_none_or(|s| items.iter().all(|i| is_valid(s, i))));
    let (chars, len) = (value.as_str().map(|s| s.chars().count()), value.as_array().map(Vec::len));
    let members = value.as_object().is_none_or(|object| {
        let known = |(key, value): (&String, &Value)| match schema["properties"].get(key) {
            Some(schema) => is_valid(schema, value),
            None => schema["additionalProperties"] != json!(false),
        };
        let required = schema["required"].as_array().into_iter().flatten();
        object.iter().all(known) && required.map(|r| r.as_str().unwrap()).all(|key| object.contains_key(key))
    });
    types
        && listed
        && constant
        && any
        && items
        && members
        && number("minimum", &|v, l| v >= l)
        && number("maximum", &|v, l| v <= l)
        && size("minLength", chars, &|s, l| s >= l)
        && size("maxLength", chars, &|s, l| s <= l)
        && size("minItems", len, &|s, l| s >= l)
        && size("maxItems", len, &|s, l| s <= l)
}

#[test]
fn answers_that_end_are_valid_whatever_the_schema_and_those_that_are_cut_off_say_so() {
    let server = server();
    let ended: usize = std::thread::scope(|scope| {
        let lane = |lane: u64| {
            let addr = server.addr;
            move || {
                let mut dice = Dice(lane);
                (0..40)
                    .filter(|i| {
                        let schema = schema(&mut dice, 3);
                        let thinks = json!({"reasoning": {"max_tokens": 4}, "seed": i});
                        let body = if i % 4 == 0 {
                            asked(with(schema_of(&schema), thinks))
                        } else {
                            at_once(with(schema_of(&schema), json!({"seed": i})))
                        };
                        let choice = choice(&post(addr, CHAT, &body));
                        if choice["finish_reason"] == "length" {
                            return false;
                        }
                        assert_eq!(choice["finish_reason"], "stop");
                        let value: Value =
                            serde_json::from_str(content(&choice)).unwrap_or_else(|e| panic!("{e}: {choice} {schema}"));
                        assert!(is_valid(&schema, &value), "{value} is not of {schema}");
                        true
                    })
                    .count()
            }
        };
        let lanes: Vec<_> = (0..6).map(|i| scope.spawn(lane(i))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
    });
    assert!(ended > 200, "{ended} of 240 answers have ended");
}

#[test]
fn the_same_answer_comes_alone_and_in_any_batch_whole_and_streamed_and_for_each_choice() {
    let server = server();
    let properties = json!({"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 12}});
    let schema = json!({"type": "object", "properties": properties,
        "required": ["n", "s"], "additionalProperties": false});
    let body = |seed: u64| at_once(with(schema_of(&schema), json!({"seed": seed, "n": 3})));
    let texts = |reply: Reply| -> Vec<String> {
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["choices"].as_array().unwrap().iter().map(|c| content(c).to_owned()).collect()
    };
    let alone: Vec<_> = (0..8).map(|seed| texts(post(server.addr, CHAT, &body(seed)))).collect();
    assert!(alone[0].iter().all(|text| serde_json::from_str::<Value>(text).is_ok()), "{:?}", alone[0]);
    assert!(alone[0][0] != alone[0][1] || alone[0][1] != alone[0][2], "choices draw for themselves");
    let ask_together = |server: &Server| {
        std::thread::scope(|scope| {
            let free = scope.spawn(|| post(server.addr, CHAT, &asked(json!({"ignore_eos": true}))));
            let lanes = (0..8).map(|seed| scope.spawn(move || texts(post(server.addr, CHAT, &body(seed)))));
            let lanes: Vec<_> = lanes.collect();
            let together: Vec<_> = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
            assert_eq!(together, alone);
            assert_eq!(free.join().unwrap().status, 200);
        });
    };
    ask_together(&server);
    // Where memory is short, sequences give way and are computed again. On a machine that has much else to do the
    // requests may come so far apart that none has to.
    let short = Server::start(Options { real: true, pages: 10, ..Options::default() });
    let preempted = || {
        let metrics = get(short.addr, "/metrics");
        let count =
            metrics.text().lines().find_map(|line| line.strip_prefix("chimere_preemptions_total ")?.parse().ok());
        count.is_some_and(|count: u64| count > 0)
    };
    let rounds = (0..3).take_while(|_| !preempted()).map(|_| ask_together(&short)).count();
    assert!(preempted(), "nobody gave way in {rounds} rounds");
    let chunks = Stream::open(server.addr, CHAT, &with(body(2), json!({"stream": true}))).chunks();
    assert_eq!([0, 1, 2].map(|choice| joined(&chunks, choice, "content")).to_vec(), alone[2]);
}

#[test]
fn a_thought_comes_first_and_is_no_part_of_the_form() {
    let server = server();
    for budget in [1, 2, 9] {
        let body = asked(with(
            json!({"reasoning": {"max_tokens": budget}}),
            json!({"structured_outputs": {"choice": ["left", "right"]}}),
        ));
        let choice = choice(&post(server.addr, CHAT, &body));
        assert!(["left", "right"].contains(&content(&choice)), "{choice}");
        assert!(!choice["message"]["reasoning_content"].as_str().unwrap_or("").contains("left"), "{choice}");
    }
}

#[test]
fn expressions_choices_and_grammars_hold_in_chat_and_in_completions() {
    let server = server();
    let regex = regex::Regex::new("^[a-f]{3}-[0-9]{1,2}$").unwrap();
    for (fields, fits) in [
        (
            json!({"structured_outputs": {"regex": "[a-f]{3}-[0-9]{1,2}"}}),
            &(|text: &str| regex.is_match(text)) as &dyn Fn(&str) -> bool,
        ),
        (json!({"guided_regex": "[a-f]{3}-[0-9]{1,2}"}), &|text| regex.is_match(text)),
        (json!({"guided_choice": ["yes", "no", "may be"]}), &|text| ["yes", "no", "may be"].contains(&text)),
        (json!({"structured_outputs": {"grammar": "start: \"(\" /[xy]{2}/ \")\""}}), &|text| {
            text.len() == 4 && text.starts_with('(')
        }),
        (json!({"guided_json": "{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 5}"}), &|text| {
            ["3", "4", "5"].contains(&text.trim())
        }),
        (json!({"structured_outputs": {"json": {"enum": [[1, 2]]}, "disable_any_whitespace": true}}), &|text| {
            text == "[1,2]"
        }),
    ] {
        for seed in 0..3 {
            let body = at_once(with(fields.clone(), json!({"seed": seed})));
            let choice = choice(&post(server.addr, CHAT, &body));
            assert!(fits(content(&choice)) && choice["finish_reason"] == "stop", "{fields}: {choice}");
            let body =
                with(json!({"prompt": ["a", "b"], "max_tokens": 60, "seed": seed, "temperature": 1}), fields.clone());
            let reply = post(server.addr, COMPLETIONS, &body);
            assert_eq!(reply.status, 200, "{}", reply.text());
            for choice in reply.json()["choices"].as_array().unwrap() {
                assert!(fits(choice["text"].as_str().unwrap()), "{fields}: {choice}");
            }
        }
    }
}

fn tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "required": ["count", "unit"], "properties": {
        "count": {"type": "integer", "minimum": 0, "maximum": 99}, "unit": {"enum": ["kg", "g"]},
        "note": {"type": "string", "maxLength": 6}}});
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

#[test]
fn calls_that_must_come_name_declared_tools_and_have_arguments_of_their_schema() {
    let server = server();
    let tools = json!([tool("weigh"), tool("weigh_all"), tool("drop")]);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let two = json!({"mode": "required", "tools": [named("drop"), named("weigh")]});
    let allowed = json!({"type": "allowed_tools", "allowed_tools": two});
    for (chosen, names) in [
        (json!("required"), &["weigh", "weigh_all", "drop"][..]),
        (named("weigh_all"), &["weigh_all"]),
        (allowed, &["drop", "weigh"]),
    ] {
        for seed in 0..6 {
            let fields = json!({"tools": tools, "tool_choice": chosen, "seed": seed, "parallel_tool_calls": false});
            let thinks = json!({"reasoning": {"max_tokens": 3}});
            let body = if seed % 2 == 0 { at_once(fields) } else { asked(with(fields, thinks)) };
            let choice = choice(&post(server.addr, CHAT, &body));
            let (said, reason) = (&choice["message"]["content"], &choice["finish_reason"]);
            assert_eq!((said, reason), (&Value::Null, &json!("tool_calls")), "{choice}");
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{choice}");
            assert!(names.contains(&calls[0]["function"]["name"].as_str().unwrap()), "{choice}");
            let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(is_valid(&tool("x")["function"]["parameters"], &arguments), "{arguments}");
        }
    }
}

#[test]
fn a_strict_tool_that_may_be_called_leaves_text_free_and_has_its_schema_kept_to() {
    let server = server();
    let mut strict = tool("weigh");
    strict["function"]["strict"] = json!(true);
    // So that random weights call it now and then.
    let marker = post(server.addr, "/tokenize", &json!({"prompt": "<tool_call>"})).json()["tokens"][0].clone();
    let likely = json!({marker.to_string(): 3});
    let called: usize = (0..12)
        .map(|seed| {
            let fields = json!({"tools": [strict], "seed": seed, "logit_bias": likely, "max_tokens": 120});
            let choice = choice(&post(server.addr, CHAT, &at_once(fields)));
            let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
            for call in calls.iter().filter(|call| call["status"] != "incomplete") {
                let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                assert!(is_valid(&strict["function"]["parameters"], &arguments), "{arguments}");
            }
            assert!(!choice["message"]["content"].as_str().unwrap_or("").contains("<tool_call>"), "{choice}");
            calls.len()
        })
        .sum();
    assert!(called > 0, "none has called it");
}

#[test]
fn what_cannot_be_followed_is_400_and_names_field_and_keyword() {
    let server = server();
    let format = |schema: Value| schema_of(&schema);
    let field = "response_format.json_schema.schema";
    for (fields, param, part) in [
        (format(json!({"type": "array", "uniqueItems": true})), field, "uniqueItems"),
        (format(json!({"type": "integer", "minimum": 5, "maximum": 4})), field, "minimum"),
        (format(json!({"$ref": "#/$defs/gone"})), field, "gone"),
        (format(json!(5)), field, "must be a JSON schema"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema", "missing"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type", "xml"),
        (
            json!({"structured_outputs": {"regex": "a".repeat(1_000_000 / 2)}}),
            "structured_outputs.regex",
            "at most 16384",
        ),
        (json!({"structured_outputs": {"regex": "("}}), "structured_outputs.regex", "regex"),
        (json!({"structured_outputs": {"grammar": "start: nowhere"}}), "structured_outputs.grammar", "nowhere"),
        (json!({"structured_outputs": {"choice": []}}), "structured_outputs.choice", "empty"),
        (json!({"structured_outputs": {"structural_tag": "x"}}), "structured_outputs.structural_tag", "not supported"),
        (json!({"guided_regex": "a", "guided_choice": ["a"]}), "guided_choice", "`guided_regex`"),
        (json!({"guided_regex": "a", "ignore_eos": true}), "ignore_eos", "`guided_regex`"),
        (json!({"tool_choice": "required"}), "tool_choice", "no `tools`"),
        (
            json!({"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice.function.name",
            "\"g\"",
        ),
        (
            json!({"tools": [tool("f")], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}),
            "tool_choice.allowed_tools.tools",
            "empty",
        ),
    ] {
        let reply = post(server.addr, CHAT, &at_once(fields));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    let after = choice(&post(server.addr, CHAT, &at_once(json!({"guided_choice": ["well"]}))));
    assert_eq!(content(&after), "well", "and nothing is the worse for it");
}

/// What no answer can follow, or no machine in time.
fn hostile_forms() -> Vec<(Value, &'static str, &'static str)> {
    let schema = "response_format.json_schema.schema";
    let (regex, lark) = ("structured_outputs.regex", "structured_outputs.grammar");
    let double = (0..40).map(|i| format!("A{i}: A{} A{}\n", i + 1, i + 1)).collect::<String>();
    let deep = (0..100).fold(json!({"type": "integer"}), |inner, _| json!({"type": "array", "items": inner}));
    let halves = (0..40).map(|i| format!("a{i} ::= a{} a{}\n", i + 1, i + 1)).collect::<String>();
    let below = json!({"type": "integer", "maximum": -1e19, "exclusiveMinimum": -1e100});
    let tool = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object",
        "properties": {"a": below}, "required": ["a"]}}});
    vec![
        (json!({"json_schema": {"maximum": i64::MIN, "exclusiveMinimum": -1e100}}), "json_schema", "`maximum`"),
        (json!({"tools": [tool], "tool_choice": "required"}), "tools", "`maximum` has the number"),
        (json!({"tools": [tool]}), "tools", "`maximum` has the number"),
        (json!({"grammar": format!("root ::= a0\n{halves}a40 ::= \"a\"?")}), "grammar", "written out, at most"),
        (schema_of(&json!({"$ref": "#"})), schema, ""),
        (
            schema_of(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})),
            schema,
            "",
        ),
        (schema_of(&json!({"anyOf": vec![json!({"type": "string"}); 30_000]})), schema, "values"),
        (schema_of(&deep), schema, "levels"),
        (schema_of(&json!({"allOf": [{"type": "string"}, {"type": "integer"}]})), schema, ""),
        (json!({"structured_outputs": {"regex": "a".repeat(1_000_000)}}), regex, "1000000 bytes, at most 16384"),
        (
            json!({"structured_outputs": {"grammar": format!("start: A0\n{double}A40: \"a\"\n")}}),
            lark,
            "written out, at most",
        ),
        (json!({"structured_outputs": {"grammar": "start: a\na: b\nb: a\n"}}), lark, ""),
    ]
}

#[test]
fn recursion_without_end_bombs_contradictions_and_huge_forms_are_400_by_name() {
    let server = server();
    for (fields, param, part) in hostile_forms() {
        let reply = post(server.addr, CHAT, &at_once(fields.clone()));
        let error = reply.json()["error"].clone();
        let shown: String = fields.to_string().chars().take(200).collect();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{shown}: {error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{shown}: {error}");
    }
    // Recursion that can end is followed.
    let list = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["n", "next"], "additionalProperties": false});
    let fields = with(schema_of(&list), json!({"max_tokens": 1500}));
    let answered = choice(&post(server.addr, CHAT, &at_once(fields)));
    let ended = answered["finish_reason"] == "stop";
    assert!(!ended || serde_json::from_str::<Value>(content(&answered)).unwrap()["n"].is_number(), "{answered}");
}

#[test]
fn numbers_of_any_size_keep_their_digits() {
    let server = server();
    for number in ["-9223372036854775808", "-12345678901234567890123", "0.1000000000000000055"] {
        let schema = format!("{{\"const\":{number}}}");
        let kinds = [
            format!("\"guided_json\":{schema}"),
            format!("\"json_schema\":{schema}"),
            format!("\"structured_outputs\":{{\"json\":{schema}}}"),
            format!(
                "\"response_format\":{{\"type\":\"json_schema\",\"json_schema\":{{\"name\":\"x\",\"schema\":{schema}}}}}"
            ),
        ];
        for kind in kinds {
            let body = at_once(json!({"form": 0})).to_string().replace("\"form\":0", &kind);
            let reply = request(server.addr, "POST", CHAT, &[], body.as_bytes());
            assert_eq!(content(&choice(&reply)), number, "{kind}");
        }
    }
    let tool = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object",
        "properties": {"a": {"type": "integer", "minimum": -1e19, "maximum": -1e19}}, "required": ["a"]}}});
    let called = choice(&post(server.addr, CHAT, &at_once(json!({"tools": [tool], "tool_choice": "required"}))));
    let arguments = called["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert!(arguments.contains("-10000000000000000000"), "{called}");
}

#[test]
fn ten_thousand_tools_are_refused_in_the_shape_of_every_dialect() {
    let server = server();
    let many = |tool: &dyn Fn(usize) -> Value| Value::from((0..10_000).map(tool).collect::<Vec<_>>());
    let nested = many(&|i| json!({"type": "function", "function": {"name": format!("f{i}")}}));
    let flat = many(&|i| json!({"type": "function", "name": format!("f{i}")}));
    let claude = many(&|i| json!({"name": format!("f{i}"), "input_schema": {}}));
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body, message) in [
        (CHAT, json!({"messages": messages, "tools": nested}), "/error/message"),
        (CHAT, json!({"messages": messages, "tools": nested, "tool_choice": "required"}), "/error/message"),
        ("/v1/responses", json!({"input": "hi", "tools": flat}), "/error/message"),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 5, "tools": claude}), "/error/message"),
        ("/api/chat", json!({"model": "tiny", "messages": messages, "tools": nested}), "/error"),
    ] {
        let reply = post(server.addr, path, &body);
        let said = reply.json().pointer(message).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert!(said.contains("`tools`") && said.contains("10000") && said.contains("128"), "{path}: {said}");
        assert_eq!(reply.json()["type"] == "error", path == "/v1/messages", "{path}: {}", reply.text());
    }
    assert_eq!(content(&choice(&post(server.addr, CHAT, &at_once(json!({"guided_choice": ["well"]}))))), "well");
}

#[test]
fn a_grammar_that_is_too_hard_ends_its_own_request_as_its_client_s_fault_and_no_other() {
    let server = server();
    // Every way to part a row of x in two or three.
    let grammar = "start: e\ne: e e | e e e | \"x\"";
    let hard = json!({"structured_outputs": {"grammar": grammar}, "max_tokens": 1500, "min_tokens": 1500});
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| post(server.addr, CHAT, &at_once(hard.clone())));
        let beside = choice(&post(server.addr, CHAT, &at_once(json!({"guided_choice": ["well"]}))));
        assert_eq!(content(&beside), "well");
        let reply = bad.join().unwrap();
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["code"]), (400, &json!("grammar_too_large")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("the grammar takes too many steps"), "{error}");
    });
    assert_eq!(content(&choice(&post(server.addr, CHAT, &at_once(json!({"guided_choice": ["well"]}))))), "well");
}
