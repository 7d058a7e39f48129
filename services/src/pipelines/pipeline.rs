//! A pipeline that was checked: what its file says, and the row of its steps.

use super::form::{PipelineBudget, PipelineStep};
use super::program::Op;
use std::sync::Arc;

/// A workflow of fixed steps, asked for by a model's name.
#[derive(Debug)]
pub struct NamedPipeline {
    /// The model's name that it answers to: its file's, without the ending.
    pub name: Arc<str>,
    /// The operator's words about it.
    pub description: String,
    /// Nothing was measured that it wins.
    pub experimental: bool,
    /// What all its steps may take together.
    pub budget: PipelineBudget,
    /// The steps in their order.
    pub steps: Vec<PipelineStep>,
    /// These steps in one row, as the machine goes through them.
    pub(super) program: Arc<[Op]>,
}

impl NamedPipeline {
    /// Whether some step has a form of its own for the text that becomes the answer.
    pub fn forms_its_answer(&self) -> bool {
        self.program.iter().any(|op| matches!(op, Op::Generate { step, answers: true, .. } if step.form.is_some()))
    }

    /// The most choices that a step wants at once.
    pub fn choices(&self) -> u32 {
        let of = |op: &Op| if let Op::Generate { step, .. } = op { step.best_of } else { 1 };
        self.program.iter().map(of).max().unwrap_or(1)
    }
}
