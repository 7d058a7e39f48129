//! A conversation that names a pipeline in the place of a model, and what it may not ask for then.

use super::fields::Fields;
use super::model::{ModelLimits, unknown_model};
use crate::http::wire::error::ApiError;
use crate::pipelines::Pipeline;
use crate::turn::options::ChatRequest;
use std::sync::Arc;

/// The pipeline that a body's `model` names; `None` for the model itself. No other name is known.
pub(in crate::http) fn take_model(
    fields: &mut Fields,
    limits: &ModelLimits,
) -> Result<Option<Arc<Pipeline>>, ApiError> {
    match fields.string("model")? {
        Some(name) if !name.is_empty() && !limits.answers_to(&name) => named(&name, limits).map(Some),
        _ => Ok(None),
    }
}

/// The pipeline of a name that is not the model's.
pub(in crate::http) fn named(name: &str, limits: &ModelLimits) -> Result<Arc<Pipeline>, ApiError> {
    limits.pipelines.find(name).ok_or_else(|| unknown_model(name, limits))
}

impl ChatRequest {
    /// The same request, to be answered by a pipeline if there is one.
    pub(in crate::http) fn through(self, pipeline: Option<Arc<Pipeline>>) -> Result<Self, ApiError> {
        let Some(pipeline) = pipeline else { return Ok(self) };
        let name = &pipeline.name;
        let choices = self.generation.spec.engine.choices;
        if choices != 1 {
            let message = format!("`n` must be 1 for the pipeline `{name}`, got {choices}");
            return Err(ApiError::invalid("n", message));
        }
        if self.conversation.continues {
            let message = format!("the last message is gone on with, which the pipeline `{name}` cannot do");
            return Err(ApiError::unsupported("messages", message));
        }
        if let Some(search) = &self.file_search {
            let message =
                format!("`{}` is not taken by the pipeline `{name}`: its file says what it searches", search.field);
            return Err(ApiError::unsupported(&search.field, message));
        }
        if let Some(form) = self.generation.form.as_ref().filter(|_| pipeline.forms_its_answer()) {
            let message =
                format!("`{}` is not taken by the pipeline `{name}`: its answer has a form already", form.field);
            return Err(ApiError::unsupported(form.field, message));
        }
        Ok(Self { pipeline: Some(pipeline), ..self })
    }
}
