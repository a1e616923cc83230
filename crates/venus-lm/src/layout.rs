//! Where each tensor lies in the flat parameter vector.

use crate::Config;
use std::ops::Range;

/// One tensor of a model: its Hugging Face name, its shape, and where it lies in the flat parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Hugging Face name, as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Row-major shape; a projection is `[out, in]`.
    pub shape: Vec<usize>,
    /// Elements of the flat parameters it owns.
    pub range: Range<usize>,
}

/// The tensors of a model in the order of its flat parameters, without gaps.
///
/// The query, key and value projections of a layer follow each other, as do gate and up: each group is then one matrix
/// with the outputs stacked, and one product serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    pub(crate) embedding: Range<usize>,
    pub(crate) layers: Vec<LayerRanges>,
    pub(crate) final_norm: Range<usize>,
    pub(crate) output: Range<usize>,
}

/// Ranges of one layer's tensors; stacked where they follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerRanges {
    pub input_norm: Range<usize>,
    /// `[query_width + 2 * key_width, hidden]`.
    pub qkv: Range<usize>,
    /// `[2, head_dim]`: query norm, then key norm. Empty without `qk_norm`.
    pub qk_norm: Range<usize>,
    pub attention_output: Range<usize>,
    pub post_norm: Range<usize>,
    /// `[2 * intermediate, hidden]`.
    pub gate_up: Range<usize>,
    pub down: Range<usize>,
}

impl Layout {
    /// The layout of the models of this shape.
    pub fn new(config: &Config) -> Layout {
        let mut list = List::default();
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (config.query_width(), config.key_width());
        let embedding = list.push("model.embed_tokens.weight".into(), &[config.vocab_size, hidden]);
        let layers = (0..config.num_hidden_layers)
            .map(|layer| {
                let mut push = |name: &str, shape: &[usize]| list.push(format!("model.layers.{layer}.{name}"), shape);
                let input_norm = push("input_layernorm.weight", &[hidden]);
                let q = push("self_attn.q_proj.weight", &[queries, hidden]);
                push("self_attn.k_proj.weight", &[keys, hidden]);
                let v = push("self_attn.v_proj.weight", &[keys, hidden]);
                let qk_norm = if config.qk_norm {
                    let q_norm = push("self_attn.q_norm.weight", &[config.head_dim]);
                    q_norm.start..push("self_attn.k_norm.weight", &[config.head_dim]).end
                } else {
                    v.end..v.end
                };
                let attention_output = push("self_attn.o_proj.weight", &[hidden, queries]);
                let post_norm = push("post_attention_layernorm.weight", &[hidden]);
                let gate = push("mlp.gate_proj.weight", &[inner, hidden]);
                let up = push("mlp.up_proj.weight", &[inner, hidden]);
                let down = push("mlp.down_proj.weight", &[hidden, inner]);
                let (qkv, gate_up) = (q.start..v.end, gate.start..up.end);
                LayerRanges { input_norm, qkv, qk_norm, attention_output, post_norm, gate_up, down }
            })
            .collect();
        let final_norm = list.push("model.norm.weight".into(), &[hidden]);
        let output = if config.tie_word_embeddings {
            embedding.clone()
        } else {
            list.push("lm_head.weight".into(), &[config.vocab_size, hidden])
        };
        Layout { tensors: list.tensors, embedding, layers, final_norm, output }
    }

    /// All tensors, in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range.end)
    }

    /// Whether there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

#[derive(Default)]
struct List {
    tensors: Vec<Tensor>,
}

impl List {
    fn push(&mut self, name: String, shape: &[usize]) -> Range<usize> {
        let start = self.tensors.last().map_or(0, |tensor| tensor.range.end);
        let range = start..start + shape.iter().product::<usize>();
        self.tensors.push(Tensor { name, shape: shape.to_vec(), range: range.clone() });
        range
    }
}
