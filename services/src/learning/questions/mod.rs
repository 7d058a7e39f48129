//! Questions whose answers a program checks.

mod check;
mod families;

pub use check::AnswerCheck;
pub use families::{CheckedQuestion, QuestionFamily, QuestionSetError, QuestionSets};
