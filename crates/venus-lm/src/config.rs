//! The shape of a model, read from and written as Hugging Face `config.json`.

use crate::attention::MOST_GROUPED;
use serde_json::{Map, Value, json};

/// Shape and constants of a decoder of the Llama or Qwen3 family. Sizes count elements.
///
/// The two families differ in one place here: Qwen3 normalises each query and key head (`qk_norm`).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Rows of the embedding; token ids are below it.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Width of one head; even, and independent of `hidden_size / num_attention_heads` as in Qwen3.
    pub head_dim: usize,
    /// Base of the rotary angles.
    pub rope_theta: f32,
    /// Added to the mean square before its root is taken.
    pub rms_norm_eps: f32,
    /// Whether the output projection is the embedding.
    pub tie_word_embeddings: bool,
    /// Whether each query and key head is RMS-normalised before rotation (Qwen3).
    pub qk_norm: bool,
    /// Longest sequence the model was made for. A promise of its maker; nothing here depends on it.
    pub max_position_embeddings: usize,
    /// Token that begins a text, where the model names one.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text, as the model names them.
    pub eos_token_ids: Vec<u32>,
}

/// Why a `config.json` can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("config.json is not a JSON object: {0}")]
    Json(String),
    /// A key that must be there is missing or has the wrong type.
    #[error("config.json: `{key}` must be {expected}, found {found}")]
    Key {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The model needs something this crate does not compute; running it anyway would give wrong numbers.
    #[error(
        "config.json: {feature} is not supported (Llama and Qwen3 decoders with full attention and plain RoPE are)"
    )]
    Unsupported {
        /// The key and its value.
        feature: String,
    },
    /// Sizes that do not fit each other.
    #[error("config.json: {0}")]
    Inconsistent(String),
}

impl Config {
    /// A model of 0.8M parameters plus its embedding (4 layers of width 128), for tests and demonstrations.
    pub fn tiny(vocab_size: usize) -> Config {
        Config {
            vocab_size,
            hidden_size: 128,
            intermediate_size: 384,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 32,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: true,
            qk_norm: false,
            max_position_embeddings: 4096,
            bos_token_id: None,
            eos_token_ids: Vec::new(),
        }
    }

    /// Reads Hugging Face `config.json`. Keys that change nothing here are ignored.
    ///
    /// # Errors
    /// Names the key that is missing, ill-typed or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<Config, ConfigError> {
        let json: Map<String, Value> = serde_json::from_str(text).map_err(|e| ConfigError::Json(e.to_string()))?;
        let qk_norm = family(&json)?;
        refuse_unsupported(&json)?;
        let hidden_size = size(&json, "hidden_size")?;
        let num_attention_heads = size(&json, "num_attention_heads")?;
        let config = Config {
            vocab_size: size(&json, "vocab_size")?,
            hidden_size,
            intermediate_size: size(&json, "intermediate_size")?,
            num_hidden_layers: size(&json, "num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: optional_size(&json, "num_key_value_heads")?.unwrap_or(num_attention_heads),
            head_dim: optional_size(&json, "head_dim")?.unwrap_or(hidden_size / num_attention_heads.max(1)),
            rope_theta: rope_theta(&json)?,
            rms_norm_eps: number(&json, "rms_norm_eps")?.unwrap_or(1e-6) as f32,
            // Absent means tied for transformers' PretrainedConfig, untied for LlamaConfig and Qwen3Config.
            tie_word_embeddings: flag(&json, "tie_word_embeddings")?.unwrap_or(false),
            qk_norm,
            max_position_embeddings: optional_size(&json, "max_position_embeddings")?.unwrap_or(2048),
            bos_token_id: token_ids(&json, "bos_token_id")?.first().copied(),
            eos_token_ids: token_ids(&json, "eos_token_id")?,
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` that Hugging Face transformers and [`Config::from_json`] read back to this model.
    pub fn to_json(&self) -> String {
        let (model_type, architecture) =
            if self.qk_norm { ("qwen3", "Qwen3ForCausalLM") } else { ("llama", "LlamaForCausalLM") };
        let mut object = json!({
            "architectures": [architecture],
            "attention_bias": false,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_ids,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "model_type": model_type,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "rms_norm_eps": shortest(self.rms_norm_eps),
            "rope_scaling": null,
            "rope_theta": shortest(self.rope_theta),
            "tie_word_embeddings": self.tie_word_embeddings,
            "torch_dtype": "float32",
            "vocab_size": self.vocab_size,
        });
        if self.eos_token_ids.len() < 2 {
            object["eos_token_id"] = json!(self.eos_token_ids.first());
        }
        let mut text = serde_json::to_string_pretty(&object).expect("a JSON value has a text");
        text.push('\n');
        text
    }

    /// Whether the sizes fit each other.
    ///
    /// # Errors
    /// Names the sizes that don't.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ConfigError::Inconsistent(format!("`{name}` is 0")));
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(ConfigError::Inconsistent(format!(
                "`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
                self.num_attention_heads, self.num_key_value_heads
            )));
        }
        if self.num_attention_heads / self.num_key_value_heads > MOST_GROUPED {
            return Err(ConfigError::Inconsistent(format!(
                "more than {MOST_GROUPED} query heads share a key head (`num_attention_heads` {}, `num_key_value_heads` {})",
                self.num_attention_heads, self.num_key_value_heads
            )));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ConfigError::Inconsistent(format!("`head_dim` {} is odd; RoPE turns pairs", self.head_dim)));
        }
        Ok(())
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key heads together, which is also that of the values.
    pub fn key_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Floats of key and value that one position takes over all layers.
    pub fn kv_floats_per_position(&self) -> usize {
        2 * self.key_width() * self.num_hidden_layers
    }
}

