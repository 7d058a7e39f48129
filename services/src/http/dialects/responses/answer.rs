//! ResponseFormat of OpenAI's second API: items of thoughts, text and calls, streamed as numbered events.

use super::items;
use super::request::ThoughtsShown;
use super::tools;
use crate::actors::request::output::{FileSearch, Finish, Output, RequestUsage, Scored};
use crate::citations::Citation;
use crate::clock::unix_seconds;
use crate::hosted::is_approval_id;
use crate::http::reply::citations::{citation_of, search_result};
use crate::http::reply::dialect::{Begun, Dialect, Frames, WholeReply, event, json, still_here};
use crate::http::reply::parts::{Part, PartCall, PartStep, PartText, Parts};
use crate::http::reply::server_items::{file_search_call, mcp_call, run_status, web_search_call, web_status};
use crate::http::reply::tokens;
use crate::http::wire::error::ApiError;
use crate::turn::ToldTools;
use bytes::{BufMut, BytesMut};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// Replies that are responses.
pub(super) struct ResponseFormat {
    /// What it says of its request.
    pub echo: Map<String, Value>,
    /// Tools that stand in a namespace: the namespace and the name of each, by what the model calls it.
    pub namespaces: HashMap<String, (String, String)>,
    /// How thoughts are given.
    pub thoughts: ThoughtsShown,
    /// The passages that a search found are shown.
    pub shows_results: bool,
    /// Servers whose tools the conversation has listed already.
    pub listed: HashSet<String>,
    /// Show the addresses that a search of the web found.
    pub shows_urls: bool,
    /// Takes the response when it is whole, if it is to be kept.
    pub keep: Option<KeepResponse>,
    /// How events stand in a stream.
    pub wire: EventWire,
    /// The conversation is read, and nothing is answered.
    pub warms: bool,
}

/// How events stand in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventWire {
    /// As server-sent events, with names.
    Sse,
    /// Each in a line of its own, as the messages of a socket are made of; an empty line when there is nothing to say.
    Lines,
}

impl EventWire {
    fn write(self, out: &mut BytesMut, name: &str, data: &Map<String, Value>) {
        match self {
            Self::Sse => event(out, Some(name), data),
            Self::Lines => {
                json(out, data);
                out.put_u8(b'\n');
            }
        }
    }
}

/// Keeps a response under its id. False if it could not.
pub(super) type KeepResponse = Box<dyn FnOnce(&str, &Value) -> bool>;

/// A response as it comes: the stream, and the whole reply too.
pub(super) struct ResponseAnswer {
    about: ResponseFormat,
    begun: Begun,
    parts: Parts,
    /// Number of the next event.
    next: u64,
}

impl Dialect for ResponseFormat {
    type Stream = ResponseAnswer;
    type Whole = ResponseAnswer;

    fn streamed(self, begun: Begun) -> ResponseAnswer {
        ResponseAnswer { about: self, begun, parts: Parts::default(), next: 0 }
    }

    fn collected(self, begun: Begun) -> ResponseAnswer {
        let mut answer = self.streamed(begun);
        let searches = std::mem::take(&mut answer.begun.searches);
        for part in answer.told_before() {
            answer.parts.was_there(part, &mut |_| {});
        }
        searches.into_iter().for_each(|search| answer.parts.searched(search, &mut |_| {}));
        answer
    }
}

impl Frames for ResponseAnswer {
    fn opening(&mut self, out: &mut BytesMut) {
        let response = self.response("in_progress", Value::Null);
        let (searches, before) = (std::mem::take(&mut self.begun.searches), self.told_before());
        let mut events = EventWriter { wire: self.about.wire, out, next: &mut self.next };
        events.tell("response.created", [("response", response.clone())]);
        events.tell("response.in_progress", [("response", response)]);
        let items = Items::of(&self.about, &self.begun, false);
        for part in before {
            self.parts.was_there(part, &mut |step| items.frame(step, &mut events));
        }
        for search in searches {
            self.parts.searched(search, &mut |step| items.frame(step, &mut events));
        }
    }

    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        if self.about.warms && !matches!(output, Output::End(_) | Output::Failed(_) | Output::Refused(_)) {
            return Ok(());
        }
        // Then the item that ends with it is cut too.
        let cut = matches!(output, Output::Finished { reason: Finish::Length, .. });
        let items = Items::of(&self.about, &self.begun, cut);
        let mut events = EventWriter { wire: self.about.wire, out, next: &mut self.next };
        if let Some(account) = self.parts.take(output, |step| items.frame(step, &mut events))? {
            let response = self.ended(&account);
            let name = if self.is_cut() { "response.incomplete" } else { "response.completed" };
            EventWriter { wire: self.about.wire, out, next: &mut self.next }.tell(name, [("response", response)]);
        }
        Ok(())
    }

    fn still_here(&mut self, out: &mut BytesMut) {
        match self.about.wire {
            EventWire::Sse => still_here(out),
            EventWire::Lines => out.put_u8(b'\n'),
        }
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        let mut response = self.response("failed", Value::Null);
        response["error"] = json!({"code": "server_error", "message": error.message});
        EventWriter { wire: self.about.wire, out, next: &mut self.next }
            .tell("response.failed", [("response", response)]);
    }
}

