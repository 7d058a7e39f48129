//! Adapters of a step: the sequences whose adapter lies in no slot wait, and keep what they have.

use super::builder::PlanBuilder;
use crate::adapter::{ResidentAdapter, ScaledAdapter};
use crate::ids::Micros;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::Sequence;
use std::collections::BTreeSet;

impl Scheduler {
    /// Settles which adapters the next step's rows may have.
    pub(super) fn settle_adapters(&mut self, now: Micros) {
        if self.config.adapter_slots == 0 {
            return;
        }
        let wanted = self.adapters_wanted();
        self.adapters.settle(&wanted, now);
        self.note_adapters();
    }

    /// Gives the first of those that wait for an adapter's slot one at once. False if none waits.
    pub(super) fn hurry_adapter(&mut self, now: Micros) -> bool {
        let first = self.running.iter().filter(|seq| seq.lacks_adapter).find_map(Sequence::adapter_number);
        let Some(number) = first else { return false };
        let wanted = self.adapters_wanted();
        self.adapters.swap_in(number, &wanted, now);
        self.note_adapters();
        true
    }

    /// Looks for the adapter of a sequence that starts in the middle of a plan.
    pub(super) fn place_adapter(&mut self, seq: &mut Sequence, now: Micros) {
        if let Some(number) = seq.adapter_number() {
            self.adapters.take_empty(number, now);
            seq.lacks_adapter = !self.adapters.holds(number);
        }
    }

    /// The adapter of the sequence at `at` where the step's rows find it.
    pub(super) fn resident_adapter(&mut self, at: usize, builder: &PlanBuilder<'_>) -> Option<ResidentAdapter> {
        let ScaledAdapter { adapter, scale } = self.running[at].request.spec.adapter.clone()?;
        let slot = self.adapters.slot_of(adapter.number, builder.now);
        Some(ResidentAdapter { adapter, slot, scale })
    }

    fn adapters_wanted(&self) -> BTreeSet<u64> {
        self.running.iter().filter_map(Sequence::adapter_number).collect()
    }

    fn note_adapters(&mut self) {
        let Self { running, adapters, .. } = self;
        for seq in running {
            seq.lacks_adapter = seq.adapter_number().is_some_and(|number| !adapters.holds(number));
        }
    }
}
