//! A client that sends what a test says, right or wrong, and reads messages one by one.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    /// The size of the export.
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
}

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Simple { cookie: u64, error: u32 },
    Chunk { cookie: u64, done: bool, kind: u16, payload: Vec<u8> },
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const CACHE: u16 = 5;
pub(crate) const BLOCK_STATUS: u16 = 7;
pub(crate) const DF: u16 = 1 << 2;

impl Client {
    /// A connection that has only its greeting.
    pub(crate) fn greeted(socket: &Path) -> UnixStream {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream
    }

    /// The first export, with structured replies.
    pub(crate) fn structured(socket: &Path) -> Self {
        Self::open(socket, true).expect("the server lets it in")
    }

    /// The first export, with simple replies.
    pub(crate) fn simple(socket: &Path) -> Self {
        Self::open(socket, false).expect("the server lets it in")
    }

    /// `None` where the server ends the connection.
    pub(crate) fn open(socket: &Path, structured: bool) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.read_exact(&mut [0; 18]).ok()?;
        stream.write_all(&[0, 0, 0, 3]).ok()?;
        if structured {
            option(&mut stream, 8, &[])?;
            let query = "base:allocation".len().to_be_bytes();
            let data = [&[0; 4], &[0, 0, 0, 1], &query[4..], b"base:allocation"].concat();
            option(&mut stream, 10, &data)?;
        }
        let info = option(&mut stream, 7, &[0; 6])?;
        let export = info.iter().find(|info| info.starts_with(&[0, 0]) && info.len() == 12)?;
        let bytes = u64::from_be_bytes(export[2..10].try_into().unwrap());
        let flags = u16::from_be_bytes(export[10..].try_into().unwrap());
        Some(Self { stream, bytes, flags })
    }

    /// A request's head.
    pub(crate) fn head(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend(flags.to_be_bytes());
        head.extend(command.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        head
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn request(
        &mut self,
        command: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u32,
    ) {
        self.send(&Self::head(command, flags, cookie, offset, length));
    }

    /// The next message without its data, if it is a simple one of a read; `None` at the end.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let magic = u32::from_be_bytes(take(&mut self.stream)?);
        if magic == 0x6744_6698 {
            let error = u32::from_be_bytes(take(&mut self.stream)?);
            let cookie = u64::from_be_bytes(take(&mut self.stream)?);
            return Some(Message::Simple { cookie, error });
        }
        assert_eq!(magic, 0x668e_33ef, "{magic:#x}");
        let flags = u16::from_be_bytes(take(&mut self.stream)?);
        let kind = u16::from_be_bytes(take(&mut self.stream)?);
        let cookie = u64::from_be_bytes(take(&mut self.stream)?);
        let length = u32::from_be_bytes(take(&mut self.stream)?);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Message::Chunk { cookie, done: flags & 1 == 1, kind, payload })
    }

    /// The next message, which there is.
    pub(crate) fn answer(&mut self) -> Message {
        self.message().expect("the connection goes on")
    }

    /// The data of a whole read: chunks until the last.
    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.request(READ, 0, 7, offset, length);
        let mut data = vec![0; length as usize];
        loop {
            let Some(Message::Chunk { cookie: 7, done, kind: 1, payload }) = self.message() else {
                panic!("no data");
            };
            let at = u64::from_be_bytes(payload[..8].try_into().unwrap()) - offset;
            let at = usize::try_from(at).unwrap();
            data[at..at + payload.len() - 8].copy_from_slice(&payload[8..]);
            if done {
                return data;
            }
        }
    }

    /// The error of a chunk that carries one, with its text, and what follows the text.
    pub(crate) fn error(&mut self) -> (u32, String, Vec<u8>) {
        match self.message() {
            Some(Message::Chunk { done: true, kind, payload, .. }) if kind >> 15 == 1 => {
                let error = u32::from_be_bytes(payload[..4].try_into().unwrap());
                let length = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
                let text = String::from_utf8(payload[6..6 + length].to_vec()).unwrap();
                (error, text, payload[6 + length..].to_vec())
            }
            other => panic!("no error: {other:?}"),
        }
    }

    /// Whether the server has ended the connection; reads what is left.
    pub(crate) fn is_over(&mut self) -> bool {
        is_over(&mut self.stream)
    }
}

/// Reads to the end of the stream.
pub(crate) fn is_over(stream: &mut UnixStream) -> bool {
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
    }
}

/// Sends an option; the data of its replies. `None` where it is refused.
fn option(stream: &mut UnixStream, number: u32, data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(number.to_be_bytes());
    option.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    option.extend(data);
    stream.write_all(&option).ok()?;
    let mut replies = Vec::new();
    loop {
        let [_magic, _number]: [u64; 2] =
            [u64::from_be_bytes(take(stream)?), u64::from(u32::from_be_bytes(take(stream)?))];
        let kind = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data).ok()?;
        match kind {
            1 => return Some(replies),
            kind if kind >> 31 == 1 => return None,
            _ => replies.push(data),
        }
    }
}

fn take<const N: usize>(stream: &mut UnixStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).ok().map(|()| bytes)
}
