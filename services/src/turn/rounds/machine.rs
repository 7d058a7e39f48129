//! Which step of a turn comes next. Data in, data out: no clock, no network, nothing asynchronous.

use crate::actors::request::output::Finish;
use crate::citations::NumberedSource;
use crate::hosted::ToolAnswer;
use crate::limits::{TURN_CALLS_MAX, TURN_ROUNDS_MAX};
use crate::turn::hosted::{Hosted, HostedCall};

/// What the model reads of a query that could carry out what something foreign said.
const FOREIGN: &str = "something was read that the user did not write, and what it says is not searched for; \
    answer from what was found";

/// A turn on its way: how much of what it may do it has done.
#[derive(Debug)]
pub(super) struct Turn {
    /// What the server runs itself; all else is the client's.
    hosted: Vec<Hosted>,
    /// Tokens that the answer may still have, if that is bounded.
    tokens_left: Option<u32>,
    rounds: u32,
    calls: u32,
    /// Calls of each of `hosted` that were run.
    runs: Vec<u32>,
    /// Something was read that the user did not say and that is not his own: a tool's result, a page, another
    /// account's store. It may tell the model what to do.
    tainted: bool,
}

/// Something that has come about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TurnEvent {
    /// There is a prompt.
    Begin,
    /// A generation has ended.
    Generated(Generated),
    /// All calls of the last step were answered, in their order.
    Called(Vec<CallResult>),
    /// The turn begins with calls that an earlier one asked about, and that somebody has approved.
    Approved(Vec<ModelCall>),
    /// The client was asked about all calls of the last step.
    Asked,
    /// The context has no room for a generation behind these answers.
    Full,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TurnStep {
    /// Have the model go on behind these answers to its calls; there are none at the beginning.
    Generate(Vec<CallResult>),
    /// Answer these calls of the model's.
    Call(Vec<PlannedCall>),
    /// Ask the client whether these calls may run. None of them does before another turn brings the answer.
    AskApproval(Vec<PlannedCall>),
    /// The answer is whole, and ended for this reason.
    Done(Finish),
}

/// What one generation gave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Generated {
    pub(super) calls: Vec<ModelCall>,
    pub(super) finish: Finish,
    /// Tokens that it took of the answer's.
    pub(super) tokens: u32,
}

/// A call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelCall {
    pub(super) name: String,
    /// JSON, whole unless the call is incomplete.
    pub(super) arguments: String,
    pub(super) incomplete: bool,
}

/// A call of a hosted function, and what is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedCall {
    pub(super) call: ModelCall,
    pub(super) tool: Hosted,
    /// What to run, or why it is not run, in words for the model.
    pub(super) plan: Result<HostedCall, String>,
}

