//! Texts and words in the memory of another process.
//!
//! # Invariants
//! - No more is read than [`PATH_BYTES_MAX`], and no page behind the one that the text ends in.
//! # Sources
//! `process_vm_readv(2)`.

#![expect(unsafe_code, reason = "process_vm_readv has no safe wrapper")]

use rustix::io::Errno;

/// The bytes at `address` of the process `pid` up to the first that is 0. `None` where the text
/// does not end within [`PATH_BYTES_MAX`].
///
/// # Errors
/// The memory is not mapped, or not to be seen.
pub(super) fn text_at(pid: i32, address: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut text = Vec::new();
    let mut bytes = [0; STEP_BYTES];
    while text.len() < PATH_BYTES_MAX {
        let from = usize::try_from(address).map_err(|_| Errno::FAULT)?;
        let from = from.checked_add(text.len()).ok_or(Errno::FAULT)?;
        // What lies in one page is there as a whole, or not at all.
        let to_border = PAGE_BYTES - from % PAGE_BYTES;
        let most = to_border.min(STEP_BYTES).min(PATH_BYTES_MAX - text.len());
        let part = read(pid, from, &mut bytes[..most])?;
        let end = part.iter().position(|&byte| byte == 0);
        text.extend_from_slice(&part[..end.unwrap_or(part.len())]);
        if end.is_some() {
            return Ok(Some(text));
        }
        if part.len() < most {
            return Err(Errno::FAULT);
        }
    }
    assert_eq!(text.len(), PATH_BYTES_MAX, "no more is read");
    Ok(None)
}

/// The word at `address` of the process `pid`.
///
/// # Errors
/// The memory is not mapped, or not to be seen.
pub(super) fn word_at(pid: i32, address: u64) -> Result<u64, Errno> {
    let from = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let mut bytes = [0; size_of::<u64>()];
    let word = read(pid, from, &mut bytes)?.try_into().map_err(|_| Errno::FAULT)?;
    Ok(u64::from_ne_bytes(word))
}

/// As many bytes as `bytes` has room for, at `address` of the process `pid`.
fn read(pid: i32, address: usize, bytes: &mut [u8]) -> Result<&[u8], Errno> {
    let own = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let others =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the kernel writes to `own` alone, which `bytes` is, and checks the other address.
    let count = unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const others, 1, 0) };
    let count = usize::try_from(count).map_err(|_| {
        Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT)
    })?;
    assert!(count <= bytes.len(), "a read fills no more than its buffer");
    Ok(&bytes[..count])
}

/// The longest path that a call takes, with the 0 at its end.
pub(super) const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;
/// Pages are no smaller.
const PAGE_BYTES: usize = 4096;
/// Most paths are shorter.
const STEP_BYTES: usize = 512;
