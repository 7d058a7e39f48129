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
fn what_cannot_be_followed_is_refused_by_name_and_quickly() {
    let grammars = grammars();
    let refused = |structure: &Structure| grammars.compile(structure).map(drop).unwrap_err();
    for (schema, names) in [
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"not": {"enum": ["a"]}}), "not"),
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), "minimum"),
        (json!({"type": "text"}), "text"),
        (json!({"$ref": "#/$defs/none"}), "none"),
        (json!(false), "nothing matches"),
        (json!("text"), "object"),
        (json!({"x-guidance": {}}), "x-guidance"),
        (json!({"type": "string", "pattern": "("}), "regex"),
    ] {
        let error = refused(&json(schema.clone()));
        assert!(error.message.contains(names) && error.message.len() < 400, "{schema}: {error}");
    }
    let form = |form| Structure { form: Some(form), calls: None };
    for (large, names) in [
        (form(AnswerForm::Regex("a".repeat(1_000_000))), "1000000 bytes, at most 16384"),
        (form(AnswerForm::Lark(lark_bomb())), "bytes in its terminals, written out, at most 262144"),
        (form(AnswerForm::Choice(vec!["a".into(); 5000])), "5000 texts"),
        (json(json!({"anyOf": vec![json!({"type": "string"}); 30_000]})), "values"),
        (json(deep(100)), "levels"),
        (json(many_references()), "levels together with all that it refers to, at most 6000"),
    ] {
        let error = refused(&large);
        assert!(error.message.contains(names), "{error}");
    }
}

/// Doubles with each line.
fn lark_bomb() -> String {
    let lines = (0..40).map(|i| format!("A{i}: A{} A{}\n", i + 1, i + 1));
    format!("start: A0\n{}A40: \"a\"\n", lines.collect::<String>())
}

