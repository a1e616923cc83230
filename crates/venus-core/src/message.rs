//! What passes between coordinator, engine, env node and trainer.
//!
//! Messages are plain data: no handles, no borrowed parts, no callbacks. In one process they travel over
//! channels; between processes the same types travel as JSON inside an [`Envelope`]. They live in the core
//! because it is the one crate that every side depends on (`docs/decisions/0001-messages-in-core.md`).

pub mod engine;
pub mod sandbox;
pub mod trainer;

use serde::{Deserialize, Serialize};

/// The version of the messages. It goes up when a reader of the previous version would misread a message;
/// a new optional field does not count.
pub const PROTOCOL: u16 = 1;

/// A message with the version of the protocol that wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// The writer's [`PROTOCOL`].
    pub protocol: u16,
    /// The message.
    pub body: T,
}

impl<T> Envelope<T> {
    /// Wraps `body` in the current protocol.
    pub fn new(body: T) -> Self {
        Self { protocol: PROTOCOL, body }
    }

    /// The message, if this build understands the writer's protocol.
    ///
    /// # Errors
    /// [`ProtocolMismatch`] names both versions.
    pub fn open(self) -> Result<T, ProtocolMismatch> {
        if self.protocol == PROTOCOL { Ok(self.body) } else { Err(ProtocolMismatch { theirs: self.protocol }) }
    }
}

/// A message of a protocol that this build does not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message uses protocol {theirs}, this build speaks {PROTOCOL}: run the same Venus version on both sides")]
pub struct ProtocolMismatch {
    /// The writer's protocol.
    pub theirs: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::engine::EngineCommand;

    #[test]
    fn an_envelope_survives_json() {
        let sent = Envelope::new(EngineCommand::Pause);
        let json = serde_json::to_string(&sent).unwrap();
        let received: Envelope<EngineCommand> = serde_json::from_str(&json).unwrap();
        assert_eq!(received.open(), Ok(EngineCommand::Pause));
    }

    #[test]
    fn another_protocol_is_refused_by_name() {
        let foreign = Envelope { protocol: PROTOCOL + 1, body: EngineCommand::Pause };
        let error = foreign.open().unwrap_err().to_string();
        assert!(error.contains(&format!("protocol {}", PROTOCOL + 1)), "{error}");
    }
}
