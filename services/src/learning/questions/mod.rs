//! Questions whose answers a program checks.

mod check;
mod families;

pub use check::AnswerCheck;
pub use families::{Family, Question, QuestionSetError, QuestionSets};
