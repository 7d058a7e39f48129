//! Tests collections whose items have changed, while the service has nothing else to do: one text at a time is with the
//! scheduler, and whoever comes has it ended at once. What a test asks is in `semantic/self_test.rs`.

use super::error::TurnError;
use super::prompts::work;
use super::search::scan_bytes;
use super::services::TurnServices;
use super::text_vectors::VectorCaller;
use crate::actors::phase::Phase;
use crate::clock::unix_seconds;
use crate::embedder::{EmbeddedTexts, Embedder, Purpose};
use crate::holder::Holder;
use crate::semantic::{CollectionError, DueTest, Hits, ProbeQuery, SelfTest, SentenceProbe};
use std::time::Duration;

/// How long a collection must have stayed as it is: whoever fills one adds again and again.
const QUIET: Duration = Duration::from_secs(2);
/// How long nobody must have had a request after somebody had: a text of a test and a request that comes in its middle
/// share a step, so whoever asks again and again has the service to themselves.
const IDLE: Duration = Duration::from_secs(2);
/// How long a text of a test may be beside the first request that comes.
const GIVE_WAY: Duration = Duration::from_millis(5);
/// What the log calls the texts of tests.
const NAME: &str = "self-test";

/// Tests collections that are due, one after the other, from the service's readiness on until it takes nothing new.
pub async fn keep_tested(services: &TurnServices) {
    // An error means that the scheduler is gone, and then the service is not open either.
    services.phase.clone().wait_for(|phase| *phase != Phase::Starting).await.ok();
    let mut seen = None;
    while is_open(services) {
        tokio::time::sleep(QUIET).await;
        let due = services.collections.due_test();
        if let Some(due) = due.as_ref().filter(|due| seen.as_ref() == Some(*due)) {
            report(due, test(services, due).await);
        }
        seen = due;
    }
}

/// Says how a test ended; `Ok(None)` is one that the end of the service cut short.
fn report(due: &DueTest, ended: Result<Option<SelfTest>, CollectionError>) {
    let collection = due.name.as_str();
    match ended {
        Ok(Some(test)) => {
            let (recall, sentences, weight) = (test.recall().unwrap_or(0.0), test.sentences, test.weight);
            tracing::info!(collection, sentences, recall, weight, "a collection was tested");
            if let Some(points) = test.fell {
                tracing::warn!(collection, recall, points, "searches of a collection find less than they did");
            }
        }
        Ok(None) => {}
        // Whoever removed it meanwhile needs no test.
        Err(CollectionError::Unknown(_)) => tracing::debug!(collection, "a collection is gone before its test ended"),
        Err(error) => tracing::error!(collection, %error, "the result of a self-test could not be kept"),
    }
}

/// Searches for the sentences of a collection. None if the service ends before the test does.
async fn test(services: &TurnServices, due: &DueTest) -> Result<Option<SelfTest>, CollectionError> {
    let (all, of) = (services.collections.clone(), due.clone());
    let Some(probes) = aside(services, usize::MAX, move || all.probes(&of)).await.transpose()? else {
        return Ok(None);
    };
    let (mut hits, mut idle): (Vec<Hits>, _) = (Vec::with_capacity(probes.len()), IdleTimes::of(services));
    for probe in probes {
        let sentence = idle.vector(&probe.sentence, Purpose::Query).await;
        let rest = idle.vector(&probe.rest, Purpose::Passage).await;
        if !is_open(services) {
            return Ok(None);
        }
        // One that could not be read says nothing of the others.
        if let Some(vectors) = sentence.zip(rest) {
            hits.extend(search(services, due, probe, vectors).await?);
        }
    }
    services.collections.keep_test(due, &hits, unix_seconds()).map(Some)
}

/// With which weights a sentence finds its text.
async fn search(
    services: &TurnServices,
    due: &DueTest,
    probe: SentenceProbe,
    (sentence, rest): (Vec<f32>, Vec<f32>),
) -> Result<Option<Hits>, CollectionError> {
    let bytes = services.collections.info(due.owner, &due.name)?.bytes;
    let bytes = scan_bytes(usize::try_from(bytes).unwrap_or(usize::MAX), probe.sentence.len());
    let (all, due) = (services.collections.clone(), due.clone());
    let scan = move || {
        let query =
            ProbeQuery { item: &probe.item, sentence: (&probe.sentence, &sentence), rest: (&probe.rest, &rest) };
        all.probe(&due, &query)
    };
    aside(services, bytes, scan).await.transpose().map(Option::flatten)
}

/// Does a part of a test on the threads of texts, behind what others wait for; none where there is no room for it.
async fn aside<T: Send + 'static>(
    services: &TurnServices,
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    work(&services.lanes, Holder::Many, bytes, false, job).await.ok()
}

/// The times in which nobody has a request.
struct IdleTimes<'a> {
    services: &'a TurnServices,
    /// How many requests there had been when the service was last seen with nothing to do, texts of the test included.
    entered: u64,
}

impl<'a> IdleTimes<'a> {
    fn of(services: &'a TurnServices) -> Self {
        Self { services, entered: services.live.entered() }
    }

    /// A text's vector, read while nobody else has a request. None if the text cannot be read, or the service ends.
    async fn vector(&mut self, text: &str, purpose: Purpose) -> Option<Vec<f32>> {
        let services = self.services;
        loop {
            self.wait().await;
            if !is_open(services) {
                return None;
            }
            // A text that the model reads is a request to the scheduler.
            self.entered += u64::from(matches!(services.embedder, Embedder::Model));
            let read = services.vectors(VectorCaller::Service { name: NAME }, vec![text.to_owned()], purpose);
            // Whichever ends second is dropped, and the scheduler then forgets a text that is not read yet.
            tokio::select! {
                read = read => return self.read(read),
                () = self.ends() => {}
            }
        }
    }

    fn read(&mut self, read: Result<EmbeddedTexts, TurnError>) -> Option<Vec<f32>> {
        // A text that was refused before it came to the scheduler is no request that anybody had.
        let read = read.inspect_err(|_| self.entered = self.services.live.entered());
        read.ok()?.vectors.pop()
    }

    /// Waits until nobody has had a request for a while, or the service ends. Where nobody came since the last text of
    /// the test there is no wait.
    async fn wait(&mut self) {
        let live = &self.services.live;
        while is_open(self.services) && !(live.is_empty() && live.entered() == self.entered) {
            self.entered = live.entered();
            tokio::time::sleep(IDLE).await;
        }
    }

    /// Waits until a request came after the text of the test, or the service ends.
    async fn ends(&self) {
        while is_open(self.services) && self.services.live.entered() <= self.entered {
            tokio::time::sleep(GIVE_WAY).await;
        }
    }
}

fn is_open(services: &TurnServices) -> bool {
    *services.phase.borrow() == Phase::Ready
}
