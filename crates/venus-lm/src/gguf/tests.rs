use super::block::{BlockType, dequantize};
use super::*;

#[test]
fn names_are_those_of_llama_cpp() {
    let config = Config { qk_norm: true, tie_word_embeddings: false, num_hidden_layers: 1, ..Config::tiny(20) };
    let names: Vec<String> = Layout::new(&config).tensors().iter().map(|t| gguf_name(&t.name)).collect();
    let expected = "token_embd blk.0.attn_norm blk.0.attn_q blk.0.attn_k blk.0.attn_v blk.0.attn_q_norm blk.0.attn_k_norm \
                    blk.0.attn_output blk.0.ffn_norm blk.0.ffn_gate blk.0.ffn_up blk.0.ffn_down output_norm output";
    let expected: Vec<String> = expected.split_whitespace().map(|name| format!("{name}.weight")).collect();
    assert_eq!(names, expected);
}

#[test]
fn rows_of_a_head_return_to_halves() {
    // Two heads of four rows, one input: pairs (0 0', 1 1') become halves (0 1, 0' 1').
    let mut weight = [0.0, 10.0, 1.0, 11.0, 2.0, 12.0, 3.0, 13.0];
    unpermute(&mut weight, 4, 1);
    assert_eq!(weight, [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]);
}

/// A pseudo-random block, with finite half-precision scales; must be the same as in `reference/gguf_blocks.py`.
fn block(bytes: usize, halves: &[usize]) -> Vec<u8> {
    let mut block: Vec<u8> = (0..bytes).map(|i| ((i * 89 + 41) ^ (i * i * 7)) as u8).collect();
    for (n, at) in halves.iter().enumerate() {
        block[*at..at + 2].copy_from_slice(&half::f16::from_f32(0.25 + 0.125 * n as f32).to_le_bytes());
    }
    block
}

/// Sums, and sums weighted by position, of blocks as the `gguf` Python package dequantises them (`reference/gguf_blocks.py`).
#[test]
fn blocks_are_those_of_the_reference_package() {
    let cases: [(u32, &[usize], f64, f64); 8] = BLOCKS;
    for (code, halves, sum, weighted) in cases {
        let kind = BlockType::from_code(code).unwrap();
        let tensor = TensorInfo::of("t", vec![kind.elements()], kind);
        let mut out = vec![0.0; kind.elements()];
        dequantize(&tensor, &block(kind.bytes(), halves), &mut out).unwrap();
        let got: f64 = out.iter().map(|x| f64::from(*x)).sum();
        let got_weighted: f64 = out.iter().enumerate().map(|(i, x)| f64::from(*x) * i as f64).sum();
        assert!((got - sum).abs() < 1e-3 && (got_weighted - weighted).abs() < 1e-1, "{kind:?}: {got} {got_weighted}");
    }
}

#[test]
fn a_damaged_file_is_an_error_at_every_length() {
    let whole = tiny_file();
    assert!(Gguf::parse(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(Gguf::parse(&whole[..length]).is_err(), "{length} bytes pass for a file");
    }
    let mut huge = whole.clone();
    huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(Gguf::parse(&huge), Err(GgufError::Damaged(_))));
}

#[test]
fn what_is_not_supported_is_named() {
    let file = tiny_file();
    let error = read_config(&Gguf::parse(&file).unwrap()).unwrap_err();
    assert!(error.to_string().contains("`falcon`"), "{error}");
}

/// One text, one number and one tensor entry.
fn tiny_file() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    text(&mut bytes, "general.architecture");
    bytes.extend(8u32.to_le_bytes());
    text(&mut bytes, "falcon");
    text(&mut bytes, "falcon.block_count");
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(2u32.to_le_bytes());
    text(&mut bytes, "output_norm.weight");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(8u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes
}

const BLOCKS: [(u32, &[usize], f64, f64); 8] = [
    (2, &[0], -0.7500, -35.0000),
    (3, &[0, 2], 75.2500, 1136.7500),
    (6, &[0], 7.7500, 76.0000),
    (7, &[0, 2], 154.7500, 2402.7500),
    (8, &[0], 88.0000, 1896.0000),
    (12, &[0, 2], 13964.0000, 2126012.0000),
    (13, &[0, 2], 36396.0000, 4947220.0000),
    (14, &[208], -1480.0000, 489924.0000),
];
