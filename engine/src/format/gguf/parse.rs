//! The container's header, from bytes nobody has checked. Every count, length and offset is held against the file's
//! size before it is used, and nothing is allocated by a number that the file merely claims.

use super::types;
use crate::format::{BlockType, Problem};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

/// Arrays in arrays, at most this deep.
const ARRAY_DEPTH_MAX: u32 = 4;
/// Dimensions of a tensor, at most.
const DIMS_MAX: u32 = 4;
/// The least a key-value pair can take: key length, type, one byte.
const PAIR_BYTES_MIN: u64 = 13;
/// The least a tensor's entry can take: name length, dimension count, type, offset.
const TENSOR_BYTES_MIN: u64 = 24;
const VERSION: u32 = 3;
const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT_DEFAULT: u64 = 32;

/// What stands before the data section.
pub(super) struct FileHeader {
    pub(super) entries: HashMap<String, Value>,
    /// Keys in the file's order, each with the bytes of its type and value.
    pub(super) encoded: Vec<(String, Range<usize>)>,
    pub(super) tensors: Vec<TensorInfo>,
}

/// One tensor, its range checked against the file.
pub(super) struct TensorInfo {
    pub(super) name: String,
    pub(super) ty: BlockType,
    /// Its dimensions, the slowest first.
    pub(super) shape: Vec<usize>,
    /// Bytes of the file.
    pub(super) range: Range<usize>,
}

/// A metadata value. Strings and arrays stay where they are: ranges of the file, walked once and known to lie within
/// it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Str(Range<usize>),
    Array { of: ValueType, len: usize, data: Range<usize> },
}

/// Type of a metadata value or of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Str,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Str,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Bytes of a value; `None` for strings and arrays.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
        f.write_str(names[Self::ALL.iter().position(|t| t == self).expect("all types are listed")])
    }
}

/// Parses and checks everything before the data section.
pub(super) fn header(bytes: &[u8]) -> Result<FileHeader, Problem> {
    let mut c = Cursor { bytes, at: 0 };
    let magic = &bytes[..bytes.len().min(4)];
    if magic != b"GGUF" {
        return Err(Problem::Magic(magic.to_vec()));
    }
    c.take(4, FilePart::Head("magic"))?;
    check_version(c.u32(FilePart::Head("version"))?)?;
    let tensor_count = c.u64(FilePart::Head("tensor count"))?;
    let pair_count = c.u64(FilePart::Head("key count"))?;
    c.check_count(pair_count, PAIR_BYTES_MIN, FilePart::Head("key count"))?;
    let (entries, encoded) = pairs(&mut c, pair_count)?;
    c.check_count(tensor_count, TENSOR_BYTES_MIN, FilePart::Head("tensor count"))?;
    let alignment = alignment(&entries)?;
    let raw = (0..tensor_count).map(|i| tensor_entry(&mut c, i)).collect::<Result<Vec<_>, _>>()?;
    let data_at = (c.at as u64).next_multiple_of(alignment);
    let tensors =
        raw.into_iter().map(|t| t.place(alignment, data_at, bytes.len() as u64)).collect::<Result<Vec<_>, _>>()?;
    check_names_and_overlaps(&tensors)?;
    Ok(FileHeader { entries, encoded, tensors })
}

fn check_version(version: u32) -> Result<(), Problem> {
    if version == VERSION {
        return Ok(());
    }
    let hint = if version.swap_bytes() == VERSION { " (a big-endian file)" } else { "" };
    Err(Problem::container("GGUF version", VERSION, format_args!("{version}{hint}")))
}

type MetadataPairs = (HashMap<String, Value>, Vec<(String, Range<usize>)>);

fn pairs(c: &mut Cursor<'_>, count: u64) -> Result<MetadataPairs, Problem> {
    let (mut entries, mut encoded) = (HashMap::new(), Vec::new());
    for i in 0..count {
        let key = c.string(FilePart::Key(i))?;
        let start = c.at;
        let ty = c.value_type(FilePart::Value(key))?;
        let value = c.value(ty, key)?;
        if entries.insert(key.to_owned(), value).is_some() {
            return Err(Problem::key(key, "one value", "the key twice"));
        }
        encoded.push((key.to_owned(), start..c.at));
    }
    Ok((entries, encoded))
}

fn alignment(entries: &HashMap<String, Value>) -> Result<u64, Problem> {
    match entries.get(ALIGNMENT_KEY) {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::Unsigned(n)) if n.is_power_of_two() && *n <= 1 << 30 => Ok(*n),
        Some(Value::Unsigned(n)) => Err(Problem::key(ALIGNMENT_KEY, "a power of two of at most 1 GiB", n)),
        Some(_) => Err(Problem::key(ALIGNMENT_KEY, "an unsigned number", "another type")),
    }
}

