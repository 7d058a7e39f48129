//! Replies of choices, as OpenAI's first endpoints give them: how [`Output`]s become a whole reply or the chunks of a
//! stream. Both are made here, from the same pieces; `chat.rs` and `completion.rs` say what a choice looks like.

use super::report::write;
use crate::actors::request::output::{Delta, Finish, Output, RequestUsage, Scored, Timings};
use crate::actors::request::spec::StreamOptions;
use crate::http::reply::dialect::{Begun, Dialect, Envelope, Frames, WholeReply, event};
use crate::http::reply::server_items::step;
use crate::http::reply::tokens::usage;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use std::time::Duration;

/// How the choices of one endpoint look.
pub(in crate::http) trait ChoiceFormat {
    /// `object` of a whole reply and of a chunk.
    fn objects(&self) -> (&'static str, &'static str);

    /// Choice objects to send before anything else of a choice.
    fn opening(&mut self, choice: u32) -> Vec<Value>;

    /// Log-probabilities of a prompt, for the openings to come.
    fn scored(&mut self, prompt: u32, tokens: Vec<Scored>);

    /// The choice object of a chunk with new text.
    fn delta(&mut self, choice: u32, delta: Delta) -> Value;

    /// The choice object of the chunk that ends a choice.
    fn ending(&mut self, choice: u32, reason: Finish) -> Value;

    /// The choice object of a whole reply.
    fn whole(&mut self, choice: u32, all: Delta, reason: Finish) -> Value;
}

/// The chunks of a stream, one JSON object each.
pub(in crate::http) struct Chunks<S> {
    envelope: Envelope,
    shape: S,
    options: StreamOptions,
    /// Steps from before the first output, until they are told.
    before: Vec<Value>,
    opened: Vec<bool>,
    /// The last ending, kept until it is known whether it is the last chunk too.
    ending: Option<Value>,
}

impl<S: ChoiceFormat> Chunks<S> {
    /// For a stream that begins. `include_usage` asks for a last chunk without choices, `include_steps` for such a
    /// chunk for each thing that the service does itself.
    pub(in crate::http) fn new(begun: Begun, shape: S) -> Self {
        let Begun { envelope, choices, stream_options: options, searches, tools, .. } = begun;
        let runs = tools.runs.into_iter().map(Output::Called);
        let done = runs.chain(searches.into_iter().map(Output::Searched));
        let before = done.filter(|_| options.include_steps).filter_map(|output| step(&output)).collect();
        Self { envelope, shape, options, before, opened: vec![false; choices], ending: None }
    }

    /// The chunks that an output gives, or the error that ends the stream.
    pub(in crate::http) fn of(&mut self, output: Output) -> Result<Vec<Value>, ApiError> {
        let mut chunks = Vec::new();
        match output {
            Output::Scored { prompt, tokens } => self.shape.scored(prompt, tokens),
            Output::Delta { choice, delta } => {
                self.open(choice, &mut chunks);
                let object = self.shape.delta(choice, delta);
                chunks.push(self.chunk(vec![object]));
            }
            Output::Finished { choice, reason } => {
                self.open(choice, &mut chunks);
                let object = self.shape.ending(choice, reason);
                self.ending = Some(self.chunk(vec![object]));
            }
            Output::End(account) => chunks.extend(self.end(account)),
            Output::Failed(why) => return Err(engine_error(why)),
            Output::Refused(refusal) => return Err(refused(refusal, "messages")),
            Output::Searching { .. } | Output::Searched(_) | Output::Calling(_) | Output::Called(_) => {
                chunks.extend(self.told(&output));
            }
            Output::Browsing(_) | Output::Browsed(_) | Output::PipelineStep(_) => chunks.extend(self.told(&output)),
        }
        Ok(chunks)
    }

    /// Sends what must come before more of a choice.
    fn open(&mut self, choice: u32, chunks: &mut Vec<Value>) {
        chunks.extend(self.ending.take());
        if !std::mem::replace(&mut self.opened[choice as usize], true) {
            let objects = self.shape.opening(choice);
            chunks.extend(objects.into_iter().map(|object| self.chunk(vec![object])));
        }
    }

    fn end(&mut self, account: RequestUsage) -> Vec<Value> {
        let ending = self.ending.take();
        let (mut before, mut last) = match ending {
            Some(ending) if !self.options.include_usage => (None, ending),
            ending => (ending, self.chunk(Vec::new())),
        };
        account_into(&mut last, &account, self.envelope.seed);
        before.take().into_iter().chain([last]).collect()
    }

