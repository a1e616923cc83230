//! The tokenizer in the metadata as Hugging Face `tokenizer.json`.

use super::GgufError;
use super::file::{Gguf, Value};
use crate::Tokenizer;
use serde_json::{Map, Value as Json, json};

/// ggml's token types that are matched as a whole before the text is split.
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;

/// The `tokenizer.json` of a byte-level BPE vocabulary. Control tokens become special added tokens.
pub(super) fn tokenizer_json(file: &Gguf) -> Result<String, GgufError> {
    let model = file.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(GgufError::Unsupported(format!("tokenizer `{model}` (byte-level BPE, `gpt2`, is)")));
    }
    let (tokens, merges) = (texts(file, "tokenizer.ggml.tokens")?, texts(file, "tokenizer.ggml.merges")?);
    let types: &[i128] = match file.metadata.get("tokenizer.ggml.token_type") {
        Some(Value::Ints(types)) => types,
        _ => &[],
    };
    let vocab: Map<String, Json> = tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let added = tokens.iter().zip(types).enumerate().filter(|(_, (_, kind))| [CONTROL, USER_DEFINED].contains(kind));
    let added: Vec<Json> = added
        .map(|(id, (token, kind))| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": *kind == CONTROL})
        })
        .collect();
    let merges = merges.iter().map(|merge| {
        let pair = merge.split_once(' ').ok_or_else(|| GgufError::Damaged(format!("merge `{merge}` is no pair")))?;
        Ok(json!([pair.0, pair.1]))
    });
    let (splitting, normalizer, ignore_merges) = splitting(file.text("tokenizer.ggml.pre").unwrap_or("default"))?;
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let text = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitting},
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges,
            "vocab": vocab, "merges": merges.collect::<Result<Vec<Json>, GgufError>>()?,
        },
    })
    .to_string();
    Tokenizer::from_bytes(text.as_bytes()).map_err(|e| GgufError::Tokenizer(e.to_string()))?;
    Ok(text)
}

/// How text is split before merging (steps of a sequence), how it is normalised, and whether whole tokens need no merges, by
/// llama.cpp's name of the split.
fn splitting(name: &str) -> Result<(Json, Json, bool), GgufError> {
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let regex = |digits: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
    };
    Ok(match name {
        "default" | "gpt-2" => (json!([bytes(true)]), Json::Null, false),
        "smollm" => (json!([{"type": "Digits", "individual_digits": true}, bytes(true)]), Json::Null, false),
        "qwen2" => (json!([regex(r"\p{N}"), bytes(false)]), json!({"type": "NFC"}), false),
        "llama-bpe" => (json!([regex(r"\p{N}{1,3}"), bytes(false)]), Json::Null, true),
        other => return Err(GgufError::Unsupported(format!("tokenizer split `{other}`"))),
    })
}

fn texts<'a>(file: &'a Gguf, key: &str) -> Result<&'a [String], GgufError> {
    match file.metadata.get(key) {
        Some(Value::Texts(texts)) => Ok(texts),
        _ => Err(GgufError::Metadata { key: key.into(), expected: "a list of texts" }),
    }
}