/// A tensor's entry as written.
struct RawTensor<'a> {
    name: &'a str,
    /// Its dimensions, the slowest first.
    shape: Vec<usize>,
    ty: BlockType,
    offset: u64,
}

fn tensor_entry<'a>(c: &mut Cursor<'a>, index: u64) -> Result<RawTensor<'a>, Problem> {
    let name = c.string(FilePart::TensorName(index))?;
    let part = FilePart::Tensor(name);
    let dims = c.u32(part)?;
    if dims == 0 || dims > DIMS_MAX {
        return Err(Problem::tensor(name, format_args!("1 to {DIMS_MAX} dimensions"), dims));
    }
    let mut shape = Vec::with_capacity(DIMS_MAX as usize);
    for _ in 0..dims {
        let d = c.u64(part)?;
        shape.push(
            usize::try_from(d).ok().filter(|d| *d > 0).ok_or_else(|| Problem::tensor(name, "dimensions above 0", d))?,
        );
    }
    shape.reverse();
    let id = c.u32(part)?;
    let ty = BlockType::from_gguf_id(id).ok_or_else(|| types::refuse(name, id))?;
    Ok(RawTensor { name, shape, ty, offset: c.u64(part)? })
}

impl RawTensor<'_> {
    fn place(self, alignment: u64, data_at: u64, file_len: u64) -> Result<TensorInfo, Problem> {
        if !self.offset.is_multiple_of(alignment) {
            return Err(Problem::tensor(
                self.name,
                format_args!("an offset that is a multiple of {alignment}"),
                self.offset,
            ));
        }
        let cols = self.shape[self.shape.len() - 1];
        if !cols.is_multiple_of(self.ty.elements()) {
            let want = format!("rows of whole {} blocks of {} elements", self.ty.name(), self.ty.elements());
            return Err(Problem::tensor(self.name, want, format_args!("{cols} elements a row")));
        }
        let row = self.ty.row_bytes(cols).map(|n| n as u64);
        let len = row.and_then(|row| self.shape.iter().rev().skip(1).try_fold(row, |n, d| n.checked_mul(*d as u64)));
        let end = len.and_then(|len| data_at.checked_add(self.offset)?.checked_add(len));
        match (len, end) {
            (Some(len), Some(end)) if end <= file_len => {
                let range = (end - len) as usize..end as usize;
                Ok(TensorInfo { name: self.name.to_owned(), ty: self.ty, shape: self.shape, range })
            }
            (Some(len), _) => {
                let want = format!("{len} bytes of data at offset {}", self.offset);
                Err(Problem::tensor(
                    self.name,
                    want,
                    format_args!("a data section of {} bytes", file_len.saturating_sub(data_at)),
                ))
            }
            (None, _) => {
                Err(Problem::tensor(self.name, "a size below 2^64 bytes", format_args!("shape {:?}", self.shape)))
            }
        }
    }
}

fn check_names_and_overlaps(tensors: &[TensorInfo]) -> Result<(), Problem> {
    let mut names = HashSet::new();
    if let Some(t) = tensors.iter().find(|t| !names.insert(t.name.as_str())) {
        return Err(Problem::tensor(&t.name, "one tensor of this name", "two"));
    }
    let mut by_place: Vec<_> = tensors.iter().collect();
    by_place.sort_by_key(|t| t.range.start);
    match by_place.windows(2).find(|w| w[0].range.end > w[1].range.start) {
        None => Ok(()),
        Some(w) => Err(Problem::tensor(
            &w[1].name,
            "data of its own",
            format_args!("data that overlaps tensor `{}`", w[0].name),
        )),
    }
}

