//! Forms of answers, tools and the choice among them, and variables of templates.

use super::*;
use crate::text::RawJson;
use crate::turn::Hosted;
use crate::web::WebOffer;

#[test]
fn a_form_is_read_from_the_field_that_asks_for_it() {
    let form = |fields| chat(fields).unwrap().generation.form.map(|asked| (asked.field, asked.form));
    let json_form = |schema, compact, closed| AnswerForm::Json { schema, compact, closed };
    let schema = json!({"type": "array"});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": false, "schema": schema}});
    assert_eq!(
        form(json!({"response_format": format})),
        Some(("response_format.json_schema.schema", json_form(schema.clone(), false, false)))
    );
    let strict = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    let closed = json_form(schema.clone(), false, true);
    assert_eq!(form(json!({"response_format": strict})).map(|(_, form)| form), Some(closed));
    let plain = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    assert_eq!(
        form(json!({"response_format": plain})).map(|(_, form)| form),
        Some(json_form(schema.clone(), false, true))
    );
    let object = json_form(json!({"type": "object"}), false, false);
    assert_eq!(form(json!({"response_format": {"type": "json_object"}})), Some(("response_format", object)));
    let compact = json!({"structured_outputs": {"json": schema.to_string(), "disable_any_whitespace": true,
        "disable_additional_properties": true}});
    assert_eq!(form(compact), Some(("structured_outputs.json", json_form(schema, true, true))));
    assert_eq!(
        form(json!({"guided_grammar": "start: x"})),
        Some(("guided_grammar", AnswerForm::Lark("start: x".into())))
    );
    assert_eq!(form(json!({"structured_outputs": {}, "response_format": {"type": "text"}})), None);
    refused(chat(json!({"guided_choice": ["a", 5]})), "guided_choice[1]", "got 5");
    refused(chat(json!({"guided_json": "{"})), "guided_json", "in a string");
    refused(chat(json!({"guided_json": []})), "guided_json", "an array");
}

#[test]
fn the_tools_of_a_message_are_bound_as_those_of_chat() {
    let calls = |strict: bool, choice: Json| {
        let tool = json!({"name": "a", "input_schema": {"type": "object"}, "strict": strict});
        let said = json!([{"role": "user", "content": "x"}]);
        let body = json!({"messages": said, "tools": [tool], "tool_choice": choice}).to_string();
        let request = MessagesRequest::parse(body.as_bytes(), &limits()).unwrap();
        request.chat.calls.map(|calls| (calls.must, calls.several))
    };
    let once = |kind: &str| json!({"type": kind, "disable_parallel_tool_use": true});
    assert_eq!(calls(false, json!({"type": "auto"})), None);
    assert_eq!(calls(true, json!({"type": "auto"})), Some((false, true)));
    assert_eq!(calls(true, once("auto")), Some((false, false)));
    assert_eq!(calls(false, json!({"type": "any"})), Some((true, true)));
    assert_eq!(calls(false, once("any")), Some((true, false)));
}

#[test]
fn a_choice_of_tools_says_which_may_and_which_must_be_called() {
    let tool = |name: &str, strict: bool| json!({"type": "function", "function": {"name": name, "strict": strict}});
    let calls = |strict, fields| {
        let mut all: Json = fields;
        all["tools"] = json!([tool("a", false), tool("b", strict)]);
        let request = chat(all).unwrap();
        assert_eq!(request.conversation.tools.len(), 2, "all are shown");
        let names = |calls: Calls| calls.tools.into_iter().map(|t| t.name).collect::<String>();
        request.calls.map(|calls| (calls.must, calls.several, names(calls)))
    };
    let named = json!({"type": "function", "function": {"name": "b"}});
    let allowed = |mode| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named]}});
    assert_eq!(calls(false, json!({})), None);
    assert_eq!(calls(true, json!({})), Some((false, true, "ab".into())));
    assert_eq!(calls(false, json!({"tool_choice": "required"})), Some((true, true, "ab".into())));
    let once = json!({"tool_choice": "required", "parallel_tool_calls": false});
    assert_eq!(calls(false, once), Some((true, false, "ab".into())));
    assert_eq!(calls(false, json!({"tool_choice": named})), Some((true, false, "b".into())));
    let beside = json!({"tool_choice": {"type": "function", "name": "a"}});
    assert_eq!(calls(false, beside), Some((true, false, "a".into())));
    assert_eq!(calls(false, json!({"tool_choice": allowed("auto")})), Some((false, true, "b".into())));
    assert_eq!(calls(false, json!({"tool_choice": allowed("required")})), Some((true, true, "b".into())));
    refused(chat(json!({"tool_choice": "required"})), "tool_choice", "no `tools`");
    refused(chat(json!({"tool_choice": "any"})), "tool_choice", "\"any\"");
    refused(chat(json!({"tool_choice": {"type": "custom"}})), "tool_choice.type", "\"custom\"");
}

