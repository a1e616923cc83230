//! The container: metadata and the table of tensors. Every length in it is checked against the bytes that are there.

use super::GgufError;
use super::block::BlockType;
use std::collections::BTreeMap;

/// A parsed file.
pub(super) struct Gguf<'a> {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
    data: &'a [u8],
}

/// A metadata value. Whole numbers of any width are `Int`; flags and lists of other things are not needed.
#[derive(Debug)]
pub(super) enum Value {
    Int(i128),
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i128>),
    Other,
}

/// A tensor's entry in the table.
pub(super) struct TensorInfo {
    pub name: String,
    /// Row-major, outermost first (the file has the innermost first).
    pub shape: Vec<usize>,
    pub kind: BlockType,
    offset: usize,
}

#[cfg(test)]
impl TensorInfo {
    /// An entry without a place in a file.
    pub(super) fn of(name: &str, shape: Vec<usize>, kind: BlockType) -> TensorInfo {
        TensorInfo { name: name.into(), shape, kind, offset: 0 }
    }
}

impl<'a> Gguf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Gguf<'a>, GgufError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take(4)? != b"GGUF" {
            return Err(GgufError::Damaged("it does not begin with GGUF".into()));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Unsupported(format!("GGUF version {version}")));
        }
        let (tensor_count, key_count) = (reader.u64()?, reader.u64()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..key_count {
            let (key, kind) = (reader.text()?, reader.u32()?);
            metadata.insert(key, reader.value(kind)?);
        }
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(reader.tensor()?);
        }
        let alignment = match metadata.get("general.alignment") {
            Some(Value::Int(n)) => usize::try_from(*n).ok().filter(|n| n.is_power_of_two()),
            _ => Some(32),
        };
        let alignment = alignment.ok_or_else(|| GgufError::Damaged("its alignment is not a power of two".into()))?;
        let data = bytes.get(reader.at.next_multiple_of(alignment)..).unwrap_or_default();
        Ok(Gguf { metadata, tensors, data })
    }

    pub(super) fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The bytes of a tensor.
    pub(super) fn data(&self, tensor: &TensorInfo) -> Result<&'a [u8], GgufError> {
        let elements = tensor.shape.iter().product::<usize>();
        let bytes = elements / tensor.kind.elements() * tensor.kind.bytes();
        let end = tensor.offset.checked_add(bytes);
        let whole = tensor.shape.last().is_some_and(|row| row.is_multiple_of(tensor.kind.elements()));
        match end.and_then(|end| self.data.get(tensor.offset..end)) {
            Some(data) if whole => Ok(data),
            _ => Err(GgufError::Damaged(format!("tensor `{}` reaches past the end", tensor.name))),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&str, GgufError> {
        match self.metadata.get(key) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(GgufError::Metadata { key: key.into(), expected: "a text" }),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, GgufError> {
        let wrong = || GgufError::Metadata { key: key.into(), expected: "one whole number" };
        match self.metadata.get(key) {
            Some(Value::Int(n)) => usize::try_from(*n).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<f64, GgufError> {
        match self.metadata.get(key) {
            Some(Value::Float(n)) => Ok(*n),
            Some(Value::Int(n)) => Ok(*n as f64),
            _ => Err(GgufError::Metadata { key: key.into(), expected: "a number" }),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], GgufError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| GgufError::Damaged(format!("it ends at byte {}", self.bytes.len())))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes were taken"))
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Result<usize, GgufError> {
        usize::try_from(self.u64()?).map_err(|_| GgufError::Damaged("a length is larger than memory".into()))
    }

    fn text(&mut self) -> Result<String, GgufError> {
        let length = self.size()?;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| GgufError::Damaged("a text is not UTF-8".into()))
    }

    fn value(&mut self, kind: u32) -> Result<Value, GgufError> {
        Ok(match kind {
            0 => Value::Int(u8::from_le_bytes(self.array()?).into()),
            1 => Value::Int(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Int(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Int(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Int(self.u32()?.into()),
            5 => Value::Int(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => {
                self.take(1)?;
                Value::Other
            }
            8 => Value::Text(self.text()?),
            9 => self.list()?,
            10 => Value::Int(self.u64()?.into()),
            11 => Value::Int(i64::from_le_bytes(self.array()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => return Err(GgufError::Damaged(format!("metadata of unknown type {other}"))),
        })
    }

    fn list(&mut self) -> Result<Value, GgufError> {
        let (kind, count) = (self.u32()?, self.size()?);
        if kind == 9 {
            return Err(GgufError::Unsupported("a list of lists in the metadata".into()));
        }
        // Grown as elements are read: a false count runs into the end of the file, not out of memory.
        let (mut texts, mut ints) = (Vec::new(), Vec::new());
        for _ in 0..count {
            match self.value(kind)? {
                Value::Text(text) => texts.push(text),
                Value::Int(n) => ints.push(n),
                _ => {}
            }
        }
        Ok(match kind {
            8 => Value::Texts(texts),
            0..=5 | 10 | 11 => Value::Ints(ints),
            _ => Value::Other,
        })
    }

    fn tensor(&mut self) -> Result<TensorInfo, GgufError> {
        let (name, dimensions) = (self.text()?, self.u32()?);
        if !(1..=4).contains(&dimensions) {
            return Err(GgufError::Damaged(format!("tensor `{name}` has {dimensions} dimensions")));
        }
        let mut shape = (0..dimensions).map(|_| self.size()).collect::<Result<Vec<usize>, _>>()?;
        shape.reverse();
        if shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size)).is_none() {
            return Err(GgufError::Damaged(format!("tensor `{name}` is larger than memory")));
        }
        let code = self.u32()?;
        let kind = BlockType::from_code(code)
            .ok_or_else(|| GgufError::Unsupported(format!("tensor `{name}` of ggml type {code}")))?;
        Ok(TensorInfo { name, shape, kind, offset: self.size()? })
    }
}
