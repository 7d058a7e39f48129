//! Tests collections whose items have changed, while the service has nothing else to do: one text at a time is with the
//! scheduler, and whoever comes has it ended at once. What a test asks is in `semantic/self_test.rs`.

use super::{IdleTimes, PUT_OFF, QUIET, aside, is_open, ready};
use crate::clock::unix_seconds;
use crate::embedder::Purpose;
use crate::semantic::{CollectionError, DueTest, Hits, ProbeQuery, SelfTest, SentenceProbe};
use crate::turn::error::TurnError;
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
            match test(services, due).await {
                Ok(test) => report(due, test.transpose()),
                Err(error) => {
                    tracing::warn!(collection = due.name.as_str(), %error, "a collection cannot be tested now");
                    tokio::time::sleep(PUT_OFF).await;
                }
            }
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

/// Searches for the sentences of a collection. None if the service ends before the test does. A test in which something
/// fails is not kept: what it had found would stand for the collection.
async fn test(services: &TurnServices, due: &DueTest) -> Result<Option<Result<SelfTest, CollectionError>>, TurnError> {
    let (all, of) = (services.collections.clone(), due.clone());
    let probes = match aside(services, usize::MAX, move || all.probes(&of)).await? {
        Ok(probes) => probes,
        Err(error) => return Ok(Some(Err(error))),
    };
    let (mut hits, mut idle): (Vec<Hits>, _) = (Vec::with_capacity(probes.len()), IdleTimes::of(services, NAME));
    for probe in probes {
        let sentence = idle.vector(&probe.sentence, Purpose::Query).await.transpose()?;
        let rest = idle.vector(&probe.rest, Purpose::Passage).await.transpose()?;
        let Some(vectors) = sentence.zip(rest).filter(|_| is_open(services)) else { return Ok(None) };
        match search(services, due, probe, vectors).await? {
            Ok(found) => hits.extend(found),
            Err(error) => return Ok(Some(Err(error))),
        }
    }
    Ok(Some(services.collections.keep_test(due, &hits, unix_seconds())))
}

/// With which weights a sentence finds its text.
async fn search(
    services: &TurnServices,
    due: &DueTest,
    probe: SentenceProbe,
    (sentence, rest): (Vec<f32>, Vec<f32>),
) -> Result<Result<Option<Hits>, CollectionError>, TurnError> {
    let bytes = match services.collections.info(due.owner, &due.name) {
        Ok(info) => info.bytes,
        Err(error) => return Ok(Err(error)),
    };
    let bytes = scan_bytes(usize::try_from(bytes).unwrap_or(usize::MAX), probe.sentence.len());
    let (all, due) = (services.collections.clone(), due.clone());
    let scan = move || {
        let query =
            ProbeQuery { item: &probe.item, sentence: (&probe.sentence, &sentence), rest: (&probe.rest, &rest) };
        all.probe(&due, &query)
    };
    aside(services, bytes, scan).await
}
