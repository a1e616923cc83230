use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use venus_plane::record::Storage;

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    synced: usize,
    /// Bytes that still fit; `None` for a disk without end.
    room: Option<usize>,
}

/// A file in memory, on a disk that can be full and can lose what was not synced.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub fn holding(bytes: &[u8]) -> Self {
        let state = State { bytes: bytes.to_vec(), synced: bytes.len(), room: None };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    pub fn synced(&self) -> usize {
        self.state().synced
    }

    /// Lets this many bytes more fit.
    pub fn leave_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Storage for Disk {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.bytes())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let fits = state.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        state.bytes.extend(&bytes[..fits]);
        if let Some(room) = &mut state.room {
            *room -= fits;
        }
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.state().bytes.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.synced = state.bytes.len();
        Ok(())
    }
}
