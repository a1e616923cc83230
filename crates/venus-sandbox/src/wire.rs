//! Messages with file descriptors over a `SOCK_SEQPACKET` pair: one datagram, one message.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bodies above this travel in a memfd, because a datagram must fit the socket's send buffer.
const INLINE: usize = 32 << 10;
const MAX_FDS: usize = 4;

/// A message ready to be sent.
pub(crate) struct Packet {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Packet {
    pub(crate) fn new<M: Serialize>(message: &M, mut fds: Vec<OwnedFd>) -> io::Result<Self> {
        let mut bytes = vec![0];
        serde_json::to_writer(&mut bytes, message)?;
        if bytes.len() > INLINE {
            let mut body = File::from(memfd_create("venus-message", MemfdFlags::CLOEXEC)?);
            body.write_all(&bytes[1..])?;
            fds.push(body.into());
            bytes = vec![1];
        }
        Ok(Self { bytes, fds })
    }

    /// Sends it whole or not at all.
    pub(crate) fn send(&self, socket: impl AsFd, flags: SendFlags) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::INVAL.into());
        }
        let flags = flags | SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&self.bytes)], &mut ancillary, flags))?;
        Ok(())
    }
}

/// Sends a message and copies of `fds`.
pub(crate) fn send<M: Serialize>(socket: impl AsFd, message: &M, fds: Vec<OwnedFd>) -> io::Result<()> {
    Packet::new(message, fds)?.send(socket, SendFlags::empty())
}

/// The next message; `None` once the other end is closed.
pub(crate) fn recv<M: DeserializeOwned>(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; INLINE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut fds: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message cut short"));
    }
    let message = if bytes[0] == 0 {
        serde_json::from_slice(&bytes[1..received.bytes])?
    } else {
        let mut body = File::from(fds.pop().ok_or(Errno::BADMSG)?);
        body.rewind()?;
        let mut text = Vec::new();
        body.read_to_end(&mut text)?;
        serde_json::from_slice(&text)?
    };
    Ok(Some((message, fds)))
}

/// A connected pair of message sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_size_arrives_with_its_descriptors() {
        let (a, b) = pair().unwrap();
        for size in [0, INLINE - 8, INLINE, 3 << 20] {
            let text = "x".repeat(size);
            let (r, _w) = rustix::pipe::pipe().unwrap();
            send(&a, &text, vec![r]).unwrap();
            let (got, fds) = recv::<String>(&b, RecvFlags::empty()).unwrap().unwrap();
            assert_eq!((got.len(), fds.len()), (size, 1));
        }
        drop(a);
        assert!(recv::<String>(&b, RecvFlags::empty()).unwrap().is_none());
    }
}
