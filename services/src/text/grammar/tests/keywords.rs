//! Keywords of schemas beside types: what they exclude, refer to or depend on.

use super::*;

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
        "if": {"properties": {"n": {"multipleOf": 3}}}, "then": {"required": ["x"]}});
    let error = grammars().compile(&json(unknown)).map(drop).unwrap_err();
    assert!(error.message.contains("cannot be followed exactly") && error.message.contains("\"if\""), "{error}");
}

#[test]
fn conditions_on_open_texts_bounds_and_types_are_followed() {
    let kind = json!({"type": "object", "additionalProperties": false, "required": ["kind"],
        "properties": {"kind": {"type": "string"}, "x": {"type": "integer"}},
        "if": {"properties": {"kind": {"enum": ["ab", "b"]}}}, "then": {"required": ["x"]},
        "else": {"properties": {"x": false}}});
    check(
        &json(kind),
        None,
        &["{\"kind\":\"ab\",\"x\":1}", "{\"kind\":\"a\"}", "{\"kind\":\"abc\"}", "{\"kind\":\"\"}"],
        &[("{\"kind\":\"ab\"}", "{\"kind\":\"ab\""), ("{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"a\"")],
    );
    let bound = json!({"type": "object", "additionalProperties": false, "required": ["n"],
        "properties": {"n": {"type": "integer"}, "why": {"type": "string"}},
        "if": {"properties": {"n": {"minimum": 5}}, "required": ["n"]}, "then": {"required": ["why"]}});
    check(&json(bound), None, &["{\"n\":4}", "{\"n\":5,\"why\":\"\"}"], &[("{\"n\":5}", "{\"n\":5")]);
    let of_type = json!({"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"type": ["integer", "null"]}});
    check(&json(of_type), None, &["\"a\"", "17", "null"], &[("\"ab\"", "\"a"), ("true", "")]);
    let not = json!({"type": "string", "not": {"enum": ["a", "ab"]}});
    check(&json(not), None, &["\"\"", "\"b\"", "\"abc\""], &[("\"a\"", "\"a"), ("\"ab\"", "\"ab")]);
}

#[test]
fn conditions_of_a_list_on_one_field_are_one_choice() {
    let kinds: Vec<String> = (0..24).map(|i| format!("kind{i}")).collect();
    let condition = |kind: &String| {
        json!({"if": {"properties": {"kind": {"const": kind}}}, "then": {"required": [kind]},
            "else": {"properties": {kind: false}}})
    };
    let mut fields: serde_json::Map<String, Json> =
        kinds.iter().map(|kind| (kind.clone(), json!({"type": "integer"}))).collect();
    fields.shift_insert(0, "kind".into(), json!({"type": "string"}));
    let schema = json!({"type": "object", "additionalProperties": false, "properties": fields, "required": ["kind"],
        "allOf": kinds.iter().map(condition).collect::<Vec<_>>()});
    check(
        &json(schema),
        None,
        &["{\"kind\":\"kind7\",\"kind7\":1}", "{\"kind\":\"other\"}"],
        &[("{\"kind\":\"kind7\"}", "{\"kind\":\"kind7\""), ("{\"kind\":\"other\",\"kind7\":1}", "{\"kind\":\"other\"")],
    );
}

#[test]
fn nested_conditions_do_not_multiply() {
    let nested = |wrap: fn(Json) -> Json| (0..48).fold(json!({"const": 1}), |inner, _| wrap(inner));
    let conditions = nested(|inner| json!({"if": inner, "then": {"const": 1}, "else": {"const": 2}}));
    let cases = nested(|inner| {
        let of = |value: u8| json!({"if": {"properties": {"a": {"const": value}}}, "else": inner.clone()});
        json!({"allOf": [of(1), {"if": {"properties": {"a": {"const": 2}}}, "then": {"required": ["b"]}}]})
    });
    for schema in [conditions, cases] {
        let values = schema::size(&schema::in_known_words(&schema, false));
        assert!(values < 100 * schema::size(&schema), "{values}");
    }
}

#[test]
fn an_object_that_wants_more_keys_than_there_are_matches_nothing() {
    let of = |least: u64| {
        json!({"type": "object", "patternProperties": {"^[ab]$": {"type": "boolean"}}, "additionalProperties": false,
            "properties": {"a": {"type": "boolean"}}, "required": ["a"], "minProperties": least})
    };
    check(&json(of(2)), None, &["{\"a\":true,\"b\":true}"], &[]);
    for empty in [
        of(3),
        json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false,
        "minProperties": 2}),
        json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3}),
    ] {
        let error = grammars().compile(&json(empty)).map(drop).unwrap_err();
        assert_eq!(error.message, NOTHING);
    }
    let optional = json!({"type": "object", "properties": {"x": of(3), "y": {"type": "null"}},
        "additionalProperties": false});
    check(&json(optional), None, &["{}", "{\"y\":null}"], &[("{\"x\":{\"a\":true}}", "{\"")]);
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

#[test]
fn bounds_leave_out_their_number_also_where_the_other_bound_is_near() {
    for (schema, good, bad) in [
        (json!({"type": "number", "exclusiveMinimum": 2, "exclusiveMaximum": 2.5}), ["2.25", "2.000001"], "2"),
        (json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}), ["0.5", "0.000001"], "0"),
        (json!({"type": "number", "minimum": -2.5, "exclusiveMaximum": -2}), ["-2.5", "-2.25"], "-2"),
        (json!({"type": "number", "exclusiveMinimum": 2, "maximum": 3}), ["2.5", "3"], "2"),
    ] {
        check(&json(schema), None, &good, &[(bad, bad)]);
    }
}
