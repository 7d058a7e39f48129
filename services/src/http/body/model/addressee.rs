//! What a body's `model` names: the model, an adapter, or a pipeline; and what a conversation may not ask of a
//! pipeline.

use super::{ModelLimits, no_conversation, unknown_model};
use crate::http::body::fields::Fields;
use crate::http::wire::error::ApiError;
use crate::pipelines::NamedPipeline;
use crate::turn::options::{ChatRequest, Generation};
use chimere_engine::adapter::{Adapter, ScaledAdapter};
use std::sync::Arc;

/// The one that answers a request.
#[derive(Clone, Debug)]
pub(in crate::http) enum Addressee {
    /// The model as it is.
    Model,
    /// The model with what an adapter adds.
    Adapter(Arc<Adapter>),
    /// A pipeline, whose generations are the model's.
    Pipeline(Arc<NamedPipeline>),
}

impl Addressee {
    /// Of a name that is not empty. No other name is known.
    pub(in crate::http) fn named(name: &str, limits: &ModelLimits) -> Result<Self, ApiError> {
        if limits.answers_to(name) {
            return Ok(Self::Model);
        }
        if let Some(adapter) = limits.adapter(name) {
            return Ok(Self::Adapter(adapter));
        }
        limits.pipelines.find(name).map(Self::Pipeline).ok_or_else(|| unknown_model(name, limits))
    }

    /// The adapter, if it is one, where no pipeline can answer.
    pub(in crate::http) fn adapter(self) -> Result<Option<Arc<Adapter>>, ApiError> {
        match self {
            Self::Model => Ok(None),
            Self::Adapter(adapter) => Ok(Some(adapter)),
            Self::Pipeline(pipeline) => Err(no_conversation(&pipeline.name)),
        }
    }

    /// The name, if it is not the model's own.
    pub(in crate::http) fn name(&self) -> Option<String> {
        match self {
            Self::Model => None,
            Self::Adapter(adapter) => Some(adapter.name.clone()),
            Self::Pipeline(pipeline) => Some(pipeline.name.to_string()),
        }
    }
}

/// Who a body's `model` names; without a name the model.
pub(in crate::http) fn take_model(fields: &mut Fields, limits: &ModelLimits) -> Result<Addressee, ApiError> {
    match fields.string("model")? {
        Some(name) if !name.is_empty() => Addressee::named(&name, limits),
        _ => Ok(Addressee::Model),
    }
}

/// As [`take_model`], where no pipeline can answer.
pub(in crate::http) fn take_adapter(
    fields: &mut Fields,
    limits: &ModelLimits,
) -> Result<Option<Arc<Adapter>>, ApiError> {
    take_model(fields, limits)?.adapter()
}

fn no_adapter(addressee: &str) -> ApiError {
    ApiError::invalid("scale", format!("`scale` says how strongly an adapter acts, and `model` is {addressee}"))
}

impl Generation {
    /// This generation by an adapter, if there is one, as strongly as it says. At 0 it is the model's own.
    pub(in crate::http) fn by(mut self, adapter: Option<Arc<Adapter>>) -> Result<Self, ApiError> {
        match (adapter, self.adapter_scale) {
            (None, None) => {}
            (None, Some(_)) => return Err(no_adapter("the model")),
            (Some(adapter), scale) => {
                let scale = scale.unwrap_or(1.0);
                let scaled = (scale != 0.0).then_some(ScaledAdapter { adapter, scale });
                Arc::make_mut(&mut self.spec.engine).adapter = scaled;
            }
        }
        Ok(self)
    }
}

impl ChatRequest {
    /// This request, to be answered by whom it names.
    pub(in crate::http) fn through(self, addressee: Addressee) -> Result<Self, ApiError> {
        let pipeline = match addressee {
            Addressee::Model => return Ok(Self { generation: self.generation.by(None)?, ..self }),
            Addressee::Adapter(adapter) => {
                return Ok(Self { generation: self.generation.by(Some(adapter))?, ..self });
            }
            Addressee::Pipeline(pipeline) => pipeline,
        };
        let name = &pipeline.name;
        if self.generation.adapter_scale.is_some() {
            return Err(no_adapter(&format!("the pipeline `{name}`")));
        }
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
        if let Some(server) = self.mcp.first() {
            let message = format!("`{}` is not taken by the pipeline `{name}`, which calls no tools", server.field);
            return Err(ApiError::unsupported(&server.field, message));
        }
        if let Some(form) = self.generation.form.as_ref().filter(|_| pipeline.forms_its_answer()) {
            let message =
                format!("`{}` is not taken by the pipeline `{name}`: its answer has a form already", form.field);
            return Err(ApiError::unsupported(form.field, message));
        }
        Ok(Self { pipeline: Some(pipeline), ..self })
    }
}