    /// The chunk of what the service did itself, if the client wants to be told.
    fn told(&self, output: &Output) -> Option<Value> {
        step(output).filter(|_| self.options.include_steps).map(|item| self.step(item))
    }

    /// The chunk of a step. The answer's text goes on behind it.
    fn step(&self, item: Value) -> Value {
        let mut chunk = self.chunk(Vec::new());
        chunk["step"] = item;
        chunk
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let mut chunk = envelope(&self.envelope, self.shape.objects().1, choices);
        if self.options.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

/// Collects a whole reply.
pub(in crate::http) struct CollectedReply<S> {
    envelope: Envelope,
    shape: S,
    choices: Vec<(Delta, Option<Finish>)>,
}

impl<S: ChoiceFormat> CollectedReply<S> {
    /// For a reply of this many choices.
    pub(in crate::http) fn new(envelope: Envelope, shape: S, choices: usize) -> Self {
        Self { envelope, shape, choices: vec![(Delta::default(), None); choices] }
    }

    /// Takes an output. The last one gives the reply.
    pub(in crate::http) fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        match output {
            Output::Scored { prompt, tokens } => self.shape.scored(prompt, tokens),
            Output::Delta { choice, delta } => append(&mut self.choices[choice as usize].0, delta),
            Output::Finished { choice, reason } => self.choices[choice as usize].1 = Some(reason),
            Output::End(account) => return Ok(Some(self.reply(&account))),
            // A whole reply tells what the service did in `timings.turn`.
            Output::Searching { .. } | Output::Searched(_) | Output::Calling(_) | Output::Called(_) => {}
            Output::Browsing(_) | Output::Browsed(_) | Output::PipelineStep(_) => {}
            Output::Failed(why) => return Err(engine_error(why)),
            Output::Refused(refusal) => return Err(refused(refusal, "messages")),
        }
        Ok(None)
    }

    fn reply(&mut self, account: &RequestUsage) -> Value {
        let all = std::mem::take(&mut self.choices);
        let choices = all.into_iter().enumerate().map(|(i, (delta, reason))| {
            self.shape.whole(i as u32, delta, reason.expect("a request ends after all of its choices"))
        });
        let choices = choices.collect();
        let mut reply = envelope(&self.envelope, self.shape.objects().0, choices);
        account_into(&mut reply, account, self.envelope.seed);
        reply
    }
}

impl<S: ChoiceFormat + Unpin + 'static> Dialect for S {
    type Stream = Chunks<S>;
    type Whole = CollectedReply<S>;

    fn streamed(self, begun: Begun) -> Chunks<S> {
        Chunks::new(begun, self)
    }

    fn collected(self, begun: Begun) -> CollectedReply<S> {
        CollectedReply::new(begun.envelope, self, begun.choices)
    }
}

impl<S: ChoiceFormat> Frames for Chunks<S> {
    fn opening(&mut self, out: &mut BytesMut) {
        for item in std::mem::take(&mut self.before) {
            event(out, None, &self.step(item));
        }
    }

    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        let ends = matches!(output, Output::End(_));
        self.of(output)?.iter().for_each(|chunk| event(out, None, chunk));
        if ends {
            out.put_slice(b"data: [DONE]\n\n");
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        event(out, Some("error"), error);
    }
}

impl<S: ChoiceFormat> WholeReply for CollectedReply<S> {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        CollectedReply::of(self, output)
    }
}

fn envelope(envelope: &Envelope, object: &str, choices: Vec<Value>) -> Value {
    json!({
        "id": envelope.id,
        "object": object,
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": &*envelope.fingerprint,
        "choices": choices,
    })
}

fn account_into(reply: &mut Value, account: &RequestUsage, seed: i64) {
    reply["usage"] = usage(account);
    reply["timings"] = timings(&account.timings);
    reply["timings"]["prompt_n"] = json!(account.prompt_tokens - account.cached_tokens);
    reply["timings"]["cache_n"] = json!(account.cached_tokens);
    if let Some(room) = account.room {
        reply["timings"]["max_tokens"] = json!(room);
    }
    account.reports.iter().for_each(|report| write(report, reply));
    reply["seed"] = json!(seed);
}

