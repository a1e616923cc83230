//! The node's end of a message socket.

use crate::wire::{self, Packet};
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Sends without waiting; what arrives goes to a callback. Closed when dropped.
pub(crate) struct Link {
    socket: Arc<Socket>,
    task: JoinHandle<()>,
}

struct Socket {
    fd: AsyncFd<OwnedFd>,
    /// What did not fit the socket's buffer, in order; `None` once the other end has closed.
    backlog: Mutex<Option<VecDeque<Packet>>>,
    /// Told when the backlog is no longer empty.
    behind: Notify,
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
        let fd = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE | Interest::WRITABLE) }?;
        let socket = Arc::new(Socket { fd, backlog: Mutex::new(Some(VecDeque::new())), behind: Notify::new() });
        let task = tokio::spawn(serve(Arc::clone(&socket), on));
        Ok(Self { socket, task })
    }

    /// Sends a packet from the caller's thread if the socket takes it at once, as it nearly always does. The packet is
    /// dropped, with the descriptors in it, if the other end has closed; the callback has learnt or will learn of that.
    pub(crate) fn send(&self, packet: Packet) {
        if let Some(backlog) = &mut *self.socket.backlog()
            && (!backlog.is_empty() || packet.send(self.socket.fd.get_ref(), SendFlags::DONTWAIT).is_err())
        {
            backlog.push_back(packet);
            self.socket.behind.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The task holds the socket too: the other end sees it closed when the runtime has dropped the task.
        self.task.abort();
    }
}

impl Socket {
    fn backlog(&self) -> MutexGuard<'_, Option<VecDeque<Packet>>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the backlog as the socket takes it; ends only with an error.
    async fn catch_up(&self) -> io::Result<()> {
        loop {
            self.behind.notified().await;
            while self.is_behind() {
                self.fd.async_io(Interest::WRITABLE, |fd| self.send_first(fd)).await?;
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.backlog().as_ref().is_some_and(|backlog| !backlog.is_empty())
    }

    fn send_first(&self, fd: &OwnedFd) -> io::Result<()> {
        if let Some(backlog) = &mut *self.backlog()
            && let Some(packet) = backlog.front()
        {
            packet.send(fd, SendFlags::DONTWAIT)?;
            backlog.pop_front();
        }
        Ok(())
    }
}

async fn serve<M, F>(socket: Arc<Socket>, mut on: F)
where
    M: DeserializeOwned,
    F: FnMut(Option<(M, Vec<OwnedFd>)>),
{
    let receive = async {
        while let Ok(Some(message)) =
            socket.fd.async_io(Interest::READABLE, |fd| wire::recv(fd, RecvFlags::DONTWAIT)).await
        {
            on(Some(message));
        }
    };
    tokio::select! {
        () = receive => {}
        _ = socket.catch_up() => {}
    }
    // Descriptors in the backlog must be closed before the callback lets anyone conclude.
    *socket.backlog() = None;
    on(None);
}
