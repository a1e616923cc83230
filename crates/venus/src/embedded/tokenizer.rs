//! The model's tokenizer as the plane sees it.

use std::path::Path;
use venus_core::ids::TokenId;
use venus_lm::Tokenizer;
use venus_plane::tokenize::{Tokenize, TokenizeError};

/// A `tokenizer.json`.
pub struct ModelTokenizer(Tokenizer);

impl ModelTokenizer {
    /// Reads `tokenizer.json` in a model's directory.
    ///
    /// # Errors
    /// The file cannot be read or is no tokenizer.
    pub fn load(model_dir: &Path) -> anyhow::Result<Self> {
        Ok(Self(Tokenizer::load(model_dir.join("tokenizer.json"))?))
    }

    /// Token ids are below this.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }
}

impl Tokenize for ModelTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizeError> {
        self.0.encode(text).map_err(|e| TokenizeError(e.to_string()))
    }

    fn decode(&self, tokens: &[TokenId]) -> Result<String, TokenizeError> {
        self.0.decode(tokens).map_err(|e| TokenizeError(e.to_string()))
    }

    fn token_id(&self, token: &str) -> Option<TokenId> {
        self.0.token_id(token)
    }
}
