//! Text to token ids and back, by Hugging Face `tokenizer.json`.

use std::path::Path;

/// A tokenizer read from Hugging Face `tokenizer.json`.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

/// Why a tokenizer can't be read or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file can't be read.
    #[error("tokenizer {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not a `tokenizer.json` the `tokenizers` library understands.
    #[error("not a usable tokenizer.json: {0}")]
    Format(String),
    /// The text can't be encoded, or the ids can't be decoded.
    #[error("tokenizer: {0}")]
    Convert(String),
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or the one in a model's directory.
    ///
    /// # Errors
    /// The file is missing or not understood.
    pub fn load(path: impl AsRef<Path>) -> Result<Tokenizer, TokenizerError> {
        let path = path.as_ref();
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let bytes =
            std::fs::read(&path).map_err(|source| TokenizerError::Read { path: path.display().to_string(), source })?;
        Tokenizer::from_bytes(&bytes)
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// They are not understood.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| TokenizerError::Format(e.to_string()))?;
        Ok(Tokenizer { inner })
    }

    /// The ids of a text. Special tokens written in the text become their ids; none is added.
    ///
    /// # Errors
    /// The text has something the vocabulary can't express and there is no unknown token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false).map_err(|e| TokenizerError::Convert(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of the ids, special tokens included.
    ///
    /// # Errors
    /// The decoder of the `tokenizer.json` fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(ids, false).map_err(|e| TokenizerError::Convert(e.to_string()))
    }

    /// The id of a token by its exact text.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Number of tokens, added ones included. Ids are below it unless the vocabulary has holes.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}
