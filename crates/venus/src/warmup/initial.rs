//! The weights that imitation starts from.

use venus_lm::{Config, Model};

/// Share of a token's own direction that an attention head writes where it looks.
const COPY: f32 = 0.25;

/// Scale of what the feed-forward layers write, against [`Model::random`].
const QUIET: f32 = 0.25;

/// A random model whose attention heads copy: each writes a share of the token it looks at back into the stream (its
/// output projection is the transpose of its value projection), and the feed-forward layers start out quiet enough not to
/// drown it.
///
/// Where a head should look and what it should write from there are learnt from each other, and neither has a gradient
/// worth the name before the other is there. With the second given, the first came sooner (`docs/warmstart.md`).
pub fn model(config: Config, seed: u64) -> Model {
    let mut model = Model::random(config, seed);
    for layer in 0..model.config.num_hidden_layers {
        let values = tensor(&model, layer, "self_attn.v_proj").to_vec();
        let (hidden, head_dim) = (model.config.hidden_size, model.config.head_dim);
        let heads = model.config.num_attention_heads;
        let queries_a_value = heads / model.config.num_key_value_heads;
        let output = tensor_mut(&mut model, layer, "self_attn.o_proj");
        for (row, weights) in output.chunks_exact_mut(heads * head_dim).enumerate() {
            for (column, weight) in weights.iter_mut().enumerate() {
                let (head, within) = (column / head_dim, column % head_dim);
                *weight = COPY * values[(head / queries_a_value * head_dim + within) * hidden + row];
            }
        }
        tensor_mut(&mut model, layer, "mlp.down_proj").iter_mut().for_each(|weight| *weight *= QUIET);
    }
    model
}

fn range(model: &Model, layer: usize, name: &str) -> std::ops::Range<usize> {
    let name = format!("model.layers.{layer}.{name}.weight");
    let tensor = model.layout().tensors().iter().find(|tensor| tensor.name == name);
    tensor.map(|tensor| tensor.range.clone()).unwrap_or_else(|| unreachable!("every layer has {name}"))
}

fn tensor<'m>(model: &'m Model, layer: usize, name: &str) -> &'m [f32] {
    &model.params()[range(model, layer, name)]
}

fn tensor_mut<'m>(model: &'m mut Model, layer: usize, name: &str) -> &'m mut [f32] {
    let range = range(model, layer, name);
    &mut model.params_mut()[range]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_writes_back_what_it_reads() {
        let model = model(Config::tiny(64), 1);
        let (hidden, head_dim) = (model.config.hidden_size, model.config.head_dim);
        let (values, output) = (tensor(&model, 0, "self_attn.v_proj"), tensor(&model, 0, "self_attn.o_proj"));
        // The trace of output x value over one head: what is left of a direction that passes through it.
        let trace: f32 = (0..hidden)
            .flat_map(|row| (0..head_dim).map(move |i| (row, i)))
            .map(|(row, i)| output[row * hidden + i] * values[i * hidden + row])
            .sum();
        assert!(trace > 0.2 * COPY * head_dim as f32, "{trace}");
    }
}
