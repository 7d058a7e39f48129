//! Which step of a pipeline comes next. Data in, data out: no clock, no network, no text of a model but as data.

use super::form::{CheckRule, CheckStep, GenerateStep, PipelineBudget, RetrieveStep, Test};
use super::pipeline::NamedPipeline;
use super::program::Op;
use super::template::QUESTION;
use super::tool::ToolPlan;
use crate::actors::request::output::Finish;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Why a pipeline ended early: its tokens were used up.
pub const OUT_OF_TOKENS: &str = "tokens";
/// Why a pipeline ended early: its time was over.
pub const OUT_OF_TIME: &str = "milliseconds";

/// A pipeline that is gone through.
#[derive(Debug)]
pub struct PipelineRun {
    program: Arc<[Op]>,
    budget: PipelineBudget,
    /// Tokens that the client wants of an answer at most.
    answer_tokens: Option<u32>,
    /// Place of the step that is being done, or is to be done next.
    at: usize,
    /// The question, and the texts of the generations and calls so far, by name.
    said: HashMap<Arc<str>, String>,
    /// The generation that a check looks at: its place and its text.
    last: Option<(usize, String)>,
    /// Checks that had their second try.
    retried: BTreeSet<usize>,
    again: Option<Again>,
    generations: u32,
    tokens: u32,
    answer: AnswerPlace,
    finish: Finish,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum PipelineEvent {
    /// The client's request is there.
    Begin,
    /// A test holds, or does not.
    Tested(bool),
    /// Passages were looked for or judged.
    Looked,
    /// A tool was run, and this is read of it.
    Called(String),
    /// Texts were generated, as many as were asked for.
    Generated(Vec<Said>),
    /// A check passed, or failed for this reason.
    Checked(Option<String>),
    /// The time was over before the step was, in which so many tokens came.
    Expired(u32),
}

/// A text that was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The text without its thought.
    pub text: String,
    /// Tokens of all its choices.
    pub tokens: u32,
    /// The reason for which it ended.
    pub finish: Finish,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum PipelineAction {
    /// Find out whether this holds of the conversation.
    Test(Arc<str>, Test),
    /// Search a store for passages.
    Retrieve(Arc<str>, RetrieveStep),
    /// Find out whether the passages suffice.
    Judge(Arc<str>, f64),
    /// Run a tool of an MCP server.
    Call(CallPlan),
    /// Have the model write these texts, all at once.
    Generate(Vec<GenerationPlan>),
    /// Look at a text.
    Check(CheckPlan),
    /// Give the answer; the pipeline has ended.
    Done(PipelineEnd),
}

/// A generation that is to be made.
#[derive(Clone, Debug)]
pub struct GenerationPlan {
    /// Its number among those of the pipeline, from 0.
    pub number: u32,
    /// The step as its file has it.
    pub step: Arc<GenerateStep>,
    /// What stands before the client's system message.
    pub system: Option<String>,
    /// What stands behind the user's last text.
    pub suffix: Option<String>,
    /// The most tokens of a choice.
    pub tokens: Option<u32>,
    /// Its text is the answer.
    pub answers: bool,
    /// The client reads it as it is written.
    pub shown: bool,
    /// The text that failed a check, for a second try.
    pub again: Option<Again>,
}

/// A tool that is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPlan {
    /// The name of the step.
    pub name: Arc<str>,
    /// The tool and its arguments.
    pub tool: ToolPlan,
    /// The text in the place of the result where the call fails.
    pub otherwise: Option<String>,
}

/// A look at a text.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// The name of the step.
    pub name: Arc<str>,
    /// The step as its file has it.
    pub step: Arc<CheckStep>,
    /// The text that is looked at.
    pub text: String,
    /// The tool that looks at it, if the step has one.
    pub tool: Option<ToolPlan>,
}

/// A text that failed a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// The text that failed.
    pub text: String,
    /// The reason for which it failed.
    pub why: String,
}

