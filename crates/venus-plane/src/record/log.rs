//! The log's frame: checksummed records, appended, never changed.
//!
//! ```text
//! file   = "VENUSLOG" version:u32 record*
//! record = length:u32 crc:u32 synced:u64 payload[length]      (little endian)
//! ```
//! `crc` is CRC32C over `length`, `synced` and the payload. `synced` is the length of the file that was known to be on disk when the
//! record was written. It tells two kinds of damage apart: bytes that a crash may have lost (nothing after them says
//! that they were on disk: they are cut off, with a notice) and bytes that were safe and have changed since (refused).

use super::storage::Storage;
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"VENUSLOG";
const FORMAT: u32 = 1;
/// Bytes before the first record.
pub const FILE_HEADER: usize = 12;
const RECORD_HEADER: usize = 16;
/// No record is longer; a length beyond this is damage.
const MAX_PAYLOAD: usize = 256 << 20;

/// What can go wrong with the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system refused.
    #[error("cannot {doing} {path}: {source}; {advice}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The log.
        path: PathBuf,
        /// Why not.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The file is something else, or of a later version.
    #[error("{path} is not a Venus log of version {FORMAT}; choose another run directory, or the program that wrote it", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that were safely on disk have changed.
    #[error(
        "{path} is damaged at byte {offset}, and what follows shows that these bytes were once safely written; \
         restore the file from a copy, or keep what comes before with `truncate -s {offset} {path}` (later steps are trained again)",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First bad byte.
        offset: u64,
    },
    /// A record is whole but says something this version doesn't understand.
    #[error("{path}: the record at byte {offset} cannot be read: {source}; it was written by another version of Venus", path = path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Where the record starts.
        offset: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// An earlier append failed; the log takes no more.
    #[error("{path} took an error before and accepts no more records; resume the run once its cause is gone", path = path.display())]
    Closed {
        /// The log.
        path: PathBuf,
    },
}

impl LogError {
    pub(super) fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space on that disk and resume the run: nothing recorded is lost"
            }
            io::ErrorKind::WouldBlock => "another run is writing to it: wait for it, or choose another directory",
            io::ErrorKind::PermissionDenied => "check who owns the run directory",
            _ => "check the disk, then resume the run: nothing recorded is lost",
        };
        Self::Io { doing, path: path.to_owned(), source, advice }
    }
}

/// A log open for appending.
pub struct Log {
    path: PathBuf,
    storage: Box<dyn Storage>,
    length: u64,
    synced: u64,
    closed: bool,
}

/// What [`Log::open`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Offset and payload of every whole record, in order.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Bytes cut off the end, because a crash had left them unfinished.
    pub torn: u64,
}

impl Log {
    /// Reads what is there, cuts a torn tail and gets ready to append. `path` is for messages.
    ///
    /// # Errors
    /// When the file can't be read or written, is no log, or is damaged before its end.
    pub fn open(path: &Path, mut storage: Box<dyn Storage>) -> Result<(Self, Contents), LogError> {
        let bytes = storage.read().map_err(|e| LogError::io(path, "read", e))?;
        let scan = scan(path, &bytes)?;
        let mut log = Self { path: path.to_owned(), storage, length: scan.good as u64, synced: 0, closed: false };
        let torn = (bytes.len() - scan.good) as u64;
        if torn > 0 {
            log.storage.truncate(log.length).map_err(|e| LogError::io(path, "cut the unfinished end of", e))?;
        }
        if scan.good == 0 {
            let mut header = MAGIC.to_vec();
            header.extend(FORMAT.to_le_bytes());
            log.write(&header)?;
        }
        log.sync()?;
        Ok((log, Contents { records: scan.records, torn }))
    }

    /// Adds a record. It is whole in the file or absent; it survives a power loss after the next [`Log::sync`].
    ///
    /// # Errors
    /// When the disk is full or fails. The log then accepts nothing more.
    pub fn append(&mut self, payload: &[u8]) -> Result<(), LogError> {
        let frame = frame(self.synced, payload);
        self.write(&frame)
    }

    /// Makes everything appended safe against power loss.
    ///
    /// # Errors
    /// When the disk fails. What was appended since the last success may be lost; the log accepts nothing more.
    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.closed {
            return Err(self.closed_error());
        }
        if self.synced == self.length {
            return Ok(());
        }
        if let Err(e) = self.storage.sync() {
            // After a failed fsync the kernel may have dropped the pages: no later success would mean anything.
            self.closed = true;
            return Err(LogError::io(&self.path, "sync", e));
        }
        self.synced = self.length;
        Ok(())
    }

    /// Everything in the log so far.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn contents(&mut self) -> Result<Contents, LogError> {
        let bytes = self.storage.read().map_err(|e| LogError::io(&self.path, "read", e))?;
        read(&self.path, &bytes)
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        if self.closed {
            return Err(self.closed_error());
        }
        if let Err(e) = self.storage.append(bytes) {
            self.closed = true;
            // Half a record may be there. If cutting it fails as well, opening the log cuts it as a torn tail.
            let _ = self.storage.truncate(self.length);
            return Err(LogError::io(&self.path, "append to", e));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn closed_error(&self) -> LogError {
        LogError::Closed { path: self.path.clone() }
    }
}