/// A definition of 60 levels for each of 200 names.
fn many_references() -> Json {
    let deep =
        |i: usize| (0..60).fold(json!({"$ref": format!("#/$defs/a{}", i + 1)}), |inner, _| json!({"items": inner}));
    let definitions: serde_json::Map<String, Json> = (0..200).map(|i| (format!("a{i}"), deep(i))).collect();
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

fn deep(levels: usize) -> Json {
    (0..levels).fold(json!({}), |inner, _| json!({"items": inner}))
}

#[test]
fn a_grammar_that_is_too_hard_for_one_token_says_so() {
    let grammars = grammars();
    let x = golden().id("x").unwrap();
    for lark in ["start: e\ne: e e | e e e | \"x\"", "start: e\ne: e e e e e | e e e e | e e | \"x\" | \"xx\" |"] {
        let structure = Structure { form: Some(AnswerForm::Lark(lark.into())), calls: None };
        let mut sequence = grammars.compile(&structure).unwrap().after(None).unwrap().begin(0);
        let mut says = |_| sequence.rule().and_then(|_| sequence.take(x)).err();
        assert_eq!((0..1000).find_map(&mut says).as_deref(), Some("the grammar takes too many steps for one token"));
    }
}

/// What each token of two texts is told, when their outputs go on by turns.
fn told_by_turns(
    grammar: &CompiledGrammar,
    sequences: &mut [Box<dyn Grammar>; 2],
    texts: [&str; 2],
    spoil: bool,
) -> Vec<Option<Effect>> {
    let ids = texts.map(|text| golden().encode_plain(text));
    let mut told = Vec::new();
    for at in 0..ids[0].len().max(ids[1].len()) {
        if spoil && at == 5 {
            assert!(grammar.lexers.of_lane(0).test_trigger_lexer_error().is_err());
        }
        for (sequence, ids) in sequences.iter_mut().zip(&ids) {
            if let Some(id) = ids.get(at) {
                told.push(sequence.rule().unwrap());
                sequence.take(*id).unwrap_or_else(|why| panic!("{:?}: {why}", golden().decode(&ids[..=at], true)));
            }
        }
    }
    told
}

#[test]
fn outputs_that_share_a_lexer_are_told_what_they_are_told_alone_also_when_it_stops() {
    let schema = json!({"type": "array", "items": {"type": "object", "additionalProperties": false,
        "properties": {"name": {"type": "string", "maxLength": 12}, "day": {"type": "string", "format": "date"}},
        "required": ["name"]}});
    let grammar = grammars().compile(&json(schema)).unwrap();
    let start = grammar.after(None).unwrap();
    let texts = [
        r#"[{"name": "Ferfen", "day": "2026-01-31"}, {"name": "a\"b é"}]"#,
        r#"[ {"name":"Quorvel to"},{"name":""},{"name":"x","day":"1999-12-01"}]"#,
    ];
    let alone = told_by_turns(&grammar, &mut [start.begin(1), start.begin(2)], texts, false);
    assert!(alone.len() > 40 && alone.iter().all(Option::is_some));
    for spoil in [false, true] {
        let mut together = [start.begin(0), start.begin(0)];
        assert_eq!(told_by_turns(&grammar, &mut together, texts, spoil), alone, "{spoil}");
    }
    assert_eq!(told_by_turns(&grammar, &mut [start.begin(0), start.begin(0)], texts, false), alone, "behind it");
}

/// As many rules within rules as there may be, each `levels` deep.
fn chain(name: &str, levels: usize, next: fn(String) -> String) -> AnswerForm {
    let count = limits::LARK_LEVELS_MAX / levels - 2;
    let lines = (0..count).map(|i| format!("{name}{i}: {}\n", next(format!("{name}{}", i + 1))));
    AnswerForm::Lark(format!("start: {name}0\n{}{name}{count}: \"a\"", lines.collect::<String>()))
}

/// Definitions that refer to each other, as deep as a schema may be: each is the reference to the next, wrapped so many
/// times in what has `values` values and `inside` levels.
fn references(levels: usize, (values, inside): (usize, usize), wrap: fn(Json) -> Json) -> AnswerForm {
    let count = limits::GRAMMAR_VALUES_MAX / (levels * values + 2);
    let count = count.min(limits::GRAMMAR_LEVELS_MAX / (levels * inside + 1)) - 4;
    let reference = |i: usize| (0..levels).fold(json!({"$ref": format!("#/$defs/a{i}")}), |inner, _| wrap(inner));
    let definitions = (0..count).map(|i| (format!("a{i}"), reference(i + 1)));
    let mut definitions: serde_json::Map<String, Json> = definitions.collect();
    definitions.insert(format!("a{count}"), json!({"type": "integer"}));
    json(json!({"$ref": "#/$defs/a0", "$defs": definitions})).form.unwrap()
}

#[test]
fn what_is_within_the_limits_takes_no_more_stack_than_there_is() {
    let forms = vec![
        chain("a", 1, |next| next),
        chain("A", 1, |next| next),
        chain("A", 1, |next| format!("\"a\" {next}?")),
        chain("A", 2, |next| format!("(\"a\" {next} | \"b\")")),
        chain("a", 21, |next| format!("{}{next}{}", "(".repeat(20), ")".repeat(20))),
        chain("A", 21, |next| format!("{}{next}{}", "[".repeat(20), "]".repeat(20))),
        references(1, (0, 0), |next| next),
        references(1, (1, 1), |next| json!({"items": next})),
        references(1, (4, 2), |next| json!({"anyOf": [next, {"type": "null"}]})),
        references(50, (1, 1), |next| json!({"items": next})),
        references(50, (1, 1), |next| json!({"additionalProperties": next})),
        references(30, (2, 2), |next| json!({"allOf": [next]})),
        references(30, (2, 2), |next| json!({"anyOf": [next]})),
        references(30, (2, 2), |next| json!({"properties": {"a": next}})),
        references(20, (5, 3), |next| json!({"allOf": [{"type": "array"}, {"items": next}]})),
        AnswerForm::Lark(format!("start: {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000))),
        AnswerForm::Lark(format!("start: {}", "a{".repeat(30_000))),
        AnswerForm::Lark(format!("start: a::_ %if {}", "not(".repeat(10_000))),
    ];
    // As the threads that make grammars, and as those that follow them.
    let make = move || {
        let grammars = grammars();
        let made =
            forms.into_iter().filter_map(|form| grammars.compile(&Structure { form: Some(form), calls: None }).ok());
        made.collect::<Vec<_>>()
    };
    // The limits are for less than what there is.
    let stack = limits::GRAMMAR_STACK_BYTES / 4 * 3;
    let made = std::thread::Builder::new().stack_size(stack).spawn(make).unwrap().join().unwrap();
    assert!(made.len() >= 8, "{}", made.len());
    for grammar in made {
        let mut sequence = grammar.after(None).unwrap().begin(0);
        sequence.rule().unwrap();
    }
}

#[test]
fn extreme_numbers_are_followed_or_refused_by_name() {
    let of = |schema: Json| json(schema);
    let (low, high) = (i64::MIN, i64::MAX);
    check(
        &of(json!({"type": "integer", "minimum": low, "maximum": high})),
        None,
        &["-7", "0", "9007199254740993"],
        &[],
    );
    check(&of(json!({"type": "number", "minimum": f64::MIN, "maximum": f64::MAX})), None, &["-7.5", "12"], &[]);
    check(&of(json!({"const": 4_611_686_018_427_387_904_i64})), None, &["4611686018427387904"], &[]);
    check(
        &of(json!({"type": "array", "maxItems": u64::MAX, "items": {"maxLength": high}})),
        None,
        &["[]", "[\"a\"]"],
        &[],
    );
    let ends = [
        json!({"const": low}),
        json!({"enum": [1, low]}),
        json!({"minimum": -1e19, "maximum": -1e19}),
        json!({"maximum": low, "exclusiveMinimum": -1e100}),
    ];
    let closed = |schema: &Json| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let hidden = |schema: &Json| json!({"$ref": "#/$defs/x/properties", "$defs": {"x": {"properties": schema}}});
    for end in ends.iter().flat_map(|end| [end.clone(), closed(end), hidden(end), json!({"not": {"not": end}})]) {
        for integer in [json!({}), json!({"type": "integer"})] {
            let schema = json!({"allOf": [integer, end]});
            let error = grammars().compile(&of(schema.clone())).map(drop).expect_err(&schema.to_string());
            assert!(error.message.contains("has the number") && error.too_large, "{schema}: {error}");
        }
    }
    // In calls an argument's text is the value as it was written, and what is no text is a schema.
    for form in [CallForm::Tags, CallForm::Json] {
        for end in &ends {
            let made = grammars().with_calls(form).compile(&calls(vec![("f", closed(end))], true));
            assert!(made.as_ref().err().is_none_or(|error| error.message.contains("has the number")), "{end}");
        }
    }
    check(&calls(vec![("f", closed(&ends[0]))], true), None, &[&call("f", &[("a", "-9223372036854775808")])], &[]);
}

#[test]
fn what_doubles_with_each_line_is_refused_before_it_is_written_out() {
    for leaf in ["\"a\"", "\"a\" | \"b\"", "\"a\"?", "[a-z]*", "\"hello world\""] {
        for levels in [24, 60, 900] {
            let lines = (0..levels).map(|i| format!("a{i} ::= a{} a{}\n", i + 1, i + 1));
            let text = format!("root ::= a0\n{}a{levels} ::= {leaf}", lines.collect::<String>());
            let error = grammars().compile(&gbnf(&text)).map(drop).expect_err(leaf);
            assert!(error.message.contains("written out, at most") && error.too_large, "{leaf}: {error}");
        }
    }
    for form in [
        AnswerForm::Regex("a?".repeat(5000)),
        AnswerForm::Lark(format!("start: /{}/", "a?".repeat(5000))),
        json(json!({"type": "string", "pattern": "a*".repeat(5000)})).form.unwrap(),
        json(json!({"patternProperties": {"a?".repeat(5000): {}}})).form.unwrap(),
    ] {
        let error = grammars().compile(&Structure { form: Some(form), calls: None }).map(drop).unwrap_err();
        assert!(error.message.contains("5000 optional parts"), "{error}");
    }
}

#[test]
fn of_a_long_text_without_a_choice_the_beginning_alone_is_cut_at_each_token() {
    let text = "one two three ".repeat(10_000);
    let grammar = grammars().compile(&Structure { form: Some(AnswerForm::Choice(vec![text.clone()])), calls: None });
    let (grammar, ids) = (grammar.unwrap(), golden().encode(&text));
    let mut sequence = grammar.after(None).unwrap().begin(0);
    for id in &ids[..40] {
        let Some(Effect::Allow(mask)) = sequence.rule().unwrap() else { panic!("a mask") };
        assert!(mask[*id as usize / 32] >> (id % 32) & 1 == 1);
        let forced = sequence.forced();
        assert!(forced.len() > 8 && forced.len() <= limits::GRAMMAR_FORCED_BYTES_MAX, "{}", forced.len());
        assert_eq!(forced[0], *id);
        sequence.take(*id).unwrap();
    }
}

#[test]
fn what_would_take_for_ever_to_compile_is_refused_at_once() {
    let grammars = grammars();
    let pattern = |i: usize| json!({"pattern": format!("(a|b)*a(a|b){{{i}}}c")});
    let names: serde_json::Map<String, Json> = (0..4000).map(|i| (format!("^p{i}_"), json!({}))).collect();
    let patterns: Vec<Json> = (0..20).map(pattern).collect();
    let referred =
        json!({"$defs": {"x": {"allOf": patterns[..5]}}, "allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]});
    let ands: String = (0..20).map(|i| format!("/.*(a|b)*a(a|b){{{i}}}c.*/ & ")).collect();
    for (form, names) in [
        (json(json!({"type": "string", "allOf": patterns})).form, "20 conditions"),
        (json(referred).form, "10 conditions"),
        (json(json!({"type": "object", "patternProperties": names})).form, "4000 `patternProperties`"),
        (json(json!({"type": "integer", "multipleOf": 1_000_000_007})).form, "1000000007"),
        (json(json!({"type": "integer", "multipleOf": 999_983})).form, "999983 remainders, at most 10000"),
        (json(json!({"allOf": [{"multipleOf": 9973}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"multipleOf": 9967}}})).form,
            "99400891 remainders"),
        (json(json!({"allOf": [{"multipleOf": 0.97}, {"anyOf": [{"multipleOf": 5}, {"multipleOf": 1013}]}]})).form,
            "9874600 remainders"),
        (json(json!({"items": {"$ref": "#/$defs/x"}, "properties": {"a": {"multipleOf": 5003}, "b": {"multipleOf": 5009}},
            "$defs": {"x": {"multipleOf": 0.01}}})).form, "10013 remainders"),
        (Some(AnswerForm::Lark(format!("start: A\nA: {ands}/x/"))), "20 `&`"),
        (Some(AnswerForm::Lark("start: %json {}".into())), "%json"),
    ] {
        let error = grammars.compile(&Structure { form, calls: None }).map(drop).unwrap_err();
        assert!(error.message.contains(names), "{error}");
    }
    for good in [json!({"multipleOf": 0.000_001}), json!({"allOf": [{"multipleOf": 0.25}, {"multipleOf": 100}]})] {
        assert!(grammars.compile(&json(good)).is_ok());
    }
    let amps = AnswerForm::Lark("start: \"&&&&&&&&&&&&\" /&&&&/ // && and &\n".into());
    assert!(grammars.compile(&Structure { form: Some(amps), calls: None }).is_ok(), "these are text");
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

fn gbnf(text: &str) -> Structure {
    Structure { form: Some(AnswerForm::Gbnf(text.into())), calls: None }
}

#[test]
fn a_grammar_in_llama_cpp_s_notation_allows_what_it_says() {
    check(&gbnf("root ::= \"a\"{5,5}"), None, &["aaaaa"], &[("aaaa", "aaaa"), ("aaaaaa", "aaaaa")]);
    check(
        &gbnf(
            "# one\nroot  ::= (\"yes\" | \"no\" # both\n  | maybe) \".\"?\nmaybe ::= [m-n] \"a\" [^a-z\\n]+ \"\\x41\\u00e9\"",
        ),
        None,
        &["yes", "no.", "ma1A\u{e9}", "na--A\u{e9}."],
        &[("maaA\u{e9}", "ma"), ("yess", "yes"), ("", "")],
    );
    let json = gbnf(concat!(
        "root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n",
        "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n",
        "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n",
        "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt] )* \"\\\"\" ws\n",
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws\n",
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
    ));
    check(
        &json,
        Some(Thinking::Closed),
        &["{}", "{\"a\": [1, -2.5e3, {\"b\": null}], \"c\": \"x\\\\n\"}", "{\n  \"a\": true}"],
        &[("[]", ""), ("{\"a\"}", "{\"a\""), ("{\"a\":01}", "{\"a\":0")],
    );
}

#[test]
fn what_is_wrong_with_a_grammar_in_llama_cpp_s_notation_is_said_with_its_line() {
    for (text, part) in [
        ("", "no rule `root`"),
        ("rot ::= \"a\"", "no rule `root`"),
        ("root ::= a", "names `a`, which it does not have"),
        ("root ::= \"a\"\nroot ::= \"b\"", "the rule `root` twice"),
        ("root ::= \"a", "wants `\"`"),
        ("root ::= (\"a\"", "wants `)`"),
        ("root ::= [z-a]", "which is empty"),
        ("root ::= []", "without characters"),
        ("root ::= \"a\"{2,1}", "a number of repetitions"),
        ("root ::= \"a\"\nb = \"c\"", "line 2: it wants `NAME ::=`"),
        ("root ::= \"\\q\"", "an escape that it knows"),
        (&format!("root ::= {}", "(".repeat(100)), "more than 64 levels"),
        (&format!("root ::= \"a\"{}", "*".repeat(100)), "more than 64 times over"),
    ] {
        let error = grammars().compile(&gbnf(text)).err().unwrap_or_else(|| panic!("{text:?} is taken"));
        assert!(error.message.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_grammar_in_llama_cpp_s_notation_that_would_grow_without_end_is_refused_or_followed() {
    let doubled = (0..1000).fold("root ::= n0\n".to_owned(), |all, i| all + &format!("n{i} ::= n{0} n{0}\n", i + 1));
    let texts = [
        "root ::= \"a\"{4294967295}".to_owned(),
        "root ::= (((\"a\"{999}){999}){999}){999}".to_owned(),
        "root ::= root root root | \"a\"?".to_owned(),
        "root ::= x{9999}\nx ::= \"a\" | x \"b\" x".to_owned(),
        format!("root ::= {}\"a\"", "[a-z] | ".repeat(1500)),
        doubled + "n1000 ::= \"a\"",
    ];
    for text in texts {
        let shown = text[..40.min(text.len())].to_owned();
        let follow = move || {
            let grammar = grammars().compile(&gbnf(&text)).map_err(|error| error.to_string())?;
            let mut sequence = grammar.after(None).map_err(|error| error.to_string())?.begin(0);
            let a = golden().encode("a")[0];
            (0..5).try_for_each(|_| sequence.rule().and_then(|_| sequence.take(a)))
        };
        // As deep as where grammars are made.
        let thread = std::thread::Builder::new().stack_size(limits::GRAMMAR_STACK_BYTES).spawn(follow).unwrap();
        let followed = thread.join().unwrap_or_else(|_| panic!("{shown} panics"));
        assert!(followed.as_ref().err().is_none_or(|why| !why.is_empty()), "{shown}: {followed:?}");
    }
}

#[test]
fn keywords_that_exclude_nothing_are_taken() {
    for idle in [
        json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": false}),
        json!({"type": "array", "items": {"type": "integer"}, "minContains": 0}),
        json!({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}, "minContains": 0}),
        json!({"type": "array", "items": {"type": "integer"}, "maxContains": 1, "unevaluatedItems": {}}),
        json!({"type": "array", "items": {"type": "integer"}, "if": {"minItems": 5}}),
        json!({"type": "array", "items": {"type": "integer"}, "then": {"minItems": 5}, "else": false}),
        json!({"type": "array", "items": {"type": "integer"}, "if": {"minItems": 5}, "then": true, "else": {}}),
        json!({"type": "array", "items": {"type": "integer"}, "not": {"enum": []}}),
        json!({"type": "array", "items": {"type": "integer"}, "not": false}),
    ] {
        check(&json(idle), None, &["[]", "[1]", "[1,1]"], &[("[a]", "[")]);
    }
    for idle in [
        json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "propertyNames": {"description": "any"}, "additionalProperties": {"type": "integer"},
            "unevaluatedProperties": true}),
        json!({"type": "object", "propertyNames": true, "additionalProperties": {"type": "integer"},
            "unevaluatedProperties": {}}),
    ] {
        check(&json(idle), None, &["{}", "{\"a\":1}"], &[("{\"a\":\"b\"}", "{\"a\":")]);
    }
}

#[test]
fn names_are_kept_to_a_list_or_an_expression() {
    let listed = json!({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
        "additionalProperties": {"type": "integer"}, "required": ["a"]});
    check(&json(listed), None, &["{\"a\":1}", "{\"a\":1,\"b\":2}"], &[("{\"b\":1}", "{\"b\":1"), ("{\"c\":1}", "{\"")]);
    let pattern = json!({"propertyNames": {"pattern": "^[xy]$"}, "type": "object",
        "additionalProperties": {"type": "integer"}});
    check(&json(pattern), None, &["{}", "{\"x\":1}"], &[("{\"a\":1}", "{\"")]);
    let shut = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "unevaluatedProperties": false});
    check(&json(shut), None, &["{}", "{\"a\":1}"], &[("{\"b\":1}", "{\"")]);
}

#[test]
fn conditions_on_listed_values_are_followed() {
    let schema = json!({"type": "object", "additionalProperties": false,
        "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
        "then": {"required": ["x"]}, "else": {"required": ["y"]}});
    check(
        &json(schema),
        None,
        &["{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\",\"y\":1}", "{\"kind\":\"a\",\"x\":1,\"y\":2}"],
        &[("{\"kind\":\"a\"}", "{\"kind\":\"a\""), ("{\"kind\":\"b\",\"x\":1}", "{\"kind\":\"b\",\"x\":1")],
    );
    // A field that is not there meets a condition on its value.
    let optional = json!({"type": "object", "additionalProperties": false,
        "properties": {"on": {"type": "boolean"}, "x": {"type": "integer"}},
        "if": {"properties": {"on": {"const": true}}}, "then": {"required": ["x"]}});
    check(
        &json(optional),
        None,
        &["{\"on\":true,\"x\":1}", "{\"on\":false}", "{\"x\":1}"],
        &[("{}", "{"), ("{\"on\":true}", "{\"on\":true")],
    );
    let excluded = json!({"enum": ["a", "b", 1], "not": {"enum": ["b", 1.0]}});
    check(&json(excluded), None, &["\"a\""], &[("\"b\"", "\""), ("1", "")]);
    let unknown = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "if": {"properties": {"n": {"minimum": 3}}}, "then": {"required": ["x"]}});
    let error = grammars().compile(&json(unknown)).map(drop).unwrap_err();
    assert!(error.message.contains("\"if\""), "{error}");
}

#[test]
fn references_are_read_with_their_escapes() {
    let schema = json!({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "array", "items":
        {"$ref": "#/$defs/%7E0"}}, "~": {"type": "boolean"}}});
    check(&json(schema), None, &["[true]"], &[("1", "")]);
    let tool = json!({"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/a~1b"}},
        "$defs": {"a/b": {"type": "integer"}}});
    let call = |value: &str| {
        format!("<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>")
    };
    let bad = (call("true"), call("").split_once('\n').unwrap().0.to_owned());
    let tools = calls(vec![("f", tool)], true);
    let grammars = grammars();
    assert_eq!(followed(&grammars, &tools, None, &call("12")), Ok(()));
    assert!(followed(&grammars, &tools, None, &bad.0).is_err());
}

