//! Programs that speak NBD: libnbd's, QEMU's, and Python's.

use std::{fs, fs::File, os::unix::fs::FileExt as _, process::Command};

use forerun_io::devices::{DeviceKey, DeviceStore};
use forerun_testkit::{installed, skip};
use rustix::process::Signal;

use crate::rig::{Server, bytes, said, text};

/// Sizes of every kind: empty, odd, a page, more than a piece.
const SIZES: [usize; 6] = [0, 1, 1000, 4096, 300_001, 3 << 20];

#[test]
fn nbdinfo_lists_what_is_served() {
    if !installed("nbdinfo_lists_what_is_served", "nbdinfo") {
        return;
    }
    let server = Server::of(&[("odd", &bytes(1001)), ("even", &bytes(8192))], "");
    let list = said("nbdinfo", &["--list", &server.uri("")]);
    for line in ["export=\"odd\":", "export=\"even\":", "export-size: 1001", "base:allocation"] {
        assert!(list.contains(line), "{line}: {list}");
    }
    assert_eq!(said("nbdinfo", &["--size", &server.uri("even")]).trim(), "8192");
    for (what, name) in [("readonly", "is"), ("cache", "can"), ("multi-conn", "can"), ("df", "can")]
    {
        said("nbdinfo", &[&format!("--{name}"), what, &server.uri("odd")]);
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_client_may_pass_the_socket_of_a_server_that_it_starts() {
    let name = "a_client_may_pass_the_socket_of_a_server_that_it_starts";
    if !installed(name, "nbdcopy") {
        return;
    }
    let scratch = forerun_testkit::Scratch::new("passed");
    let (disk, copy) = (scratch.file("disk", bytes(300_001)), scratch.join("copy"));
    let forerun = forerun_testkit::forerun_path();
    said("nbdcopy", &["--", "[", text(&forerun), "serve", text(&disk), "]", text(&copy)]);
    assert_eq!(fs::read(&copy).unwrap(), bytes(300_001));
}

#[test]
fn sectors_are_told() {
    if !installed("sectors_are_told", "nbdinfo") {
        return;
    }
    for sector in ["512", "4096"] {
        let server = Server::of(&[("disk", &bytes(1 << 20))], &format!("--sector {sector}"));
        let info = said("nbdinfo", &[&server.uri("disk")]);
        assert!(info.contains(&format!("block_size_minimum: {sector}")), "{info}");
        assert!(info.contains("block_size_maximum: 33554432"), "{info}");
    }
}

#[test]
fn nbdcopy_copies_files_of_any_size() {
    if !installed("nbdcopy_copies_files_of_any_size", "nbdcopy") {
        return;
    }
    for size in SIZES {
        let server = Server::of(&[("disk", &bytes(size))], "--cache 1M");
        let copy = server.scratch.join("copy");
        said("nbdcopy", &[&server.uri("disk"), text(&copy)]);
        assert_eq!(fs::read(&copy).unwrap(), bytes(size), "{size}");
    }
}

#[test]
fn holes_are_seen_and_read_as_zeroes() {
    if !installed("holes_are_seen_and_read_as_zeroes", "nbdinfo") {
        return;
    }
    let scratch = forerun_testkit::Scratch::on_disk("serve");
    let path = scratch.join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(&bytes(4096), 1 << 20).unwrap();
    let server = Server::start(scratch, vec![path.clone()], "");
    let map = said("nbdinfo", &["--map", &server.uri("disk")]);
    let words: Vec<&str> = map.split_whitespace().collect();
    assert!(words.contains(&"data"), "{map}");
    if installed("holes_are_seen_and_read_as_zeroes", "nbdcopy") {
        let copy = server.scratch.join("copy");
        said("nbdcopy", &[&server.uri("disk"), text(&copy)]);
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
    }
}

#[test]
fn qemu_converts_compares_and_reads() {
    let name = "qemu_converts_compares_and_reads";
    if !installed(name, "qemu-img") || !installed(name, "qemu-io") {
        return;
    }
    for size in SIZES {
        let server = Server::of(&[("disk", &bytes(size))], "--cache 2M");
        let (disk, copy) = (server.scratch.join("disk"), server.scratch.join("copy"));
        let uri = server.uri("disk");
        said("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, text(&copy)]);
        said("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&disk), &uri]);
        said("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&copy), &uri]);
    }
    let server = Server::of(&[("disk", &vec![0x5a; 1 << 20])], "");
    let uri = server.uri("disk");
    let io = |commands: &[&str]| {
        let mut arguments = vec!["-r", "-f", "raw"];
        arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
        arguments.push(&uri);
        said("qemu-io", &arguments)
    };
    let out = io(&[
        "read -P 0x5a 0 1M",
        "read -P 0x5a 511 1027",
        "aio_read -P 0x5a 0 64k",
        "aio_read -P 0x5a 128k 64k",
        "aio_flush",
        "map",
    ]);
    assert!(!out.contains("Pattern verification failed"), "{out}");
    assert!(out.contains("1 MiB (0x100000) bytes     allocated at offset 0"), "{out}");
}

#[test]
fn what_a_server_has_learnt_of_its_device_is_kept() {
    let name = "what_a_server_has_learnt_of_its_device_is_kept";
    if !installed(name, "qemu-io") {
        return;
    }
    let mut server = Server::of(&[("disk", &bytes(16 << 20))], "");
    let uri = server.uri("disk");
    let read = |nth: u32| format!("read {}k 4k", nth * 1_013 % 4_000 * 4);
    let reads: Vec<String> = (1..=64).map(read).collect();
    let mut arguments = vec!["-r", "-f", "raw"];
    arguments.extend(reads.iter().flat_map(|read| ["-c", read]));
    arguments.push(&uri);
    said("qemu-io", &arguments);
    let key = DeviceKey::of_file(&server.scratch.join("disk")).unwrap();
    let devices = DeviceStore::at(&server.scratch.join("state/forerun")).unwrap();
    assert_eq!(devices.load(&key).unwrap(), None, "it is kept at the end");
    assert!(server.ended_by(Signal::TERM).success());
    assert!(devices.load(&key).unwrap().is_some());
}

#[test]
fn eight_connections_of_python_read_at_once() {
    let name = "eight_connections_of_python_read_at_once";
    // A package of the system is known to the system's Python, which may not be the first.
    let has = |python: &&str| {
        let imported = Command::new(python).args(["-c", "import nbd"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has) else {
        skip(name, "there is no python3-libnbd");
        return;
    };
    let server = Server::of(&[("disk", &bytes(8 << 20))], "--cache 2M");
    let disk = server.scratch.join("disk");
    let program = r"
import nbd, sys, threading
uri, path = sys.argv[1:]
whole = open(path, 'rb').read()
failed = []
def read(number):
    try:
        client = nbd.NBD()
        client.add_meta_context('base:allocation')
        client.connect_uri(uri)
        assert client.get_size() == len(whole)
        assert client.can_multi_conn() and client.is_read_only() and client.can_cache()
        buffers, cookies = [], []
        for at in range(64):
            offset = (number * 997 + at * 131071) % (len(whole) - 70000)
            count = 1 + (at * 1021) % 70000
            buffer = nbd.Buffer(count)
            buffers.append((offset, count, buffer))
            cookies.append(client.aio_pread(buffer, offset))
        while client.aio_in_flight() > 0:
            client.poll(-1)
        for cookie in cookies:
            assert client.aio_command_completed(cookie)
        for offset, count, buffer in buffers:
            assert buffer.to_bytearray() == whole[offset:offset + count], (offset, count)
        client.cache(1 << 20, 0)
        try:
            client.set_strict_mode(0)
            client.pread(1, len(whole))
            failed.append('a read past the end')
        except nbd.Error as error:
            assert error.errno == 'EINVAL', error
        client.shutdown()
    except Exception as error:
        failed.append(repr(error))
threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failed)
sys.exit(1 if failed else 0)
";
    said(python, &["-c", program, &server.uri("disk"), text(&disk)]);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn nbdcopy_and_qemu_write_files_of_any_size() {
    let name = "nbdcopy_and_qemu_write_files_of_any_size";
    if !installed(name, "nbdcopy") || !installed(name, "qemu-img") {
        return;
    }
    for (size, mode) in SIZES.into_iter().zip(["write-back", "write-through"].into_iter().cycle()) {
        let arguments = format!("--cache 2M --mode {mode}");
        let server = Server::of(&[("disk", &vec![1; size])], &arguments);
        let source = server.scratch.file("source", bytes(size));
        let disk = server.scratch.join("disk");
        said("nbdcopy", &["--flush", text(&source), &server.uri("disk")]);
        assert!(fs::read(&disk).unwrap() == bytes(size), "{size} {mode}: durable by its flush");
        // QEMU writes whole sectors, also where a disk has fewer bytes.
        if size > 0 && size % 512 == 0 {
            let other = server.scratch.file("other", vec![9; size]);
            let uri = server.uri("disk");
            said("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&other), &uri]);
            said("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&other), &uri]);
        }
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn qemu_writes_zeroes_discards_and_flushes() {
    let name = "qemu_writes_zeroes_discards_and_flushes";
    if !installed(name, "qemu-io") {
        return;
    }
    let server = Server::of(&[("disk", &vec![1; 1 << 20])], "--mode write-back --cache 1M");
    let uri = server.uri("disk");
    let commands = [
        "write -P 0x11 0 64k",
        "write -f -P 0x22 511 1025",
        "write -z 128k 64k",
        "aio_write -P 0x33 256k 128k",
        "aio_write -P 0x44 512k 4k",
        "aio_flush",
        "discard 900k 64k",
        "flush",
        "read -P 0x11 0 511",
        "read -P 0x22 511 1025",
        "read -P 0x11 1536 60k",
        "read -P 0 128k 64k",
        "read -P 0x33 256k 128k",
        "read -P 0x44 512k 4k",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&uri);
    let out = said("qemu-io", &arguments);
    assert!(!out.contains("verification failed"), "{out}");
    let file = fs::read(server.scratch.join("disk")).unwrap();
    assert_eq!((file[0], file[511], file[1536], file[128 << 10]), (0x11, 0x22, 0x11, 0));
    assert_eq!((file[256 << 10], file[512 << 10]), (0x33, 0x44));
}

#[test]
fn fio_verifies_what_it_wrote() {
    let name = "fio_verifies_what_it_wrote";
    if !installed(name, "fio") {
        return;
    }
    let engines = Command::new("fio").arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        skip(name, "fio has no engine for NBD");
        return;
    }
    let server = Server::of(&[("disk", &vec![0; 8 << 20])], "--mode write-back --cache 2M");
    let uri = format!("--uri={}", server.uri("disk"));
    let folder = format!("--aux-path={}", server.scratch.display());
    let out = said(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            &folder,
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=16",
            "--size=8m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randseed=1",
            "--verify_state_save=0",
        ],
    );
    assert!(out.contains("err= 0"), "{out}");
}