/// The family's `qk_norm`.
fn family(json: &Map<String, Value>) -> Result<bool, ConfigError> {
    match json.get("model_type").and_then(Value::as_str) {
        Some("llama") => Ok(false),
        Some("qwen3") => Ok(true),
        Some(other) => Err(unsupported("model_type", &json!(other))),
        None => Err(ConfigError::Key {
            key: "model_type",
            expected: "\"llama\" or \"qwen3\"",
            found: found(json.get("model_type")),
        }),
    }
}

/// Refuses by name each key whose value would make this crate compute something else than the model's maker did.
fn refuse_unsupported(json: &Map<String, Value>) -> Result<(), ConfigError> {
    for key in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        if flag(json, key)?.unwrap_or(false) {
            return Err(unsupported(key, &json[key]));
        }
    }
    if let Some(window) = json.get("sliding_window").filter(|v| !v.is_null())
        && !json.contains_key("use_sliding_window")
    {
        return Err(unsupported("sliding_window", window));
    }
    if let Some(act) = json.get("hidden_act").filter(|act| *act != "silu") {
        return Err(unsupported("hidden_act", act));
    }
    if let Some(types) = json.get("layer_types").and_then(Value::as_array)
        && types.iter().any(|kind| kind != "full_attention")
    {
        return Err(unsupported("layer_types", &json["layer_types"]));
    }
    for key in ["quantization_config", "num_experts", "num_local_experts"] {
        if let Some(value) = json.get(key).filter(|value| !value.is_null()) {
            return Err(unsupported(key, value));
        }
    }
    for (place, scaling) in rope_objects(json) {
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type"));
        if kind.is_some_and(|kind| kind != "default") || (kind.is_none() && scaling.contains_key("factor")) {
            return Err(unsupported(place, &Value::Object(scaling.clone())));
        }
    }
    let partial = rope_objects(json).find_map(|(_, object)| object.get("partial_rotary_factor"));
    match partial.or(json.get("partial_rotary_factor")) {
        Some(factor) if factor.as_f64() != Some(1.0) => Err(unsupported("partial_rotary_factor", factor)),
        _ => Ok(()),
    }
}

/// `rope_scaling` (transformers 4) and `rope_parameters` (transformers 5).
fn rope_objects(json: &Map<String, Value>) -> impl Iterator<Item = (&'static str, &Map<String, Value>)> {
    ["rope_scaling", "rope_parameters"].into_iter().filter_map(|key| Some((key, json.get(key)?.as_object()?)))
}

