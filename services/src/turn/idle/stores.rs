//! Vectors of stores of documents, made file by file, and the self-tests of stores whose vectors are all there.

use super::{IdleTimes, PUT_OFF, QUIET, aside, is_open, put_off, ready, report};
use crate::documents::{DocumentError, DueStoreTest, VectorJob, coded};
use crate::embedder::{Purpose, TextEmbedder};
use crate::semantic::{Hits, SelfTest};
use crate::turn::caller::TurnCaller;
use crate::turn::error::TurnError;
use crate::turn::search::passage_scan_bytes;
use crate::turn::services::TurnServices;
use crate::turn::text_vectors::VectorCaller;
use chimere_engine::ids::KeyId;
use std::collections::HashSet;

/// What the log calls the texts of this work.
const NAME: &str = "store-vectors";
/// Passages whose texts are read from the disk at a time.
const TEXTS: usize = 64;
/// How often a text that is refused alone is tried again by the first half of what was tried: a server elsewhere may
/// read fewer tokens than a passage has. Words find the rest.
const HALVINGS: u32 = 3;

/// Makes the vectors of files that wait for theirs and tests stores that are due, one after the other, from the
/// service's readiness on until it takes nothing new.
pub async fn keep_stores(services: &TurnServices) {
    if !services.documents.has_vectors() {
        return;
    }
    ready(services).await;
    let (mut put_off, mut last, mut seen) = (HashSet::<(String, String)>::new(), KeyId::default(), None);
    let mut idle = IdleTimes::of(services, NAME);
    while is_open(services) {
        let wanted = |store: &str, file: &str| !put_off.contains(&(store.to_owned(), file.to_owned()));
        if let Some(job) = services.documents.vector_job(last, wanted) {
            let (owner, store) = job.store();
            last = owner;
            if let Err(why) = embed(services, &mut idle, &job).await {
                tracing::warn!(store, file = job.file_id, why, "the vectors of a file cannot be made now");
                put_off.insert((store.to_owned(), job.file_id.clone()));
                tokio::time::sleep(PUT_OFF).await;
            }
            continue;
        }
        put_off.clear();
        tokio::time::sleep(QUIET).await;
        let due = services.documents.due_test();
        if let Some(due) = due.as_ref().filter(|due| seen.as_ref() == Some(*due)) {
            test_idle(services, &mut idle, due).await;
        }
        seen = due;
    }
}

/// Makes and keeps the vectors of a file. The end of the service, or of the file, is no error.
async fn embed(services: &TurnServices, idle: &mut IdleTimes<'_>, job: &VectorJob) -> Result<(), String> {
    let (mut reader, mut codes, mut done) = (StoreReader::Idle(idle), Vec::new(), 0);
    let at_once = services.embedder.beside_model().map_or(1, TextEmbedder::at_once);
    while done < job.passages {
        let (documents, of, part) = (services.documents.clone(), job.clone(), done..job.passages.min(done + TEXTS));
        let read = aside(services, usize::MAX, move || documents.vector_texts(&of, part)).await;
        let texts = read.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let Some(texts) = texts else { return Ok(()) };
        done += texts.len();
        for part in texts.chunks(at_once) {
            match reader.passages(part).await {
                None => return Ok(()),
                Some(vectors) => {
                    codes.extend(vectors.map_err(|e| e.to_string())?.iter().flat_map(|vector| coded(vector)));
                }
            }
        }
    }
    let (documents, of) = (services.documents.clone(), job.clone());
    let kept = aside(services, usize::MAX, move || documents.keep_vectors(&of, &codes)).await;
    let kept = kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    if kept {
        let (_, store) = job.store();
        tracing::info!(store, file = job.file_id, passages = job.passages, "a file has its vectors");
    }
    Ok(())
}

/// On whose behalf texts are read.
enum StoreReader<'a, 's> {
    /// The service, while nobody has a request.
    Idle(&'a mut IdleTimes<'s>),
    /// Somebody who asked for a test.
    Request(&'a TurnServices, &'a TurnCaller),
}

