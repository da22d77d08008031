//! Sockets: where clients come from, and a connection's bytes.
//!
//! # Invariants
//! - A unix socket is open to its owner alone from before it takes the first client on. It takes
//!   the place of one that is there only where no process listens, under a lock of the folder.
//! - The end of a [`Listener`] removes its socket, and no other that took its place.
//! - A send that makes no progress for the given time is an error, so a client that does not read
//!   occupies its connection for a bounded time.

use std::{
    fs::{self, File, Permissions},
    io::{self, IoSlice, Read as _},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{FlockOperation, flock},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, getpeername, getsockname, listen, recv,
        sendmsg, shutdown, socket_with, sockopt,
    },
};

use super::tls::{Secure, TlsSettings};

/// Why a socket takes no clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A process listens there already.
    #[error("{}: another server listens there", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{}: it is no socket, and stays: name another path", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {at}: {error}")]
    System {
        /// The path or address.
        at: String,
        /// Its reason.
        error: io::Error,
    },
}

/// A socket that takes clients.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    tls: Option<TlsSettings>,
    tcp: Option<SocketAddr>,
    /// The path of a unix socket, with its device and inode.
    path: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    /// Listens at `path`.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        let at = path.display().to_string();
        let system = |error: io::Error| ListenError::System { at: at.clone(), error };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = File::open(parent.unwrap_or(Path::new("."))).map_err(system)?;
        // Two servers that find the same stale socket would each remove that of the other.
        flock(&folder, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| system(errno.into()))?;
        make_room(path).map_err(|error| error.unwrap_or_else(system))?;
        let (flags, stream) = (SocketFlags::CLOEXEC, SocketType::STREAM);
        let taking = || -> io::Result<(OwnedFd, (u64, u64))> {
            let socket = socket_with(AddressFamily::UNIX, stream, flags, None)?;
            bind(&socket, &SocketAddrUnix::new(path)?)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            let place = fs::symlink_metadata(path)?;
            listen(&socket, BACKLOG)?;
            Ok((socket, (place.dev(), place.ino())))
        };
        let (socket, place) = taking().map_err(system)?;
        Ok(Self { socket, tls: None, tcp: None, path: Some((path.to_owned(), place)) })
    }

    /// Listens at `address`.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn tcp(address: SocketAddr) -> Result<Self, ListenError> {
        let taking = || -> io::Result<(OwnedFd, SocketAddr)> {
            let socket = TcpListener::bind(address)?;
            let address = socket.local_addr()?;
            Ok((socket.into(), address))
        };
        let (socket, address) =
            taking().map_err(|error| ListenError::System { at: address.to_string(), error })?;
        Ok(Self { socket, tls: None, tcp: Some(address), path: None })
    }

    /// Takes clients of a socket that listens already, and is of its service manager.
    ///
    /// # Errors
    /// It is no socket that listens.
    pub fn passed(socket: OwnedFd) -> io::Result<Self> {
        if !sockopt::socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
        }
        let tcp = SocketAddr::try_from(getsockname(&socket)?).ok();
        Ok(Self { socket, tls: None, tcp, path: None })
    }

    /// Takes clients on that speak TLS, and have a certificate, alone.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsSettings) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The address in use, where it is one of TCP.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The next client.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        if self.tcp.is_some() {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        Ok(Socket { raw: Raw(socket), tls: self.tls.clone(), secure: OnceLock::new() })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, place)) = &self.path else { return };
        let there = fs::symlink_metadata(path).map(|there| (there.dev(), there.ino()));
        if there.is_ok_and(|there| there == *place) {
            // A socket that stays is replaced by the next server.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket at `path` that no process listens on. `Err(Err(_))` is an error of the system.
fn make_room(path: &Path) -> Result<(), Result<ListenError, io::Error>> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Err(error)),
    };
    if !there.file_type().is_socket() {
        return Err(Ok(ListenError::NoSocket(path.to_owned())));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(Err)
        }
        Ok(_) => Err(Ok(ListenError::Taken(path.to_owned()))),
        Err(error) => Err(Err(error)),
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Socket {
    raw: Raw,
    /// What TLS it needs before anything else.
    tls: Option<TlsSettings>,
    /// Its TLS, once that has begun.
    secure: OnceLock<Secure>,
}