/// What is being read, for messages. Formatted only when something is wrong.
#[derive(Clone, Copy)]
enum FilePart<'a> {
    Head(&'static str),
    Key(u64),
    Value(&'a str),
    TensorName(u64),
    Tensor(&'a str),
}

impl fmt::Display for FilePart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(what) => f.write_str(what),
            Self::Key(i) => write!(f, "name of key {i}"),
            Self::Value(key) => write!(f, "value of key `{key}`"),
            Self::TensorName(i) => write!(f, "name of tensor {i}"),
            Self::Tensor(name) => write!(f, "entry of tensor `{name}`"),
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, n: u64, part: FilePart<'_>) -> Result<&'a [u8], Problem> {
        if n > self.left() {
            return Err(Problem::Truncated { part: part.to_string(), at: self.at as u64, want: n, have: self.left() });
        }
        let start = self.at;
        self.at += n as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// `count` things of at least `each` bytes must fit in what is left.
    fn check_count(&self, count: u64, each: u64, part: FilePart<'_>) -> Result<(), Problem> {
        let max = self.left() / each;
        if count > max {
            return Err(Problem::container(
                part,
                format_args!("at most {max} in the {} bytes left", self.left()),
                count,
            ));
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self, part: FilePart<'_>) -> Result<[u8; N], Problem> {
        Ok(self.take(N as u64, part)?.try_into().expect("take gives what was asked"))
    }

    fn u32(&mut self, part: FilePart<'_>) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array(part)?))
    }

    fn u64(&mut self, part: FilePart<'_>) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array(part)?))
    }

    fn string(&mut self, part: FilePart<'_>) -> Result<&'a str, Problem> {
        let len = self.u64(part)?;
        let bytes = self.take(len, part)?;
        std::str::from_utf8(bytes).map_err(|e| Problem::container(part, "UTF-8", e))
    }

    fn value_type(&mut self, part: FilePart<'_>) -> Result<ValueType, Problem> {
        let id = self.u32(part)?;
        ValueType::ALL.get(id as usize).copied().ok_or_else(|| Problem::container(part, "a type from 0 to 12", id))
    }

    fn value(&mut self, ty: ValueType, key: &str) -> Result<Value, Problem> {
        let part = FilePart::Value(key);
        Ok(match ty {
            ValueType::Str => {
                let len = self.u64(part)?;
                self.take(len, part)?;
                Value::Str(self.at - len as usize..self.at)
            }
            ValueType::Array => {
                let (of, len) = self.array_head(key)?;
                let start = self.at;
                self.skip_items(of, len, key, 1)?;
                Value::Array { of, len: len as usize, data: start..self.at }
            }
            _ => scalar(ty, self.take(ty.bytes().expect("neither string nor array"), part)?, key)?,
        })
    }

    fn array_head(&mut self, key: &str) -> Result<(ValueType, u64), Problem> {
        let part = FilePart::Value(key);
        let of = self.value_type(part)?;
        let len = self.u64(part)?;
        let each = match of {
            ValueType::Str => 8,
            ValueType::Array => 12,
            _ => of.bytes().expect("neither string nor array"),
        };
        self.check_count(len, each, part)?;
        Ok((of, len))
    }

    fn skip_items(&mut self, of: ValueType, len: u64, key: &str, depth: u32) -> Result<(), Problem> {
        let part = FilePart::Value(key);
        if depth > ARRAY_DEPTH_MAX {
            return Err(Problem::key(key, format_args!("arrays nested at most {ARRAY_DEPTH_MAX} deep"), "deeper ones"));
        }
        match of {
            ValueType::Str => {
                for _ in 0..len {
                    let n = self.u64(part)?;
                    self.take(n, part)?;
                }
            }
            ValueType::Array => {
                for _ in 0..len {
                    let (of, len) = self.array_head(key)?;
                    self.skip_items(of, len, key, depth + 1)?;
                }
            }
            _ => {
                // The count was held against what is left, so the product cannot overflow.
                self.take(len * of.bytes().expect("neither string nor array"), part)?;
            }
        }
        Ok(())
    }
}

/// One scalar from exactly its bytes.
pub(super) fn scalar(ty: ValueType, b: &[u8], key: &str) -> Result<Value, Problem> {
    fn le<const N: usize>(b: &[u8]) -> [u8; N] {
        b.try_into().expect("the slice has the size of the type")
    }
    Ok(match ty {
        ValueType::U8 => Value::Unsigned(b[0].into()),
        ValueType::I8 => Value::Signed((b[0] as i8).into()),
        ValueType::U16 => Value::Unsigned(u16::from_le_bytes(le(b)).into()),
        ValueType::I16 => Value::Signed(i16::from_le_bytes(le(b)).into()),
        ValueType::U32 => Value::Unsigned(u32::from_le_bytes(le(b)).into()),
        ValueType::I32 => Value::Signed(i32::from_le_bytes(le(b)).into()),
        ValueType::F32 => Value::Float(f32::from_le_bytes(le(b)).into()),
        ValueType::U64 => Value::Unsigned(u64::from_le_bytes(le(b))),
        ValueType::I64 => Value::Signed(i64::from_le_bytes(le(b))),
        ValueType::F64 => Value::Float(f64::from_le_bytes(le(b))),
        ValueType::Bool if b[0] < 2 => Value::Bool(b[0] == 1),
        ValueType::Bool => return Err(Problem::key(key, "a bool of 0 or 1", b[0])),
        ValueType::Str | ValueType::Array => unreachable!("scalars only"),
    })
}

/// Bytes of one scalar of this type; `None` for strings and arrays.
pub(super) fn scalar_bytes(ty: ValueType) -> Option<usize> {
    ty.bytes().map(|n| n as usize)
}