fn rope_theta(json: &Map<String, Value>) -> Result<f32, ConfigError> {
    let nested = rope_objects(json).find_map(|(_, object)| object.get("rope_theta")).and_then(Value::as_f64);
    Ok(number(json, "rope_theta")?.or(nested).unwrap_or(10_000.0) as f32)
}

fn size(json: &Map<String, Value>, key: &'static str) -> Result<usize, ConfigError> {
    optional_size(json, key)?.ok_or(ConfigError::Key { key, expected: "a whole number", found: "nothing".into() })
}

fn optional_size(json: &Map<String, Value>, key: &'static str) -> Result<Option<usize>, ConfigError> {
    let read = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    optional(json, key, "a whole number", read)
}

fn number(json: &Map<String, Value>, key: &'static str) -> Result<Option<f64>, ConfigError> {
    optional(json, key, "a number", Value::as_f64)
}

fn flag(json: &Map<String, Value>, key: &'static str) -> Result<Option<bool>, ConfigError> {
    optional(json, key, "true or false", Value::as_bool)
}

fn token_ids(json: &Map<String, Value>, key: &'static str) -> Result<Vec<u32>, ConfigError> {
    let id = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    let read = |value: &Value| match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    };
    Ok(optional(json, key, "a token id or a list of them", read)?.unwrap_or_default())
}

fn optional<T>(
    json: &Map<String, Value>,
    key: &'static str,
    expected: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            read(value).map(Some).ok_or_else(|| ConfigError::Key { key, expected, found: value.to_string() })
        }
    }
}

fn found(value: Option<&Value>) -> String {
    value.map_or("nothing".into(), Value::to_string)
}

fn unsupported(key: &str, value: &Value) -> ConfigError {
    ConfigError::Unsupported { feature: format!("`{key}`: {value}") }
}

/// The f64 whose decimal text is the shortest of the f32, so that 1e-5 is written as such.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().expect("a float's own text is a float")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_config_reads_back_the_same() {
        for qk_norm in [false, true] {
            let config = Config { qk_norm, eos_token_ids: vec![2, 5], bos_token_id: Some(1), ..Config::tiny(600) };
            assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        }
    }

    #[test]
    fn a_feature_that_is_not_computed_is_refused_by_name() {
        let cases = [
            ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 1e4})),
            ("attention_bias", json!(true)),
            ("mlp_bias", json!(true)),
            ("use_sliding_window", json!(true)),
            ("sliding_window", json!(4096)),
            ("layer_types", json!(["sliding_attention"])),
            ("hidden_act", json!("gelu")),
            ("partial_rotary_factor", json!(0.5)),
            ("quantization_config", json!({"bits": 4})),
            ("model_type", json!("mistral")),
        ];
        for (key, value) in cases {
            let mut object: Map<String, Value> = serde_json::from_str(&Config::tiny(600).to_json()).unwrap();
            object.insert(key.into(), value);
            let error = Config::from_json(&Value::Object(object).to_string()).unwrap_err();
            assert!(matches!(error, ConfigError::Unsupported { .. }), "{key}: {error}");
            assert!(error.to_string().contains(key), "{key}: {error}");
        }
    }

    #[test]
    fn unknown_keys_and_the_newer_rope_object_are_understood() {
        let mut object: Map<String, Value> = serde_json::from_str(&Config::tiny(600).to_json()).unwrap();
        object.insert("surprise".into(), json!([1, 2]));
        object.remove("rope_theta");
        object.insert("rope_parameters".into(), json!({"rope_type": "default", "rope_theta": 500000.0}));
        let config = Config::from_json(&Value::Object(object).to_string()).unwrap();
        assert_eq!(config.rope_theta, 500_000.0);
    }

    #[test]
    fn heads_that_do_not_group_are_refused() {
        let config = Config { num_key_value_heads: 3, ..Config::tiny(600) };
        assert!(Config::from_json(&config.to_json()).unwrap_err().to_string().contains("num_key_value_heads"));
    }
}
