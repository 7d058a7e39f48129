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

pub mod deferred;
pub mod deferred_rules;
pub mod dispatch;
pub mod engine;
pub mod live;
pub mod messages;
pub mod phase;
pub mod request;
pub mod scheduler;
pub(crate) mod spin_wait;
pub mod telemetry;
pub mod threads;
pub mod watchdog;