#[test]
fn the_web_is_told_to_the_model_as_far_as_it_is_offered_and_may_be_chosen() {
    let chat =
        |offer: WebOffer, fields: Json| ChatRequest::parse(&chat_body(fields), &ModelLimits { web: offer, ..limits() });
    let (both, search) = (WebOffer { search: true, fetch: true }, WebOffer { search: true, fetch: false });
    let tool = |more: Json| {
        let mut tool = json!({"type": "web_search"});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"tools": [tool]})
    };
    let taken =
        chat(both, tool(json!({"search_context_size": "high", "filters": {"allowed_domains": ["A.test"]}}))).unwrap();
    let web = taken.web.unwrap();
    assert_eq!((web.field.as_str(), web.k, web.search.hosts.allowed), ("tools[0]", 16, vec!["a.test".to_owned()]));
    assert_eq!(taken.hosted, [Hosted::WebSearch, Hosted::WebFetch]);
    assert_eq!(chat(search, json!({"web_search_options": {}})).unwrap().hosted, [Hosted::WebSearch]);
    for kind in ["web_search", "web_search_preview", "web_search_preview_2025_03_11", "web_search_2025_08_26"] {
        let mut forced = json!({"tools": [{"type": kind}]});
        forced["tool_choice"] = json!({"type": kind});
        let calls = chat(both, forced).unwrap().calls.unwrap();
        assert_eq!((calls.must, calls.tools.len(), calls.tools[0].name.as_str()), (true, 1, "web_search"), "{kind}");
    }
    let off = |fields| chat(WebOffer::default(), fields);
    refused(off(json!({"web_search_options": {}})), "web_search_options", "web.searxng_url");
    refused(off(tool(json!({}))), "tools[0]", "web.fetch");
    refused(chat(both, json!({"tools": [{"type": "web_searcher"}]})), "tools[0].type", "web_searcher");
    refused(chat(both, tool(json!({"filters": {"blocked_domains": []}}))), "tools[0].filters.blocked_domains", "");
    let mut twice = tool(json!({}));
    twice["web_search_options"] = json!({});
    refused(chat(both, twice), "web_search_options", "second");
}

#[test]
fn tools_reach_template_and_parser() {
    let parameters = json!({"type": "object", "properties": {}});
    let weather = json!({"type": "function", "function": {"name": "w", "description": "d", "parameters": parameters}});
    let request = chat(json!({"tools": [weather], "tool_choice": "auto"})).unwrap();
    assert_eq!(request.conversation.tools, [RawJson(weather.clone())]);
    let tool = Tool { name: "w".into(), parameters: weather["function"]["parameters"].clone() };
    assert_eq!(request.tools, Some(crate::text::Tools::new(vec![tool])));
    let none = chat(json!({"tools": [weather], "tool_choice": "none"})).unwrap();
    assert!(none.tools.is_none() && none.conversation.tools.is_empty(), "a model that is to call none is shown none");
}

#[test]
fn a_tool_at_fault_is_named_by_its_place() {
    let tools = |function: Json| chat(json!({"tools": [{"type": "function", "function": function}]}));
    refused(chat(json!({"tools": [{"type": "retrieval"}]})), "tools[0].type", "\"retrieval\"");
    refused(tools(json!({})), "tools[0].function.name", "missing");
    refused(tools(json!({"name": "a b"})), "tools[0].function.name", "1 to 64 letters");
    refused(tools(json!({"name": "a>"})), "tools[0].function.name", "got \"a>\"");
    refused(tools(json!({"name": "a", "parameters": 5})), "tools[0].function.parameters", "a JSON schema");
    refused(tools(json!({"name": "a", "strict": "yes"})), "tools[0].function.strict", "must be a boolean");
    let twice = json!({"type": "function", "function": {"name": "a"}});
    refused(chat(json!({"tools": [twice, twice]})), "tools[1].function.name", "an earlier tool");
    refused(chat(json!({"tools": vec![twice; 129]})), "tools", "129 entries");
}

#[test]
fn a_variable_that_the_template_never_reads_is_refused() {
    refused(
        chat(json!({"chat_template_kwargs": {"thinking": true}})),
        "chat_template_kwargs.thinking",
        "which reads enable_thinking",
    );
    refused(chat(json!({"chat_template_kwargs": {"messages": []}})), "chat_template_kwargs.messages", "not read");
    assert!(chat(json!({"chat_template_kwargs": {"thinking": null}})).is_ok());
}
