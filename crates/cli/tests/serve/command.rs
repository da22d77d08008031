//! The command itself: what it says, what it refuses, and how it ends.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    process::Stdio,
};

use forerun_testkit::{Scratch, forerun, forerun_path, installed};
use rustix::process::Signal;

use crate::rig::{Server, bytes, said, text};

#[test]
fn it_says_when_clients_may_come_and_leaves_nothing_behind() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let server = Server::of(&[("disk", &bytes(1 << 20))], "--cache 4M");
        let says = "forerun: serving 1 export of 1 MiB, read-only, cache 4 MiB, on ";
        assert_eq!(server.said, [format!("{says}{}", server.socket().display())]);
        let mode = fs::metadata(server.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let socket = server.socket();
        let status = server.end_by(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(!socket.exists());
    }
}

#[test]
fn a_service_manager_is_told() {
    let scratch = Scratch::new("serve");
    let (disk, socket) = (scratch.file("disk", bytes(4096)), scratch.join("s"));
    let manager = UnixDatagram::bind(scratch.join("notify")).unwrap();
    let mut command = forerun("serve --socket");
    command.arg(&socket).arg(disk).env("NOTIFY_SOCKET", scratch.join("notify"));
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut state = [0; 64];
    let count = manager.recv(&mut state).unwrap();
    assert_eq!(&state[..count], b"READY=1");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists(), "a killed server leaves its socket");
    fs::rename(socket, scratch.join("socket")).unwrap();
    let disk = scratch.join("disk");
    let next = Server::start(scratch, vec![disk], "");
    assert_eq!(next.stop().code(), Some(0), "the next replaces it");
}

#[test]
fn what_it_cannot_serve_is_refused_in_one_line() {
    let scratch = Scratch::new("serve");
    let disk = scratch.file("disk", bytes(1000));
    fs::create_dir(scratch.join("other")).unwrap();
    let same = scratch.file("other/disk", bytes(1000));
    let [disk, same] = [&disk, &same].map(|path| path.to_str().unwrap());
    let socket = format!("--socket {}", scratch.join("s").display());
    let none = scratch.join("none").display().to_string();
    #[rustfmt::skip]
    let rows = [ // arguments                              status  what it says
        (format!("{socket} {none}"),                            1, "No such file"),
        (format!("{socket} {}", scratch.display()),             1, "cannot serve"),
        (format!("--socket {disk} {disk}"),                     1, "it is no socket"),
        (format!("{socket} {disk} {same}"),                     2, "two exports named \"disk\""),
        (format!("{socket} --sector 512 {disk}"),               2, "no whole number of blocks"),
        (format!("{socket} --sector 513 {disk}"),               2, "expected 512 or 4096"),
        (format!("{socket} --name a {disk} {same}"),            2, "--name names one FILE"),
        (format!("{socket} --policy none {disk}"),              2, "no `none`"),
        (format!("{socket} --readahead none {disk}"),           2, "no `none`"),
        (format!("{socket} --partition a=1M:lru {disk}"),       2, "NAME=SIZE[,min"),
        (format!("{socket} --partition a=1M:lru:user=b {disk}"), 2, "NAME=SIZE[,min"),
        (format!("{socket} --partition a=1M:none:file=b {disk}"), 2, "no `none`"),
        (format!("{socket} --partition a=9G:lru:file=b {disk}"), 2, "partition"),
        (format!("{socket} --cache 1 {disk}"),                  2, "a cache of 1 bytes"),
        (format!("--listen 0.0.0.0:0 {disk}"),                  2, "say --insecure"),
        (format!("{socket} --metrics 0.0.0.0:0 {disk}"),        2, "say --insecure"),
        (disk.to_owned(),                                       2, "--socket"),
        (socket.clone(),                                        2, "FILE"),
    ];
    for (arguments, status, says) in rows {
        let output = forerun(&format!("serve {arguments}")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments}: {said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{arguments}: {said}");
        assert!(output.stdout.is_empty() && !scratch.join("s").exists(), "{arguments}");
    }
}

#[test]
fn a_second_server_of_a_socket_is_refused_and_a_second_reader_of_a_file_is_not() {
    let server = Server::of(&[("disk", &bytes(4096))], "");
    let disk = server.scratch.join("disk");
    let mut command = forerun("serve --socket");
    let output = command.arg(server.socket()).arg(&disk).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("another server listens there"), "{said}");
    let second = Server::start(Scratch::new("serve"), vec![disk], "");
    assert_eq!((second.stop().code(), server.stop().code()), (Some(0), Some(0)));
}

