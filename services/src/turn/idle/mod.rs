//! Work of the service itself, at the expense of nobody: self-tests of collections, vectors and self-tests of stores.
//! What the model reads is idle work of the scheduler. What an encoder reads takes the processor beside the scheduler,
//! so it is read while nobody has a request, and whoever comes has it end at once.

mod collections;
mod stores;

pub use collections::keep_tested;
pub use stores::{keep_stores, test_store};

use super::error::TurnError;
use super::prompts::work;
use super::services::TurnServices;
use super::text_vectors::VectorCaller;
use crate::actors::phase::Phase;
use crate::embedder::{Embedder, Purpose};
use crate::holder::Holder;
use crate::semantic::SelfTest;
use std::time::Duration;

/// How long a collection or a store must have stayed as it is: whoever fills one adds again and again.
const QUIET: Duration = Duration::from_secs(2);
/// How long nobody must have had a request after somebody had: a text of this work and a request that comes in its
/// middle share a step, so whoever asks again and again has the service to themselves.
const IDLE: Duration = Duration::from_secs(2);
/// How long a text of this work may be beside the first request that comes.
const GIVE_WAY: Duration = Duration::from_millis(5);

/// How long nothing is tried after something that could not be done: a server elsewhere may be down.
const PUT_OFF: Duration = Duration::from_secs(60);

/// Waits until the service is ready.
async fn ready(services: &TurnServices) {
    // An error means that the scheduler is gone, and then the service is not open either.
    services.phase.clone().wait_for(|phase| *phase != Phase::Starting).await.ok();
}

/// Does a part of the work on the threads of texts, behind what others wait for; an error where it finds no room.
async fn aside<T: Send + 'static>(
    services: &TurnServices,
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TurnError> {
    work(&services.lanes, Holder::Many, bytes, false, job).await
}

/// Says what a self-test found; `kind` is a collection or a store, of this name.
fn report(kind: &str, name: &str, test: &SelfTest) {
    let (recall, sentences, weight) = (test.recall().unwrap_or(0.0), test.sentences, test.weight);
    tracing::info!(kind, name, sentences, recall, weight, "a self-test ended");
    if let Some(points) = test.fell {
        tracing::warn!(kind, name, recall, points, "searches find less than they did");
    }
}

/// Says why a self-test cannot be made now, and leaves the next one for later.
async fn put_off(kind: &str, name: &str, error: &TurnError) {
    tracing::warn!(kind, name, %error, "a self-test cannot be made now");
    tokio::time::sleep(PUT_OFF).await;
}

/// The times in which texts are read.
struct IdleTimes<'a> {
    services: &'a TurnServices,
    /// What the log calls the texts that are read then.
    name: &'static str,
    /// How many requests there had been when the service was last seen with nothing to do, texts of this work
    /// included.
    entered: u64,
}

impl<'a> IdleTimes<'a> {
    fn of(services: &'a TurnServices, name: &'static str) -> Self {
        Self { services, name, entered: services.live.entered() }
    }

    /// A text's vector. None if the service ends.
    async fn vector(&mut self, text: &str, purpose: Purpose) -> Option<Result<Vec<f32>, TurnError>> {
        let vectors = self.vectors(vec![text.to_owned()], purpose).await?;
        Some(vectors.map(|mut vectors| vectors.pop().expect("one text gives one vector")))
    }

    /// The vectors of some texts. None if the service ends.
    async fn vectors(&mut self, texts: Vec<String>, purpose: Purpose) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        if matches!(self.services.embedder, Embedder::Model) {
            let read = self.vectors_beside_others(texts.clone(), purpose).await?;
            // A text that is too long for idle work is read as those of an encoder are.
            if !read.as_ref().is_err_and(TurnError::wants_too_many_pages) {
                return Some(read);
            }
        }
        self.vectors_alone(texts, purpose).await
    }

    /// The model's vectors of some texts, read whoever has a request. None if the service ends.
    async fn vectors_beside_others(
        &self,
        texts: Vec<String>,
        purpose: Purpose,
    ) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        let reader = VectorCaller::Service { name: self.name, idle: true };
        let mut phase = self.services.phase.clone();
        // The end of the service first: it has the scheduler fail such a text too, which is no error of the text.
        tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Ready) => None,
            read = self.services.vectors(reader, texts, purpose) => Some(read.map(|read| read.vectors)),
        }
    }

    /// The vectors of some texts, read while nobody else has a request. None if the service ends.
    async fn vectors_alone(
        &mut self,
        texts: Vec<String>,
        purpose: Purpose,
    ) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        let services = self.services;
        loop {
            self.wait().await;
            if !is_open(services) {
                return None;
            }
            // A text that the model reads is a request to the scheduler.
            self.entered += u64::from(matches!(services.embedder, Embedder::Model));
            let read = services.vectors(VectorCaller::Service { name: self.name, idle: false }, texts.clone(), purpose);
            // Whichever ends second is dropped, and the scheduler then forgets a text that is not read yet.
            tokio::select! {
                read = read => {
                    // A text that was refused before it came to the scheduler is no request that anybody had.
                    let read = read.inspect_err(|_| self.entered = self.services.live.entered());
                    return Some(read.map(|read| read.vectors));
                }
                () = self.ends() => {}
            }
        }
    }

    /// Waits until nobody has had a request for a while, or the service ends. Where nobody came since the last of
    /// these texts there is no wait.
    async fn wait(&mut self) {
        let live = &self.services.live;
        while is_open(self.services) && !(live.is_empty() && live.entered() == self.entered) {
            self.entered = live.entered();
            tokio::time::sleep(IDLE).await;
        }
    }

    /// Waits until a request came after these texts, or the service ends.
    async fn ends(&self) {
        while is_open(self.services) && self.services.live.entered() <= self.entered {
            tokio::time::sleep(GIVE_WAY).await;
        }
    }
}

fn is_open(services: &TurnServices) -> bool {
    *services.phase.borrow() == Phase::Ready
}
