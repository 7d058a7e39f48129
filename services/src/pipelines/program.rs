//! Steps in one row, with jumps for branches, and what is known of each generation from its place: whether its text is
//! the answer, and whether it can be shown while it is written.

use super::form::{CallStep, CheckStep, GenerateStep, PipelineStep, RetrieveStep, StepKind, Test};
use std::sync::Arc;

/// A place of the row.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Goes on behind this, or at `otherwise` where the test does not hold.
    When {
        name: Arc<str>,
        test: Test,
        otherwise: usize,
    },
    /// Goes on at that place.
    Jump(usize),
    Retrieve {
        name: Arc<str>,
        step: RetrieveStep,
    },
    Enough {
        name: Arc<str>,
        min: f64,
    },
    Generate {
        step: Arc<GenerateStep>,
        /// No generation can come behind it: its text is the answer.
        answers: bool,
        /// Nothing at all can come behind it, so the client reads it as it is written.
        shown: bool,
    },
    Call {
        name: Arc<str>,
        step: Arc<CallStep>,
    },
    Parallel {
        steps: Vec<Arc<GenerateStep>>,
    },
    Check {
        name: Arc<str>,
        step: Arc<CheckStep>,
    },
}

/// The row of some steps.
pub(super) fn program(steps: &[PipelineStep]) -> Arc<[Op]> {
    let mut ops = Vec::new();
    lay(steps, &mut ops);
    for at in 0..ops.len() {
        let (more, last) = (reaches(&ops, at + 1, generates), !reaches(&ops, at + 1, works));
        if let Op::Generate { step, answers, shown } = &mut ops[at] {
            (*answers, *shown) = (!more, last && step.best_of == 1);
        }
    }
    ops.into()
}

fn lay(steps: &[PipelineStep], ops: &mut Vec<Op>) {
    for PipelineStep { name, kind } in steps {
        let name = name.clone();
        match kind {
            StepKind::When { test, then, otherwise } => {
                let at = ops.len();
                ops.push(Op::When { name, test: test.clone(), otherwise: 0 });
                lay(then, ops);
                let jump = ops.len();
                ops.push(Op::Jump(0));
                if let Op::When { otherwise, .. } = &mut ops[at] {
                    *otherwise = jump + 1;
                }
                lay(otherwise, ops);
                ops[jump] = Op::Jump(ops.len());
            }
            StepKind::Retrieve(step) => ops.push(Op::Retrieve { name, step: step.clone() }),
            StepKind::Enough(min) => ops.push(Op::Enough { name, min: *min }),
            StepKind::Call(step) => ops.push(Op::Call { name, step: step.clone() }),
            StepKind::Generate(step) => ops.push(Op::Generate { step: step.clone(), answers: false, shown: false }),
            StepKind::Parallel(steps) => ops.push(Op::Parallel { steps: steps.clone() }),
            StepKind::Check(step) => ops.push(Op::Check { name, step: step.clone() }),
        }
    }
}

/// Whether a place like that can be come to from here on. Places only lead forward.
fn reaches(ops: &[Op], at: usize, like: fn(&Op) -> bool) -> bool {
    let Some(op) = ops.get(at) else { return false };
    like(op)
        || match op {
            Op::Jump(to) => reaches(ops, *to, like),
            Op::When { otherwise, .. } => reaches(ops, at + 1, like) || reaches(ops, *otherwise, like),
            _ => reaches(ops, at + 1, like),
        }
}

fn generates(op: &Op) -> bool {
    matches!(op, Op::Generate { .. } | Op::Parallel { .. })
}

fn works(op: &Op) -> bool {
    !matches!(op, Op::Jump(_))
}
