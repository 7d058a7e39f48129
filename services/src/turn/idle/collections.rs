//! Tests collections whose items have changed, while the service has nothing else to do: one text at a time is with the
//! scheduler, and whoever comes has it ended at once. What a test asks is in `semantic/self_test.rs`.

use super::{IdleTimes, QUIET, aside, is_open, ready};
use crate::clock::unix_seconds;
use crate::embedder::Purpose;
use crate::semantic::{CollectionError, DueTest, Hits, ProbeQuery, SelfTest, SentenceProbe};
use crate::turn::search::scan_bytes;
use crate::turn::services::TurnServices;

/// What the log calls the texts of tests.
const NAME: &str = "self-test";

/// Tests collections that are due, one after the other, from the service's readiness on until it takes nothing new.
pub async fn keep_tested(services: &TurnServices) {
    ready(services).await;
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
    let (mut hits, mut idle): (Vec<Hits>, _) = (Vec::with_capacity(probes.len()), IdleTimes::of(services, NAME));
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
