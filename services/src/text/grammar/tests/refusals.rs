//! Forms that are too hard, too deep or without an end: they are refused by name, or followed within bounds.

use super::*;

#[test]
fn what_cannot_be_followed_is_refused_by_name_and_quickly() {
    let grammars = grammars();
    let refused = |structure: &Structure| grammars.compile(structure).map(drop).unwrap_err();
    for (schema, names) in [
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"not": {"enum": [["a"]]}}), "not"),
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