fn timings(t: &Timings) -> Value {
    let ms = |d: Duration| json!(d.as_micros() as f64 / 1e3);
    json!({
        "queue_ms": ms(t.queue),
        "prefill_ms": ms(t.prefill),
        "ttft_ms": ms(t.ttft),
        "itl_ms_mean": ms(t.itl_mean),
        "itl_ms_p95": ms(t.itl_p95),
        "decode_ms": ms(t.decode),
        "total_ms": ms(t.total),
    })
}

fn append(all: &mut Delta, more: Delta) {
    all.content.push_str(&more.content);
    all.reasoning.push_str(&more.reasoning);
    all.tokens.extend(more.tokens);
    all.citations.extend(more.citations);
    more.tool_calls.into_iter().for_each(|call| all.call(call));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::request::output::{ShownToken, ToolCallDelta, ToolRun};
    use crate::actors::request::report::Report;
    use crate::http::dialects::openai::chat::Chat;
    use crate::http::dialects::openai::completion::{Completion, Echo};
    use crate::http::wire::json::logprob;
    use crate::text::parser::TextPart;
    use crate::turn::ToldTools;
    use chimere_engine::constraint::{Source, Sources};

    fn scored(text: &str, logprob: f32) -> Scored {
        let piece =
            |text: &str, logprob| ShownToken { id: 7, text: text.into(), bytes: text.as_bytes().to_vec(), logprob };
        let top = vec![piece(text, logprob), piece("zz", logprob - 1.0)];
        Scored { token: piece(text, logprob), top, part: TextPart::Content, shown: true, report: None }
    }

    fn begun(choices: usize, stream_options: StreamOptions) -> Begun {
        let envelope = Envelope { id: "id".into(), created: 1, model: "m".into(), fingerprint: "f".into(), seed: 9 };
        let (searches, tools) = (Vec::new(), ToldTools::default());
        Begun { envelope, choices, stream_options, prompt_tokens: 1, searches, tools }
    }

    fn chunks<S: ChoiceFormat>(shape: S, choices: usize, include_usage: bool, outputs: Vec<Output>) -> Vec<String> {
        let options = StreamOptions { include_usage, include_steps: false };
        let mut chunks = Chunks::new(begun(choices, options), shape);
        let all = outputs.into_iter().flat_map(|o| chunks.of(o).unwrap());
        all.map(|mut c| {
            let got = c.as_object_mut().unwrap();
            let mut text = serde_json::to_string(&got["choices"]).unwrap();
            if let Some(usage) = got.get("usage") {
                text += if usage.is_null() { " null" } else { " usage" };
            }
            if got.contains_key("timings") {
                text += " timings";
            }
            text
        })
        .collect()
    }

    fn text(choice: u32, content: &str) -> Output {
        Output::Delta { choice, delta: Delta { content: content.into(), ..Delta::default() } }
    }

    #[test]
    fn a_chat_stream_opens_with_the_role_and_its_last_chunk_carries_the_account() {
        let outputs = vec![
            text(0, "Hi"),
            Output::Finished { choice: 0, reason: Finish::Stop },
            Output::End(RequestUsage::default()),
        ];
        assert_eq!(
            chunks(Chat { logprobs: false }, 1, false, outputs),
            [
                r#"[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#,
                r#"[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}]"#,
                r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}] usage timings"#,
            ]
        );
    }

    #[test]
    fn steps_are_chunks_of_their_own_for_those_who_ask() {
        let run = |result| ToolRun {
            server: "files".into(),
            tool: "read".into(),
            arguments: "{}".into(),
            approval: None,
            result,
        };
        let approved = ToldTools { lists: Vec::new(), runs: vec![run(Some(Ok("yes".into())))] };
        for include_steps in [false, true] {
            let options = StreamOptions { include_usage: true, include_steps };
            let begun = Begun { tools: approved.clone(), ..begun(1, options) };
            let mut chunks = Chunks::new(begun, Chat { logprobs: false });
            let mut opening = BytesMut::new();
            chunks.opening(&mut opening);
            let opening = String::from_utf8(opening.to_vec()).unwrap();
            assert_eq!(opening.contains(r#""output":"yes""#), include_steps, "{opening}");
            let told = chunks.of(Output::Calling(run(None))).unwrap();
            let seen: Vec<_> = told.iter().map(|c| (&c["choices"], &c["usage"], &c["step"]["status"])).collect();
            let wanted = (&json!([]), &Value::Null, &json!("in_progress"));
            assert_eq!(seen, [wanted].into_iter().filter(|_| include_steps).collect::<Vec<_>>());
        }
    }

    #[test]
    fn with_include_usage_the_account_is_a_chunk_without_choices_and_the_others_have_null() {
        let outputs = vec![
            text(1, "a"),
            Output::Finished { choice: 1, reason: Finish::Length },
            text(0, "b"),
            Output::Finished { choice: 0, reason: Finish::Stop },
            Output::End(RequestUsage::default()),
        ];
        let got = chunks(Chat { logprobs: false }, 2, true, outputs);
        assert_eq!(got.len(), 7);
        assert!(got[..6].iter().all(|c| c.ends_with("] null")), "{got:#?}");
        assert!(got[2].contains("length"), "an ending is sent before more of another choice: {got:#?}");
        assert_eq!(got[6], "[] usage timings");
    }

    #[test]
    fn a_reply_names_the_rules_that_could_not_be_followed_and_only_those() {
        let timings = |yielded: Sources| {
            let envelope =
                Envelope { id: "id".into(), created: 1, model: "m".into(), fingerprint: "f".into(), seed: 9 };
            let mut whole = CollectedReply::new(envelope, Chat { logprobs: false }, 1);
            whole.of(Output::Finished { choice: 0, reason: Finish::Stop }).unwrap();
            let reports = (!yielded.is_empty()).then_some(Report::Yielded(yielded)).into_iter().collect();
            whole.of(Output::End(RequestUsage { reports, ..RequestUsage::default() })).unwrap().unwrap()["timings"]
                .clone()
        };
        let both: Sources = [Source::HeldWords, Source::MinTokens].into_iter().collect();
        assert_eq!(timings(both)["yielded"], json!(["min_tokens", "held_words"]));
        assert!(timings(Sources::NONE).get("yielded").is_none());
    }

    #[test]
    fn a_whole_reply_gathers_reasoning_calls_and_logprobs_of_each_choice() {
        let envelope = Envelope { id: "id".into(), created: 1, model: "m".into(), fingerprint: "f".into(), seed: 9 };
        let mut whole = CollectedReply::new(envelope, Chat { logprobs: true }, 1);
        let call = |start: bool, arguments: &str| ToolCallDelta {
            index: 0,
            start: start.then(|| ("call_1".to_owned(), "add".to_owned())),
            arguments: arguments.into(),
            incomplete: false,
        };
        let thought = Scored { part: TextPart::Reasoning, ..scored("hm", -0.5) };
        let deltas = [
            Delta { reasoning: "hm".into(), tokens: vec![thought], ..Delta::default() },
            Delta { tool_calls: vec![call(true, "")], ..Delta::default() },
            Delta { tool_calls: vec![call(false, "{\"a\":")], ..Delta::default() },
            Delta { tool_calls: vec![call(false, "1}")], ..Delta::default() },
        ];
        for delta in deltas {
            assert_eq!(whole.of(Output::Delta { choice: 0, delta }), Ok(None));
        }
        whole.of(Output::Finished { choice: 0, reason: Finish::ToolCalls }).unwrap();
        let reply = whole
            .of(Output::End(RequestUsage { prompt_tokens: 3, completion_tokens: 4, ..RequestUsage::default() }))
            .unwrap()
            .unwrap();
        assert_eq!(
            reply["choices"].to_string(),
            concat!(
                r#"[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"reasoning_content":"hm","tool_calls":"#,
                r#"[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},"logprobs":{"content":"#,
                r#"[],"refusal":null,"reasoning_logprobs":"#,
                r#"[{"token":"hm","logprob":-0.5,"bytes":[104,109],"top_logprobs":[{"token":"hm","logprob":-0.5,"bytes":[104,109]},"#,
                r#"{"token":"zz","logprob":-1.5,"bytes":[122,122]}]}]},"finish_reason":"tool_calls"}]"#
            )
        );
        assert_eq!(reply["usage"]["total_tokens"], 7);
        assert_eq!(reply["object"], "chat.completion");
        assert_eq!(reply["seed"], 9);
    }

    #[test]
    fn an_echoed_completion_has_the_prompt_first_with_its_scores_and_offsets() {
        let echo = Echo { text: "ab".into(), first: b"a".to_vec() };
        let shape = Completion::new(true, vec![Some(echo)], 1);
        let outputs = vec![
            Output::Scored { prompt: 0, tokens: vec![scored("b", -1.0)] },
            Output::Delta {
                choice: 0,
                delta: Delta { content: "c".into(), tokens: vec![scored("c", -2.0)], ..Delta::default() },
            },
            Output::Finished { choice: 0, reason: Finish::Length },
            Output::End(RequestUsage::default()),
        ];
        assert_eq!(
            chunks(shape, 1, false, outputs),
            [
                concat!(
                    r#"[{"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1.0],"#,
                    r#""top_logprobs":[null,{"b":-1.0,"zz":-2.0}],"text_offset":[0,1]},"finish_reason":null}]"#
                ),
                concat!(
                    r#"[{"index":0,"text":"c","logprobs":{"tokens":["c"],"token_logprobs":[-2.0],"#,
                    r#""top_logprobs":[{"c":-2.0,"zz":-3.0}],"text_offset":[2]},"finish_reason":null}]"#
                ),
                r#"[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}] usage timings"#,
            ]
        );
    }

    #[test]
    fn a_completion_s_token_stands_among_the_top_ones_though_others_are_more_probable() {
        let mut unlikely = scored("b", -5.0);
        unlikely.top = scored("a", -0.1).top;
        let delta = Delta { content: "b".into(), tokens: vec![unlikely], ..Delta::default() };
        let chunk = Completion::new(true, vec![None], 1).delta(0, delta);
        let top = chunk["logprobs"]["top_logprobs"][0].as_object().unwrap();
        assert_eq!(top.keys().collect::<Vec<_>>(), ["a", "zz", "b"]);
        assert_eq!(top["b"], -5.0);
    }

    #[test]
    fn parts_of_a_character_are_told_apart_by_their_bytes_and_stand_where_it_does() {
        let part =
            |bytes: &[u8], logprob| ShownToken { id: 7, text: "\u{fffd}".into(), bytes: bytes.to_vec(), logprob };
        let token = |bytes: &[u8]| Scored {
            token: part(bytes, -1.0),
            top: vec![part(b"\xe6", -0.5), part(b"\xe7", -0.7), part(bytes, -1.0)],
            ..scored("", 0.0)
        };
        let end = Scored { shown: false, ..scored("<|end|>", -1.0) };
        let tokens = vec![scored("a", -1.0), token(b"\xe6\x97"), token(b"\xa5"), end, scored("b", -1.0)];
        let delta = Delta { content: "a\u{65e5}b".into(), tokens, ..Delta::default() };
        let logprobs = Completion::new(true, vec![None], 1).delta(0, delta)["logprobs"].clone();
        assert_eq!(logprobs["tokens"], json!(["a", "bytes:\\xe6\\x97", "bytes:\\xa5", "<|end|>", "b"]));
        assert_eq!(logprobs["text_offset"], json!([0, 1, 1, 2, 2]));
        assert_eq!(
            logprobs["top_logprobs"][2],
            json!({"bytes:\\xe6": -0.5, "bytes:\\xe7": -0.7f32, "bytes:\\xa5": -1.0})
        );
    }

    #[test]
    fn a_call_that_was_cut_off_says_so_whole_and_streamed() {
        let begun =
            ToolCallDelta { start: Some(("call_1".into(), "add".into())), ..ToolCallDelta::more(0, "{\"a".into()) };
        let cut = ToolCallDelta { incomplete: true, ..ToolCallDelta::more(0, String::new()) };
        let mut all = Delta::default();
        all.call(begun);
        let chunk = Chat { logprobs: false }.delta(0, Delta { tool_calls: vec![cut.clone()], ..Delta::default() });
        assert_eq!(
            chunk["delta"]["tool_calls"][0],
            json!({"index": 0, "function": {"arguments": ""}, "status": "incomplete"})
        );
        all.call(cut);
        let whole = Chat { logprobs: false }.whole(0, all, Finish::Length);
        assert_eq!(
            (&whole["message"]["tool_calls"][0]["status"], &whole["finish_reason"]),
            (&json!("incomplete"), &json!("length"))
        );
    }

    #[test]
    fn an_impossible_token_has_a_number_as_its_logprob() {
        assert_eq!(logprob(f32::NEG_INFINITY), json!(-9999.0));
        assert_eq!(logprob(-1.5), json!(-1.5));
    }
}
