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

#[cfg(test)]
mod tests {
    use super::*;
    use venus_core::ids::AttemptId;
    use venus_core::message::engine::FinishReason;
    use venus_core::units::Tokens;

    fn turn(tokens: &[TokenId], logprobs: &[f32], spans: &[(u64, u32, u32)]) -> TurnResult {
        let span = |&(version, start, end): &(u64, u32, u32)| VersionSpan { version: Version(version), start, end };
        TurnResult {
            attempt: AttemptId(0),
            trajectory: TrajectoryId(0),
            tokens: tokens.to_vec(),
            logprobs: logprobs.to_vec(),
            spans: spans.iter().map(span).collect(),
            finish: FinishReason::Length,
            cached_tokens: Tokens(0),
            recomputed_tokens: Tokens(0),
        }
    }

    #[test]
    fn tokens_are_appended_and_spans_point_into_the_whole() {
        let mut transcript = Transcript::new(&[1, 2]);
        transcript.push_drawn(&turn(&[3, 4], &[-1.0, 1e-6], &[(0, 0, 1), (1, 1, 2)])).unwrap();
        transcript.push_drawn(&turn(&[5], &[-3.0], &[(1, 0, 1)])).unwrap();
        transcript.push_given(&[6]);
        transcript.push_drawn(&turn(&[7], &[-4.0], &[(1, 0, 1)])).unwrap();
        assert_eq!(transcript.drawn(), 4);
        let train = transcript.into_train(TrajectoryId(0), 1.0);
        assert_eq!(train.tokens, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(train.mask, [0, 0, 1, 1, 1, 0, 1]);
        assert_eq!(train.logprobs, [0.0, 0.0, -1.0, 0.0, -3.0, 0.0, -4.0]);
        let spans: Vec<_> = train.spans.iter().map(|s| (s.version.0, s.start, s.end)).collect();
        assert_eq!(spans, [(0, 2, 3), (1, 3, 5), (1, 6, 7)], "a turn in two pieces has one span");
    }

    // agent-lightning#44, #442: rows without token ids were trained on.
    #[test]
    fn a_turn_whose_parts_do_not_cover_each_other_is_refused_and_changes_nothing() {
        let bad = [
            turn(&[3, 4], &[-1.0], &[(0, 0, 2)]),
            turn(&[3], &[f32::NAN], &[(0, 0, 1)]),
            turn(&[3], &[0.5], &[(0, 0, 1)]),
            turn(&[3, 4], &[-1.0, -1.0], &[(0, 0, 1)]),
            turn(&[3, 4], &[-1.0, -1.0], &[(0, 0, 1), (0, 0, 2)]),
            turn(&[3, 4], &[-1.0, -1.0], &[(1, 0, 1), (0, 1, 2)]),
            turn(&[], &[], &[(0, 0, 1)]),
        ];
        let mut transcript = Transcript::new(&[1]);
        for turn in bad {
            assert!(transcript.push_drawn(&turn).is_err(), "{turn:?}");
            assert_eq!(transcript, Transcript::new(&[1]));
        }
    }
}