impl PlannedCall {
    /// An MCP server is asked, and nothing is changed by that.
    pub(super) fn is_read_of_mcp(&self) -> bool {
        matches!(self.plan, Ok(HostedCall::Mcp { .. })) && self.tool.reads_only()
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallResult {
    pub(super) call: ModelCall,
    pub(super) outcome: CallOutcome,
    /// What the model reads.
    pub(super) text: String,
    /// Passages in it, which may be cited.
    pub(super) passages: Vec<NumberedSource>,
    /// It says what the user did not say and what is not his own.
    pub(super) taints: bool,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Answered,
    /// It was run, and broke.
    Failed,
    /// It was not run.
    Refused,
}

impl CallOutcome {
    /// What an answer says of it.
    pub(super) fn of(answer: &ToolAnswer) -> Self {
        if answer.failed { Self::Failed } else { Self::Answered }
    }

    /// Its label in the metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

impl Turn {
    /// A turn in which the server runs these functions.
    pub(super) fn new(hosted: Vec<Hosted>, max_tokens: Option<u32>) -> Self {
        let runs = vec![0; hosted.len()];
        Self { hosted, tokens_left: max_tokens, rounds: 0, calls: 0, runs, tainted: false }
    }

    /// The conversation has something that is not the user's own, if it has.
    pub(super) fn taint(&mut self, tainted: bool) {
        self.tainted |= tainted;
    }

    /// The step that follows from what came about.
    pub(super) fn next(&mut self, event: TurnEvent) -> TurnStep {
        match event {
            TurnEvent::Begin => self.generate(Vec::new()),
            TurnEvent::Generated(generated) => self.judge(&generated),
            TurnEvent::Called(results) => {
                self.tainted |= results.iter().any(|result| result.taints);
                self.generate(results)
            }
            TurnEvent::Approved(calls) => TurnStep::Call(calls.iter().filter_map(|call| self.plan(call)).collect()),
            TurnEvent::Asked => TurnStep::Done(Finish::ToolCalls),
            TurnEvent::Full => {
                // The generation that was asked for does not come.
                self.rounds -= 1;
                TurnStep::Done(Finish::Length)
            }
        }
    }

    /// Generations of the turn so far.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Tokens that the answer may still have, if that is bounded.
    pub(super) fn tokens_left(&self) -> Option<u32> {
        self.tokens_left
    }

    fn generate(&mut self, results: Vec<CallResult>) -> TurnStep {
        self.rounds += 1;
        TurnStep::Generate(results)
    }

    /// Goes on where the model called nothing but functions of the server's. A call of the client's own ends the turn,
    /// and the server's calls beside it are dropped: nobody would read what they give before the client answers.
    fn judge(&mut self, generated: &Generated) -> TurnStep {
        self.tokens_left = self.tokens_left.map(|left| left.saturating_sub(generated.tokens));
        let hosted = generated.calls.iter().filter(|call| self.place(&call.name).is_some()).count();
        let ended_itself = matches!(generated.finish, Finish::Stop | Finish::ToolCalls);
        if hosted == 0 || hosted < generated.calls.len() || !ended_itself {
            return TurnStep::Done(generated.finish);
        }
        if self.rounds >= TURN_ROUNDS_MAX || self.tokens_left == Some(0) {
            return TurnStep::Done(Finish::Length);
        }
        let planned: Vec<PlannedCall> = generated.calls.iter().filter_map(|call| self.plan(call)).collect();
        // Those beside them are dropped, as beside a call of the client's: the turn ends here too.
        let asked: Vec<PlannedCall> = planned.iter().filter(|call| self.waits(call)).cloned().collect();
        if asked.is_empty() { TurnStep::Call(planned) } else { TurnStep::AskApproval(asked) }
    }

    /// Whether a call waits for an approval: its tool asks for one, or it could carry out what something foreign said.
    fn waits(&self, PlannedCall { tool, plan, .. }: &PlannedCall) -> bool {
        plan.is_ok() && (tool.asks() || self.tainted && !tool.reads_only())
    }

    /// Reads a call, and counts it if it is run.
    fn plan(&mut self, call: &ModelCall) -> Option<PlannedCall> {
        let place = self.place(&call.name)?;
        let tool = self.hosted[place].clone();
        let most = tool.calls_max();
        self.calls += 1;
        let plan = if self.calls > TURN_CALLS_MAX {
            Err(format!("an answer may make {TURN_CALLS_MAX} calls, and made them; answer now"))
        } else if call.incomplete {
            Err(format!("the call of {} has no end", tool.name()))
        } else if self.tainted && tool.carries_words_out() {
            Err(FOREIGN.to_owned())
        } else if self.runs[place] >= most {
            Err(format!("an answer may call {} {most} times, and did; answer from what was found", tool.name()))
        } else {
            tool.read(&call.arguments)
        };
        self.runs[place] += u32::from(plan.is_ok());
        Some(PlannedCall { call: call.clone(), tool, plan })
    }

    /// Whether the server runs the function of this name.
    pub(super) fn hosts(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.hosted.iter().position(|tool| tool.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::hosted::WebCall;
    use Finish::{Length, Stop, StopString, ToolCalls};

    /// A call in words: `search X` and `web X` of the server's, `add X` of the client's, `search!` one without a query,
    /// `search?` one that has no end.
    fn call(words: &str) -> ModelCall {
        let (name, arguments, incomplete) = match words.split_once(' ') {
            Some(("search", query)) => ("file_search", format!(r#"{{"query":"{query}"}}"#), false),
            Some(("web", query)) => ("web_search", format!(r#"{{"queries":["{query}"]}}"#), false),
            Some((name, _)) => (name, "{}".to_owned(), false),
            None => ("file_search", "{}".to_owned(), words == "search?"),
        };
        ModelCall { name: name.into(), arguments, incomplete }
    }

    fn event(words: &str) -> TurnEvent {
        let generated = |calls: &str, finish, tokens| {
            let calls = calls.split(", ").filter(|one| !one.is_empty()).map(call).collect();
            TurnEvent::Generated(Generated { calls, finish, tokens })
        };
        match words.split_once(": ") {
            Some(("calls", calls)) => generated(calls, ToolCalls, 10),
            Some(("is cut in", calls)) => generated(calls, Length, 10),
            Some(("ends in", calls)) => generated(calls, Stop, 10),
            _ if words == "says" => generated("", Stop, 10),
            _ if words == "says a stop string" => generated("", StopString(0), 10),
            _ if words == "is full" => TurnEvent::Full,
            Some(("approved", calls)) => TurnEvent::Approved(calls.split(", ").map(call).collect()),
            _ if words == "begins" => TurnEvent::Begin,
            _ if words == "the client was asked" => TurnEvent::Asked,
            _ => {
                let (call, text) = (call("search a"), "found".to_owned());
                let (outcome, taints) = (CallOutcome::Answered, words == "answered by a tool");
                TurnEvent::Called(vec![CallResult { call, outcome, text, passages: Vec::new(), taints }])
            }
        }
    }

    fn told(step: &TurnStep) -> String {
        match step {
            TurnStep::Generate(results) if results.is_empty() => "generate".into(),
            TurnStep::Generate(_) => "go on".into(),
            TurnStep::Done(finish) => format!("done: {}", finish.name()),
            TurnStep::AskApproval(calls) => {
                let names: Vec<&str> = calls.iter().map(|call| call.tool.name()).collect();
                format!("ask about {}", names.join(", "))
            }
            TurnStep::Call(calls) => {
                let one = |call: &PlannedCall| match &call.plan {
                    Ok(HostedCall::FileSearch { query }) => format!("search {query}"),
                    Ok(HostedCall::Mcp { tool, .. }) => format!("run {}", tool.name),
                    Ok(HostedCall::Web(WebCall::Search { queries })) => format!("web {}", queries.join(", ")),
                    Ok(HostedCall::Web(WebCall::Open { url, .. })) => format!("open {url}"),
                    Err(why) => format!("say {}", why.rsplit(['`', ';', ',']).next().unwrap().trim()),
                };
                calls.iter().map(one).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[track_caller]
    fn check_of(mut turn: Turn, scene: &[(&str, &str)]) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for (words, step) in scene {
            got.push(format!("{words} -> {}", told(&turn.next(event(words)))));
            want.push(format!("{words} -> {step}"));
        }
        assert_eq!(got, want);
    }

    #[track_caller]
    fn check(scene: &[(&str, &str)]) {
        check_of(Turn::new(vec![Hosted::FileSearch], None), scene);
    }

    #[test]
    fn a_model_that_calls_nothing_has_answered() {
        check(&[("begins", "generate"), ("says", "done: stop")]);
        check(&[("begins", "generate"), ("says a stop string", "done: stop")]);
    }

    #[test]
    fn what_the_model_searches_for_is_answered_and_it_goes_on() {
        check(&[
            ("begins", "generate"),
            ("calls: search a", "search a"),
            ("answered", "go on"),
            ("calls: search b, search c", "search b, search c"),
            ("answered", "go on"),
            ("says", "done: stop"),
        ]);
    }

    #[test]
    fn a_call_of_the_client_s_ends_the_turn_and_a_search_beside_it_is_dropped() {
        check(&[("begins", "generate"), ("calls: add 1", "done: tool_calls")]);
        check(&[("begins", "generate"), ("calls: search a, add 1", "done: tool_calls")]);
        check(&[
            ("begins", "generate"),
            ("calls: search a", "search a"),
            ("answered", "go on"),
            ("calls: add 1", "done: tool_calls"),
        ]);
    }

    #[test]
    fn a_wrong_call_is_answered_in_words_and_does_not_count_as_a_search() {
        check(&[
            ("begins", "generate"),
            ("calls: search!, search a", "say got \"{}\", search a"),
            ("answered", "go on"),
            ("calls: search b, search c, search d", "search b, search c, search d"),
        ]);
        check(&[("begins", "generate"), ("ends in: search?", "say the call of file_search has no end")]);
    }

    #[test]
    fn the_fifth_search_is_refused_in_words_and_the_model_goes_on() {
        check(&[
            ("begins", "generate"),
            ("calls: search a, search b, search c", "search a, search b, search c"),
            ("answered", "go on"),
            ("calls: search d, search e", "search d, say answer from what was found"),
            ("answered", "go on"),
            ("says", "done: stop"),
        ]);
    }

    #[test]
    fn a_turn_has_8_rounds_and_16_calls() {
        let mut scene = vec![("begins", "generate")];
        for _ in 1..TURN_ROUNDS_MAX {
            scene.extend([("calls: search!", "say got \"{}\""), ("answered", "go on")]);
        }
        scene.push(("calls: search!", "done: length"));
        check(&scene);
        let many = ["search!"; TURN_CALLS_MAX as usize + 1].join(", ");
        let said = format!("{}, say answer now", ["say got \"{}\""; TURN_CALLS_MAX as usize].join(", "));
        check(&[("begins", "generate"), (&format!("calls: {many}"), &said)]);
    }

    #[test]
    fn an_answer_that_is_cut_off_or_has_no_room_is_over() {
        check(&[("begins", "generate"), ("is cut in: search?", "done: length")]);
        let full = [("begins", "generate"), ("calls: search a", "search a"), ("answered", "go on")];
        check(&[&full[..], &[("is full", "done: length")]].concat());
    }

    #[test]
    fn the_tokens_of_an_answer_are_those_of_all_rounds() {
        let turn = || Turn::new(vec![Hosted::FileSearch], Some(15));
        check_of(turn(), &[("begins", "generate"), ("calls: search a", "search a"), ("answered", "go on")]);
        let mut turn = turn();
        turn.next(event("calls: search a"));
        assert_eq!(turn.tokens_left(), Some(5));
        turn.next(event("answered"));
        assert_eq!(told(&turn.next(event("calls: search b"))), "done: length");
    }

    /// Tools of four kinds: one that only reads, one that writes and is asked about, and of a server whose calls need
    /// no approval one that writes, and one of which the request wants to be asked.
    fn with_tools() -> Turn {
        let (files, open) =
            ("[mcp.files]\nargv = [\"x\"]\nread_only = [\"read\"]", "[mcp.open]\nargv = [\"x\"]\napproval = \"never\"");
        let mcp = |lines, name, asked| {
            let tool = crate::hosted::fakes::tool(lines, name);
            let asks = tool.asks() || asked;
            Hosted::Mcp { tool, asks }
        };
        let tools =
            [mcp(files, "read", false), mcp(files, "write", false), mcp(open, "post", false), mcp(open, "send", true)];
        Turn::new(std::iter::once(Hosted::FileSearch).chain(tools).collect(), None)
    }

    #[test]
    fn a_call_that_writes_is_asked_about_and_ends_the_turn() {
        let asked = [
            ("begins", "generate"),
            ("calls: files__write a, files__read a", "ask about files__write"),
            ("the client was asked", "done: tool_calls"),
        ];
        check_of(with_tools(), &asked);
        check_of(with_tools(), &[("begins", "generate"), ("calls: open__send a", "ask about open__send")]);
        check_of(with_tools(), &[("begins", "generate"), ("calls: files__write a, add 1", "done: tool_calls")]);
    }

    #[test]
    fn nothing_is_asked_of_what_only_reads_or_what_the_operator_lets_run() {
        check_of(
            with_tools(),
            &[
                ("begins", "generate"),
                ("calls: open__post a, files__read a", "run post, run read"),
                ("answered by a tool", "go on"),
                ("calls: files__read b, search a", "run read, search a"),
                ("answered", "go on"),
                ("says", "done: stop"),
            ],
        );
    }

    #[test]
    fn once_a_tool_has_spoken_nothing_writes_without_being_asked_about() {
        let read = [("begins", "generate"), ("calls: files__read a", "run read"), ("answered by a tool", "go on")];
        let after = |words, step| check_of(with_tools(), &[&read[..], &[(words, step)]].concat());
        after("calls: open__post a", "ask about open__post");
        after("calls: open__post a, open__post b, files__read c", "ask about open__post, open__post");
        let searched = [("begins", "generate"), ("calls: search a", "search a"), ("answered", "go on")];
        let own = [&searched[..], &[("calls: open__post a", "run post")]].concat();
        check_of(with_tools(), &own);
        let others =
            [&searched[..2], &[("answered by a tool", "go on"), ("calls: open__post a", "ask about open__post")]];
        check_of(with_tools(), &others.concat());
        let mut turn = with_tools();
        turn.taint(true);
        check_of(turn, &[("begins", "generate"), ("calls: open__post a", "ask about open__post")]);
    }

    #[test]
    fn once_anything_foreign_was_read_no_query_goes_to_the_web_wherever_it_came_from() {
        let with_web = || {
            let Turn { hosted, .. } = with_tools();
            Turn::new(hosted.into_iter().chain([Hosted::WebSearch]).collect(), None)
        };
        let refused = ("calls: web a", "say answer from what was found");
        let after = |turn: Turn, before: &[(&str, &str)]| check_of(turn, &[before, &[refused]].concat());
        let read = [("begins", "generate"), ("calls: files__read a", "run read"), ("answered by a tool", "go on")];
        after(with_web(), &read);
        let page = [("begins", "generate"), ("calls: web a, web b", "web a, web b"), ("answered by a tool", "go on")];
        after(with_web(), &page);
        let others = [("begins", "generate"), ("calls: search a", "search a"), ("answered by a tool", "go on")];
        after(with_web(), &others);
        after(with_web(), &[("approved: files__write a", "run write"), ("answered by a tool", "go on")]);
        let mut turn = with_web();
        turn.taint(true);
        after(turn, &[("begins", "generate")]);
        let own = [("begins", "generate"), ("calls: search a", "search a"), ("answered", "go on")];
        check_of(with_web(), &[&own[..], &[("calls: web a", "web a")]].concat());
    }

    #[test]
    fn what_was_approved_runs_before_the_first_generation_and_counts_as_a_call() {
        check_of(
            with_tools(),
            &[
                ("approved: files__write a", "run write"),
                ("answered by a tool", "go on"),
                ("calls: open__post a", "ask about open__post"),
            ],
        );
        let mut turn = with_tools();
        for _ in 0..TURN_CALLS_MAX {
            turn.next(event("approved: files__write a"));
        }
        assert_eq!(told(&turn.next(event("approved: files__write a"))), "say answer now");
    }

    #[test]
    fn a_function_that_is_not_hosted_here_is_the_client_s_whatever_its_name() {
        check_of(Turn::new(Vec::new(), None), &[("begins", "generate"), ("calls: search a", "done: tool_calls")]);
    }
}
