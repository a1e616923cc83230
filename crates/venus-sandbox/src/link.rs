//! The node's end of a message socket.

use crate::wire::{self, Packet};
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Sends without waiting; what arrives goes to a callback. Closed when dropped.
pub(crate) struct Link {
    queue: mpsc::UnboundedSender<Packet>,
    task: JoinHandle<()>,
}

impl Link {
    /// Serves a socket until it closes or the link is dropped. `on` gets `None` once, last, when the other end has closed.
    /// Must be called within a tokio runtime.
    pub(crate) fn open<M, F>(socket: OwnedFd, on: F) -> io::Result<Self>
    where
        M: DeserializeOwned + Send + 'static,
        F: FnMut(Option<(M, Vec<OwnedFd>)>) + Send + 'static,
    {
        // SAFETY: the descriptor is owned by the value handed over and stays the same open file until that is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE | Interest::WRITABLE) }?;
        let (queue, packets) = mpsc::unbounded_channel();
        let task = tokio::spawn(serve(socket, packets, on));
        Ok(Self { queue, task })
    }

    /// Queues a packet; dropped, with the descriptors in it, if the other end has closed.
    pub(crate) fn send(&self, packet: Packet) {
        // The callback has learnt or will learn of a closed end.
        let _ = self.queue.send(packet);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<M, F>(socket: AsyncFd<OwnedFd>, mut packets: mpsc::UnboundedReceiver<Packet>, mut on: F)
where
    M: DeserializeOwned,
    F: FnMut(Option<(M, Vec<OwnedFd>)>),
{
    let mut outgoing: Option<Packet> = None;
    loop {
        let step = tokio::select! {
            received = receive(&socket) => match received {
                Ok(Some(message)) => { on(Some(message)); Ok(()) }
                Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(error),
            },
            sent = transmit(&socket, outgoing.as_ref()), if outgoing.is_some() => { outgoing = None; sent }
            Some(packet) = packets.recv(), if outgoing.is_none() => {
                // Most packets fit the socket's buffer at once.
                outgoing = packet.send(socket.get_ref(), SendFlags::DONTWAIT).is_err().then_some(packet);
                Ok(())
            }
        };
        if step.is_err() {
            // Descriptors in the queue must be closed before the callback lets anyone conclude.
            packets.close();
            while packets.try_recv().is_ok() {}
            on(None);
            return;
        }
    }
}

async fn receive<M: DeserializeOwned>(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, |fd| wire::recv(fd, RecvFlags::DONTWAIT)).await
}

async fn transmit(socket: &AsyncFd<OwnedFd>, packet: Option<&Packet>) -> io::Result<()> {
    let Some(packet) = packet else { return Ok(()) };
    socket.async_io(Interest::WRITABLE, |fd| packet.send(fd, SendFlags::DONTWAIT)).await
}