impl Socket {
    /// Whether its client has to begin TLS.
    pub(super) fn requires_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Begins TLS, where it has to. The client's first message follows.
    pub(super) fn begin_tls(&self) -> io::Result<&Secure> {
        let settings = self.tls.as_ref().expect("a handshake without TLS does not begin it");
        let secure = Secure::new(settings)?;
        Ok(self.secure.get_or_init(|| secure))
    }

    /// The socket's own bytes; those of TLS, once it has begun.
    pub(super) fn raw(&self) -> &Raw {
        &self.raw
    }

    /// Bytes that are there, without waiting: `None` where there are none, 0 at the end.
    pub(super) fn receive_now(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let received = match self.secure.get() {
            Some(secure) => secure.receive(room, &mut &self.raw),
            None => (&self.raw).read(room),
        };
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => Ok(Some(received?)),
        }
    }

    /// At least one byte; 0 at the end.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        if self.secure.get().is_none() {
            return Ok(self.raw.receive(room, RecvFlags::empty())?);
        }
        loop {
            if let Some(count) = self.receive_now(room)? {
                return Ok(count);
            }
            match poll(&mut [PollFd::new(&self.raw.0, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends all of `parts`.
    pub(super) fn send(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        if let Some(secure) = self.secure.get() {
            return parts.iter().try_for_each(|part| secure.send(part, &mut &self.raw));
        }
        let mut left = parts;
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.raw.send(left)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => IoSlice::advance_slices(&mut left, count),
            }
        }
        Ok(())
    }

    /// Lets a send wait so long for progress.
    pub(super) fn wait_to_send(&self, time: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.raw.0, sockopt::Timeout::Send, Some(time))?)
    }

    /// What a rule for a client names: its user on this machine, or its address.
    pub(super) fn client(&self) -> String {
        if let Some(address) = self.address() {
            return address.ip().to_canonical().to_string();
        }
        let user = sockopt::socket_peercred(&self.raw.0).map(|peer| peer.uid.as_raw());
        user.map_or_else(|_| "unknown".to_owned(), |user| format!("user:{user}"))
    }

    /// The client's process on this machine, or its address.
    pub(super) fn peer(&self) -> String {
        if let Some(address) = self.address() {
            return address.to_string();
        }
        match sockopt::socket_peercred(&self.raw.0) {
            Ok(peer) => {
                format!("process {} of user {}", peer.pid.as_raw_nonzero(), peer.uid.as_raw())
            }
            Err(_) => "unknown".to_owned(),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        getpeername(&self.raw.0).ok().flatten().and_then(|it| SocketAddr::try_from(it).ok())
    }

    /// Ends what the client sends; what it sent before is still received.
    pub(super) fn end_input(&self) {
        let _ = shutdown(&self.raw.0, Shutdown::Read);
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        let _ = shutdown(&self.raw.0, Shutdown::Both);
    }

    /// Says that nothing more comes, where the protocol has a word for it.
    pub(super) fn say_end(&self) {
        if let Some(secure) = self.secure.get() {
            secure.close(&mut &self.raw);
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.0.as_fd()
    }
}

/// The bytes of a socket as they are sent: reads do not wait, writes do.
#[derive(Debug)]
pub(super) struct Raw(OwnedFd);

impl Raw {
    fn receive(&self, room: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
        assert!(!room.is_empty(), "no room looks like the end");
        loop {
            match recv(&self.0, &mut *room, flags) {
                Err(Errno::INTR) => {}
                received => return received.map(|(count, _)| count),
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&self.0, parts, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                sent => return Ok(sent?),
            }
        }
    }
}

impl io::Read for &Raw {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(self.receive(room, RecvFlags::DONTWAIT)?)
    }
}

impl io::Write for &Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Clients that the kernel keeps waiting.
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_unix_socket_is_its_owners_and_goes_with_its_listener() {
        let scratch = Scratch::new("socket");
        let path = scratch.join("s");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Listener::unix(&path), Err(ListenError::Taken(_))));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_stays() {
        let scratch = Scratch::new("socket");
        let path = scratch.join("s");
        drop(UnixListener::bind(&path).unwrap()); // As a killed server leaves it.
        let listener = Listener::unix(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(listener);
        let file = scratch.file("f", "text");
        assert!(matches!(Listener::unix(&file), Err(ListenError::NoSocket(_))));
        assert_eq!(fs::read(&file).unwrap(), b"text");
    }

    #[test]
    fn a_listener_leaves_the_socket_that_took_its_place() {
        let scratch = Scratch::new("socket");
        let path = scratch.join("s");
        let first = Listener::unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Listener::unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
