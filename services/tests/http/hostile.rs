//! What a neighbour may try who has a key, or only the address: none of it ends the process, and none of it harms others.

use crate::support::*;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_prompt_of_no_tokens_is_a_400_and_the_service_goes_on() {
    let template = Some("{{ messages[0].content }}");
    let server = Server::start(Options { template, ..Options::default() });
    let empty = json!({"messages": [{"role": "user", "content": ""}]});
    for body in [empty.clone(), json!({"messages": empty["messages"], "stream": true}), json!({"messages": empty["messages"], "n": 3})] {
        let reply = post(server.addr, CHAT, &body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        let error = &reply.json()["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("empty_prompt"), &json!("messages")));
        assert_eq!(error["message"], "the prompt has no tokens");
    }
    assert_eq!(post(server.addr, CHAT, &ask("SAY[still here]")).content(), "still here");
    server.wait_for_live(0);
}
