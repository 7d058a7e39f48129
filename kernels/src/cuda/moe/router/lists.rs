//! Lists of rows by expert: beside the choice where one block can, in launches of their own elsewhere.

use super::operands::Groups;
use super::shape::{CHUNK, GROUPED_ROWS};
use super::workspace::Workspace;
use super::{Arguments, NAME, Router, THREADS};
use crate::cuda::rows::fits;
use crate::cuda::runtime::arguments::PtrMut;
use crate::cuda::{CudaError, Device, Grid};
use cudarc::driver::CudaView;

/// Rows that one block groups in a launch of its own; more are counted and placed in two.
const GROUPED_ALONE: usize = 512;
/// Threads of the block that groups alone.
const ALONE_THREADS: u32 = 1024;

impl Router {
    /// Enqueues the lists alone, of `experts`, `[rows, used]`, with -1 in padding rows.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Ids on the device are below the number of experts, and no row has one twice.
    pub unsafe fn group(
        &self,
        device: &Device,
        work: &mut Workspace,
        rows: usize,
        experts: &CudaView<'_, i32>,
        groups: Groups<'_, '_>,
    ) -> Result<(), CudaError> {
        fits(NAME, "experts", experts.len(), rows * self.shape.used)?;
        let lists = self.list_arguments(device, work, rows, Some(groups))?;
        // The lists' kernels only read the experts.
        let experts = PtrMut::of_shared(experts, device.stream());
        self.enqueue_lists(device, &Arguments { experts, rows: rows as i32, ..lists })
    }

    /// What lists need; zeros elsewhere.
    pub(super) fn list_arguments(
        &self,
        device: &Device,
        work: &mut Workspace,
        n: usize,
        groups: Option<Groups<'_, '_>>,
    ) -> Result<Arguments, CudaError> {
        let (shape, stream) = (self.shape, device.stream());
        let mut arguments = Arguments {
            counters: PtrMut::of(&mut work.counters, stream),
            offsets: PtrMut::of(&mut work.offsets, stream),
            ..Arguments::default()
        };
        if let Some(groups) = groups {
            fits(NAME, "the groups", groups.slots.len(), 4 * shape.experts)?;
            let (pitch, used) = (groups.pitch, shape.used);
            if pitch != 0 && (pitch < n || n > GROUPED_ROWS) {
                return Err(CudaError::shape(
                    NAME,
                    format!("{n} rows in lists of {pitch}: at most {GROUPED_ROWS} rows"),
                ));
            }
            let listed = if pitch == 0 { n * used } else { shape.experts * pitch };
            fits(NAME, "in_rows", groups.in_rows.len(), listed)?;
            fits(NAME, "out_rows", groups.out_rows.len(), listed)?;
            arguments.pitch = pitch as i32;
            fits(NAME, "the workspace", work.offsets.len(), shape.chunks(n) * shape.experts)?;
            arguments.groups = PtrMut::of(groups.slots, stream);
            arguments.in_rows = PtrMut::of(groups.in_rows, stream);
            arguments.out_rows = PtrMut::of(groups.out_rows, stream);
        }
        Ok(arguments)
    }

    pub(super) fn enqueue_lists(&self, device: &Device, arguments: &Arguments) -> Result<(), CudaError> {
        let pairs = arguments.rows as usize * self.shape.used;
        if arguments.rows as usize <= GROUPED_ALONE {
            return self.enqueue(device, &self.group, Grid { blocks: (1, 1), threads: ALONE_THREADS }, arguments);
        }
        let grid = Grid { blocks: (pairs.div_ceil(CHUNK) as u32, 1), threads: THREADS };
        self.enqueue(device, &self.count, grid, arguments)?;
        self.enqueue(device, &self.place, grid, arguments)
    }
}