#[test]
fn what_refers_to_itself_without_an_end_is_refused_in_words() {
    for schema in [
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        json!({"$ref": "#"}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
    ] {
        let error = grammars().compile(&json(schema.clone())).map(drop).unwrap_err();
        assert_eq!(error.message, endless::NEVER_ENDS, "{schema}");
        assert!(!error.too_large, "{error}");
    }
}

#[test]
fn an_error_in_a_tool_names_the_tool_and_its_argument() {
    let tool = json!({"type": "object", "properties": {"n": {"type": "array", "contains": {"const": 1}}}});
    let error = grammars().compile(&calls(vec![("f", tool)], true)).map(drop).unwrap_err();
    assert!(error.message.contains("\"f\"") && error.message.contains("\"n\"") && !error.too_large, "{error}");
}

#[test]
fn formats_end() {
    for (format, good, endless) in [
        ("date-time", "2026-11-29T10:00:00.123456789+01:00", "2026-11-29T10:00:00.1234567890123456789012Z"),
        ("time", "10:00:00.123456789+01:00", "10:00:00.12345678901234567890Z"),
        ("duration", "P1Y2M3DT4H5M6S", "P1234567890123456789012345678901234567890D"),
    ] {
        let schema = json(json!({"type": "string", "format": format}));
        let grammars = grammars();
        assert_eq!(followed(&grammars, &schema, None, &format!("\"{good}\"")), Ok(()), "{format}");
        assert!(followed(&grammars, &schema, None, &format!("\"{endless}\"")).is_err(), "{format}");
    }
}

fn object_with(keys: Json) -> Structure {
    let mut schema = json!({"type": "object", "additionalProperties": false});
    schema.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    json(schema)
}

#[test]
fn the_keys_of_an_object_are_distinct_however_they_are_spelled() {
    let of_two = json!({"patternProperties": {"^[ab]$": {"type": "boolean"}}, "minProperties": 2, "maxProperties": 2});
    check(
        &object_with(of_two),
        None,
        &["{\"a\": true, \"b\": true}", "{\"b\":true,\"a\":false}"],
        &[("{\"a\":true,\"a\":true}", "{\"a\":true,\""), ("{\"b\": true, \"b\": true}", "{\"b\": true, \"")],
    );
    // Only `ab` is left where the key begins with `a`, and nothing behind all three.
    let of_three = json!({"patternProperties": {"^(a|ab|c)$": {"type": "boolean"}}});
    check(
        &object_with(of_three),
        None,
        &["{\"a\":true,\"ab\":true,\"c\":true}", "{\"ab\":true,\"a\":true}", "{}"],
        &[
            ("{\"c\":true,\"c\":true}", "{\"c\":true,\""),
            ("{\"a\":true,\"c\":true,\"ab\":true,\"a\":true}", "{\"a\":true,\"c\":true,\"ab\":true"),
        ],
    );
    let open = json(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    check(
        &open,
        None,
        &["{\"a\":1,\"b\":{\"a\":1},\"c\":[{\"b\":1},{\"b\":1}]}", "{\"b\\n\":1,\"b\\\\n\":1}"],
        &[
            ("{\"a\":1,\"b\":1,\"b\":1}", "{\"a\":1,\"b\":1,\"b"),
            ("{\"\\u0061\":1}", "{\"\\u00"),
            ("{\"b\":{\"c\":1,\"c\":2}}", "{\"b\":{\"c\":1,\"c"),
        ],
    );
}

#[test]
fn keys_in_the_arguments_of_calls_are_distinct() {
    let map = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "map": {"type": "object", "additionalProperties": {"type": "integer"}}}});
    check(
        &calls(vec![("f", map.clone())], true),
        None,
        &[&call("f", &[("text", "{\"a\": 1, \"a\": 2}"), ("map", "{\"a\": 1, \"b\": 2}")])],
        &[(
            &call("f", &[("map", "{\"a\": 1, \"a\": 2}")]),
            "<tool_call>\n<function=f>\n<parameter=map>\n{\"a\": 1, \"a",
        )],
    );
}

