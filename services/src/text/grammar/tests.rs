mod distinct_keys;
mod keywords;
mod llama_notation;
mod refusals;

use super::*;
use crate::text::tokenizer::{golden, shipped};
use crate::text::tools::Tool;
use chimere_engine::constraint::Effect;

/// Grammars of the golden tokenizer.
fn grammars() -> Grammars {
    let tokenizer = golden();
    let end = tokenizer.id("<|im_end|>").unwrap();
    Grammars::new(tokenizer, vec![end])
}

fn json(schema: Json) -> Structure {
    Structure { form: Some(AnswerForm::Json { schema, compact: false, closed: false }), calls: None }
}

fn gbnf(text: &str) -> Structure {
    Structure { form: Some(AnswerForm::Gbnf(text.into())), calls: None }
}

fn calls(tools: Vec<(&str, Json)>, must: bool) -> Structure {
    let tools = tools.into_iter().map(|(name, parameters)| Tool { name: name.into(), parameters }).collect();
    Structure { form: None, calls: Some(Calls { tools, must, several: true }) }
}

/// Whether an output of these tokens, followed by an end, is allowed; else how much of it is.
fn followed(grammars: &Grammars, structure: &Structure, thinking: Option<Thinking>, text: &str) -> Result<(), String> {
    let tokenizer = golden();
    let start = grammars.compile(structure).unwrap().after(thinking).unwrap();
    let mut sequence = start.begin(0);
    let mut ids = tokenizer.encode(text);
    ids.push(tokenizer.id("<|im_end|>").unwrap());
    for (at, id) in ids.iter().enumerate() {
        let allowed = match sequence.rule().unwrap() {
            None => true,
            Some(Effect::Allow(mask)) => mask.get(*id as usize / 32).is_some_and(|w| w >> (id % 32) & 1 == 1),
            Some(Effect::Forbid(ids)) => !ids.contains(id),
            other => panic!("{other:?}"),
        };
        if !allowed {
            return Err(tokenizer.decode(&ids[..at], true));
        }
        sequence.take(*id).unwrap();
    }
    Ok(())
}

#[track_caller]
fn check(structure: &Structure, thinking: Option<Thinking>, good: &[&str], bad: &[(&str, &str)]) {
    let grammars = grammars();
    for text in good {
        assert_eq!(followed(&grammars, structure, thinking, text), Ok(()), "{text:?}");
    }
    for (text, allowed) in bad {
        // Tokens are longer than characters, so less may have come than is allowed.
        let got = followed(&grammars, structure, thinking, text).expect_err(text);
        assert!(allowed.starts_with(&got), "{text:?}: {got:?}");
    }
}

#[test]
fn an_answer_keeps_to_its_schema_and_white_space_is_bounded() {
    let schema = json(json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false}));
    check(
        &schema,
        Some(Thinking::Closed),
        &["{\"a\":1}", "{ \"a\": -17 }", "{\n  \"a\": 0\n}"],
        &[("", ""), ("{}", "{"), ("{\"a\": 1}}", "{\"a\": 1}"), ("{\"a\": 1", "{\"a\": 1")],
    );
    let wide = format!("{{{}\"a\":1}}", " ".repeat(9));
    let stopped = followed(&grammars(), &schema, None, &wide).unwrap_err();
    assert!(stopped.trim_end() == "{" && stopped.len() <= 9, "{stopped:?}");
}

