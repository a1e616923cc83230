//! Inference engines as the coordinator sees them: a pair of channels each.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use venus_core::ids::WorkerId;
use venus_core::message::engine::{EngineCommand, EngineEvent};

/// The coordinator's end of one engine. Commands take effect in the order sent. A closed event channel means that the
/// engine is gone: its turns go to another one.
#[derive(Debug)]
pub struct EnginePort {
    /// Which engine.
    pub worker: WorkerId,
    /// Turns it may generate at once.
    pub slots: u32,
    /// To the engine.
    pub commands: UnboundedSender<EngineCommand>,
    /// From the engine.
    pub events: UnboundedReceiver<EngineEvent>,
}

/// The engine's end of an [`EnginePort`].
#[derive(Debug)]
pub struct EngineSocket {
    /// From the coordinator.
    pub commands: UnboundedReceiver<EngineCommand>,
    /// To the coordinator.
    pub events: UnboundedSender<EngineEvent>,
}

/// The two ends of a connection between the coordinator and an engine.
#[must_use]
pub fn connect(worker: WorkerId, slots: u32) -> (EnginePort, EngineSocket) {
    let (command_sender, commands) = unbounded_channel();
    let (event_sender, events) = unbounded_channel();
    let port = EnginePort { worker, slots, commands: command_sender, events };
    (port, EngineSocket { commands, events: event_sender })
}
