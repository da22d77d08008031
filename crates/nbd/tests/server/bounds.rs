//! Bounds: many, silent, slow and malformed clients, and the others meanwhile.
//!
//! Every test is bounded by counts: none waits for a time of its own but those that the server's
//! settings name, which are short here.

use std::{io::Write as _, iter, sync::Arc, time::Duration};

use forerun_io::store::pattern::{self, Pattern};
use forerun_nbd::server::ServerSettings;
use forerun_testkit::{on_threads, until};

use crate::{
    client::{Client, READ, is_over},
    rig::Rig,
};

fn rig(settings: ServerSettings) -> Rig {
    Rig::new(Arc::new(Pattern::new(8 << 20)), settings)
}

#[test]
fn a_full_server_refuses_and_takes_the_next_once_one_has_gone() {
    let rig = rig(ServerSettings { connections_max: 3, ..ServerSettings::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    until(|| rig.count("connections_serving") == 3);
    assert!(Client::open(&rig.socket, true).is_none(), "a fourth");
    // Its socket ends before it is counted.
    until(|| rig.count("connections_refused_total") == 1);
    for client in &mut clients {
        assert_eq!(pattern::verify(0, &client.read(0, 4096)), Ok(()), "the others stay");
    }
    clients.pop();
    until(|| rig.count("connections") == 2);
    assert_eq!(pattern::verify(0, &rig.client().read(0, 4096)), Ok(()));
}

#[test]
fn each_client_is_counted_as_long_as_it_is_there() {
    let rig = rig(ServerSettings::default());
    let (mut first, mut second) = (rig.client(), rig.client());
    first.read(0, 4096);
    first.read(0, 1 << 20);
    second.read(0, 1);
    let read = |client: u32| {
        let metrics = rig.server.metrics();
        let name = format!("forerun_serve_client_read_bytes_total{{client=\"{client}\",");
        let line = metrics.lines().find(|line| line.starts_with(&name))?;
        let process = format!("process {} of user ", std::process::id());
        assert!(line.contains(&process) && line.contains("export=\"disk\""), "{line}");
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    assert_eq!((read(0), read(1), read(2)), (Some(4096 + (1 << 20)), Some(1), None));
    drop(first);
    until(|| rig.count("connections") == 1);
    assert_eq!((read(0), read(1)), (None, Some(1)));
}

#[test]
fn silent_clients_give_way_to_one_that_speaks() {
    let rig = rig(ServerSettings { connections_max: 4, ..ServerSettings::default() });
    let mut reader = rig.client();
    let silent: Vec<_> = (0..40).map(|_| Client::greeted(&rig.socket)).collect();
    for _ in 0..3 {
        assert_eq!(pattern::verify(0, &rig.client().read(0, 4096)), Ok(()));
        assert_eq!(pattern::verify(0, &reader.read(0, 4096)), Ok(()));
    }
    assert!(rig.count("connections") <= 4);
    assert_eq!(rig.count("connections_refused_total"), 0);
    let ended = silent.into_iter().take(37).all(|mut stream| is_over(&mut stream));
    assert!(ended, "the oldest have gone");
}

#[test]
fn a_handshake_has_its_time() {
    let handshake_max = Duration::from_millis(50);
    let rig = rig(ServerSettings { handshake_max, ..ServerSettings::default() });
    // A good client has no more time: on a busy machine the first may be too late.
    let mut reader = iter::repeat_with(|| Client::open(&rig.socket, true)).flatten().next();
    let reader = reader.as_mut().expect("one of them");
    let mut silent = Client::greeted(&rig.socket);
    assert!(is_over(&mut silent));
    let mut slow = Client::greeted(&rig.socket);
    // Byte by byte, as long as the server listens.
    while slow.write_all(&[0]).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(pattern::verify(0, &reader.read(0, 4096)), Ok(()), "past it there is none");
}

#[test]
fn a_client_that_reads_nothing_is_cut_off_and_the_others_are_served() {
    let send_max = Duration::from_millis(200);
    let rig = rig(ServerSettings { send_max, ..ServerSettings::default() });
    let mut slow = rig.client();
    let mut other = rig.client();
    let requests: Vec<u8> = (0..64).flat_map(|at| Client::head(READ, 0, at, 0, 1 << 20)).collect();
    slow.send(&requests);
    for at in 0..64 {
        let offset = at * 100_000;
        assert_eq!(pattern::verify(offset, &other.read(offset, 4096)), Ok(()));
    }
    until(|| rig.count("connections") == 1);
    assert!(slow.is_over());
}

#[test]
fn streams_of_rubbish_end_their_own_connection() {
    let rig = rig(ServerSettings::default());
    let mut other = rig.client();
    on_threads(4, |number| {
        let mut random = number * 0x9e37_79b9 + 1;
        for round in 0..50_u64 {
            let mut rubbish = Vec::new();
            for _ in 0..=round {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                rubbish.extend(random.to_be_bytes());
            }
            let sent = if round % 2 == 0 {
                let mut stream = Client::greeted(&rig.socket);
                let _ = stream.write_all(&[0, 0, 0, 3]);
                // The server may end it before the last byte.
                let _ = stream.write_all(&rubbish);
                stream
            } else {
                let mut client = rig.client();
                let _ = client.stream.write_all(&rubbish);
                client.stream
            };
            drop(sent);
        }
    });
    assert_eq!(pattern::verify(0, &other.read(0, 4096)), Ok(()));
    until(|| rig.count("connections") == 1);
}
