//! A model's weights: random, or read from and written as a Hugging Face directory.

use crate::checkpoint::{self, ModelError};
use crate::{Config, Layout};
use std::path::Path;

/// A model's shape and its parameters, one flat vector in the order of [`Layout`].
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The shape. Changing it without changing the parameters breaks the model.
    pub config: Config,
    layout: Layout,
    params: Vec<f32>,
}

impl Model {
    /// Reads a Hugging Face directory: `config.json` and `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` lists. f32, f16 and bf16 are read; tensors the model does not need are ignored.
    ///
    /// # Errors
    /// Names the file that can't be read, or the tensor that is missing or ill-shaped with the shape expected and found.
    pub fn load(dir: &Path) -> Result<Model, ModelError> {
        let config = checkpoint::read_config(dir)?;
        let layout = Layout::new(&config);
        let params = checkpoint::read_weights(dir, &layout)?;
        Ok(Model { config, layout, params })
    }

    /// Writes `config.json` and `model.safetensors` (f32) into the directory, which is made if absent. Each file appears
    /// under its name whole and durable, or not at all; the weights come last.
    ///
    /// # Errors
    /// Names the file that can't be written; files of an earlier save are then unharmed.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        checkpoint::write_model(dir, &self.config, &self.layout, &self.params)
    }

    /// A model with random weights, the same for the same seed on every machine.
    ///
    /// Norms are 1. Projections are normal with deviation `1 / sqrt(inputs)`, those that write into the residual stream
    /// (attention output, down) divided by `sqrt(2 * layers)` so that the stream's variance does not grow with depth. The
    /// embedding has deviation 0.06 when tied (it is the output matrix too: unit rows would make the first loss huge), else
    /// 1. Tiny models learn markedly worse from the 0.02 that is customary for large ones.
    pub fn random(config: Config, seed: u64) -> Model {
        let layout = Layout::new(&config);
        let mut params = vec![1.0; layout.len()];
        let mut normal = Normal { state: seed, spare: None };
        let residual = 1.0 / (2.0 * config.num_hidden_layers as f32).sqrt();
        for tensor in layout.tensors() {
            let [_, inputs] = tensor.shape[..] else { continue };
            let fan_in = 1.0 / (inputs as f32).sqrt();
            let name = tensor.name.as_str();
            let deviation = match name {
                "model.embed_tokens.weight" if config.tie_word_embeddings => 0.06,
                "model.embed_tokens.weight" => 1.0,
                _ if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") => fan_in * residual,
                _ => fan_in,
            };
            params[tensor.range.clone()].fill_with(|| normal.next() * deviation);
        }
        Model { config, layout, params }
    }

    /// A model of these parameters.
    ///
    /// # Errors
    /// The number of parameters is not that of the shape.
    pub fn from_params(config: Config, params: Vec<f32>) -> Result<Model, ModelError> {
        let layout = Layout::new(&config);
        if layout.len() != params.len() {
            return Err(ModelError::Length { expected: layout.len(), found: params.len() });
        }
        Ok(Model { config, layout, params })
    }

    /// All parameters.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// All parameters, to be updated in place.
    pub fn params_mut(&mut self) -> &mut [f32] {
        &mut self.params
    }

    /// Where each tensor lies in the parameters.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Standard normal numbers: SplitMix64 and the polar method of Box and Muller. Own, so that a seed means the same model for
/// ever, whatever a library does.
struct Normal {
    state: u64,
    spare: Option<f32>,
}

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some((y * scale) as f32);
                return (x * scale) as f32;
            }
        }
    }
}
