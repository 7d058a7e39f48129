//! Conversations: what becomes of messages, and which are refused.

use super::*;
use crate::text::Message;

/// The messages as templates see them.
fn messages(list: Json) -> Result<Vec<Json>, ApiError> {
    chat(json!({"messages": list})).map(|request| spelled(&request))
}

fn spelled(request: &ChatRequest) -> Vec<Json> {
    request.conversation.messages.iter().map(Message::to_json).collect()
}

#[test]
fn messages_become_what_templates_read() {
    let list = json!([
        {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "q", "name": "ann"},
        {"role": "assistant", "content": null, "reasoning_content": "r", "refusal": null, "annotations": [], "tool_calls": [
            {"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "c2", "content": "r2"},
        {"role": "tool", "content": [{"type": "text", "text": "r1"}]},
    ]);
    let expected = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q", "name": "ann"},
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [2]}}, "id": "c1"},
            {"type": "function", "function": {"name": "g", "arguments": {}}, "id": "c2"},
        ]},
        {"role": "tool", "content": "r2", "tool_call_id": "c2"},
        {"role": "tool", "content": "r1"},
    ]);
    // As text, because templates show the order of members too.
    assert_eq!(Json::from(messages(list).unwrap()).to_string(), expected.to_string());
}

#[test]
fn system_messages_are_one_at_the_beginning_and_stay_where_they_are_later() {
    let list = json!([
        {"role": "system", "content": "one"},
        {"role": "developer", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": "q"},
        {"role": "developer", "name": "agent", "content": "three"},
        {"role": "assistant", "content": "a"},
        {"role": "system", "content": "four"},
    ]);
    let expected = json!([
        {"role": "system", "content": "one\n\ntwo"},
        {"role": "user", "content": "q"},
        {"role": "system", "content": "three"},
        {"role": "assistant", "content": "a"},
        {"role": "system", "content": "four"},
    ]);
    assert_eq!(Json::from(messages(list.clone()).unwrap()), expected);
    // All dialects that have system messages have the same rule.
    let body = json!({"model": "nano", "messages": list}).to_string();
    let Ok(OllamaRequest::Chat(request)) = OllamaRequest::parse_chat(body.as_bytes(), &limits()) else {
        panic!("a conversation")
    };
    assert_eq!(Json::from(spelled(&request)), expected);
}

#[test]
fn numbers_of_tools_and_of_earlier_calls_keep_all_their_digits() {
    use crate::text::template::written;
    let numbers = r#"{"a":0.37331193139504204,"b":123456789012345678901234567890,"c":-0}"#;
    let quoted = Json::from(numbers).to_string();
    let call = |arguments: &str| {
        format!(
            r#"{{"role":"assistant","content":"","tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}"#
        )
    };
    let tool = format!(r#"{{"type":"function","function":{{"name":"f","parameters":{numbers}}}}}"#);
    let body = format!(
        r#"{{"temperature":0.37331193139504204,"messages":[{},{}],"tools":[{tool}]}}"#,
        call(&quoted),
        call(numbers)
    );
    let request = ChatRequest::parse(body.as_bytes(), &limits()).unwrap();
    let kept = written::parse(numbers).unwrap();
    assert_eq!(written::number(kept["c"].as_object().unwrap()), Some("-0"));
    for message in &request.conversation.messages {
        assert_eq!(message.tool_calls[0].arguments.0, kept);
    }
    assert_eq!(request.conversation.tools[0].0["function"]["parameters"], kept);
    assert_eq!(request.generation.spec.engine.sampling.temperature, 0.373_311_93);
}

#[test]
fn a_message_at_fault_is_named_by_its_place() {
    let user = json!({"role": "user", "content": "q"});
    refused(messages(json!([])), "messages", "must not be empty");
    refused(messages(json!([{"content": "q"}])), "messages[0].role", "is missing");
    refused(messages(json!([user, {"role": "bot", "content": "q"}])), "messages[1].role", "got \"bot\"");
    refused(messages(json!([{"role": "user"}])), "messages[0].content", "is missing");
    refused(messages(json!([{"role": "user", "content": []}])), "messages[0].content", "empty array");
    refused(
        messages(json!([{"role": "user", "content": 5}])),
        "messages[0].content",
        "a string or an array of parts, got 5",
    );
    let image = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]}]);
    refused(messages(image), "messages[0].content[1]", "\"image_url\"");
    refused(messages(json!([{"role": "assistant"}])), "messages[0].content", "unless there are `tool_calls`");
    refused(messages(json!([{"role": "function", "content": "q"}])), "messages[0].role", "use \"tool\"");
}

#[test]
fn calls_and_results_are_checked() {
    let call =
        |arguments: Json| json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let said = |call: Json| json!({"role": "assistant", "content": null, "tool_calls": [call]});
    // A call that a limit of tokens cut comes back as it was told, and the conversation goes on.
    let cut = messages(json!([said(call(json!("{\"path\": \"/a\"")))])).unwrap();
    assert_eq!(cut[0]["tool_calls"][0]["function"]["arguments"], json!({"path": "/a"}));
    refused(
        messages(json!([said(call(json!("[1]")))])),
        "messages[0].tool_calls[0].function.arguments",
        "got an array",
    );
    // Numbers whose digits are kept have the form of an object on their way to the template.
    for number in ["-0", "1.50000000000000000001"] {
        let arguments = "messages[0].tool_calls[0].function.arguments";
        refused(messages(json!([said(call(json!(number)))])), arguments, "a JSON object in a string, got ");
    }
    refused(
        messages(json!([said(json!({"id": "c", "function": {}}))])),
        "messages[0].tool_calls[0].function.name",
        "missing",
    );
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "r"});
    refused(
        messages(json!([{"role": "user", "content": "q"}, result])),
        "messages[1].role",
        "must follow an assistant message",
    );
    let other = json!({"role": "tool", "tool_call_id": "c9", "content": "r"});
    refused(messages(json!([said(call(json!({}))), other])), "messages[1].tool_call_id", "\"c9\"");
    assert!(messages(json!([said(call(json!({}))), result])).is_ok());
}

#[test]
fn what_an_assistant_refused_to_say_is_what_it_said() {
    let list = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "refusal": "no"}]);
    assert_eq!(messages(list).unwrap()[1], json!({"role": "assistant", "content": "no"}));
    let list = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes", "refusal": "no"}]);
    assert_eq!(messages(list).unwrap()[1], json!({"role": "assistant", "content": "yes"}));
}
