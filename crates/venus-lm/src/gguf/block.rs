//! Quantised blocks into f32, after ggml's `dequantize_row_*`.

use super::{GgufError, TensorInfo};
use half::{bf16, f16};

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl BlockType {
    /// By ggml's number.
    pub(super) fn from_code(code: u32) -> Option<BlockType> {
        Some(match code {
            0 => BlockType::F32,
            1 => BlockType::F16,
            2 => BlockType::Q4_0,
            3 => BlockType::Q4_1,
            6 => BlockType::Q5_0,
            7 => BlockType::Q5_1,
            8 => BlockType::Q8_0,
            12 => BlockType::Q4K,
            13 => BlockType::Q5K,
            14 => BlockType::Q6K,
            30 => BlockType::Bf16,
            _ => return None,
        })
    }

    /// Elements of a block.
    pub(super) fn elements(self) -> usize {
        match self {
            BlockType::F32 | BlockType::F16 | BlockType::Bf16 => 1,
            BlockType::Q4K | BlockType::Q5K | BlockType::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes of a block.
    pub(super) fn bytes(self) -> usize {
        match self {
            BlockType::F32 => 4,
            BlockType::F16 | BlockType::Bf16 => 2,
            BlockType::Q4_0 => 18,
            BlockType::Q4_1 => 20,
            BlockType::Q5_0 => 22,
            BlockType::Q5_1 => 24,
            BlockType::Q8_0 => 34,
            BlockType::Q4K => 144,
            BlockType::Q5K => 176,
            BlockType::Q6K => 210,
        }
    }
}

/// Fills `out` with the tensor's elements.
pub(super) fn dequantize(tensor: &TensorInfo, data: &[u8], out: &mut [f32]) -> Result<(), GgufError> {
    let kind = tensor.kind;
    if data.len() / kind.bytes() * kind.elements() != out.len() {
        return Err(GgufError::Damaged(format!("tensor `{}` has another length than its shape", tensor.name)));
    }
    for (block, out) in data.chunks_exact(kind.bytes()).zip(out.chunks_exact_mut(kind.elements())) {
        match kind {
            BlockType::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            BlockType::F16 => out[0] = half_at(block, 0),
            BlockType::Bf16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            BlockType::Q8_0 => {
                let scale = half_at(block, 0);
                out.iter_mut().zip(&block[2..]).for_each(|(out, q)| *out = f32::from(*q as i8) * scale);
            }
            BlockType::Q4_0 => small(half_at(block, 0), -8.0 * half_at(block, 0), None, &block[2..], out),
            BlockType::Q4_1 => small(half_at(block, 0), half_at(block, 2), None, &block[4..], out),
            BlockType::Q5_0 => {
                small(half_at(block, 0), -16.0 * half_at(block, 0), Some(&block[2..6]), &block[6..], out)
            }
            BlockType::Q5_1 => small(half_at(block, 0), half_at(block, 2), Some(&block[4..8]), &block[8..], out),
            BlockType::Q4K => four_or_five_k(&block[..16], None, &block[16..], out),
            BlockType::Q5K => four_or_five_k(&block[..16], Some(&block[16..48]), &block[48..], out),
            BlockType::Q6K => six_k(block, out),
        }
    }
    Ok(())
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 elements `q * scale + offset`; the low halves of 16 bytes, then the high ones; a fifth bit each in `high`.
fn small(scale: f32, offset: f32, high: Option<&[u8]>, low: &[u8], out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        let nibble = (low[i % 16] >> (i / 16 * 4)) & 15;
        let fifth = high.map_or(0, |high| (high[i / 8] >> (i % 8)) & 1);
        *out = f32::from(nibble | fifth << 4) * scale + offset;
    }
}

/// 8 groups of 32 elements `q * scale - minimum`, with 6-bit scales and minima. Pairs of groups share 32 bytes of nibbles;
/// the fifth bit of group `g` is bit `g` of a byte.
fn four_or_five_k(head: &[u8], high: Option<&[u8]>, low: &[u8], out: &mut [f32]) {
    let (scale, minimum, packed) = (half_at(head, 0), half_at(head, 2), &head[4..]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, m) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => (
                packed[group + 4] & 15 | (packed[group - 4] >> 6) << 4,
                packed[group + 4] >> 4 | (packed[group] >> 6) << 4,
            ),
        };
        let (scale, minimum) = (scale * f32::from(s), minimum * f32::from(m));
        for (i, out) in out.iter_mut().enumerate() {
            let nibble = (low[group / 2 * 32 + i] >> (group % 2 * 4)) & 15;
            let fifth = high.map_or(0, |high| (high[i] >> group) & 1);
            *out = f32::from(nibble | fifth << 4) * scale - minimum;
        }
    }
}

/// 16 groups of 16 elements `(q - 32) * scale`: halves of 128, in each the low 4 bits from 64 bytes and 2 bits from 32.
fn six_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, scale) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (i, out) in out.iter_mut().enumerate() {
        let (half, part, at) = (i / 128, i % 128 / 32, i % 32);
        let nibble = (low[half * 64 + part % 2 * 32 + at] >> (part / 2 * 4)) & 15;
        let bits = (high[half * 32 + at] >> (part * 2)) & 3;
        let q = i16::from(nibble | bits << 4) - 32;
        *out = f32::from(q) * (scale * f32::from(scales[i / 16] as i8));
    }
}