impl StoreReader<'_, '_> {
    /// The vectors of some texts. None if the service ends.
    async fn read(&mut self, texts: &[String], purpose: Purpose) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        match self {
            Self::Idle(idle) => idle.vectors(texts.to_vec(), purpose).await,
            Self::Request(services, caller) => {
                let reader = VectorCaller::Request { caller, field: "selftest" };
                let read = services.vectors(reader, texts.to_vec(), purpose).await;
                Some(read.map(|read| read.vectors))
            }
        }
    }

    /// The vectors of some passages, of each alone where they are refused together. None if the service ends.
    async fn passages(&mut self, texts: &[String]) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        let all = self.read(texts, Purpose::Passage).await?;
        if all.is_ok() {
            return Some(all);
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            match self.beginning(text, Purpose::Passage).await? {
                Ok(vector) => vectors.extend(vector),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(vectors))
    }

    /// The vector of a text, or of as much of its beginning as is read.
    async fn beginning(&mut self, text: &str, purpose: Purpose) -> Option<Result<Vec<Vec<f32>>, TurnError>> {
        let part = |halvings: u32| [text[..text.floor_char_boundary(text.len() >> halvings)].to_owned()];
        for halvings in 0..HALVINGS {
            if let Ok(vector) = self.read(&part(halvings), purpose).await? {
                return Some(Ok(vector));
            }
        }
        self.read(&part(HALVINGS), purpose).await
    }

    /// A text's vector for a test; none where the service ends.
    async fn vector(&mut self, text: &str, purpose: Purpose) -> Result<Option<Vec<f32>>, TurnError> {
        self.beginning(text, purpose).await.map_or(Ok(None), |read| Ok(read?.pop()))
    }
}

/// Tests a store now, for somebody who asks for it.
pub async fn test_store(services: &TurnServices, caller: &TurnCaller, store: &str) -> Result<(), TurnError> {
    services.check_open()?;
    let due = services.documents.test_of(caller.account, store).map_err(TurnError::Documents)?;
    let _turn = services.documents.test_turn().map_err(TurnError::Documents)?;
    let test = test(services, &due, StoreReader::Request(services, caller)).await?;
    test.iter().for_each(|test| report("store", due.store(), test));
    Ok(())
}

/// Tests a store that is due.
async fn test_idle(services: &TurnServices, idle: &mut IdleTimes<'_>, due: &DueStoreTest) {
    let store = due.store();
    match test(services, due, StoreReader::Idle(idle)).await {
        Ok(test) => test.iter().for_each(|test| report("store", store, test)),
        // Whoever removed it meanwhile needs no test.
        Err(TurnError::Documents(DocumentError::UnknownStore(_))) => tracing::debug!(store, "a store is gone"),
        Err(error) => put_off("store", store, &error).await,
    }
}

/// Searches for the sentences of a store. None if the service ends before the test does. A test in which something
/// fails is not kept: what it had found would stand for the store.
async fn test(
    services: &TurnServices,
    due: &DueStoreTest,
    mut reader: StoreReader<'_, '_>,
) -> Result<Option<SelfTest>, TurnError> {
    let (documents, of) = (services.documents.clone(), due.clone());
    let probes = aside(services, usize::MAX, move || documents.test_probes(&of)).await?;
    let mut hits: Vec<Hits> = Vec::with_capacity(probes.len());
    for probe in probes {
        let sentence = reader.vector(&probe.sentence, Purpose::Query).await?;
        let rest = reader.vector(&probe.rest, Purpose::Passage).await?;
        let Some((sentence, rest)) = sentence.zip(rest).filter(|_| is_open(services)) else { return Ok(None) };
        let (documents, of) = (services.documents.clone(), due.clone());
        let bytes = passage_scan_bytes(due.passages(), probe.sentence.len(), true);
        let search = move || documents.test_search(&of, &probe, (&sentence, &rest));
        hits.extend(aside(services, bytes, search).await?);
    }
    let (documents, of) = (services.documents.clone(), due.clone());
    let kept = aside(services, usize::MAX, move || documents.keep_test(&of, &hits)).await?;
    kept.map(Some).map_err(TurnError::Documents)
}