/// Answers to the schemas of a file, one a line, each drawn at random from what its grammar allows, with ends preferred
/// after a while: lines of `[schema, answer]` for `scripts/judge_answers.py`, which says how this is called.
#[test]
#[ignore = "wants a file of schemas"]
fn random_answers_to_schemas_of_a_file() {
    let schemas = std::fs::read_to_string(std::env::var("CHIMERE_SCHEMAS").unwrap()).unwrap();
    let mut answers =
        std::io::BufWriter::new(std::fs::File::create(std::env::var("CHIMERE_ANSWERS").unwrap()).unwrap());
    let grammars = grammars();
    for (number, line) in schemas.lines().enumerate() {
        let schema = crate::text::template::written::parse(line).unwrap();
        let answer = match grammars.compile(&json(schema)) {
            Ok(grammar) => random_answer(&grammar, number as u64),
            Err(error) => json!({"refused": error.message}),
        };
        use std::io::Write;
        writeln!(answers, "[{line}, {answer}]").unwrap();
    }
}

/// A text, `null` if it has no end after a while, or an object with an error.
fn random_answer(grammar: &Arc<CompiledGrammar>, seed: u64) -> Json {
    let (tokenizer, mut state) = (golden(), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below.max(1)
    };
    let end = tokenizer.id("<|im_end|>").unwrap();
    let mut sequence = grammar.after(None).unwrap().begin(0);
    let mut ids = Vec::new();
    for at in 0..400 {
        let mask = match sequence.rule() {
            Ok(Some(Effect::Allow(mask))) => mask,
            Ok(other) => panic!("{other:?}"),
            Err(error) => return json!({"error": error, "so far": tokenizer.decode(&ids, true)}),
        };
        let allowed: Vec<TokenId> = (0..tokenizer.len())
            .filter(|id| mask.get(*id as usize / 32).is_some_and(|w| w >> (id % 32) & 1 == 1))
            .collect();
        // Texts of one to three characters come often, and what closes something does after a while.
        let closes = |id: &&TokenId| matches!(tokenizer.bytes(**id).first(), Some(b'"' | b'}' | b']')) || **id == end;
        let closing: Vec<TokenId> = if at > 60 { allowed.iter().filter(closes).copied().collect() } else { Vec::new() };
        let from = if closing.is_empty() || draw(4) == 0 { &allowed } else { &closing };
        let id = from[draw(from.len())];
        if id == end || (allowed.contains(&end) && draw(2) == 0) {
            return tokenizer.decode(&ids, true).into();
        }
        ids.push(id);
        sequence.take(id).unwrap();
    }
    Json::Null
}

#[test]
fn numbers_keep_the_digits_of_the_schema_at_any_size() {
    let of = |text: &str| json(of_text(text));
    let digits = "12345678901234567890123";
    for number in
        ["9007199254740993", "-9223372036854775808", "18446744073709551617", digits, "0.1000000000000000055511"]
    {
        check(&of(&format!("{{\"const\": {number}}}")), None, &[number], &[("9007199254740992", "9007199254740992")]);
        let listed = format!("{{\"type\": \"object\", \"properties\": {{\"a\": {{\"enum\": [{number}]}}}}}}");
        let tool = calls(vec![("f", of_text(&listed))], true);
        check(&tool, None, &[&call("f", &[("a", number)])], &[]);
    }
    let (least, most) = ("18446744073709551617", "18446744073709551700");
    check(
        &of(&format!("{{\"type\": \"integer\", \"minimum\": {least}, \"maximum\": {most}}}")),
        None,
        &[least, "18446744073709551699", most],
        &[("18446744073709551616", "18446744073709551616"), ("18446744073709551701", "18446744073709551701")],
    );
}

fn of_text(text: &str) -> Json {
    crate::text::template::written::parse(text).unwrap()
}
