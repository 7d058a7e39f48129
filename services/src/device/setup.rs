//! A device that was chosen, with the backend's sizes on it, and how the backend is built.

use super::{Built, cuda_needs, experts_of_the_host, gpu_budget, host_budget, start_error};
use crate::config::Budget;
use crate::memory::{MemoryPlan, Needs, free_bytes};
use crate::{limits, memory};
use chimere_engine::adapter::ADAPTERS_MAX;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, CpuError, MemoryUse};
use chimere_engine::backend::cuda::{CudaBackend, CudaConfig, GpuInfo};
use chimere_engine::model::Model;
use std::num::NonZeroU32;

/// A device and what the backend is to be on it. Pages are 1 until memory was planned.
#[derive(Clone, Debug)]
pub enum Setup {
    /// The model is computed on the cores of this machine.
    Cpu(CpuConfig),
    /// A GPU that was found usable.
    Cuda(CudaConfig, GpuInfo),
}

impl Setup {
    /// Positions a sequence may have.
    pub fn context(&self) -> u32 {
        match self {
            Setup::Cpu(c) => c.context,
            Setup::Cuda(c, _) => c.context,
        }
    }

    /// How many sequences can have state at once.
    pub fn slots(&self) -> u32 {
        match self {
            Setup::Cpu(c) => c.slots,
            Setup::Cuda(c, _) => c.slots,
        }
    }

    /// Pages of keys and values.
    pub fn pages(&self) -> u32 {
        match self {
            Setup::Cpu(c) => c.pages,
            Setup::Cuda(c, _) => c.pages,
        }
    }

    /// Different adapters that the rows of one step may have.
    pub fn adapter_slots(&self) -> usize {
        if let Setup::Cuda(config, ..) = self { config.adapters.slots } else { ADAPTERS_MAX }
    }

    /// Positions that a step should compute, where the caller named no number.
    pub fn step_tokens(&self) -> u32 {
        match self {
            Setup::Cpu(_) => limits::STEP_TOKENS_CPU,
            Setup::Cuda(c, _) => c.step_rows_max,
        }
    }

    /// What one of so many replicas that share the device has of a budget.
    ///
    /// # Errors
    /// If the system does not tell how much memory is free and the budget is what is free, or the budget cannot be had.
    pub fn budget(&self, budget: Budget, shares: u32) -> Result<Budget, String> {
        let all = match self {
            _ if shares == 1 => return Ok(budget),
            Setup::Cpu(_) => host_budget(budget)?,
            Setup::Cuda(_, gpu) => gpu_budget(budget, gpu.free_bytes, gpu.total_bytes)?,
        };
        Ok(Budget::Bytes(all / u64::from(shares)))
    }

    /// With the pages and the room for the prefix cache that were planned.
    pub fn set_room(&mut self, plan: &MemoryPlan) {
        match self {
            Setup::Cpu(c) => (c.pages, c.checkpoints) = (plan.pages, plan.checkpoints),
            Setup::Cuda(c, _) => {
                (c.pages, c.checkpoints, c.host_cache_bytes) = (plan.pages, plan.checkpoints, plan.host_cache);
            }
        }
    }

    /// A GPU's prefix cache goes on in the host's memory, of which each of so many replicas has its part; a CPU's lies
    /// there already.
    pub fn with_host_cache(&self, plan: MemoryPlan, budget: Budget, replicas: u32) -> Result<MemoryPlan, String> {
        let (number, budget) = match (u64::from(replicas), budget) {
            (number, Budget::Auto) => (number, Budget::Auto),
            (number, Budget::Bytes(all)) => (number, Budget::Bytes(all / number)),
        };
        match self {
            Setup::Cpu(_) => Ok(plan),
            Setup::Cuda(..) if replicas == 1 => plan.with_host_cache(budget, free_bytes()),
            Setup::Cuda(..) => plan
                .with_host_cache(budget, free_bytes().map(|free| free / number))
                .map_err(|why| format!("for each of {replicas} replicas, which share it: {why}")),
        }
    }

    /// Rows of a sequence in a pass over the weights, where recomputed positions take passes: on a GPU they stand there
    /// as drafts do. A CPU computes all of them together.
    pub fn pass_rows(&self) -> Option<NonZeroU32> {
        match self {
            Setup::Cpu(_) => None,
            Setup::Cuda(c, _) => Some(NonZeroU32::MIN.saturating_add(c.drafts)),
        }
    }

    /// The GPU, where one computes.
    pub fn gpu(&self) -> Option<&GpuInfo> {
        match self {
            Setup::Cpu(_) => None,
            Setup::Cuda(_, gpu) => Some(gpu),
        }
    }

    /// What may change the bytes of an answer, in words.
    pub fn arithmetic(&self) -> String {
        match self {
            Setup::Cpu(c) => format!("cpu {:?} {}", c.kv_type, c.exact),
            Setup::Cuda(c, gpu) => format!("cuda {} {:?} {}", gpu.arch, c.kv, c.activations.name()),
        }
    }

    /// What memory the backend needs on its device, with a prefix cache.
    pub fn needs(&self, model: &Model) -> Needs {
        match self {
            Setup::Cpu(c) => {
                let uses = MemoryUse::of(&model.config, c);
                Needs {
                    weights: MemoryUse::weight_bytes(model, c),
                    workspace: uses.workspace_bytes,
                    reserve: 0,
                    slot: uses.slot_bytes + uses.drafted_bytes,
                    page: uses.page_bytes,
                    checkpoint: Some(uses.slot_bytes),
                    host: 0,
                    experts: None,
                    seqs: c.slots,
                    context: c.context,
                }
            }
            Setup::Cuda(c, _) => cuda_needs(model, c),
        }
    }

    /// Splits the budget. What fits of pages, and of the prefix cache if there is to be one, is the caller's to set.
    pub fn plan(&self, budget: Budget, model: &Model, prefix_cache: bool) -> Result<MemoryPlan, String> {
        let bytes = match self {
            Setup::Cpu(_) => host_budget(budget)?,
            Setup::Cuda(_, gpu) => gpu_budget(budget, gpu.free_bytes, gpu.total_bytes)?,
        };
        let needs = self.needs(model);
        let checkpoint = needs.checkpoint.filter(|_| prefix_cache);
        experts_of_the_host(&needs, free_bytes())?;
        MemoryPlan::new(bytes, Needs { checkpoint, ..needs }).map_err(|e| e.to_string())
    }

    /// Loads the weights and takes all memory. `progress` hears the share done.
    pub fn build(self, model: &Model, progress: &mut dyn FnMut(f32)) -> Result<Built, String> {
        let built = match self {
            Setup::Cpu(c) => CpuBackend::new(model, &c, progress).map(Built::Cpu).map_err(|e| match e {
                CpuError::Memory(bytes) => memory::not_given(bytes),
                e => e.to_string(),
            }),
            // The device that was probed stays open until the backend has opened it too.
            Setup::Cuda(c, gpu) => {
                CudaBackend::new(model, &c, progress).map(Built::Cuda).map_err(|e| start_error(&e, &gpu))
            }
        }?;
        // Only now has all of it been read.
        model.files.check().map_err(|e| e.to_string())?;
        Ok(built)
    }
}