impl WholeReply for ResponseAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        Ok(self.parts.take(output, |_| {})?.map(|account| self.ended(&account)))
    }
}

impl ResponseAnswer {
    /// Tools that the conversation has not listed yet, and calls that were approved.
    fn told_before(&mut self) -> Vec<Part> {
        let ToldTools { lists, runs } = std::mem::take(&mut self.begun.tools);
        let new = lists.into_iter().filter(|list| !self.about.listed.contains(&list.server));
        new.map(Part::Tools).chain(runs.into_iter().map(Part::Run)).collect()
    }

    fn is_cut(&self) -> bool {
        self.parts.finish() == Some(Finish::Length)
    }

    /// The whole response, kept if that was asked for. It says so itself.
    fn ended(&mut self, account: &RequestUsage) -> Value {
        let status = if self.is_cut() { "incomplete" } else { "completed" };
        let mut response = self.response(status, usage(account));
        if let Some(keep) = self.about.keep.take()
            && !keep(&self.begun.envelope.id, &response)
        {
            response["store"] = false.into();
        }
        response
    }

    fn response(&self, status: &'static str, usage: Value) -> Value {
        let (envelope, cut) = (&self.begun.envelope, self.is_cut());
        let items = Items::of(&self.about, &self.begun, cut);
        let last = self.parts.all().len().saturating_sub(1);
        let parts = self.parts.all().iter().enumerate().map(|(at, part)| items.ended(at, part, cut && at == last));
        let output: Vec<Value> = parts.collect();
        let reason = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let mut response = json!({
            "id": envelope.id,
            "object": "response",
            "created_at": envelope.created,
            "completed_at": (status == "completed").then(unix_seconds),
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": reason,
            "model": envelope.model,
            "output": output,
            "parallel_tool_calls": true,
            "reasoning": {"effort": null, "summary": null},
            "service_tier": "default",
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "truncation": "disabled",
            "usage": usage,
        });
        for (name, value) in &self.about.echo {
            response[name] = value.clone();
        }
        response
    }
}

/// Where events go, and their numbers.
struct EventWriter<'a> {
    wire: EventWire,
    out: &'a mut BytesMut,
    next: &'a mut u64,
}

impl EventWriter<'_> {
    fn tell<const N: usize>(&mut self, name: &str, fields: [(&str, Value); N]) {
        let head = [("type", json!(name)), ("sequence_number", json!(*self.next))];
        *self.next += 1;
        let all = head.into_iter().chain(fields).map(|(k, v)| (k.to_owned(), v));
        self.wire.write(self.out, name, &all.collect());
    }
}

/// The ids of the responses that an item of this id may be of, the likelier first; see [`Items::id`].
pub(super) fn response_of(item: &str) -> impl Iterator<Item = String> {
    let (_, rest) = item.split_once('_').unwrap_or_default();
    [2, 3].into_iter().filter_map(|digits| {
        let (reply, at) = rest.split_at_checked(rest.len().checked_sub(digits)?)?;
        (!reply.is_empty() && at.bytes().all(|b| b.is_ascii_digit())).then(|| format!("resp_{reply}"))
    })
}

/// How parts become items.
struct Items<'a> {
    about: &'a ResponseFormat,
    reply: &'a str,
    /// The answer was cut off, and with it its last item.
    cut: bool,
}

impl<'a> Items<'a> {
    fn of(about: &'a ResponseFormat, begun: &'a Begun, cut: bool) -> Self {
        Self { about, reply: &begun.envelope.id, cut }
    }
}

