//! TLS of a connection: certificates of both ends, and records between socket and protocol.
//!
//! # Invariants
//! - A client without a certificate of the named authority gets no further than the TLS handshake.
//! - Bytes are encrypted and sent under one lock, so that records arrive in the order in which they
//!   were numbered.
//! - Memory is bounded: a send encrypts no more than the library's buffer holds, and sends that,
//!   before it goes on.
//! # Locking
//! One lock a connection. It is held over sends, which wait for the client, and over receives that
//! do not wait; a client that does not read holds up itself alone.
//! # Sources
//! RFC 8446; `doc/proto.md`, *TLS support*.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::TLS13,
};

/// The certificates of a server and of its clients.
#[derive(Clone)]
pub struct TlsSettings(Arc<ServerConfig>);

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file does not hold what it should.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Its fault.
        error: pem::Error,
    },
    /// A file of certificates holds none.
    #[error("{}: no certificate is in it", .0.display())]
    NoCertificate(PathBuf),
    /// Certificate and key do not serve.
    #[error("{}: {error}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: rustls::Error,
    },
    /// No client could be verified.
    #[error("{}: {error}", .path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: rustls::server::VerifierBuilderError,
    },
}

impl TlsSettings {
    /// A server with the certificate chain and the key in these PEM files, for clients whose
    /// certificates an authority of the third one has signed.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_files(chain: &Path, key: &Path, authorities: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities)? {
            roots.add(authority).map_err(|error| unusable(authorities, error))?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = verifier
            .build()
            .map_err(|error| TlsError::Authority { path: authorities.to_owned(), error })?;
        let of_key = |error| TlsError::File { path: key.to_owned(), error };
        let private = PrivateKeyDer::from_pem_file(key).map_err(of_key)?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider knows TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(chain)?, private)
            .map_err(|error| unusable(chain, error))?;
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSettings")
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let of = |error| TlsError::File { path: path.to_owned(), error };
    let all = CertificateDer::pem_file_iter(path).map_err(of)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(of)?;
    if all.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(all)
}

fn unusable(path: &Path, error: rustls::Error) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), error }
}

/// The TLS session of a connection.
#[derive(Debug)]
pub(super) struct Secure(Mutex<ServerConnection>);

impl Secure {
    /// A session that waits for the client's first message.
    pub(super) fn new(settings: &TlsSettings) -> io::Result<Self> {
        let session = ServerConnection::new(Arc::clone(&settings.0)).map_err(io::Error::other)?;
        Ok(Self(Mutex::new(session)))
    }

    /// Whether the certificates are still being exchanged.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.0.lock().is_handshaking()
    }

    /// Takes what `raw` has of the handshake, and answers it. `false` at the end of `raw`.
    pub(super) fn shake_hands(&self, raw: &mut (impl io::Read + io::Write)) -> io::Result<bool> {
        take(&mut self.0.lock(), raw)
    }

    /// What the client has sent, without waiting where `raw` does not: 0 at its end, `WouldBlock`
    /// where nothing is there.
    pub(super) fn receive(
        &self,
        room: &mut [u8],
        raw: &mut (impl io::Read + io::Write),
    ) -> io::Result<usize> {
        let mut session = self.0.lock();
        loop {
            match session.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that goes without a word; a request that it has cut is not carried out.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                received => return received,
            }
            take(&mut session, raw)?;
        }
    }

    /// Encrypts and sends all of `bytes`.
    pub(super) fn send(&self, mut bytes: &[u8], raw: &mut impl io::Write) -> io::Result<()> {
        let mut session = self.0.lock();
        while !bytes.is_empty() {
            let count = session.writer().write(bytes)?;
            assert!(count > 0, "all that was encrypted before is sent");
            bytes = &bytes[count..];
            flush(&mut session, raw)?;
        }
        Ok(())
    }

    /// Says that nothing more comes, as far as `raw` takes it.
    pub(super) fn close(&self, raw: &mut impl io::Write) {
        let mut session = self.0.lock();
        session.send_close_notify();
        // The client may have gone before.
        let _ = flush(&mut session, raw);
    }
}

/// Takes records that `raw` has, and answers those of the protocol itself. `false` at its end.
fn take(session: &mut ServerConnection, raw: &mut (impl io::Read + io::Write)) -> io::Result<bool> {
    let count = session.read_tls(raw)?;
    let taken = session.process_new_packets();
    // Where it failed, an alert tells the client why.
    let answered = flush(session, raw);
    taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    answered?;
    Ok(count > 0)
}

fn flush(session: &mut ServerConnection, raw: &mut impl io::Write) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(raw)?;
    }
    Ok(())
}
