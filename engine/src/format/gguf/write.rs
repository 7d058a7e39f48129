//! The container's header, written: for synthetic and quantised models and tests. Tensor data is the caller's to
//! append.

use crate::format::BlockType;

/// Key-value pairs and tensor entries of a file to be.
#[derive(Clone, Debug)]
pub struct GgufHeader {
    pairs: Vec<(String, MetaValue)>,
    tensors: Vec<(String, BlockType, Vec<usize>)>,
    alignment: u64,
}

/// A metadata value to write.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants are GGUF's own types")]
pub enum MetaValue {
    U32(u32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Str(String),
    Strings(Vec<String>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    Bools(Vec<bool>),
    /// Type and value as another file has them.
    Encoded(Vec<u8>),
}

impl Default for GgufHeader {
    fn default() -> Self {
        Self { pairs: Vec::new(), tensors: Vec::new(), alignment: 32 }
    }
}

impl GgufHeader {
    /// Adds a key of the metadata.
    pub fn set(&mut self, key: impl Into<String>, value: MetaValue) -> &mut Self {
        self.pairs.push((key.into(), value));
        self
    }

    /// Adds a tensor; `shape` is slowest dimension first. Its data follows that of the tensor before.
    pub fn tensor(&mut self, name: impl Into<String>, ty: BlockType, shape: &[usize]) -> &mut Self {
        self.tensors.push((name.into(), ty, shape.to_vec()));
        self
    }

    /// Aligns data to so many bytes; the key that says so is the caller's.
    ///
    /// # Panics
    /// If that is no power of two.
    pub fn align(&mut self, bytes: u64) -> &mut Self {
        assert!(bytes.is_power_of_two(), "data is aligned to a power of two");
        self.alignment = bytes;
        self
    }

    /// Bytes of tensor data with the padding after it.
    pub fn padded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.alignment)
    }

    /// Everything before the data section, padded. The data of all tensors follows in order, each padded to
    /// [`GgufHeader::padded`].
    ///
    /// # Panics
    /// If a tensor's rows are no whole number of blocks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_str(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for (name, ty, shape) in &self.tensors {
            put_str(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|d| out.extend((*d as u64).to_le_bytes()));
            out.extend(ty.gguf_id().expect("an encoding that GGUF files have").to_le_bytes());
            out.extend(u64::to_le_bytes(offset));
            offset += self.padded(tensor_bytes(*ty, shape));
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }
}

/// Encoded size of a tensor.
fn tensor_bytes(ty: BlockType, shape: &[usize]) -> u64 {
    let (cols, rest) = shape.split_last().expect("a tensor has a dimension");
    let row = ty.row_bytes(*cols).expect("rows are whole blocks");
    row as u64 * rest.iter().map(|d| *d as u64).product::<u64>()
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &MetaValue) {
    let id = |out: &mut Vec<u8>, n: u32| out.extend(n.to_le_bytes());
    match value {
        MetaValue::Encoded(bytes) => out.extend(bytes),
        MetaValue::U32(n) => {
            id(out, 4);
            out.extend(n.to_le_bytes());
        }
        MetaValue::U64(n) => {
            id(out, 10);
            out.extend(n.to_le_bytes());
        }
        MetaValue::F32(x) => {
            id(out, 6);
            out.extend(x.to_le_bytes());
        }
        MetaValue::Bool(b) => {
            id(out, 7);
            out.push((*b).into());
        }
        MetaValue::Str(s) => {
            id(out, 8);
            put_str(out, s);
        }
        MetaValue::Strings(all) => {
            put_array(out, 8, all.len());
            all.iter().for_each(|s| put_str(out, s));
        }
        MetaValue::I32s(all) => {
            put_array(out, 5, all.len());
            all.iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        MetaValue::U32s(all) => {
            put_array(out, 4, all.len());
            all.iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        MetaValue::Bools(all) => {
            put_array(out, 7, all.len());
            all.iter().for_each(|b| out.push((*b).into()));
        }
    }
}

fn put_array(out: &mut Vec<u8>, of: u32, len: usize) {
    out.extend(9u32.to_le_bytes());
    out.extend(of.to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}