impl Items<'_> {
    /// Unique among all responses, as the response's own id is.
    fn id(&self, at: usize, part: &Part) -> String {
        let kind = match part {
            // The client answers it by this id.
            Part::Call(call) if is_approval_id(&call.id) => return call.id.clone(),
            Part::Tools(_) => "mcpl",
            Part::Run(_) => "mcp",
            Part::Thought(_) => "rs",
            Part::Text(_) => "msg",
            Part::Call(_) => "fc",
            Part::Search(_) => "fs",
            Part::Web(_) => "ws",
        };
        format!("{kind}_{}{at:02}", self.reply.trim_start_matches("resp_"))
    }

    /// The item of a search of files.
    fn search(&self, search: &FileSearch, ended: bool) -> Value {
        let shows = self.about.shows_results && ended;
        let results = shows.then(|| search.results.iter().filter_map(search_result).collect::<Vec<_>>());
        let mut item = file_search_call(search, results);
        if let Some(sufficiency) = search.sufficiency.filter(|_| ended) {
            item["sufficiency"] = sufficiency.into();
        }
        item
    }

    /// An item of which nothing is there yet.
    fn begun(&self, at: usize, part: &Part) -> Value {
        let mut item = match part {
            Part::Thought(_) => self.thought(""),
            Part::Text(_) => json!({"type": "message", "role": "assistant"}),
            Part::Call(call) => self.call(call, ""),
            Part::Search(search) => self.search(search, false),
            Part::Tools(list) => tools::list(list, false),
            Part::Run(run) => mcp_call(run),
            Part::Web(action) => web_search_call(action, self.about.shows_urls),
        };
        if matches!(part, Part::Thought(_) | Part::Text(_)) {
            item["content"] = json!([]);
        }
        item["id"] = json!(self.id(at, part));
        if has_status(part) {
            item["status"] = json!("in_progress");
        }
        item
    }

    /// A whole item, or what came of it.
    fn ended(&self, at: usize, part: &Part, cut: bool) -> Value {
        let mut item = match part {
            Part::Thought(text) => self.thought(text),
            Part::Text(part) => {
                let content = whole_text(text_part(&part.text), part);
                json!({"type": "message", "role": "assistant", "content": [content]})
            }
            Part::Call(call) => self.call(call, &call.arguments),
            Part::Search(search) => self.search(search, true),
            Part::Tools(list) => tools::list(list, true),
            Part::Run(run) => mcp_call(run),
            Part::Web(action) => web_search_call(action, self.about.shows_urls),
        };
        let incomplete = cut || matches!(part, Part::Call(call) if call.incomplete);
        item["id"] = json!(self.id(at, part));
        let status = match part {
            Part::Run(run) if run_status(run) == "failed" => "failed",
            Part::Web(action) if web_status(action) == "failed" => "failed",
            _ if incomplete => "incomplete",
            _ => "completed",
        };
        if has_status(part) {
            item["status"] = json!(status);
        }
        item
    }

    fn thought(&self, text: &str) -> Value {
        let ThoughtsShown { as_summary, sealed } = self.about.thoughts;
        let (mut summary, mut content) = (Vec::new(), Vec::new());
        if as_summary && !text.is_empty() {
            summary.push(json!({"type": "summary_text", "text": text}));
        } else if !text.is_empty() {
            content.push(json!({"type": "reasoning_text", "text": text}));
        }
        let mut item = json!({"type": "reasoning", "summary": summary, "content": content});
        if sealed {
            item["encrypted_content"] = items::sealed(text).into();
        }
        item
    }

    fn call(&self, call: &PartCall, arguments: &str) -> Value {
        if is_approval_id(&call.id) {
            return tools::approval_request(&call.name, arguments);
        }
        let mut item = json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments});
        if let Some((space, name)) = self.about.namespaces.get(&call.name) {
            (item["namespace"], item["name"]) = (json!(space), json!(name));
        }
        item
    }

    fn frame(&self, step: PartStep<'_>, events: &mut EventWriter<'_>) {
        let place = |at: usize, part: &Part| [("item_id", json!(self.id(at, part))), self.index(at)];
        match step {
            PartStep::Begin(at, part) => {
                let item = self.begun(at, part);
                events.tell("response.output_item.added", [self.index(at), ("item", item)]);
                if let Some(names) = self.names(part) {
                    let [id, output] = place(at, part);
                    let fields = [id, output, (names.index, json!(0)), ("part", (names.part)(""))];
                    events.tell(names.added, fields);
                }
                for name in tools::begun(part) {
                    events.tell(name, place(at, part));
                }
                if let Part::Run(run) = part {
                    let ([id, output], arguments) = (place(at, part), json!(run.arguments));
                    events.tell("response.mcp_call_arguments.delta", [id, output, ("delta", arguments.clone())]);
                    let [id, output] = place(at, part);
                    events.tell("response.mcp_call_arguments.done", [id, output, ("arguments", arguments)]);
                }
            }
            PartStep::More(at, part, more, new) => {
                let [id, output] = place(at, part);
                match self.names(part) {
                    Some(names) if names.logprobs => {
                        let logprobs = ("logprobs", logprobs(new));
                        let fields = [id, output, (names.index, json!(0)), ("delta", json!(more)), logprobs];
                        events.tell(names.delta, fields);
                    }
                    Some(names) => {
                        events.tell(names.delta, [id, output, (names.index, json!(0)), ("delta", json!(more))]);
                    }
                    None if matches!(part, Part::Call(call) if is_approval_id(&call.id)) => {}
                    None => {
                        events.tell("response.function_call_arguments.delta", [id, output, ("delta", json!(more))]);
                    }
                }
            }
            PartStep::Cited(at, part, count, citation) => {
                if let Some(citation) = annotation(citation) {
                    let ([id, output], number) = (place(at, part), ("annotation_index", json!(count)));
                    let fields = [id, output, ("content_index", json!(0)), number, ("annotation", citation)];
                    events.tell("response.output_text.annotation.added", fields);
                }
            }
            PartStep::End(at, part) => self.end(at, part, events),
        }
    }

    fn index(&self, at: usize) -> (&'static str, Value) {
        ("output_index", json!(at))
    }

    fn end(&self, at: usize, part: &Part, events: &mut EventWriter<'_>) {
        let place = || [("item_id", json!(self.id(at, part))), self.index(at)];
        match (part, self.names(part)) {
            (Part::Call(call), _) if is_approval_id(&call.id) => {}
            (Part::Call(call), _) => {
                let [id, output] = place();
                let (name, arguments) = (("name", json!(call.name)), ("arguments", json!(call.arguments)));
                events.tell("response.function_call_arguments.done", [id, output, name, arguments]);
            }
            (Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_), _) => {
                events.tell(tools::ended(part), place())
            }
            (Part::Thought(text), Some(names)) => {
                let ([id, output], index) = (place(), (names.index, json!(0)));
                events.tell(names.done, [id, output, index, ("text", json!(text))]);
                self.part_ended(place(), &names, (names.part)(text), events);
            }
            (Part::Text(text), Some(names)) => {
                let ([id, output], index) = (place(), (names.index, json!(0)));
                let fields = [id, output, index, ("text", json!(text.text)), ("logprobs", logprobs(&text.tokens))];
                events.tell(names.done, fields);
                self.part_ended(place(), &names, whole_text((names.part)(&text.text), text), events);
            }
            _ => {}
        }
        let item = self.ended(at, part, self.cut);
        events.tell("response.output_item.done", [self.index(at), ("item", item)]);
    }

    fn part_ended(
        &self,
        [id, output]: [(&str, Value); 2],
        names: &EventNames,
        part: Value,
        events: &mut EventWriter<'_>,
    ) {
        events.tell(names.ended, [id, output, (names.index, json!(0)), ("part", part)]);
    }

    /// What the events of a part with text are called.
    fn names(&self, part: &Part) -> Option<EventNames> {
        match part {
            Part::Thought(_) if self.about.thoughts.as_summary => Some(SUMMARY),
            Part::Thought(_) => Some(THOUGHT),
            Part::Text(_) => Some(TEXT),
            Part::Call(_) | Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => None,
        }
    }
}

