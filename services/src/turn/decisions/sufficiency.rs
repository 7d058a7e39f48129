//! Whether passages suffice to answer a question, asked of the model before it answers.

use super::{Case, Run, probabilities};
use crate::decide::DecisionQuestion;
use crate::metrics;
use crate::text::Message;
use crate::turn::{TurnCaller, TurnError, TurnServices};
use chimere_engine::ids::CacheScope;

/// The question's name, under which a temperature is looked up, and what it says.
const NAME: &str = "sufficient";
const STATEMENT: &str = "The passages have the answer to the question.";

/// How probable it is that the passages in a conversation, which stand before its last question, have its answer.
pub(in crate::turn) async fn sufficiency(
    services: &TurnServices,
    caller: &TurnCaller,
    (conversation, cache): (&[Message], Option<CacheScope>),
) -> Result<f64, TurnError> {
    let question = DecisionQuestion::predicate(Some(NAME.into()), STATEMENT.into());
    let case = Case { input: conversation, question: &question, at: 0 };
    let run = Run { field: "messages", option_field: "messages", orders: 1, cache };
    let (mut all, _) = probabilities(services, caller, &[case], run).await?;
    ::metrics::counter!(metrics::DECISIONS, "type" => "sufficient").increment(1);
    Ok(services.decide.calibration.apply(Some(NAME), all.swap_remove(0))[0])
}
