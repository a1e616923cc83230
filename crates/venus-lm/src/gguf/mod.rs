//! GGUF files (llama.cpp) into Hugging Face directories.
//!
//! Reads GGUF version 2 and 3 with F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K tensors, of the
//! architectures `llama` and `qwen3`, with a byte-level BPE tokenizer.

mod block;
mod file;
mod vocabulary;

use crate::checkpoint::write_whole;
use crate::config::ConfigError;
use crate::{Config, Layout, Model, ModelError};
use file::{Gguf, TensorInfo, Value};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

/// Why one GGUF file can't be converted, before its path is added.
#[derive(Debug, thiserror::Error)]
enum GgufError {
    #[error("the file is damaged or cut off: {0}")]
    Damaged(String),
    #[error("metadata `{key}` is missing or is not {expected}")]
    Metadata { key: String, expected: &'static str },
    #[error("{0} is not supported")]
    Unsupported(String),
    #[error("tensor `{0}` is missing")]
    Missing(String),
    #[error("tensor `{name}`: the metadata says shape {expected:?}, the file has {found:?}")]
    Shape { name: String, expected: Vec<usize>, found: Vec<usize> },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the converted tokenizer is not usable: {0}")]
    Tokenizer(String),
}

/// Writes `config.json`, `model.safetensors` (f32) and `tokenizer.json` of a GGUF model into a directory.
///
/// # Errors
/// The file can't be read, is damaged, or needs what is not supported (named); or the directory can't be written.
pub fn convert(gguf: &Path, out_dir: &Path) -> Result<(), ModelError> {
    let open = std::fs::File::open(gguf).map_err(crate::checkpoint::io_error(gguf))?;
    // SAFETY: the map is read-only and lives in this scope; as for any mapped file, another process that truncated it
    // meanwhile would end this one with SIGBUS.
    let map = unsafe { memmap2::Mmap::map(&open) }.map_err(crate::checkpoint::io_error(gguf))?;
    let named = |error: GgufError| ModelError::Gguf { path: gguf.to_path_buf(), reason: error.to_string() };
    let file = Gguf::parse(&map).map_err(named)?;
    let (config, params) = read_model(&file).map_err(named)?;
    let tokenizer = vocabulary::tokenizer_json(&file).map_err(named)?;
    Model::from_params(config, params)?.save(out_dir)?;
    write_whole(&out_dir.join("tokenizer.json"), |file| file.write_all(tokenizer.as_bytes()))
}

fn read_model(file: &Gguf) -> Result<(Config, Vec<f32>), GgufError> {
    let config = read_config(file)?;
    let layout = Layout::new(&config);
    let mut params = vec![0.0; layout.len()];
    let mut unread: BTreeSet<&str> = file.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for tensor in layout.tensors() {
        let name = gguf_name(&tensor.name);
        let info = file.tensor(&name).ok_or_else(|| GgufError::Missing(name.clone()))?;
        if info.shape != tensor.shape {
            return Err(GgufError::Shape { name, expected: tensor.shape.clone(), found: info.shape.clone() });
        }
        unread.remove(name.as_str());
        let out = &mut params[tensor.range.clone()];
        block::dequantize(info, file.data(info)?, out)?;
        if !config.qk_norm && (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight")) {
            unpermute(out, config.head_dim, config.hidden_size);
        }
    }
    match unread.first() {
        // A bias, an expert or rope factors: ignoring them would compute another model.
        Some(name) => Err(GgufError::Unsupported(format!("tensor `{name}`"))),
        None => Ok((config, params)),
    }
}

fn read_config(file: &Gguf) -> Result<Config, GgufError> {
    let arch = file.text("general.architecture")?;
    if arch != "llama" && arch != "qwen3" {
        return Err(GgufError::Unsupported(format!("architecture `{arch}`")));
    }
    let key = |name: &str| format!("{arch}.{name}");
    let size = |name: &str| file.size(&key(name));
    if let Some(Value::Text(scaling)) = file.metadata.get(&key("rope.scaling.type"))
        && scaling != "none"
    {
        return Err(GgufError::Unsupported(format!("rope scaling `{scaling}`")));
    }
    let (hidden_size, num_attention_heads) = (size("embedding_length")?, size("attention.head_count")?);
    let head_dim = size("attention.key_length").unwrap_or(hidden_size / num_attention_heads.max(1));
    for (name, found) in [
        ("rope.dimension_count", size("rope.dimension_count").unwrap_or(head_dim)),
        ("attention.value_length", size("attention.value_length").unwrap_or(head_dim)),
    ] {
        if found != head_dim {
            return Err(GgufError::Unsupported(format!("{name} {found} with heads of {head_dim}")));
        }
    }
    let embedding = file.tensor("token_embd.weight").ok_or_else(|| GgufError::Missing("token_embd.weight".into()))?;
    let id = |name: &str| file.size(&format!("tokenizer.ggml.{name}")).ok().and_then(|id| u32::try_from(id).ok());
    let config = Config {
        vocab_size: embedding.shape[0],
        hidden_size,
        intermediate_size: size("feed_forward_length")?,
        num_hidden_layers: size("block_count")?,
        num_attention_heads,
        num_key_value_heads: size("attention.head_count_kv").unwrap_or(num_attention_heads),
        head_dim,
        rope_theta: file.number(&key("rope.freq_base")).unwrap_or(10_000.0) as f32,
        rms_norm_eps: file.number(&key("attention.layer_norm_rms_epsilon"))? as f32,
        tie_word_embeddings: file.tensor("output.weight").is_none(),
        qk_norm: arch == "qwen3",
        max_position_embeddings: size("context_length").unwrap_or(2048),
        bos_token_id: id("bos_token_id"),
        eos_token_ids: id("eos_token_id").into_iter().collect(),
    };
    config.check()?;
    Ok(config)
}

/// llama.cpp's name of a tensor.
fn gguf_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".into(),
        "model.norm.weight" => return "output_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        _ => {}
    }
    const PARTS: [(&str, &str); 11] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let mut name = name.replacen("model.layers.", "blk.", 1);
    for (ours, theirs) in PARTS {
        name = name.replace(&format!(".{ours}."), &format!(".{theirs}."));
    }
    name
}

/// llama.cpp turns neighbouring pairs where Hugging Face turns halves, and for the `llama` architecture stores the rows of
/// queries and keys in that order. Row `2 i + j` of a head becomes row `j * head_dim / 2 + i` again.
fn unpermute(weight: &mut [f32], head_dim: usize, inputs: usize) {
    let mut head = Vec::with_capacity(head_dim * inputs);
    for rows in weight.chunks_exact_mut(head_dim * inputs) {
        head.clear();
        head.extend_from_slice(rows);
        for (row, to) in rows.chunks_exact_mut(inputs).enumerate() {
            let from = 2 * (row % (head_dim / 2)) + row / (head_dim / 2);
            to.copy_from_slice(&head[from * inputs..][..inputs]);
        }
    }
}

#[cfg(test)]
mod tests;
