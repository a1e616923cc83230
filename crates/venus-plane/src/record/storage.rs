//! Where the log's bytes lie. A trait, because a full disk and a failing `fsync` must be testable.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// An append-only file.
pub trait Storage: Send {
    /// Everything in it.
    fn read(&mut self) -> io::Result<Vec<u8>>;
    /// Adds `bytes` at the end. On an error some of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Returns once everything appended survives a power loss.
    fn sync(&mut self) -> io::Result<()>;
}

/// [`Storage`] on a file, locked against a second writer for as long as it is open.
#[derive(Debug)]
pub struct LogFile(File);

impl LogFile {
    /// Opens `path`, creating it if it is absent.
    ///
    /// # Errors
    /// When the file cannot be opened, or (kind `WouldBlock`) another process writes to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            // The name itself must survive a power loss too.
            File::open(parent)?.sync_all()?;
        }
        Ok(Self(file))
    }
}

impl Storage for LogFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.seek(SeekFrom::Start(0))?;
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.seek(SeekFrom::End(0))?;
        self.0.write_all(bytes)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
