//! Vectors of texts for collections and for stores of documents, whoever makes them. Vectors that a client asks for
//! under the model's own name are in `vectors.rs`.

use super::caller::TurnCaller;
use super::error::TurnError;
use super::options::Prompt;
use super::services::TurnServices;
use super::vectors::{EmbeddingLayout, tokens, vectors};
use crate::actors::request::embed::{Texts, read_own};
use crate::embedder::{EmbeddedTexts, Embedder, Purpose};
use crate::holder::Holder;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Pooling;
use std::sync::Arc;

/// How the served model reads these texts: as turns, because what a model for conversations makes of one tells what is
/// asked, and over all their positions. Measured in `docs/measurements/collections.md`.
const LAYOUT: EmbeddingLayout = EmbeddingLayout::Turn;
/// Over which positions the served model's vectors are made.
const POOLING: Pooling = Pooling::Mean;

/// On whose behalf texts are read.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'a> {
    /// A request, in the turn of its holder and under its terms.
    Request {
        /// The request's caller.
        caller: &'a TurnCaller,
        /// The field that the texts came in, for errors.
        field: &'static str,
    },
    /// The service itself, behind all requests. It reads one text after the other.
    Service {
        /// Name of the work in the log and in errors.
        name: &'static str,
    },
}

impl Reader<'_> {
    fn holder(&self) -> Holder {
        match self {
            Self::Request { caller, .. } => caller.holder,
            Self::Service { .. } => Holder::Many,
        }
    }

    fn field(&self) -> &'static str {
        match self {
            Self::Request { field, .. } => field,
            Self::Service { name } => name,
        }
    }
}

impl TurnServices {
    /// The vectors of some texts, none of which is empty.
    pub async fn vectors(
        &self,
        reader: Reader<'_>,
        texts: Vec<String>,
        _: Purpose,
    ) -> Result<EmbeddedTexts, TurnError> {
        match &self.embedder {
            // Its vectors are the same for both uses.
            Embedder::Model => self.model_vectors(reader, texts).await,
        }
    }

    async fn model_vectors(&self, reader: Reader<'_>, texts: Vec<String>) -> Result<EmbeddedTexts, TurnError> {
        let texts = texts.into_iter().map(Prompt::Text).collect();
        let prompts = tokens(self, reader.holder(), reader.field(), (texts, LAYOUT)).await?;
        let tokens = prompts.iter().map(|prompt| prompt.len()).sum();
        let vectors = match reader {
            Reader::Request { caller, field } => {
                let texts = Texts { prompts, pooling: POOLING, priority: 0, terms: caller.terms };
                vectors(self, caller.name.clone(), field, texts).await?
            }
            Reader::Service { name } => self.own_vectors(name, prompts).await?,
        };
        Ok(EmbeddedTexts { vectors, tokens })
    }

    async fn own_vectors(&self, name: &'static str, prompts: Vec<Arc<[TokenId]>>) -> Result<Vec<Vec<f32>>, TurnError> {
        let mut vectors = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let read = read_own(&self.handles, &self.live, name.into(), prompt, POOLING).await;
            vectors.push(read.map_err(|error| TurnError::Engine { field: name, error })?);
        }
        Ok(vectors)
    }
}
