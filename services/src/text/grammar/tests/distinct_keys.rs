//! Keys of objects that are distinct, and numbers with all of their digits.

use super::*;

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
