//! Events as the kernel writes them, whole and cut.

use super::*;

#[test]
fn events_are_read_whole_and_cut_ones_are_not() {
    let mut bytes = Vec::new();
    let name = b"file\0\0\0\0";
    let handle = [1_i32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat();
    let length = u32::try_from(METADATA_BYTES + 16 + handle.len() + name.len()).unwrap();
    let info = u16::try_from(length).unwrap() - 24;
    bytes.extend(length.to_ne_bytes());
    bytes.extend([3, 0]);
    bytes.extend(24_u16.to_ne_bytes());
    bytes.extend(libc::FAN_ACCESS.to_ne_bytes());
    // No descriptor; the process.
    bytes.extend([(-1_i32).to_ne_bytes(), 77_i32.to_ne_bytes()].concat());
    bytes.extend([libc::FAN_EVENT_INFO_TYPE_DFID_NAME, 0]);
    bytes.extend(info.to_ne_bytes());
    bytes.extend([5_u32.to_ne_bytes(), 6_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat());
    bytes.extend(&handle);
    bytes.extend(name);
    let directory = Directory { system: 5 | 6 << 32, handle };
    for cut in 0..bytes.len() {
        assert_eq!(split(&bytes[..cut]), None, "cut at {cut}");
    }
    let twice = [&bytes[..], &bytes].concat();
    let read = Event::Read { directory: directory.clone(), name: b"file", process: Some(77) };
    assert_eq!(split(&twice), Some((read, &bytes[..])));
    bytes[20..24].copy_from_slice(&[0; 4]);
    let read = Event::Read { directory, name: b"file", process: None };
    assert_eq!(split(&bytes), Some((read, &[][..])), "of a user that may not know");
    bytes[8..16].copy_from_slice(&libc::FAN_Q_OVERFLOW.to_ne_bytes());
    assert_eq!(split(&bytes), Some((Event::Lost, &[][..])));
    bytes[8..16].copy_from_slice(&libc::FAN_OPEN.to_ne_bytes());
    assert_eq!(split(&bytes), Some((Event::Other, &[][..])));
}

#[test]
fn a_mark_that_was_not_made_takes_no_room() {
    let Some(mut marks) = Marks::new() else {
        return forerun_testkit::skip(
            "not-made",
            "no marks that hold no inode: Linux 5.19 has them",
        );
    };
    let (queue, other) = (Arc::clone(&marks.groups[0].queue), marks.begin().unwrap());
    let named = Directory { system: 1, handle: vec![1] };
    let (number, is_new) = marks.name(&other, &named, 7).unwrap().unwrap();
    assert!(is_new && marks.name(&other, &named, 7) == Ok(Some((number, false))));
    marks.withdraw(&other, &named);
    marks.withdraw(&other, &named);
    assert!(marks.groups.iter().all(|group| group.marks == 0 && group.rows.is_empty()));
    // What takes no mark of a device keeps no group for it.
    marks.name(&queue, &named, 7).unwrap().unwrap();
    marks.refuse(8);
    assert_eq!((marks.groups.len(), marks.devices.get(&8)), (1, Some(&false)));
}
