//! Text to tokens and back, as far as the plane needs it.

use venus_core::ids::TokenId;

/// A text that has no tokens, or tokens that have no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizeError(pub String);

/// The tokenizer of the model that is trained.
pub trait Tokenize: Send + Sync {
    /// The tokens of `text`. Special tokens spelled out in it are recognised; none is added.
    ///
    /// # Errors
    /// When the text has no tokens.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizeError>;

    /// The text of `tokens`.
    ///
    /// # Errors
    /// When a token is outside of the vocabulary or the bytes are no text.
    fn decode(&self, tokens: &[TokenId]) -> Result<String, TokenizeError>;

    /// The id of the token spelled `token`.
    fn token_id(&self, token: &str) -> Option<TokenId>;
}