#[test]
fn a_file_has_one_writer_or_any_readers() {
    #[rustfmt::skip]
    let rows = [ // first, second, both
        ("read-only",     "write-back",    false),
        ("write-back",    "read-only",     false),
        ("write-back",    "write-through", false),
    ];
    for (first, second, both) in rows {
        let server = Server::of(&[("disk", &bytes(4096))], &format!("--mode {first}"));
        let other = server.scratch.join("other");
        let mut command = forerun(&format!("serve --mode {second} --socket"));
        let output = command.arg(&other).arg(server.scratch.join("disk")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), both, "{first} {second}: {said}");
        assert!(said.contains("another process uses the file"), "{said}");
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn metrics_are_answered_on_this_machine() {
    let server = Server::of(&[("disk", &bytes(4096))], "--metrics 127.0.0.1:0");
    let line = server.said.iter().find(|line| line.contains("http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    let ask = |request: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(answer.contains(&format!("Content-Length: {}\r\n", body.len())));
    assert!(body.contains("\nforerun_serve_connections 0\n"), "{body}");
    let labels = "export=\"disk\",command=\"read\"";
    assert!(body.contains(&format!("\nforerun_serve_requests_total{{{labels}}} 0\n")), "{body}");
    let page = ask("GET / HTTP/1.1\r\n\r\n");
    assert!(page.contains("\r\nContent-Type: text/html") && page.ends_with("</html>\n"), "{page}");
    assert!(ask("GET /disk HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

#[test]
fn partitions_have_the_pages_that_their_rules_take() {
    if !installed("partitions_have_the_pages_that_their_rules_take", "nbdcopy") {
        return;
    }
    let files = [("a.log", &bytes(2 << 20)[..]), ("disk", &bytes(3 << 20)[..])];
    let partitions =
        "--partition logs=1M:lru+off:file=*.log --partition boot=512K:2q:offset=..256K";
    let server = Server::of(&files, &format!("--cache 8M --metrics 127.0.0.1:0 {partitions}"));
    for (name, holds) in files {
        let copy = server.scratch.join("copy");
        said("nbdcopy", &[&server.uri(name), text(&copy)]);
        assert!(fs::read(&copy).unwrap() == holds, "{name}");
    }
    let body = server.metrics("/metrics");
    let used = |partition: &str| -> u64 {
        let name = format!("forerun_serve_partition_used_bytes{{partition=\"{partition}\"}} ");
        let line = body.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{body}")).parse().unwrap()
    };
    let [logs, boot, rest] = ["logs", "boot", "rest"].map(used);
    assert!((1..=1 << 20).contains(&logs), "{logs}");
    assert!((256 << 10..=512 << 10).contains(&boot), "of both files: {boot}");
    assert!(rest >= 2 << 20, "{rest}");
    let ctl = |words: &str| {
        let mut command = forerun("serve ctl");
        let output = command.arg(server.socket()).args(words.split_whitespace()).output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, err)
    };
    let (status, table, _) = ctl("resize logs 2M");
    assert!(status == Some(0) && table.contains("2 MiB"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&ctl("--json move logs boot 512K").1).unwrap();
    let sizes: Vec<u64> = json["partitions"].as_array().unwrap().iter().map(size_of).collect();
    assert_eq!(sizes, [(8 << 20) - (5 << 19), 3 << 19, 1 << 20], "{json}");
    let file = server.scratch.join("ctl.json");
    let csv = ctl(&format!("--csv -o {} partitions", file.display())).1;
    assert!(csv.lines().count() == 4 && csv.contains("logs"), "a heading and three: {csv}");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(written["partitions"].as_array().map(Vec::len), Some(3), "{written}");
    let (status, table, err) = ctl("policy boot lru");
    assert!(status == Some(0) && !table.contains("2q "), "{table}{err}");
    #[rustfmt::skip]
    let rows = [ // request                says
        ("policy boot none",               "none"),
        ("policy boot 2q:kin=0.5",         "without parameters"),
        ("resize nothing 1M",              "nothing"),
        ("resize logs 9G",                 "forerun: "),
        ("move logs boot 1G",              "forerun: "),
    ];
    for (words, says) in rows {
        let (status, out, err) = ctl(words);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{words}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{words}: {err}");
    }
    let control = server.scratch.join("socket.ctl");
    assert_eq!(fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    let mut command = forerun("serve ctl");
    let output = command.arg(server.scratch.join("none")).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("no server answers at"), "{err}");
}

#[test]
fn what_is_passed_and_no_socket_is_an_error() {
    let scratch = Scratch::new("passed");
    let disk = scratch.file("disk", bytes(4096));
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" serve \"$1\" 3<\"$1\"";
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", script]).arg(forerun_path()).arg(disk).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("a socket that was passed") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_rule_for_a_client_takes_what_its_user_reads_or_its_address() {
    let name = "a_rule_for_a_client_takes_what_its_user_reads_or_its_address";
    if !installed(name, "nbdcopy") {
        return;
    }
    let owner = rustix::process::getuid().as_raw();
    let rules = format!(
        "--partition own=2M:lru:client=user:{owner} \
                         --partition far=2M:lru:client=127.0.0.1"
    );
    let arguments = format!("--cache 8M --listen 127.0.0.1:0 {rules}");
    let server = Server::of(&[("disk", &bytes(4 << 20))], &arguments);
    let used = || {
        let output = forerun("serve ctl --json").arg(server.socket()).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |part: &serde_json::Value| part["used_bytes"].as_u64().unwrap();
        json["partitions"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(used(), [0, 0, 0]);
    said("nbdcopy", &[&server.uri("disk"), "null:"]);
    assert_eq!(used(), [0, 2 << 20, 0]);
    let address = server.said.last().unwrap().rsplit(' ').next().unwrap();
    said("nbdcopy", &[&format!("nbd://{address}/disk"), "null:"]);
    assert_eq!(used(), [0, 2 << 20, 2 << 20]);
}

fn size_of(partition: &serde_json::Value) -> u64 {
    partition["bytes"].as_u64().unwrap()
}

#[test]
fn sizing_gives_a_loop_what_a_scan_has_no_use_for_and_tells_each_move() {
    if !installed("sizing_gives_a_loop_what_a_scan_has_no_use_for_and_tells_each_move", "nbdcopy") {
        return;
    }
    let files = [("loop", &bytes(5 << 20)[..]), ("scan", &bytes(32 << 20)[..])];
    let shares = "--partition loop=4M:lru:file=loop --partition scan=3M:lru:file=scan";
    let sizing = "--sizing auto --rest-min 1280K --metrics 127.0.0.1:0";
    let server = Server::of(&files, &format!("--cache 8M {sizing} {shares}"));
    let mut tells = serde_json::Value::Null;
    let has_grown =
        |tells: &serde_json::Value| tells["partitions"][1]["bytes"].as_u64() >= Some(5 << 20);
    for _ in 0..40 {
        said("nbdcopy", &["-C1", "-R1", &server.uri("loop"), "null:"]);
        said("nbdcopy", &["-C1", "-R1", &server.uri("scan"), "null:"]);
        let mut command = forerun("serve ctl --json");
        let output = command.arg(server.socket()).arg("partitions").output().unwrap();
        tells = serde_json::from_slice(&output.stdout).unwrap();
        if has_grown(&tells) {
            break;
        }
    }
    assert!(has_grown(&tells), "{tells}");
    assert_eq!(tells["partitions"][0]["bytes_min"], 1_280 << 10);
    let moves = tells["moves"].as_array().unwrap();
    assert!(moves.iter().any(|one| one["to"] == "loop" && one["from"] == "scan"), "{tells}");
    assert!(server.metrics("/metrics").contains("partition_got_bytes_total{partition=\"loop\"}"));
}

#[test]
fn a_file_that_a_server_reads_is_not_changed() {
    let scratch = Scratch::new("serve");
    let path = scratch.file("disk", bytes(10_000));
    let before = (fs::read(&path).unwrap(), File::open(&path).unwrap().metadata().unwrap());
    let server = Server::start(scratch, vec![path.clone()], "");
    let after = File::open(&path).unwrap().metadata().unwrap();
    assert_eq!(before.1.modified().unwrap(), after.modified().unwrap());
    assert_eq!(before.0, fs::read(&path).unwrap());
    assert_eq!(server.stop().code(), Some(0));
}
