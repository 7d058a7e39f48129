//! Vectors of texts for collections and for stores of documents, whoever makes them. Vectors that a client asks for
//! under the model's own name are in `vectors.rs`.

mod caller;

pub use caller::VectorCaller;

use super::error::TurnError;
use super::options::Prompt;
use super::services::TurnServices;
use super::vectors::{EmbeddingLayout, tokens, vectors};
use crate::actors::phase::DEADLINE_PASSED;
use crate::actors::request::direct::DirectError;
use crate::actors::request::embed::{Texts, read_own};
use crate::embedder::{EmbeddedTexts, EmbedderError, Purpose};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Pooling;
use std::sync::Arc;
use std::time::Duration;

/// How the served model reads these texts: as turns, because what a model for conversations makes of one tells what is
/// asked, and over all their positions. Measured in `docs/measurements/collections.md`.
const LAYOUT: EmbeddingLayout = EmbeddingLayout::Turn;
/// Over which positions the served model's vectors are made.
const POOLING: Pooling = Pooling::Mean;

impl TurnServices {
    /// The vectors of some texts, none of which is empty.
    pub async fn vectors(
        &self,
        reader: VectorCaller<'_>,
        texts: Vec<String>,
        purpose: Purpose,
    ) -> Result<EmbeddedTexts, TurnError> {
        let holder = reader.holder();
        match self.embedder.beside_model() {
            // The model's vectors are the same for both uses.
            None => self.model_vectors(reader, texts).await,
            Some(embedder) => self.made(reader, embedder.compared(holder, texts, purpose)).await,
        }
    }

    /// What an embedder makes, by the time at which it is of use.
    pub async fn made(
        &self,
        reader: VectorCaller<'_>,
        vectors: impl Future<Output = Result<EmbeddedTexts, EmbedderError>>,
    ) -> Result<EmbeddedTexts, TurnError> {
        self.check_open()?;
        // Self-tests wait for it, and the end of the service does.
        let _entry = reader.caller().map(|caller| self.live.enter(caller.name.clone()));
        let field = reader.field();
        let made = match reader.deadline() {
            None => vectors.await,
            Some(at) => {
                let left = Duration::from_micros(at.since(self.handles.clock.now()).0);
                let late = || TurnError::Engine { field, error: DirectError::Failed(DEADLINE_PASSED.into()) };
                tokio::time::timeout(left, vectors).await.map_err(|_| late())?
            }
        };
        made.map_err(|error| TurnError::Embedder { field, error })
    }

    async fn model_vectors(&self, reader: VectorCaller<'_>, texts: Vec<String>) -> Result<EmbeddedTexts, TurnError> {
        let texts = texts.into_iter().map(Prompt::Text).collect();
        let prompts = tokens(self, reader.holder(), reader.field(), (texts, LAYOUT)).await?;
        let tokens = prompts.iter().map(|prompt| prompt.len()).sum();
        let vectors = match reader {
            VectorCaller::Request { caller, field } => {
                let texts = Texts { prompts, pooling: POOLING, priority: 0, terms: caller.terms };
                vectors(self, caller.name.clone(), field, texts).await?
            }
            VectorCaller::Service { name, idle } => self.own_vectors(name, prompts, idle).await?,
        };
        Ok(EmbeddedTexts { vectors, tokens })
    }

    async fn own_vectors(
        &self,
        name: &'static str,
        prompts: Vec<Arc<[TokenId]>>,
        idle: bool,
    ) -> Result<Vec<Vec<f32>>, TurnError> {
        let mut vectors = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let read = read_own(&self.handles, &self.live, name.into(), (prompt, POOLING), idle).await;
            vectors.push(read.map_err(|error| TurnError::Engine { field: name, error })?);
        }
        Ok(vectors)
    }
}