#[test]
fn what_depends_on_a_field_and_what_must_not_be_there_are_kept_to() {
    let schema = json(json!({"type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "integer", "format": "int32"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "dependentRequired": {"a": ["b"]}, "not": {"required": ["b", "c"]}}));
    check(
        &schema,
        None,
        &["{}", "{\"a\":1,\"b\":2}", "{\"b\":2}", "{\"c\":3}"],
        &[("{\"a\":1}", "{\"a\":1"), ("{\"b\":1,\"c\":2}", "{\"b\":1,\""), ("{\"a\":1,\"c\":2}", "{\"a\":1,\"")],
    );
}

#[test]
fn expressions_choices_and_grammars_are_followed() {
    let of = |form| Structure { form: Some(form), calls: None };
    check(&of(AnswerForm::Regex("a+b?".into())), None, &["aab", "a"], &[("b", ""), ("abb", "ab")]);
    check(
        &of(AnswerForm::Choice(vec!["yes".into(), "no \"x\"\n".into()])),
        None,
        &["yes", "no \"x\"\n"],
        &[("ye", "ye")],
    );
    check(&of(AnswerForm::Lark("start: \"x\" y\ny: /[0-9]/+".into())), None, &["x12"], &[("x", "x"), ("1", "")]);
}

#[test]
fn a_thought_comes_first_and_nothing_but_its_token_ends_it() {
    let form = Structure { form: Some(AnswerForm::Choice(vec!["yes".into()])), calls: None };
    let thought = "so {\"a\": </thin </tool_call> <think>\n";
    check(
        &form,
        Some(Thinking::Open),
        &[&format!("{thought}</think>\n\nyes"), "</think>yes", "</think>\nyes"],
        &[("x<tool_call>", "x"), ("x", "x"), ("</think>\n\n\n\nyes", "</think>\n\n")],
    );
    check(&form, Some(Thinking::Free), &["yes", "<think>\nx</think>\n\nyes"], &[("a", ""), ("yes<think>", "yes")]);
    check(&form, Some(Thinking::Closed), &["yes"], &[("<think>", "")]);
}

#[test]
fn a_marker_cannot_be_spelled_out() {
    let (grammars, tokenizer) = (grammars(), golden());
    let form = Structure { form: Some(AnswerForm::Choice(vec!["yes".into()])), calls: None };
    let mut sequence = grammars.compile(&form).unwrap().after(Some(Thinking::Open)).unwrap().begin(0);
    let ids: Vec<_> = tokenizer.encode_plain("a </think>");
    let bars = |sequence: &mut Box<dyn Grammar>, id: TokenId| match sequence.rule().unwrap() {
        Some(Effect::Forbid(ids)) => ids.contains(&id),
        other => panic!("{other:?}"),
    };
    let (last, before) = ids.split_last().unwrap();
    for id in before {
        assert!(!bars(&mut sequence, *id));
        sequence.take(*id).unwrap();
    }
    assert!(bars(&mut sequence, *last) && !bars(&mut sequence, tokenizer.id("</think>").unwrap()));
    // A control token between them is no text.
    sequence.take(tokenizer.id("<|im_start|>").unwrap()).unwrap();
    assert!(bars(&mut sequence, *last));
}

fn weather() -> Json {
    json!({"type": "object", "required": ["city", "days"], "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["C", "F"]},
        "days": {"$ref": "#/$defs/days"},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}})
}

fn call(name: &str, arguments: &[(&str, &str)]) -> String {
    let arguments: String =
        arguments.iter().map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n")).collect();
    format!("<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>")
}

#[test]
fn a_call_that_must_come_names_a_declared_tool_and_has_what_it_requires() {
    let must = calls(vec![("weather", weather()), ("now", json!({}))], true);
    let text = call("weather", &[("city", "New <York>\n\nx"), ("unit", "C"), ("days", "3"), ("tags", "[\"a\"]")]);
    let small = call("weather", &[("city", "x"), ("days", "9")]);
    let turned = call("weather", &[("unit", "F"), ("days", "9"), ("city", "x")]);
    check(
        &must,
        Some(Thinking::Open),
        &[&format!("hm</think>\n\n{text}"), &format!("</think>{small}\n{}", call("now", &[]))],
        &[],
    );
    let begin = "<tool_call>\n<function=weather>\n<parameter=";
    check(
        &must,
        Some(Thinking::Closed),
        &[&text, &small, &turned],
        &[
            ("hello", ""),
            ("<tool_call>\n<function=rm>", "<tool_call>\n<function="),
            (&format!("{begin}place>"), begin),
            (&format!("{begin}unit>\nK"), &format!("{begin}unit>\n")),
            (
                &format!("{begin}city>\nx\n</parameter>\n<parameter=city>"),
                &format!("{begin}city>\nx\n</parameter>\n<parameter="),
            ),
            (&format!("{begin}city>\nx\n</parameter>\n</function>"), &format!("{begin}city>\nx\n</parameter>\n<")),
        ],
    );
}

#[test]
fn many_arguments_come_in_the_order_of_their_schema() {
    let names = ["a1", "b2", "c3", "d4", "e5", "f6"];
    let properties = names.map(|name| (name.to_owned(), json!({"type": "string"})));
    let schema =
        json!({"type": "object", "properties": serde_json::Map::from_iter(properties), "required": names[..2]});
    let of = |names: &[&str]| call("many", &names.iter().map(|name| (*name, "x")).collect::<Vec<_>>());
    let begin = "<tool_call>\n<function=many>\n<parameter=";
    check(
        &calls(vec![("many", schema)], true),
        None,
        &[&of(&names), &of(&["a1", "b2"]), &of(&["a1", "b2", "f6"])],
        &[(&of(&["b2", "a1"]), begin), (&of(&["a1", "c3"]), &format!("{begin}a1>\nx\n</parameter>\n<parameter="))],
    );
}

#[test]
fn as_many_tools_as_a_request_may_have_are_followed() {
    let properties = ["a1", "b2", "c3", "d4", "e5"].map(|name| (name.to_owned(), json!({"type": "string"})));
    let schema = json!({"type": "object", "properties": serde_json::Map::from_iter(properties)});
    let names: Vec<_> = (0..limits::TOOLS_MAX).map(|i| format!("tool_{i}")).collect();
    let tools = names.iter().map(|name| (name.as_str(), schema.clone())).collect();
    let last = call(names.last().unwrap(), &[("e5", "x"), ("a1", "y")]);
    check(&calls(tools, true), None, &[&last], &[]);
}

/// Walks along an answer in these tokens. At each place: which token comes, how many the grammar allows, and what it
/// says has to come, as texts.
fn places(structure: &Structure, ids: &[TokenId]) -> Vec<(String, usize, Vec<String>)> {
    let tokenizer = shipped();
    let end = tokenizer.id("<|im_end|>").unwrap();
    let start = Grammars::new(tokenizer.clone(), vec![end]).compile(structure).unwrap().after(None).unwrap();
    let mut sequence = start.begin(0);
    let text = |id: TokenId| String::from_utf8_lossy(tokenizer.bytes(id)).into_owned();
    let place = |id: &TokenId| {
        let Some(Effect::Allow(mask)) = sequence.rule().unwrap() else { panic!("a mask") };
        assert!(mask[*id as usize / 32] >> (id % 32) & 1 == 1, "{:?} may come", text(*id));
        let forced = sequence.forced().into_iter().map(text).collect();
        sequence.take(*id).unwrap();
        (text(*id), mask.iter().map(|word| word.count_ones() as usize).sum(), forced)
    };
    ids.iter().map(place).collect()
}

#[test]
fn a_text_that_has_to_come_is_written_in_the_tokens_of_the_whole_text() {
    let texts = ["invoice_number", "delivery_address", "currency"].map(|key| (key, json!({"type": "string"})));
    let schema = json!({"type": "object", "properties": serde_json::Map::from_iter(texts.map(|(k, v)| (k.into(), v))),
        "required": ["invoice_number", "delivery_address", "currency"], "additionalProperties": false});
    let form = AnswerForm::Json { schema, compact: true, closed: true };
    let text = r#"{"invoice_number":"A-1","delivery_address":"3 Mill Lane","currency":"EUR"}"#;
    let ids = shipped().encode(text);
    let places = places(&Structure { form: Some(form), calls: None }, &ids);
    let written: Vec<&str> = places.iter().map(|(token, ..)| token.as_str()).collect();
    let mut runs = 0;
    for (at, (token, choices, forced)) in places.iter().enumerate() {
        // The last token of a run may be one with the free text behind it.
        let sure = &forced[..forced.len().saturating_sub(1)];
        assert!(written[at..].starts_with(&sure.iter().map(String::as_str).collect::<Vec<_>>()), "{at}: {forced:?}");
        assert!(sure.is_empty() || (*choices, token) == (1, &sure[0]), "{at}: {choices} tokens for {forced:?}");
        runs += usize::from(sure.len() > 2);
    }
    assert!(runs >= 3, "{places:?}");
}

#[test]
fn a_call_is_written_in_the_tokens_that_the_model_was_taught() {
    let tokenizer = shipped();
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let must = calls(vec![("get_weather", schema)], true);
    let text = call("get_weather", &[("city", "Hello")]);
    let whole = places(&must, &tokenizer.encode(&text));
    assert!(whole.iter().any(|(token, ..)| token == "=get"), "{whole:?}");
    // The shipped model was taught names that were encoded apart.
    let apart =
        ["<tool_call>\n<function=", "get_weather", ">\n<parameter=", "city", ">\nHello\n</parameter>\n</function>"];
    let ids: Vec<_> = apart.iter().flat_map(|part| tokenizer.encode(part)).collect();
    let places = places(&must, &ids);
    let behind = |token: &str| &places[places.iter().position(|(of, ..)| of == token).unwrap() + 1].2;
    // Drafted as the tokenizer writes it, and from where the model went another way, behind what it wrote.
    assert!(
        behind("<function").starts_with(&["=get", "_weather", ">\n", "<parameter"].map(String::from)),
        "{places:?}"
    );
    assert!(behind("=").starts_with(&["get", "_weather", ">\n", "<parameter"].map(String::from)), "{places:?}");
    assert!(places.iter().any(|(_, choices, forced)| *choices > 1 && forced.len() > 2), "{places:?}");
}

#[test]
fn one_call_is_one_where_several_are_not_wanted() {
    let mut one = calls(vec![("now", json!({}))], true);
    one.calls.as_mut().unwrap().several = false;
    let text = call("now", &[]);
    check(&one, None, &[&text], &[(&format!("{text}\n{text}"), &text)]);
}

#[test]
fn calls_that_may_come_keep_to_their_schema_and_text_is_free() {
    let may = calls(vec![("weather", weather())], false);
    let text = call("weather", &[("city", "x"), ("days", "9")]);
    check(
        &may,
        Some(Thinking::Closed),
        &["any text", "", &format!("I look.\n\n{text}"), &text],
        &[("<tool_call>\n<function=rm>", "<tool_call>\n<function=")],
    );
    check(
        &may,
        Some(Thinking::Open),
        &["hm</think>\n\nany text", &format!("</think>I look.\n\n{text}"), &format!("</think>\n\n{text}")],
        &[("</think>\n\n<tool_call>\n<function=rm>", "</think>\n\n<tool_call>\n<function=")],
    );
    let spelled = grammars().compile(&may).unwrap().after(Some(Thinking::Closed)).unwrap();
    let (mut sequence, ids) = (spelled.begin(0), golden().encode_plain("<tool_call>"));
    ids[..ids.len() - 1].iter().for_each(|id| sequence.take(*id).unwrap());
    let Some(Effect::Forbid(barred)) = sequence.rule().unwrap() else { panic!("something is barred") };
    assert!(barred.contains(ids.last().unwrap()));
}

#[test]
fn an_answer_of_a_schema_or_calls() {
    let both = Structure { form: json(json!({"type": "array"})).form, ..calls(vec![("now", json!({}))], false) };
    check(&both, Some(Thinking::Closed), &["[1, 2]", &call("now", &[])], &[("now", "")]);
}

#[test]
fn calls_of_other_families_are_objects_of_declared_names_and_arguments() {
    let parameters = json!({"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
        "required": ["city"], "$defs": {"city": {"type": "string"}}});
    let structure = calls(vec![("weather", parameters), ("now", json!({}))], true);
    let grammars = grammars().with_calls(CallForm::Json);
    for good in [
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    ] {
        assert_eq!(followed(&grammars, &structure, None, good), Ok(()));
    }
    for bad in [
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 2}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ] {
        assert!(followed(&grammars, &structure, None, bad).is_err(), "{bad}");
    }
}
