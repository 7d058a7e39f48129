//! `chimere eval`: what a model is worth beside another.

pub mod kld;

use super::CliError;

/// What can be compared.
#[derive(clap::Subcommand, Debug)]
pub enum Eval {
    /// How far next-token distributions are from those of a base model.
    Kld(kld::KldArgs),
}

/// Compares, and prints what came out.
pub fn run(eval: &Eval) -> Result<(), CliError> {
    match eval {
        Eval::Kld(args) => kld::run(args),
    }
}
