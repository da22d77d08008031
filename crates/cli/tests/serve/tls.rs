//! Clients over TLS: those with a certificate of the right authority come in, and read what is
//! served; all others learn nothing.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use forerun_testkit::{Scratch, forerun, installed, skip};

use crate::rig::{Server, bytes, said, text};

/// Certificates below a folder: of the server, and of clients of two authorities.
struct Certificates(Scratch);

impl Certificates {
    /// Made by openssl.
    fn new() -> Self {
        let made = Self(Scratch::new("certificates"));
        for authority in ["ca", "other"] {
            let folder = made.0.join(authority);
            fs::create_dir(&folder).unwrap();
            let (key, cert) = (folder.join("ca-key.pem"), folder.join("ca-cert.pem"));
            openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                 -subj /CN={authority} -keyout {} -out {}",
                text(&key),
                text(&cert)
            ));
            sign(&folder, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1");
            sign(&folder, "client", "extendedKeyUsage=clientAuth");
        }
        fs::copy(made.file("ca", "ca-cert.pem"), made.file("other", "ca-cert.pem")).unwrap();
        made
    }

    fn file(&self, authority: &str, name: &str) -> PathBuf {
        self.0.join(authority).join(name)
    }

    /// The server's flags.
    fn flags(&self) -> String {
        format!(
            "--listen 127.0.0.1:0 --tls-cert {} --tls-key {} --tls-client-ca {}",
            text(&self.file("ca", "server-cert.pem")),
            text(&self.file("ca", "server-key.pem")),
            text(&self.file("ca", "ca-cert.pem")),
        )
    }
}

/// Has the authority in `folder` sign a certificate for `name` with `extension`.
fn sign(folder: &Path, name: &str, extension: &str) {
    let at = |file: &str| text(&folder.join(file)).to_owned();
    fs::write(folder.join("extension"), extension).unwrap();
    openssl(&format!(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {} \
         -out {}",
        at(&format!("{name}-key.pem")),
        at("request")
    ));
    openssl(&format!(
        "x509 -req -days 2 -in {} -CA {} -CAkey {} -CAcreateserial -extfile {} -out {}",
        at("request"),
        at("ca-cert.pem"),
        at("ca-key.pem"),
        at("extension"),
        at(&format!("{name}-cert.pem"))
    ));
}

fn openssl(arguments: &str) {
    said("openssl", &arguments.split_whitespace().collect::<Vec<_>>());
}

/// Whether certificates can be made; a test that cannot is skipped.
fn can_sign(test: &str) -> bool {
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status();
    let can = found.is_ok_and(|status| status.success());
    if !can {
        skip(test, "there is no openssl");
    }
    can
}

/// The port in what the server said.
fn port(server: &Server) -> u16 {
    let line = server.said.last().unwrap();
    let (_, rest) = line.split_once("127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
    rest.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
}

/// How `nbdinfo` ends that asks for the size.
fn asks(uri: &str) -> (bool, String) {
    let mut command = Command::new("nbdinfo");
    let output = command.args(["--size", uri]).stdin(Stdio::null()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn those_with_a_certificate_come_in() {
    let name = "those_with_a_certificate_come_in";
    if !can_sign(name) || !installed(name, "nbdinfo") || !installed(name, "nbdcopy") {
        return;
    }
    let certificates = Certificates::new();
    let disk = bytes((3 << 20) + 1001);
    let flags = certificates.flags() + " --mode write-back";
    let server = Server::of(&[("disk", &disk)], &flags);
    assert!(server.said.last().unwrap().contains("by TLS"), "{:?}", server.said);
    let port = port(&server);
    let uri = |authority: &str| {
        let folder = certificates.0.join(authority);
        format!("nbds://localhost:{port}/disk?tls-certificates={}", text(&folder))
    };
    let size = disk.len().to_string();
    assert_eq!(asks(&uri("ca")), (true, size.clone()));
    assert!(!asks(&uri("other")).0, "a certificate of another authority");
    assert!(!asks(&format!("nbd://localhost:{port}/disk")).0, "in the open");
    assert_eq!(asks(&server.uri("disk")), (true, size), "the unix socket needs none");
    let copy = server.scratch.join("copy");
    said("nbdcopy", &[&uri("ca"), text(&copy)]);
    assert!(fs::read(&copy).unwrap() == disk, "the copy differs");
    let other = bytes(2 * disk.len()).split_off(disk.len());
    fs::write(&copy, &other).unwrap();
    said("nbdcopy", &["--flush", text(&copy), &uri("ca")]);
    let path = server.scratch.join("disk");
    assert!(fs::read(path).unwrap() == other, "what was written is in the file");
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn clients_in_the_open_learn_nothing() {
    if !can_sign("clients_in_the_open_learn_nothing") {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::of(&[("secret", b"bytes")], &certificates.flags());
    let mut option = [b"IHAVEOPT".as_slice(), &[0, 0, 0, 3], &[0; 4]].concat();
    let list = option.clone();
    option[11] = 5; // STARTTLS
    let rows: [(&str, Vec<u8>); 4] = [
        ("a list", list.clone()),
        ("a list behind STARTTLS, not under it", [option.clone(), list].concat()),
        ("no TLS after STARTTLS", option.clone()),
        ("nonsense", vec![7; 500]),
    ];
    for (what, sent) in rows {
        let mut stream = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        stream.write_all(&sent).unwrap();
        if what.starts_with("no TLS") {
            let mut acknowledged = [0; 20];
            stream.read_exact(&mut acknowledged).unwrap();
            stream.write_all(&[1; 600]).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        // It may be reset, with what was sent and not read.
        let _ = stream.read_to_end(&mut said);
        let told = said.windows(6).any(|window| window == b"secret");
        assert!(!told, "{what}: {:?}", String::from_utf8_lossy(&said));
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let scratch = Scratch::new("certificates");
    let disk = scratch.file("disk", "bytes");
    let nothing = scratch.file("nothing.pem", "text");
    let mut command = forerun("serve --listen 127.0.0.1:0");
    for flag in ["--tls-cert", "--tls-key", "--tls-client-ca"] {
        command.arg(flag).arg(&nothing);
    }
    let output = command.arg(&disk).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("nothing.pem: no certificate is in it"), "{error}");
    let mut command = forerun("serve --listen 127.0.0.1:0 --tls-cert");
    let output = command.arg(&nothing).arg(&disk).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "one of three files");
}