/// How a pipeline ended.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineEnd {
    /// Where the answer is.
    pub answer: AnswerPlace,
    /// The reason for which it ended.
    pub finish: Finish,
    /// The budget that was used up, if one was.
    pub early: Option<&'static str>,
}

/// Where the answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPlace {
    /// No answer is there.
    None,
    /// The client has read it.
    Shown,
    /// Whoever carried the steps out has the last one that was generated.
    Held,
    /// This text of the operator's.
    Words(String),
}

impl PipelineRun {
    /// A pipeline that begins with the user's last text, for a client that wants so many tokens of an answer at most.
    pub fn new(pipeline: &NamedPipeline, question: &str, answer_tokens: Option<u32>) -> Self {
        Self {
            program: pipeline.program.clone(),
            budget: pipeline.budget,
            answer_tokens,
            at: 0,
            said: HashMap::from([(QUESTION.into(), question.to_owned())]),
            last: None,
            retried: BTreeSet::new(),
            again: None,
            generations: 0,
            tokens: 0,
            answer: AnswerPlace::None,
            finish: Finish::Length,
        }
    }

    /// Takes what came of the step before, `elapsed` after the beginning, and says what is to be done.
    pub fn next(&mut self, event: PipelineEvent, elapsed: Duration) -> PipelineAction {
        match event {
            PipelineEvent::Begin => {}
            PipelineEvent::Tested(holds) => self.branch(holds),
            PipelineEvent::Looked => self.at += 1,
            PipelineEvent::Called(text) => self.called(text),
            PipelineEvent::Generated(said) => {
                if let Some(done) = self.generated(said) {
                    return done;
                }
            }
            PipelineEvent::Checked(failed) => {
                if let Some(done) = self.checked(failed) {
                    return done;
                }
            }
            PipelineEvent::Expired(tokens) => return self.expired(tokens),
        }
        self.step(elapsed)
    }

    /// Time that is left of the budget, if there is one.
    pub fn time_left(&self, elapsed: Duration) -> Option<Duration> {
        self.budget.time.map(|time| time.saturating_sub(elapsed))
    }

    fn branch(&mut self, holds: bool) {
        self.at = match &self.program[self.at] {
            Op::When { otherwise, .. } if !holds => *otherwise,
            _ => self.at + 1,
        };
    }

    fn called(&mut self, text: String) {
        if let Op::Call { name, .. } = &self.program[self.at] {
            self.said.insert(name.clone(), text);
        }
        self.at += 1;
    }

    /// Keeps what was said. A call of the client's functions ends the pipeline, as it ends any answer.
    fn generated(&mut self, said: Vec<Said>) -> Option<PipelineAction> {
        self.tokens = said.iter().fold(self.tokens, |sum, said| sum.saturating_add(said.tokens));
        match &self.program[self.at] {
            Op::Parallel { steps } => {
                for (step, said) in steps.iter().zip(said) {
                    self.said.insert(step.name.clone(), said.text);
                }
            }
            Op::Generate { step, answers, shown } => {
                let said = said.into_iter().next()?;
                self.said.insert(step.name.clone(), said.text.clone());
                self.last = Some((self.at, said.text));
                if *answers {
                    self.answer = if *shown { AnswerPlace::Shown } else { AnswerPlace::Held };
                    self.finish = said.finish;
                }
                if *answers && said.finish == Finish::ToolCalls {
                    return Some(self.done(None));
                }
            }
            _ => {}
        }
        self.at += 1;
        None
    }

