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
