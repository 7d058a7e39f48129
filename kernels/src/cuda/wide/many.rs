//! Products of many rows in either form: int8 rows as they are, or f16 that is made of them first.

use super::halves::{self, HalfRows, Halves};
use super::warpgroup::{self, Warpgroup};
use super::{Columns, Inputs, Output, Wide, WideShape, WideTiling};
use crate::cuda::lora::Lora;
use crate::cuda::stack::Stack;
use crate::cuda::{CudaError, Device, KernelCache, Program};
use cudarc::driver::CudaView;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// On which matrix instructions a product is done, and how it is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WideArithmetic {
    /// On int8 rows as they are.
    Int8(WideTiling),
    /// On rows of f16 that are made of them first.
    F16(warpgroup::WarpgroupTiling),
}

impl WideArithmetic {
    /// The programs of a shape in this form.
    ///
    /// # Errors
    /// If there is no such tiling for it.
    pub fn programs(self, shape: WideShape) -> Result<Vec<Program>, CudaError> {
        Ok(match self {
            Self::Int8(tiling) => vec![super::program(shape, tiling)?],
            Self::F16(tiling) => {
                vec![warpgroup::program(shape, tiling)?, halves::program(shape.matrix().size().1, shape.norm())?]
            }
        })
    }
}

/// Int8 rows that products read, one after another. f16 is made of them once.
#[derive(Clone)]
pub struct Source<'a> {
    inputs: Inputs<'a>,
    halved: Cell<Option<Halved>>,
    made: Option<&'a HalfRows>,
}

/// That f16 was made of rows, how many, and which turn of [`HalfPlace`] that was: it is still there while that was the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halved {
    turn: u64,
    count: usize,
}

impl<'a> Source<'a> {
    /// Of these rows, which stay as they are.
    pub fn new(inputs: Inputs<'a>) -> Self {
        Self { inputs, halved: Cell::new(None), made: None }
    }

    /// Of these, of which f16 was made by whoever wrote them, if it was.
    pub fn halved(inputs: Inputs<'a>, halved: Option<Halved>) -> Self {
        Self { inputs, halved: Cell::new(halved), made: None }
    }

    /// Of rows that were never anything but f16, if they were not: then there are no others, and nothing but products
    /// of warpgroups may read them.
    pub fn made(self, rows: Option<&'a HalfRows>) -> Self {
        Self { made: rows, ..self }
    }

    /// With what adapters add to the products of these rows.
    pub fn adapted(self, lora: Option<Lora<'a>>) -> Self {
        Self { inputs: Inputs { lora, ..self.inputs }, ..self }
    }

    /// Of these, for a matrix whose first output is this one of all that adapters add to.
    pub fn at_output(self, first: usize) -> Self {
        let lora = self.inputs.lora.map(|lora| lora.at_output(first));
        self.adapted(lora)
    }

    /// The rows, where they were never anything but f16.
    pub(in crate::cuda) fn only_halves(&self) -> Option<&'a HalfRows> {
        self.made
    }

    /// Int8 rows without a norm.
    pub fn plain(codes: &'a CudaView<'a, i8>, meta: &'a CudaView<'a, f32>) -> Self {
        Self::new(Inputs { codes, meta, squares: None, eps: 0.0, factor: 1.0, lora: None })
    }

    /// Int8 rows that the source was made of.
    pub fn inputs(&self) -> Inputs<'a> {
        self.inputs
    }
}

/// Width of a row, and of its norm.
type RowShape = (usize, Option<usize>);

/// Where products of one stream make f16 of the rows that they read, one after another.
#[derive(Debug)]
pub struct HalfPlace {
    rows: HalfRows,
    kernels: RefCell<HashMap<RowShape, Rc<Halves>>>,
    /// The last time that was done.
    turn: Cell<u64>,
}

/// How often that was done in all places together, so that no turn of one is taken for another's.
static TURNS: AtomicU64 = AtomicU64::new(0);

