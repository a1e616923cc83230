//! The tokens of a trajectory, append-only.

use venus_core::ids::{TokenId, TrajectoryId, Version};
use venus_core::message::engine::{TurnResult, VersionSpan};
use venus_core::message::trainer::TrainTrajectory;

/// A turn whose parts do not cover each other: it is refused, not padded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine returned a turn that does not fit together: {0}; check that the engine reports token ids, logprobs and versions"
)]
pub struct TranscriptError(String);

/// Prompt, drawn tokens and tool output in order, with what the trainer needs to know of each.
///
/// It only grows. Drawn tokens enter as the ids the engine drew; text never enters twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    tokens: Vec<TokenId>,
    mask: Vec<u8>,
    logprobs: Vec<f32>,
    spans: Vec<VersionSpan>,
}

impl Transcript {
    /// A transcript that is only a prompt.
    #[must_use]
    pub fn new(prompt: &[TokenId]) -> Self {
        let mut transcript = Self::default();
        transcript.push_given(prompt);
        transcript
    }

    /// Appends tokens that nobody drew: prompt or tool output.
    pub fn push_given(&mut self, tokens: &[TokenId]) {
        self.tokens.extend(tokens);
        self.mask.resize(self.tokens.len(), 0);
        self.logprobs.resize(self.tokens.len(), 0.0);
    }

    /// Appends what an engine drew.
    ///
    /// # Errors
    /// When tokens, logprobs and spans do not cover each other exactly, or a logprob is not a finite number of at most 0.
    /// Nothing is appended then.
    pub fn push_drawn(&mut self, turn: &TurnResult) -> Result<(), TranscriptError> {
        check(turn)?;
        let base = self.tokens.len() as u32;
        self.tokens.extend(&turn.tokens);
        self.mask.resize(self.tokens.len(), 1);
        // Rounding may put the most likely token a hair above certainty.
        self.logprobs.extend(turn.logprobs.iter().map(|l| l.min(0.0)));
        for span in &turn.spans {
            let span = VersionSpan { version: span.version, start: base + span.start, end: base + span.end };
            match self.spans.last_mut() {
                Some(last) if last.version == span.version && last.end == span.start => last.end = span.end,
                _ => self.spans.push(span),
            }
        }
        Ok(())
    }

    /// All tokens so far: the context of the next turn.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is nothing, not even a prompt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens drawn so far.
    #[must_use]
    pub fn drawn(&self) -> usize {
        self.spans.iter().map(|s| (s.end - s.start) as usize).sum()
    }

    /// What the trainer sees.
    #[must_use]
    pub fn into_train(self, trajectory: TrajectoryId, reward: f32) -> TrainTrajectory {
        TrainTrajectory {
            trajectory,
            tokens: self.tokens,
            mask: self.mask,
            logprobs: self.logprobs,
            spans: self.spans,
            reward,
        }
    }
}

fn check(turn: &TurnResult) -> Result<(), TranscriptError> {
    let refuse = |what: String| Err(TranscriptError(what));
    if turn.logprobs.len() != turn.tokens.len() {
        return refuse(format!("{} tokens but {} logprobs", turn.tokens.len(), turn.logprobs.len()));
    }
    if let Some(bad) = turn.logprobs.iter().find(|l| !(l.is_finite() && **l <= 1e-3)) {
        return refuse(format!("a logprob is {bad}"));
    }
    let mut end = 0;
    let mut version = Version(0);
    for span in &turn.spans {
        if span.start != end || span.end <= span.start {
            return refuse(format!("a version span is {}..{} where {end}.. is due", span.start, span.end));
        }
        if span.version < version {
            return refuse(format!("version {} follows {version}", span.version));
        }
        (end, version) = (span.end, span.version);
    }
    if end as usize != turn.tokens.len() {
        return refuse(format!("{} tokens but version spans up to {end}", turn.tokens.len()));
    }
    Ok(())
}
