//! Thin shells around plain structs: who owns what, and who hears from whom.
//!
//! ```text
//! http ── Submit, Cancel ──> SchedulerActor ── Launch ──> EngineActor ── WaitFor ───> completion thread
//!  ^                            │    ^                        │                            │
//!  └── Output ── RequestActor <─┘    └─────── StepDone ───────┴────────────────────────────┤
//!                                                                                          v
//!                                                  EngineActor <── RulesReady ── DeferredActor of tables, of grammars
//! ```
//! What goes forward may be refused. What goes back cannot block: a request's events have a channel sized to the most
//! it can cause, and outcomes are at most [`crate::limits::STEPS_IN_FLIGHT_MAX`].

pub mod choice;
mod deadlines;
pub mod deferred;
pub mod deferred_rules;
pub mod direct;
pub mod embed;
pub mod engine;
pub mod generation_request;
pub mod live;
pub mod messages;
pub mod outcomes;
pub mod output;
pub mod phase;
pub mod probe;
pub mod reader;
pub mod report;
mod report_builder;
pub mod request;
pub mod retry;
pub mod scheduler;
pub mod spec;
pub mod speculation_report;
pub(crate) mod spin_wait;
pub mod step_log;
mod step_meter;
pub mod stopwatch;
mod streams;
pub mod telemetry;
pub mod threads;
pub mod timer;
pub mod token_report;
pub mod watchdog;
