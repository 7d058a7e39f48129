//! What answers under names of its own beside the model: adapters and pipelines.

use super::ServeError;
use crate::adapters::{AdapterDirectory, AdapterSettings, Adapters};
use crate::config::{Config, PipelineKeys};
use crate::embedder::Embedder;
use crate::http::request::ModelLimits;
use crate::names::{NameOwner, ServedNames};
use crate::pipelines::Pipelines;
use chimere_engine::model::{AdapterTargets, Model};
use std::path::Path;
use std::time::Duration;

/// The adapters and the pipelines, each under a name that nothing else has.
pub(super) fn named(
    config: &Config,
    model: &Model,
    (limits, embedder): (&ModelLimits, &Embedder),
) -> Result<(Adapters, Pipelines), ServeError> {
    let names = ServedNames::of_model(limits.names());
    if let Some(encoder) = embedder.encoder() {
        let taken = |owner: NameOwner| ServeError::Usage(format!("documents.embedder.name: a name of {owner}"));
        names.claim(encoder.name(), NameOwner::Encoder).map_err(taken)?;
    }
    let adapters = adapters(config, model, &names)?;
    Ok((adapters, pipelines(config, names, limits.choices_max)?))
}

/// The adapters of the directory that the configuration names.
fn adapters(config: &Config, model: &Model, names: &ServedNames) -> Result<Adapters, ServeError> {
    let keys = &config.adapters;
    if keys.directory.is_empty() {
        return Ok(Adapters::default());
    }
    let refused = |why: String| ServeError::Start(format!("adapters.directory: {why}"));
    let settings =
        AdapterSettings { rank_max: keys.rank_max, host_bytes_max: keys.host_mib << 20, kl_max: keys.kl_max };
    let directory =
        AdapterDirectory::open(Path::new(&keys.directory), AdapterTargets::of(model), names.clone(), settings);
    directory.and_then(Adapters::load_all).map_err(|e| refused(e.to_string()))
}

/// The pipelines of the directory that the configuration names.
fn pipelines(config: &Config, names: ServedNames, choices_max: u32) -> Result<Pipelines, ServeError> {
    let PipelineKeys { directory, reload_seconds } = &config.pipelines;
    if directory.is_empty() {
        return Ok(Pipelines::default());
    }
    let period = Duration::from_secs(*reload_seconds);
    let opened = Pipelines::open(Path::new(directory), period, names, choices_max);
    opened.map_err(|e| ServeError::Start(format!("pipelines.directory: {e}")))
}
