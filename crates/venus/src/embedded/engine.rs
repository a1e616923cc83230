//! An embedded engine behind the coordinator's pair of channels.

use std::path::Path;
use venus_core::ids::WorkerId;
use venus_engine::{EngineHandle, EngineOptions};
use venus_plane::engine::{EnginePort, connect};

/// Starts an engine on a thread of its own. It ends when the coordinator drops its port.
///
/// # Errors
/// The model cannot be loaded, or the system gives no thread.
pub fn start_engine(worker: WorkerId, slots: u32, options: EngineOptions, model: &Path) -> anyhow::Result<EnginePort> {
    let (handle, events) = EngineHandle::spawn(options, model)?;
    let (port, mut socket) = connect(worker, slots);
    std::thread::Builder::new().name(format!("venus-engine-{}-events", worker.0)).spawn(move || {
        // Either side hanging up ends it.
        for event in events {
            if socket.events.send(event).is_err() {
                break;
            }
        }
    })?;
    std::thread::Builder::new().name(format!("venus-engine-{}-commands", worker.0)).spawn(move || {
        while let Some(command) = socket.commands.blocking_recv() {
            if handle.send(command).is_err() {
                break;
            }
        }
        // The handle goes with this thread, and with it the engine.
        drop(handle);
    })?;
    Ok(port)
}
