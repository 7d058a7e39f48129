//! Messages spelled as JSON, member by member as templates see them: for tests and fuzzers, which say so what they give
//! to a template.

use super::{IdPlace, Message, MessageMember, RawJson, Role, ToolCall};
use serde_json::{Value as Json, json};

impl Message {
    /// The message that an object spells. `None` where a member has another type, or is none of a message.
    pub fn of_json(json: &Json) -> Option<Self> {
        let text = |value: &Json| value.as_str().map(str::to_owned);
        let role = Role::named(json.get("role")?.as_str()?)?;
        let mut message = Self { content: None, ..Self::new(role, "") };
        for (name, value) in json.as_object()? {
            match name.as_str() {
                "role" => {}
                "content" if value.is_null() => {}
                "content" => message.content = Some(text(value)?),
                "reasoning_content" => message.reasoning = Some(text(value)?),
                "tool_calls" => {
                    message.tool_calls = value.as_array()?.iter().map(ToolCall::of_json).collect::<Option<_>>()?;
                }
                "tool_call_id" => message.tool_call_id = Some(text(value)?),
                "name" => message.name = Some(text(value)?),
                _ => return None,
            }
        }
        Some(message)
    }

    /// The object that spells the message.
    pub fn to_json(&self) -> Json {
        let spelled = |(name, member): (&'static str, MessageMember<'_>)| {
            let value = match member {
                MessageMember::Role(role) => json!(role.name()),
                MessageMember::Content(text) => json!(text),
                MessageMember::Text(text) => json!(text),
                MessageMember::Calls(calls) => calls.iter().map(ToolCall::to_json).collect(),
            };
            (name.to_owned(), value)
        };
        Json::Object(self.members().map(spelled).collect())
    }
}

impl Role {
    fn named(name: &str) -> Option<Self> {
        [Self::System, Self::User, Self::Assistant, Self::Tool].into_iter().find(|role| role.name() == name)
    }
}

impl ToolCall {
    fn of_json(json: &Json) -> Option<Self> {
        let (members, function) = (json.as_object()?, json.get("function")?);
        let place = |name: &str| members.keys().position(|key| key == name);
        let id_place = match place("id") < place("function") {
            true => IdPlace::BeforeFunction,
            false => IdPlace::AfterFunction,
        };
        Some(Self {
            id: json.get("id").and_then(Json::as_str).map(str::to_owned),
            name: function["name"].as_str()?.to_owned(),
            arguments: RawJson(function["arguments"].clone()),
            id_place,
        })
    }

    fn to_json(&self) -> Json {
        let function = json!({"name": self.name, "arguments": self.arguments.0});
        match (&self.id, self.id_place) {
            (None, _) => json!({"type": "function", "function": function}),
            (Some(id), IdPlace::BeforeFunction) => json!({"type": "function", "id": id, "function": function}),
            (Some(id), IdPlace::AfterFunction) => json!({"type": "function", "function": function, "id": id}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_members_and_their_order() {
        for text in [
            r#"{"role":"system","content":"s","name":"n"}"#,
            r#"{"role":"user","content":null}"#,
            concat!(
                r#"{"role":"assistant","content":"","reasoning_content":"r","tool_calls":["#,
                r#"{"type":"function","id":"a","function":{"name":"f","arguments":{"b":1,"a":[2.50]}}},"#,
                r#"{"type":"function","function":{"name":"g","arguments":{}},"id":"c"}]}"#
            ),
            r#"{"role":"tool","content":"t","tool_call_id":"a","name":"f"}"#,
        ] {
            let json: Json = serde_json::from_str(text).unwrap();
            let message = Message::of_json(&json).unwrap();
            assert_eq!(message.to_json().to_string(), json.to_string());
        }
        assert_eq!(Message::of_json(&json!({"role": "user", "content": "q", "mood": "good"})), None);
    }
}
