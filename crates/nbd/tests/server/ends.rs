//! Ends: of clients, of connections that break the protocol, and of the server.

use std::{io::Write as _, net::Shutdown, thread};

use forerun_io::store::pattern;
use forerun_nbd::server::ServerSettings;
use forerun_testkit::until;

use crate::{
    client::{Client, DISC, Message, READ, WRITE, is_over},
    rig::{Gated, Rig},
};

#[test]
fn a_disconnect_ends_after_what_came_before_is_answered() {
    let (store, gate) = Gated::new(1 << 20);
    let rig = Rig::new(store, ServerSettings::default());
    let mut client = rig.client();
    gate.close();
    let mut all: Vec<Vec<u8>> =
        (0..4).map(|at| Client::head(READ, 0, at, at << 16, 4096)).collect();
    all.push(Client::head(DISC, 0, 9, 0, 0));
    client.send(&all.concat());
    gate.wait_for(4);
    gate.open();
    for _ in 0..4 {
        assert!(matches!(client.message(), Some(Message::Chunk { done: true, kind: 1, .. })));
    }
    assert_eq!(client.message(), None);
}

#[test]
fn what_is_no_request_ends_its_connection_alone() {
    let rig = Rig::pattern(1 << 20);
    let mut other = rig.client();
    let mut flood = Client::head(WRITE, 0, 0, 0, (32 << 20) + 1);
    flood.extend([0; 100]);
    for bytes in [vec![0; 28], flood] {
        let mut client = rig.client();
        client.send(&bytes);
        assert!(client.is_over());
    }
    let mut silent = Client::greeted(&rig.socket);
    silent.write_all(&[0xff; 4]).unwrap();
    assert!(is_over(&mut silent));
    until(|| rig.count("violations_total") == 3);
    assert_eq!(pattern::verify(0, &other.read(0, 4096)), Ok(()));
}

#[test]
fn clients_that_go_in_the_middle_leave_nothing_behind() {
    let rig = Rig::pattern(1 << 20);
    let head = Client::head(WRITE, 0, 0, 0, 4096);
    for cut in [0, 1, 27, 28] {
        let mut client = rig.client();
        client.send(&head[..cut]);
    }
    drop(Client::greeted(&rig.socket));
    let mut half = rig.client();
    half.request(READ, 0, 1, 0, 4096);
    half.stream.shutdown(Shutdown::Write).unwrap();
    assert!(matches!(half.message(), Some(Message::Chunk { done: true, kind: 1, .. })), "answered");
    assert!(half.is_over());
    until(|| rig.count("connections") == 0);
}

#[test]
fn a_stopped_server_answers_what_it_received_and_ends() {
    let (store, gate) = Gated::new(1 << 20);
    let mut rig = Rig::new(store, ServerSettings::default());
    let mut client = rig.client();
    let _silent = Client::greeted(&rig.socket);
    gate.close();
    client.request(READ, 0, 1, 0, 4096);
    gate.wait_for(1);
    let server = rig.server.clone();
    thread::scope(|scope| {
        scope.spawn(|| rig.stop());
        until(|| server.metrics().contains("forerun_serve_connections 1\n"));
        gate.open();
        assert!(matches!(client.message(), Some(Message::Chunk { done: true, kind: 1, .. })));
        assert_eq!(client.message(), None);
    });
    assert!(!rig.socket.exists(), "the socket goes with the server");
}
