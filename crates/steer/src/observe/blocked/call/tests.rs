//! Calls in registers, by the numbers of each architecture and of this machine.

use super::*;

fn at(directory: Option<i32>, address: u64) -> Place {
    Place::Path { directory, address }
}

fn read(descriptor: i32, offset: Option<u64>, bytes: Option<u64>) -> Call {
    Call::Read { descriptor, offset, bytes }
}

fn decoded(text: &str, table: &[(u64, Decode)]) -> Option<Decoded> {
    Registers::parse(text).map(|registers| registers.decode_by(table))
}

const END: &str = "0x7ffd00000000 0x7f0000000000\n";

#[test]
fn calls_are_decoded_by_the_numbers_of_their_architecture() {
    let entry = |call| Some(Decoded::Entry(call));
    #[rustfmt::skip]
    let rows = [ // x86-64, generic, arguments, decoded
        (257, 56, "0xffffff9c 0x7f10 0x80000 0x0 0x0 0x0", entry(Call::Open(at(None, 0x7f10))),
         "the working directory as 32 bits"),
        (257, 56, "0xffffffffffffff9c 0x7f10 0x0 0x0 0x0 0x0",
         entry(Call::Open(at(None, 0x7f10))), "and as 64"),
        (257, 56, "0x5 0x7f10 0x80000 0x0 0x0 0x0", entry(Call::Open(at(Some(5), 0x7f10))),
         "a directory"),
        (257, 56, "0x5 0x7f10 0x2 0x0 0x0 0x0", entry(Call::Open(at(Some(5), 0x7f10))),
         "to be read and written"),
        (257, 56, "0x5 0x7f10 0x1 0x0 0x0 0x0", Some(Decoded::Other), "to be written"),
        (257, 56, "0x5 0x7f10 0x42 0x0 0x0 0x0", Some(Decoded::Other), "created"),
        (437, 437, "0x5 0x7f10 0x7f20 0x18 0x0 0x0", entry(Call::Open(at(Some(5), 0x7f10))),
         "openat2"),
        (262, 79, "0x5 0x7f10 0x7f20 0x100 0x0 0x0", entry(Call::Stat(at(Some(5), 0x7f10))),
         "newfstatat"),
        (332, 291, "0x5 0x7f10 0x100 0xfff 0x7f20 0x0", entry(Call::Stat(at(Some(5), 0x7f10))),
         "statx"),
        (5, 80, "0x3 0x7f20 0x0 0x0 0x0 0x0", entry(Call::Stat(Place::Descriptor(3))), "fstat"),
        (269, 48, "0x5 0x7f10 0x4 0x0 0x0 0x0", entry(Call::Stat(at(Some(5), 0x7f10))),
         "faccessat"),
        (267, 78, "0x5 0x7f10 0x7f20 0xff 0x0 0x0", entry(Call::Stat(at(Some(5), 0x7f10))),
         "readlinkat"),
        (217, 61, "0x3 0x7f20 0x8000 0x0 0x0 0x0", entry(Call::List(3)), "getdents64"),
        (0, 63, "0x3 0x7f20 0x2000 0x0 0x0 0x0", entry(read(3, None, Some(0x2000))), "read"),
        (17, 67, "0x3 0x7f20 0x2000 0x4000 0x0 0x0", entry(read(3, Some(0x4000), Some(0x2000))),
         "pread64"),
        (19, 65, "0x3 0x7f20 0x2 0x0 0x0 0x0", entry(read(3, None, None)), "readv"),
        (327, 286, "0x3 0x7f20 0x2 0xffffffffffffffff 0x0 0x0", entry(read(3, None, None)),
         "preadv2 at the position"),
        (40, 71, "0x1 0x3 0x0 0x2000 0x0 0x0", entry(read(3, None, Some(0x2000))), "sendfile"),
        (326, 285, "0x3 0x0 0x4 0x0 0x2000 0x0", entry(read(3, None, Some(0x2000))),
         "copy_file_range"),
        (59, 221, "0x7f10 0x7f20 0x7f30 0x0 0x0 0x0", entry(Call::Execute(at(None, 0x7f10))),
         "execve"),
        (202, 98, "0x7f10 0x80 0x0 0x0 0x0 0x0", Some(Decoded::Other), "futex"),
        (X32 + 257, X32 + 56, "0x5 0x7f10 0x0 0x0 0x0 0x0", Some(Decoded::Foreign), "x32"),
    ];
    for (x86_64, generic, arguments, expected, why) in rows {
        for (number, table) in [(x86_64, X86_64), (generic, GENERIC)] {
            let text = format!("{number} {arguments} {END}");
            assert_eq!(decoded(&text, table), expected, "{why}, {number}");
        }
    }
    let compat = "5 0x8000 0x0 0x0 0x0 0x0 0x0 0xffffd000 0xf7f00000\n";
    assert_eq!(decoded(compat, X86_64), Some(Decoded::Foreign));
}

#[test]
fn moves_have_their_descriptors_and_offsets_in_the_order_of_their_calls() {
    let call = |from, to, bytes| Some(MoveCall { from, to, bytes });
    #[rustfmt::skip]
    let rows = [ // call, moves
        ("40 0x1 0x3 0x0 0x2000 0x0 0x0",
         call((3, Offset::Position), (1, Offset::Position), 0x2000)),
        ("40 0x1 0x3 0x7f10 0x2000 0x0 0x0",
         call((3, Offset::At(0x7f10)), (1, Offset::Position), 0x2000)),
        ("326 0x3 0x0 0x4 0x7f10 0x2000 0x0",
         call((3, Offset::Position), (4, Offset::At(0x7f10)), 0x2000)),
        ("326 0x3 0x7f10 0x4 0x0 0x2000 0x0",
         call((3, Offset::At(0x7f10)), (4, Offset::Position), 0x2000)),
        ("0 0x3 0x7f20 0x2000 0x0 0x0 0x0", None),
    ];
    for (text, expected) in rows {
        let registers = Registers::parse(&format!("{text} {END}")).expect("a call");
        assert_eq!(registers.moves_by(40, 326), expected, "{text}");
    }
}

#[test]
fn a_thread_that_is_in_no_call_has_no_registers() {
    let cut = "257 0x5 0x7f10 0x0 0x0 0x0 0x7ffd00000000 0x7f00";
    let no_number = format!("x 0x5 0x0 0x0 0x0 0x0 0x0 {END}");
    let no_word = format!("257 5 0x0 0x0 0x0 0x0 0x0 {END}");
    for text in ["running\n", "-1 0x7ffd0000 0x7f00\n", "", "0", cut, &no_number, &no_word] {
        assert_eq!(Registers::parse(text), None, "{text}");
    }
}

#[test]
fn each_table_has_a_number_once_and_in_order() {
    for table in [X86_64, GENERIC] {
        assert!(table.is_sorted_by(|(one, _), (next, _)| one < next));
    }
}

#[test]
fn the_numbers_of_this_machine_are_those_of_its_headers() {
    #[rustfmt::skip]
    let numbers = [
        libc::SYS_openat, libc::SYS_openat2, libc::SYS_newfstatat, libc::SYS_statx,
        libc::SYS_fstat, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
        libc::SYS_getdents64, libc::SYS_read, libc::SYS_pread64, libc::SYS_readv,
        libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_execve, libc::SYS_execveat,
        libc::SYS_sendfile, libc::SYS_copy_file_range, libc::SYS_getxattr,
        libc::SYS_lgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    ];
    for number in numbers {
        let is_known = TABLE.iter().any(|(known, _)| i64::try_from(*known) == Ok(number));
        assert!(is_known, "{number}");
    }
}
