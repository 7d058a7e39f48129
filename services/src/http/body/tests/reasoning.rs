//! What is said about thinking, and about experts.

use super::*;

/// What a chat with these fields says about thinking.
#[track_caller]
fn reasoning(fields: Json) -> Option<Reasoning> {
    chat(fields).unwrap().reasoning
}

#[test]
fn thinking_is_asked_for_in_the_words_of_several_clients() {
    let with = |mode, tokens_max, adaptive| Some(Reasoning { mode, tokens_max, adaptive });
    for (fields, want) in [
        (json!({}), None),
        (json!({"reasoning": {}, "chat_template_kwargs": {"enable_thinking": true}}), None),
        (json!({"reasoning_effort": "none"}), with(ThinkingMode::Off, None, false)),
        (json!({"reasoning_effort": "minimal"}), with(ThinkingMode::On, Some(256), false)),
        (json!({"reasoning": {"effort": "low"}}), with(ThinkingMode::On, Some(1024), false)),
        (
            json!({"reasoning_effort": "medium", "reasoning": {"effort": "medium"}}),
            with(ThinkingMode::On, Some(4096), false),
        ),
        (json!({"reasoning_effort": "high"}), with(ThinkingMode::On, None, false)),
        (json!({"reasoning_effort": "xhigh"}), with(ThinkingMode::On, None, false)),
        (json!({"reasoning_effort": "auto"}), with(ThinkingMode::Auto, None, true)),
        (
            json!({"reasoning": {"effort": "auto", "max_tokens": 9, "adaptive": false}}),
            with(ThinkingMode::Auto, Some(9), false),
        ),
        (json!({"reasoning": {"effort": "low", "max_tokens": 2000}}), with(ThinkingMode::On, Some(2000), false)),
        (json!({"reasoning": {"max_tokens": 0}}), with(ThinkingMode::Off, Some(0), false)),
        (json!({"reasoning": {"enabled": true, "exclude": false}}), with(ThinkingMode::On, None, false)),
        (json!({"reasoning": {"enabled": false}}), with(ThinkingMode::Off, None, false)),
        (json!({"reasoning": {"adaptive": true}}), with(ThinkingMode::On, None, true)),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 64}}), with(ThinkingMode::On, Some(64), false)),
        (
            json!({"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
            with(ThinkingMode::On, Some(1024), false),
        ),
        (json!({"thinking": {"type": "disabled"}}), with(ThinkingMode::Off, None, false)),
        (json!({"thinking": {"type": "adaptive"}}), with(ThinkingMode::Auto, None, true)),
    ] {
        assert_eq!(reasoning(fields.clone()), want, "{fields}");
    }
}

#[test]
fn the_template_s_switch_follows_what_is_said_about_thinking() {
    let switch = |fields| chat(fields).unwrap().conversation.options.get("enable_thinking").cloned();
    assert_eq!(switch(json!({})), None);
    assert_eq!(switch(json!({"reasoning_effort": "none"})), Some(json!(false)));
    assert_eq!(switch(json!({"reasoning_effort": "auto"})), Some(json!(true)));
    assert_eq!(
        switch(json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": true}})),
        Some(json!(true))
    );
}

#[test]
fn what_is_said_about_thinking_must_agree_and_be_in_range() {
    refused(chat(json!({"reasoning_effort": "much"})), "reasoning_effort", "\"auto\", got \"much\"");
    refused(
        chat(json!({"reasoning_effort": "low", "reasoning": {"effort": "high"}})),
        "reasoning.effort",
        "`reasoning_effort`",
    );
    refused(
        chat(json!({"reasoning": {"effort": "none", "max_tokens": 5}})),
        "reasoning.max_tokens",
        "`reasoning.effort`",
    );
    refused(chat(json!({"reasoning": {"max_tokens": -1}})), "reasoning.max_tokens", "between 0 and");
    refused(
        chat(json!({"reasoning": {"max_tokens": 3}, "thinking": {"type": "enabled", "budget_tokens": 4}})),
        "thinking.budget_tokens",
        "`reasoning.max_tokens`",
    );
    refused(
        chat(json!({"thinking": {"type": "disabled"}, "reasoning_effort": "low"})),
        "thinking.type",
        "`reasoning_effort`",
    );
    refused(
        chat(json!({"thinking": {"type": "enabled", "budget_tokens": 0}})),
        "thinking.budget_tokens",
        "between 1 and",
    );
    refused(chat(json!({"thinking": {"budget_tokens": 5}})), "thinking.type", "missing");
    refused(chat(json!({"thinking": {"type": "on"}})), "thinking.type", "got \"on\"");
    refused(chat(json!({"reasoning": {"exclude": true}})), "reasoning.exclude", "part of the reply");
    refused(chat(json!({"reasoning": {"budget": 1}})), "reasoning.budget", "unknown field");
    let kwargs = json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}});
    refused(chat(kwargs), "reasoning_effort", "chat_template_kwargs.enable_thinking");
    let silent = ModelLimits { thinking: None, ..limits() };
    refused(
        ChatRequest::parse(&chat_body(json!({"reasoning_effort": "low"})), &silent),
        "reasoning_effort",
        "nano does not think",
    );
    assert!(
        ChatRequest::parse(&chat_body(json!({"reasoning_effort": "none"})), &silent).is_ok(),
        "which it does anyway"
    );
}

#[test]
fn fewer_experts_are_asked_for_within_what_the_model_uses() {
    let experts = |fields| completion(json!({"prompt": "a", "moe": fields})).unwrap().generation.spec.engine.experts;
    let cut = |min, max, mass| Some(ExpertCut { min, max, mass });
    assert_eq!(experts(json!({})), None);
    assert_eq!(experts(json!({"mass": 0.5})), cut(1, 4, 0.5));
    assert_eq!(experts(json!({"min_k": 2, "max_k": 3, "mass": 0})), cut(2, 3, 0.0));
    assert_eq!(experts(json!({"max_k": 2})), cut(1, 2, 1.0));
    refused(chat(json!({"moe": {"max_k": 5}})), "moe.max_k", "between 1 and 4, got 5");
    refused(chat(json!({"moe": {"min_k": 3, "max_k": 2}})), "moe.min_k", "between 1 and 2, got 3");
    refused(chat(json!({"moe": {"mass": 1.5}})), "moe.mass", "between 0 and 1, got 1.5");
    refused(chat(json!({"moe": {"top_k": 2}})), "moe.top_k", "unknown field");
    let dense = ModelLimits { experts: None, ..limits() };
    refused(ChatRequest::parse(&chat_body(json!({"moe": {"mass": 0.5}})), &dense), "moe", "nano has no experts");
}