/// Whether items of this kind say how far they are.
fn has_status(part: &Part) -> bool {
    match part {
        Part::Tools(_) => false,
        Part::Call(call) => !is_approval_id(&call.id),
        _ => true,
    }
}

/// EventNames of the events of a part with text.
struct EventNames {
    added: &'static str,
    delta: &'static str,
    done: &'static str,
    ended: &'static str,
    /// The field with the number of the part within its item, which has one.
    index: &'static str,
    part: fn(&str) -> Value,
    logprobs: bool,
}

const TEXT: EventNames = EventNames {
    added: "response.content_part.added",
    delta: "response.output_text.delta",
    done: "response.output_text.done",
    ended: "response.content_part.done",
    index: "content_index",
    part: text_part,
    logprobs: true,
};
const THOUGHT: EventNames = EventNames {
    delta: "response.reasoning_text.delta",
    done: "response.reasoning_text.done",
    part: |text| json!({"type": "reasoning_text", "text": text}),
    logprobs: false,
    ..TEXT
};
const SUMMARY: EventNames = EventNames {
    added: "response.reasoning_summary_part.added",
    delta: "response.reasoning_summary_text.delta",
    done: "response.reasoning_summary_text.done",
    ended: "response.reasoning_summary_part.done",
    index: "summary_index",
    part: |text| json!({"type": "summary_text", "text": text}),
    logprobs: false,
};

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The part of a text with its log-probabilities and citations.
fn whole_text(mut part: Value, text: &PartText) -> Value {
    part["logprobs"] = logprobs(&text.tokens);
    part["annotations"] = text.citations.iter().filter_map(annotation).collect();
    part
}

/// A citation, as an annotation of a text.
fn annotation(citation: &Citation) -> Option<Value> {
    let (kind, mut annotation) = citation_of(citation)?;
    annotation["type"] = kind.into();
    Some(annotation)
}

fn logprobs(tokens: &[Scored]) -> Value {
    tokens.iter().map(tokens::scored).collect()
}

fn usage(account: &RequestUsage) -> Value {
    json!({
        "input_tokens": account.prompt_tokens,
        "input_tokens_details": {"cached_tokens": account.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": account.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": account.reasoning_tokens},
        "total_tokens": account.prompt_tokens + account.completion_tokens,
    })
}
