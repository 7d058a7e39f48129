//! Pipelines: workflows of fixed steps that a client asks for by a model's name. From an operator's file to steps that
//! were checked, the machine that says which step comes next, and the directory that is read again when it changes.
//! Carrying steps out is `turn/pipeline`'s.

mod describe;
mod directory;
mod error;
mod file;
mod form;
mod import;
mod machine;
mod names;
mod pipeline;
mod program;
mod rules;
mod template;
mod tool;

pub use describe::described;
pub use directory::{PipelineEntry, Pipelines, read_directory};
pub use error::PipelineError;
pub use form::{
    CallStep, CheckRule, CheckStep, GenerateStep, PipelineBudget, PipelineStep, RetrieveFrom, RetrieveStep, StepKind,
    Test,
};
pub use import::imported;
pub use machine::{
    Again, AnswerPlace, CallPlan, CheckPlan, GenerationPlan, OUT_OF_TIME, OUT_OF_TOKENS, PipelineAction, PipelineEnd,
    PipelineEvent, PipelineRun, Said,
};
pub use pipeline::NamedPipeline;
pub use tool::{ToolPlan, ToolUse};
