//! Tests collections whose items have changed, while the service has nothing else to do: one text at a time is with the
//! scheduler, and whoever comes has it ended at once. What a test asks is in `semantic/self_test.rs`.

use super::{IdleTimes, QUIET, aside, is_open, put_off, ready, report};
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
            test_idle(services, due).await;
        }
        seen = due;
    }
}

/// Tests a collection that is due.
async fn test_idle(services: &TurnServices, due: &DueTest) {
    let collection = due.name.as_str();
    match test(services, due).await {
        Ok(test) => test.iter().for_each(|test| report("collection", collection, test)),
        // Whoever removed it meanwhile needs no test.
        Err(TurnError::Collection(CollectionError::Unknown(_))) => tracing::debug!(collection, "a collection is gone"),
        Err(error) => put_off("collection", collection, &error).await,
    }
}

/// Searches for the sentences of a collection. None if the service ends before the test does. A test in which something
/// fails is not kept: what it had found would stand for the collection.
async fn test(services: &TurnServices, due: &DueTest) -> Result<Option<SelfTest>, TurnError> {
    let (all, of) = (services.collections.clone(), due.clone());
    let probes = aside(services, usize::MAX, move || all.probes(&of)).await?.map_err(TurnError::Collection)?;
    let (mut hits, mut idle): (Vec<Hits>, _) = (Vec::with_capacity(probes.len()), IdleTimes::of(services, NAME));
    for probe in probes {
        let sentence = idle.vector(&probe.sentence, Purpose::Query).await.transpose()?;
        let rest = idle.vector(&probe.rest, Purpose::Passage).await.transpose()?;
        let Some(vectors) = sentence.zip(rest).filter(|_| is_open(services)) else { return Ok(None) };
        hits.extend(search(services, due, probe, vectors).await?);
    }
    services.collections.keep_test(due, &hits, unix_seconds()).map(Some).map_err(TurnError::Collection)
}

/// With which weights a sentence finds its text.
async fn search(
    services: &TurnServices,
    due: &DueTest,
    probe: SentenceProbe,
    (sentence, rest): (Vec<f32>, Vec<f32>),
) -> Result<Option<Hits>, TurnError> {
    let bytes = services.collections.info(due.owner, &due.name).map_err(TurnError::Collection)?.bytes;
    let bytes = scan_bytes(usize::try_from(bytes).unwrap_or(usize::MAX), probe.sentence.len());
    let (all, due) = (services.collections.clone(), due.clone());
    let scan = move || {
        let query =
            ProbeQuery { item: &probe.item, sentence: (&probe.sentence, &sentence), rest: (&probe.rest, &rest) };
        all.probe(&due, &query)
    };
    aside(services, bytes, scan).await?.map_err(TurnError::Collection)
}
