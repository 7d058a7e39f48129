//! Which rows the next step computes: one walk over the running and the waiting sequences, and the decisions that it
//! asks for.
//!
//! `walk` goes over the sequences in order and fills a plan ([`builder`]); `overlap` plans a step behind one whose
//! outcome is not known yet. `pause` says which rows leave a step to others, `drafts` and `guesses` how many rows
//! verify drafts and what the draft head is asked for, `preemption` who gives memory back, `adapters` whose adapter
//! has a slot, `prefix` what the prefix cache spares, and `fork` parts the choices of a request at the prompt's end.
//! `idle` adds rows of idle work when all others have theirs.

mod adapters;
pub(super) mod builder;
mod drafts;
mod fork;
mod guesses;
mod idle;
mod overlap;
pub(super) mod pause;
mod preemption;
mod prefix;
mod walk;
