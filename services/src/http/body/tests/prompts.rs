//! Prompts of completions, and texts to tokenize.

use super::*;
use chimere_engine::scheduler::PromptScores;

#[test]
fn a_prompt_comes_in_five_shapes() {
    let prompts = |prompt: Json| completion(json!({"prompt": prompt})).unwrap().prompts;
    assert_eq!(prompts(json!("a")), [Prompt::Text("a".into())]);
    assert_eq!(prompts(json!(["a", "b"])), [Prompt::Text("a".into()), Prompt::Text("b".into())]);
    assert_eq!(prompts(json!([1, 2])), [Prompt::Tokens(vec![1, 2])]);
    assert_eq!(prompts(json!([[1, 2], [3]])), [Prompt::Tokens(vec![1, 2]), Prompt::Tokens(vec![3])]);
    let parts = || vec![Prompt::Tokens(vec![1, 2]), Prompt::Text("a".into()), Prompt::Tokens(vec![3])];
    assert_eq!(prompts(json!([1, 2, "a", "", 3])), [Prompt::Mixed(parts())]);
    assert_eq!(prompts(json!(["b", [1, 2, "a", 3]])), [Prompt::Text("b".into()), Prompt::Mixed(parts())]);
}

#[test]
fn a_prompt_at_fault_is_named_by_its_place() {
    let prompt = |prompt: Json| completion(json!({"prompt": prompt}));
    refused(completion(json!({})), "prompt", "is missing");
    refused(prompt(json!("")), "prompt", "must not be empty");
    refused(prompt(json!([])), "prompt", "must not be empty");
    refused(prompt(json!(["a", ""])), "prompt[1]", "must not be empty");
    refused(prompt(json!(["a", true])), "prompt[1]", "a string or an array of token ids, got true");
    refused(prompt(json!([1, true])), "prompt[1]", "must be an integer");
    refused(prompt(json!([1, "a", true])), "prompt[2]", "must be an integer");
    refused(prompt(json!([1, "a", 500])), "prompt[2]", "between 0 and 499");
    refused(prompt(json!([["a", "b"]])), "prompt[0][0]", "must be an integer");
    refused(prompt(json!([1, 500])), "prompt[1]", "between 0 and 499");
    refused(prompt(json!([[1], [500]])), "prompt[1][0]", "between 0 and 499");
    refused(prompt(json!({})), "prompt", "got an object");
    refused(prompt(json!(vec!["a"; 33])), "prompt", "33 entries, at most 32");
}

#[test]
fn completions_can_score_a_prompt_without_generating() {
    let request = completion(json!({"prompt": "a", "echo": true, "max_tokens": 0, "logprobs": 3})).unwrap();
    assert!(request.echo);
    let asked = &request.generation.spec.engine;
    assert_eq!(
        (asked.max_tokens, asked.sampling.logprobs, asked.score_prompt.clone()),
        (Some(0), Some(3), Some(PromptScores::whole(3)))
    );
    let silent = completion(json!({"prompt": "a", "max_tokens": 0, "logprobs": 3})).unwrap();
    assert_eq!(silent.generation.spec.engine.score_prompt, None, "without an echo nobody asks");
}

#[test]
fn texts_and_conversations_can_be_tokenized() {
    let parse = |body: Json| TokenizeRequest::parse(&serde_json::to_vec(&body).unwrap(), &limits());
    let text =
        parse(json!({"prompt": "", "parse_special": false, "return_token_strs": true, "add_special_tokens": true}))
            .unwrap();
    assert_eq!(
        text,
        TokenizeRequest {
            input: TokenizeInput::Text { text: "".into(), parse_special: false },
            shape: TokensShape::Vllm { strings: true }
        }
    );
    let chat = parse(
        json!({"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"enable_thinking": true}}),
    )
    .unwrap();
    assert!(matches!(chat.input, TokenizeInput::Chat(c) if c.messages.len() == 1 && c.options.len() == 1));
    refused(parse(json!({})), "prompt", "unless there are `messages`");
    refused(parse(json!({"prompt": "a", "x": 1})), "x", "unknown");
    let parse = |body: Json| DetokenizeRequest::parse(&serde_json::to_vec(&body).unwrap(), &limits());
    assert_eq!(parse(json!({"tokens": [1, 2]})).unwrap().tokens, [1, 2]);
    refused(parse(json!({"tokens": [500]})), "tokens[0]", "between 0 and 499");
}