    /// A text that fails is generated once more, as long as the budget has tokens for that.
    fn checked(&mut self, failed: Option<String>) -> Option<PipelineAction> {
        let Op::Check { step, .. } = self.program[self.at].clone() else { return None };
        let (Some(why), Some((place, text))) = (failed, self.last.clone()) else {
            self.at += 1;
            return None;
        };
        if step.retry && self.tokens_left() != Some(0) && self.retried.insert(self.at) {
            self.again = Some(Again { text, why });
            self.at = place;
            return None;
        }
        if let Some(words) = step.otherwise.as_ref().filter(|_| self.answer == AnswerPlace::Held) {
            (self.answer, self.finish) = (AnswerPlace::Words(words.fill(&self.said)), Finish::Stop);
            return Some(self.done(None));
        }
        self.at += 1;
        None
    }

    fn expired(&mut self, tokens: u32) -> PipelineAction {
        self.tokens = self.tokens.saturating_add(tokens);
        if let Some(Op::Generate { answers: true, shown, .. }) = self.program.get(self.at) {
            self.answer = if *shown { AnswerPlace::Shown } else { AnswerPlace::Held };
        }
        self.finish = Finish::Length;
        self.done(Some(OUT_OF_TIME))
    }

    fn done(&self, early: Option<&'static str>) -> PipelineAction {
        PipelineAction::Done(PipelineEnd { answer: self.answer.clone(), finish: self.finish, early })
    }

    fn tokens_left(&self) -> Option<u32> {
        self.budget.tokens.map(|tokens| tokens.saturating_sub(self.tokens))
    }

    fn step(&mut self, elapsed: Duration) -> PipelineAction {
        while let Some(Op::Jump(to)) = self.program.get(self.at) {
            self.at = *to;
        }
        let Some(op) = self.program.get(self.at).cloned() else { return self.done(None) };
        if self.time_left(elapsed) == Some(Duration::ZERO) {
            self.finish = Finish::Length;
            return self.done(Some(OUT_OF_TIME));
        }
        match op {
            Op::When { name, test, .. } => PipelineAction::Test(name, test),
            Op::Retrieve { name, step } => PipelineAction::Retrieve(name, step),
            Op::Enough { name, min } => PipelineAction::Judge(name, min),
            Op::Generate { step, answers, shown } => self.generate(vec![step], answers, shown),
            Op::Parallel { steps } => self.generate(steps, false, false),
            Op::Call { name, step } => PipelineAction::Call(CallPlan {
                name,
                tool: step.tool.fill(&self.said),
                otherwise: step.otherwise.as_ref().map(|text| text.fill(&self.said)),
            }),
            Op::Check { name, step } => {
                let text = self.last.as_ref().map_or_else(String::new, |(_, text)| text.clone());
                let tool = if let CheckRule::Tool(tool) = &step.rule { Some(tool.fill(&self.said)) } else { None };
                PipelineAction::Check(CheckPlan { name, step, text, tool })
            }
            Op::Jump(_) => unreachable!("jumps were followed"),
        }
    }

    /// Plans generations that run at once: what is left of the budget is shared among all their choices.
    fn generate(&mut self, steps: Vec<Arc<GenerateStep>>, answers: bool, shown: bool) -> PipelineAction {
        let choices: u32 = steps.iter().map(|step| step.best_of).sum();
        let share = self.tokens_left().map(|left| left / choices.max(1));
        if share == Some(0) {
            self.finish = Finish::Length;
            return self.done(Some(OUT_OF_TOKENS));
        }
        let again = self.again.take();
        let plans = steps.into_iter().map(|step| {
            let wanted = self.answer_tokens.filter(|_| answers);
            self.generations += 1;
            GenerationPlan {
                number: self.generations - 1,
                system: step.system.as_ref().map(|text| text.fill(&self.said)),
                suffix: step.suffix.as_ref().map(|text| text.fill(&self.said)),
                tokens: [share, step.tokens, wanted].into_iter().flatten().min(),
                step,
                answers,
                shown,
                again: again.clone(),
            }
        });
        let plans = plans.collect();
        PipelineAction::Generate(plans)
    }
}

#[cfg(test)]
#[path = "tests/scenes.rs"]
mod tests;
