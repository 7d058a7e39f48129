//! `chimere plan`: what takes which bytes of a GPU's memory. It asks no GPU, so that a card can be planned for before
//! it is there.

use chimere::config::{Budget, Config, ServeArgs};
use chimere::device::{self, CardPlan, DeviceRequest};
use chimere_engine::model::{self, Model};
use chimere_tools::{CliError, find_model};
use std::path::Path;

/// Shows how `serve` with the same flags would split the memory of a card, and the bytes of each part.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct PlanArgs {
    /// Memory of the card that nobody else uses: bytes such as 16GiB. The card need not be here, so `--device` and the
    /// memory of this machine are not looked at
    #[arg(long, value_name = "BYTES", value_parser = card_bytes)]
    pub(crate) vram: u64,
    /// Flags of `serve`; those of the network count for nothing here.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

fn card_bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        Budget::Bytes(n) => Ok(n),
        Budget::Auto => Err("wanted bytes such as 16GiB: no card is asked".into()),
    }
}

/// Prints the plan of a card.
pub(crate) fn run(args: &PlanArgs) -> Result<(), CliError> {
    let config = Config::load(&args.serve, std::env::vars()).map_err(|e| CliError::Usage(e.to_string()))?;
    let path = find_model(Some(Path::new(&config.model.path)))?;
    let mut model = model::load(&path).map_err(|e| CliError::Failed(e.to_string()))?;
    config.engine.draft_ids.limit(&mut model).map_err(CliError::Usage)?;
    println!("{}", plan(&config, args.vram, &model)?);
    Ok(())
}

fn plan(config: &Config, vram: u64, model: &Model) -> Result<CardPlan, CliError> {
    let context = device::context(&config.engine, model).map_err(CliError::Usage)?;
    let wanted = DeviceRequest::of(&config.engine, context);
    let shares = config.engine.devices.shares_max();
    device::plan_for_card(&wanted, (vram, shares), model, config.cache.prefix).map_err(CliError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere::config::PrefixCacheMode;

    fn nano() -> Model {
        model::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf")).unwrap()
    }

    #[test]
    fn every_byte_of_a_use_is_in_one_of_its_parts() {
        let (config, model) = (Config::load(&ServeArgs::default(), [].into_iter()).unwrap(), nano());
        let planned = plan(&config, 16 << 30, &model).unwrap();
        for (of, bytes) in planned.plan.uses() {
            let parts = planned.parts.iter().filter(|part| part.of == of);
            assert_eq!(parts.map(|part| part.bytes).sum::<u64>(), bytes, "{of} of\n{planned}");
        }
        let text = planned.to_string();
        for wanted in
            ["memory plan\n  weights", "\nparts\n  weights", "routed experts", "graphs", "keys", " of 15.7 GiB"]
        {
            assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    #[test]
    fn a_card_that_is_too_small_is_refused_with_the_numbers() {
        let config = Config::load(&ServeArgs::default(), [].into_iter()).unwrap();
        let Err(CliError::Failed(why)) = plan(&config, 400 << 20, &nano()) else { panic!("it does not fit") };
        assert!(why.starts_with("the memory budget of ") && why.contains("--vram-budget"), "{why}");
        let on = ServeArgs { prefix_cache: Some(PrefixCacheMode::On), ..ServeArgs::default() };
        let config = Config::load(&on, [].into_iter()).unwrap();
        let least = (400..2000).map(|mib| plan(&config, mib << 20, &nano())).find(|planned| match planned {
            Err(CliError::Failed(why)) => !why.starts_with("the memory budget of "),
            _ => true,
        });
        let Some(Err(CliError::Failed(why))) = least else { panic!("the first that fits has a checkpoint") };
        assert!(why.starts_with("prefix-cache on: a state of "), "{why}");
        assert!(card_bytes("auto").is_err());
        assert_eq!(card_bytes("16GiB"), Ok(16 << 30));
    }
}
