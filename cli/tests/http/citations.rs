//! Answers that cite what they were given: a mark becomes a citation where its source says so, and nowhere else.

use crate::anthropic::{assembled, events, whole};
use crate::support::*;
use serde_json::{Value, json};

const PORT: &str = "Port „Kelm“ lies in the north. It was built in 1871.";

/// A document whose citations are enabled.
fn document(title: &str, source: Value) -> Value {
    json!({"type": "document", "title": title, "source": source, "citations": {"enabled": true}})
}

/// A request of these blocks whose answer is `says`.
fn request(blocks: &[Value], says: &str) -> Value {
    let mut content = blocks.to_vec();
    content.push(json!({"type": "text", "text": format!("SAY{{{says}}}")}));
    json!({"model": "tiny", "max_tokens": 400, "messages": [{"role": "user", "content": content}]})
}

fn sources() -> Vec<Value> {
    let parts =
        json!([{"type": "text", "text": "Dosh has red ships."}, {"type": "text", "text": "Dosh has 12 piers."}]);
    let found = json!([{"type": "text", "text": "Ferrin was mayor of Vell until 1990."}]);
    vec![
        document("Ports", json!({"type": "text", "media_type": "text/plain", "data": PORT})),
        json!({"type": "document", "source": {"type": "text", "data": "not to be cited"}}),
        document("Parts", json!({"type": "content", "content": parts})),
        json!({"type": "search_result", "title": "Vell", "source": "https://example.org/vell", "content": found,
            "citations": {"enabled": true}}),
    ]
}

#[test]
fn a_message_s_blocks_carry_the_citations_that_their_sources_bear_out() {
    let server = Server::start(Options::default());
    let says = "It was built in 1871 [1]. Dosh has 12 piers. [2] Ferrin was mayor until 1990 [3]. It flies [1].";
    let body = request(&sources(), says);
    let message = whole(&server, body.clone());
    let content = message["content"].as_array().unwrap();
    let texts: Vec<&str> = content.iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(texts.concat(), says, "nothing of the answer is lost");
    let citations: Vec<&Value> = content.iter().flat_map(|b| b["citations"].as_array().into_iter().flatten()).collect();
    let quote = "It was built in 1871.";
    let begin = PORT.chars().count() - quote.chars().count();
    assert_eq!(
        citations,
        [
            &json!({"type": "char_location", "cited_text": quote, "document_index": 0, "document_title": "Ports",
                "file_id": null, "start_char_index": begin, "end_char_index": PORT.chars().count()}),
            &json!({"type": "content_block_location", "cited_text": "Dosh has 12 piers.", "document_index": 2,
                "document_title": "Parts", "file_id": null, "start_block_index": 1, "end_block_index": 2}),
            &json!({"type": "search_result_location", "cited_text": "Ferrin was mayor of Vell until 1990.",
                "search_result_index": 0, "source": "https://example.org/vell", "title": "Vell",
                "start_block_index": 0, "end_block_index": 1}),
        ]
    );
    assert!(content.last().unwrap().get("citations").is_none(), "no source says that it flies");
    assert_eq!(assembled(&events(&server, body)), message);
    let told = server.fake.was_told();
    let shown = format!(
        "cite the number of each passage that you use, like [1]. If they do not have the answer, say \
                         so.\n\n[1] Ports\n{PORT}\n\nnot to be cited\n\n[2] Parts\nDosh has red ships."
    );
    assert!(told.contains(&shown) && told.contains("[3] Vell\nhttps://example.org/vell\nFerrin"), "{told}");
}

#[test]
fn sources_within_a_tool_s_result_are_cited_too() {
    let server = Server::start(Options::default());
    let call = json!({"type": "tool_use", "id": "t1", "name": "search", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [sources()[3]]});
    let body = json!({"max_tokens": 200, "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, {"type": "text", "text": "SAY{Ferrin was mayor until 1990 [1].}"}]},
    ]});
    let message = whole(&server, body);
    assert_eq!(message["content"][0]["citations"][0]["search_result_index"], 0, "{message}");
}

#[test]
fn without_enabled_citations_an_answer_has_none_and_the_prompt_is_as_it_was() {
    let server = Server::start(Options::default());
    let mut plain = sources();
    plain.iter_mut().for_each(|block| drop(block.as_object_mut().unwrap().remove("citations")));
    let message = whole(&server, request(&plain, "It was built in 1871 [1]."));
    assert_eq!(message["content"], json!([{"type": "text", "text": "It was built in 1871 [1]."}]));
    assert!(!server.fake.was_told().contains("[1] Ports"));
}

#[test]
fn what_cannot_be_cited_is_refused_by_name() {
    let server = Server::start(Options::default());
    let refused = |blocks: &[Value], said: &str| {
        let reply = post(server.addr, "/v1/messages", &request(blocks, "x"));
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(said), "{said} in {}", reply.text());
    };
    let mut odd = sources()[0].clone();
    odd["citations"] = json!({"enabled": "yes"});
    refused(&[odd], "messages[0].content[0].citations.enabled");
    let many = vec![document("t", json!({"type": "text", "data": "x"})); chimere::limits::CITED_SOURCES_MAX + 1];
    refused(&many, "has 201 documents to cite, at most 200 are taken");
}