/// The whole records in `bytes`, without touching the file.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Contents, LogError> {
    let scan = scan(path, bytes)?;
    Ok(Contents { torn: (bytes.len() - scan.good) as u64, records: scan.records })
}

fn frame(synced: u64, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let mut frame = Vec::with_capacity(RECORD_HEADER + payload.len());
    frame.extend(length);
    frame.extend([0; 4]);
    frame.extend(synced.to_le_bytes());
    frame.extend(payload);
    let crc = checksum(&frame);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    frame
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..])
}

/// The record at the start of `bytes`: its `synced` and length in all, or `None` if there is no whole one.
fn parse(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = word(0)? as usize;
    if length > MAX_PAYLOAD {
        return None;
    }
    let frame = bytes.get(..RECORD_HEADER + length)?;
    if checksum(frame) != word(4)? {
        return None;
    }
    let synced = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some((synced, frame.len()))
}

struct Scan {
    records: Vec<(u64, Vec<u8>)>,
    good: usize,
}

fn scan(path: &Path, bytes: &[u8]) -> Result<Scan, LogError> {
    let mut header = MAGIC.to_vec();
    header.extend(FORMAT.to_le_bytes());
    if bytes.len() < FILE_HEADER && header.starts_with(bytes) {
        return Ok(Scan { records: Vec::new(), good: 0 });
    }
    if !bytes.starts_with(&header) {
        return Err(LogError::Format { path: path.to_owned() });
    }
    let mut records = Vec::new();
    let mut at = FILE_HEADER;
    while let Some((_, length)) = parse(&bytes[at..]) {
        records.push((at as u64, bytes[at + RECORD_HEADER..at + length].to_vec()));
        at += length;
    }
    // A later record that knew the byte at `at` to be on disk convicts it. Nothing can precede the synced header of a
    // record, so the search is over every offset; in text the length is absurd at almost all of them.
    let convicted =
        (at + 1..bytes.len()).any(|offset| parse(&bytes[offset..]).is_some_and(|(synced, _)| synced > at as u64));
    if convicted {
        return Err(LogError::Damaged { path: path.to_owned(), offset: at as u64 });
    }
    Ok(Scan { records, good: at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Storage for Memory {
        fn read(&mut self) -> io::Result<Vec<u8>> {
            Ok(self.0.lock().unwrap().clone())
        }
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap().extend(bytes);
            Ok(())
        }
        fn truncate(&mut self, length: u64) -> io::Result<()> {
            self.0.lock().unwrap().truncate(length as usize);
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open(bytes: &[u8]) -> Result<(Log, Contents), LogError> {
        let memory = Memory::default();
        memory.0.lock().unwrap().extend(bytes);
        Log::open(Path::new("log"), Box::new(memory))
    }

    /// Three records; the first two are synced before the third is written.
    fn sample() -> (Vec<u8>, Vec<usize>) {
        let memory = Memory::default();
        let (mut log, _) = Log::open(Path::new("log"), Box::new(memory.clone())).unwrap();
        let mut ends = vec![log.length() as usize];
        for (payload, sync) in [("one", false), ("two two", true), ("three", false)] {
            log.append(payload.as_bytes()).unwrap();
            ends.push(log.length() as usize);
            if sync {
                log.sync().unwrap();
            }
        }
        let bytes = memory.0.lock().unwrap().clone();
        (bytes, ends)
    }

    #[test]
    fn a_log_cut_at_any_byte_opens_with_the_records_before_the_cut() {
        let (bytes, ends) = sample();
        for cut in 0..=bytes.len() {
            let (log, contents) = open(&bytes[..cut]).unwrap();
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(contents.records.len(), whole.saturating_sub(1), "cut at {cut}");
            let kept = if whole == 0 { 0 } else { ends[whole - 1] };
            assert_eq!(contents.torn as usize, cut - kept);
            assert_eq!(log.length() as usize, kept.max(FILE_HEADER));
        }
    }

    #[test]
    fn a_changed_byte_is_refused_where_it_was_safe_and_cut_where_it_was_not() {
        let (bytes, ends) = sample();
        for at in FILE_HEADER..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            let record = ends.iter().filter(|&&end| end <= at).count() - 1;
            match open(&changed) {
                Err(LogError::Damaged { offset, .. }) => {
                    assert!(record < 2, "byte {at} was never known to be safe");
                    assert_eq!(offset as usize, ends[record]);
                }
                Ok((_, contents)) => {
                    assert_eq!(record, 2, "byte {at} was safe");
                    assert_eq!(contents.records.len(), 2);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    #[test]
    fn zeros_that_a_power_loss_left_at_the_end_are_cut() {
        let (mut bytes, ends) = sample();
        bytes.truncate(ends[2]);
        bytes.extend([0; 4096]);
        let (_, contents) = open(&bytes).unwrap();
        assert_eq!((contents.records.len(), contents.torn), (2, 4096));
    }

    #[test]
    fn another_file_is_not_taken_for_a_log() {
        assert!(matches!(open(b"#!/bin/sh\nexit 0\n"), Err(LogError::Format { .. })));
    }
}
