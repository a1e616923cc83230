//! ChatML with one tool.

use crate::tokenize::{Tokenize, TokenizeError};
use std::sync::Arc;
use venus_core::ids::TokenId;

/// A tokenizer that cannot speak the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A special token is not in the vocabulary.
    #[error("the tokenizer has no token {0:?}: use a model with the ChatML tokens <|im_start|> and <|im_end|>")]
    Missing(&'static str),
    /// The fixed parts of the protocol cannot be encoded.
    #[error("the tokenizer cannot encode the protocol's own text: {0}")]
    Encode(#[from] TokenizeError),
}

/// What a turn asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run this command.
    Run(String),
    /// End the trajectory.
    Done,
}

/// The protocol in the tokens of one model:
///
/// ```text
/// <|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n   the prompt
/// {command}<|im_end|>                                                  a turn, drawn
/// \n<|im_start|>tool\n{output}<|im_end|>\n<|im_start|>assistant\n      its result
/// ```
///
/// Instruction and output are text: a special token spelled out in them is encoded as ordinary characters, so that no file can
/// end a message or speak for somebody else.
pub struct Protocol {
    tokenizer: Arc<dyn Tokenize>,
    start: TokenId,
    end: TokenId,
    stop: Vec<TokenId>,
    user: Vec<TokenId>,
    tool: Vec<TokenId>,
    newline: Vec<TokenId>,
    assistant: Vec<TokenId>,
}

impl Protocol {
    /// Looks the special tokens up.
    ///
    /// # Errors
    /// When the vocabulary lacks one.
    pub fn new(tokenizer: Arc<dyn Tokenize>) -> Result<Self, ProtocolError> {
        let id = |token| tokenizer.token_id(token).ok_or(ProtocolError::Missing(token));
        let (start, end) = (id("<|im_start|>")?, id("<|im_end|>")?);
        let mut stop = vec![end];
        stop.extend(tokenizer.token_id("<|endoftext|>"));
        stop.dedup();
        Ok(Self {
            start,
            end,
            stop,
            user: tokenizer.encode("user\n")?,
            tool: tokenizer.encode("tool\n")?,
            newline: tokenizer.encode("\n")?,
            assistant: tokenizer.encode("assistant\n")?,
            tokenizer,
        })
    }

    /// The tokens that end a turn: `<|im_end|>`, and `<|endoftext|>` where the vocabulary has it.
    #[must_use]
    pub fn stop(&self) -> &[TokenId] {
        &self.stop
    }

    /// The prompt of a task.
    ///
    /// # Errors
    /// When the instruction cannot be encoded.
    pub fn prompt(&self, instruction: &str) -> Result<Vec<TokenId>, TokenizeError> {
        self.message(&self.user, instruction.trim())
    }

    /// What follows a drawn turn: the end of its message if the engine did not draw it, and the tool message.
    ///
    /// # Errors
    /// When the output cannot be encoded.
    pub fn result(&self, last: Option<TokenId>, output: &str) -> Result<Vec<TokenId>, TokenizeError> {
        let mut tokens = Vec::new();
        if last != Some(self.end) {
            tokens.push(self.end);
        }
        tokens.extend(&self.newline);
        tokens.extend(self.message(&self.tool, output)?);
        Ok(tokens)
    }

    /// The tokens of a whole trajectory that somebody demonstrated, and a mask that is 1 where the model would have drawn them. Each turn is
    /// its text and what the agent was told of it; the last result is left out, as in a real trajectory.
    ///
    /// # Errors
    /// When a text cannot be encoded.
    pub fn demonstration(
        &self,
        instruction: &str,
        turns: &[(&str, &str)],
    ) -> Result<(Vec<TokenId>, Vec<u8>), TokenizeError> {
        let mut tokens = self.prompt(instruction)?;
        let mut mask = vec![0; tokens.len()];
        for (index, (text, output)) in turns.iter().enumerate() {
            tokens.extend(self.plain(text)?);
            tokens.push(self.end);
            mask.resize(tokens.len(), 1);
            if index + 1 < turns.len() {
                tokens.extend(self.result(Some(self.end), output)?);
                mask.resize(tokens.len(), 0);
            }
        }
        Ok((tokens, mask))
    }

    /// The text of a drawn turn, without its stop token. What cannot be decoded becomes U+FFFD.
    #[must_use]
    pub fn text(&self, drawn: &[TokenId]) -> String {
        let tokens = match drawn {
            [rest @ .., last] if self.stop.contains(last) => rest,
            all => all,
        };
        self.tokenizer.decode(tokens).unwrap_or_else(|_| {
            let one = |token: &TokenId| self.tokenizer.decode(&[*token]).unwrap_or_else(|_| "\u{fffd}".to_owned());
            tokens.iter().map(one).collect()
        })
    }

    /// What a turn's text asks for: the command inside the first ```` ```bash ```` (or `sh`) fence if there is one, else the text itself. `done`
    /// alone ends the trajectory. NUL, which no argument can hold, becomes U+FFFD.
    #[must_use]
    pub fn step(text: &str) -> Step {
        let command = fenced(text).unwrap_or(text).trim();
        if command == "done" {
            return Step::Done;
        }
        Step::Run(command.replace('\0', "\u{fffd}"))
    }

    fn message(&self, role: &[TokenId], text: &str) -> Result<Vec<TokenId>, TokenizeError> {
        let mut tokens = vec![self.start];
        tokens.extend(role);
        tokens.extend(self.plain(text)?);
        tokens.push(self.end);
        tokens.extend(&self.newline);
        tokens.push(self.start);
        tokens.extend(&self.assistant);
        Ok(tokens)
    }

    /// Tokens of `text` in which no special token of the form `<|...|>` is recognised: none survives being cut after its `<`.
    fn plain(&self, text: &str) -> Result<Vec<TokenId>, TokenizeError> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("<|") {
            tokens.extend(self.tokenizer.encode(&rest[..=at])?);
            rest = &rest[at + 1..];
        }
        tokens.extend(self.tokenizer.encode(rest)?);
        Ok(tokens)
    }
}

fn fenced(text: &str) -> Option<&str> {
    let body = ["```bash", "```sh"].iter().find_map(|open| {
        let (_, body) = text.split_once(open)?;
        body.starts_with(['\n', '\r', ' ']).then_some(body)
    })?;
    Some(body.split_once("```").map_or(body, |(inside, _)| inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_command_a_fence_or_done() {
        let run = |s: &str| Step::Run(s.to_owned());
        assert_eq!(Protocol::step("ls -l\n"), run("ls -l"));
        assert_eq!(Protocol::step(" done \n"), Step::Done);
        assert_eq!(Protocol::step("done; ls"), run("done; ls"));
        assert_eq!(Protocol::step("I look.\n```bash\ncat a\ncat b\n```\nThen more"), run("cat a\ncat b"));
        assert_eq!(Protocol::step("```sh\nls"), run("ls"));
        assert_eq!(Protocol::step("```bash\ndone\n```"), Step::Done);
        assert_eq!(Protocol::step("a\0b"), run("a\u{fffd}b"));
        assert_eq!(Protocol::step(""), run(""));
    }
}
