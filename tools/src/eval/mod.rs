//! `chimere eval`: what a model is worth, beside another or beside known answers.

pub mod decisions;
pub mod kld;
pub mod logits;

use super::CliError;

/// The commands that compare a model with another or with known answers, or write down what a comparison needs.
#[derive(clap::Subcommand, Debug)]
pub enum EvalCommand {
    /// How often a running service decides right, and temperatures that make its probabilities true.
    Decisions(decisions::DecisionsArgs),
    /// How far next-token distributions are from those of a base model.
    Kld(kld::KldArgs),
    /// The logits of given tokens, as numbers in a file.
    Logits(logits::LogitsArgs),
}

/// Does what was asked, and prints what came out.
pub fn run(eval: &EvalCommand) -> Result<(), CliError> {
    match eval {
        EvalCommand::Decisions(args) => decisions::run(args),
        EvalCommand::Kld(args) => kld::run(args),
        EvalCommand::Logits(args) => logits::run(args),
    }
}