impl HalfPlace {
    /// Takes `rows` as the place where f16 is made.
    pub fn new(rows: HalfRows) -> Self {
        Self { rows, kernels: RefCell::default(), turn: Cell::new(0) }
    }

    fn kernel(&self, device: &Device, cache: &KernelCache, shape: WideShape) -> Result<Rc<Halves>, CudaError> {
        let key = (shape.matrix().size().1, shape.norm());
        if let Some(kernel) = self.kernels.borrow().get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Rc::new(Halves::load(device, cache, key.0, key.1)?);
        self.kernels.borrow_mut().insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Where a launch that writes int8 rows puts the f16 of all `count` of them too. Whoever reads them is told by
    /// [`Source::halved`].
    pub fn fill(&self, count: usize) -> (&HalfRows, Halved) {
        self.turn.set(1 + TURNS.fetch_add(1, Ordering::Relaxed));
        (&self.rows, Halved { turn: self.turn.get(), count })
    }

    /// With the first `count` rows of `x`, unless they are what was put here last.
    fn filled(&self, device: &Device, halves: &Halves, count: usize, x: &Source<'_>) -> Result<&HalfRows, CudaError> {
        if x.halved.get() != Some(Halved { turn: self.turn.get(), count }) {
            halves.launch(device, count, x.inputs, &self.rows)?;
            x.halved.set(Some(self.fill(count).1));
        }
        Ok(&self.rows)
    }
}

/// A product's kernel for many rows.
#[derive(Clone, Debug)]
pub enum Many {
    /// Kernel that multiplies int8 rows as they are: see [`Wide`].
    Int8(Rc<Wide>),
    /// See [`Warpgroup`], with what makes f16 of the rows and where.
    F16(Rc<Warpgroup>, Rc<Halves>, Rc<HalfPlace>),
}

impl Many {
    /// Loads the kernel; f16 is made in `place`.
    ///
    /// # Errors
    /// If there is none for the shape or the device, or it cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        shape: WideShape,
        form: WideArithmetic,
        place: &Rc<HalfPlace>,
    ) -> Result<Self, CudaError> {
        Ok(match form {
            WideArithmetic::Int8(tiling) => Self::Int8(Rc::new(Wide::load(device, cache, shape, tiling)?)),
            WideArithmetic::F16(tiling) => {
                let product = Rc::new(Warpgroup::load(device, cache, shape, tiling)?);
                Self::F16(product, place.kernel(device, cache, shape)?, place.clone())
            }
        })
    }

    /// Whether its output is [`Output::HalfRows`].
    pub fn makes_half_rows(&self) -> bool {
        match self {
            Self::Int8(_) => false,
            Self::F16(product, ..) => product.shape().makes_half_rows(),
        }
    }

    /// Enqueues the product, as [`Wide::launch`], with `factor` for that of the rows.
    ///
    /// # Errors
    /// As there, and if the place for f16 is too small.
    ///
    /// # Safety
    /// As [`Wide::launch`].
    pub unsafe fn launch<'a>(
        &self,
        device: &Device,
        weights: impl Into<Stack<'a>>,
        (x, factor): (&Source<'_>, f32),
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        match self {
            Self::Int8(_) if x.made.is_some() => {
                Err(CudaError::shape("wide", "rows of f16 are read by products of warpgroups alone"))
            }
            // SAFETY: the caller's promise, here and below.
            Self::Int8(product) => unsafe {
                product.launch(device, weights, Inputs { factor, ..x.inputs }, columns, out)
            },
            Self::F16(product, halves, place) => {
                let rows = match x.made {
                    Some(rows) => rows,
                    None => place.filled(device, halves, columns.rows(), x)?,
                };
                let x = warpgroup::HalfInputs { rows, factor, lora: x.inputs.lora };
                // SAFETY: as above.
                unsafe { product.launch(device, weights, x, columns, out) }
            }
        }
    }
}
