//! The entry of a submission queue that stands for the next call of a transfer.
//!
//! # Invariants
//! - What an entry points to belongs to its transfer, and is good as long as that is.

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::registered::Registered;
use crate::store::{
    OpKind,
    file::{Call, Transfer},
};

/// The next entry of `transfer`. Memory in `registered` is named by its buffer.
pub(super) fn entry(transfer: &mut Transfer, registered: &Registered) -> squeue::Entry {
    let kind = transfer.kind();
    if kind == OpKind::Sync {
        let fd = types::Fd(transfer.fd());
        return opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
    }
    let call = transfer.prepare().expect("the kernel moves no byte where no file reaches");
    let Call { fd, offset, runs } = call;
    let (fd, offset) = (types::Fd(fd), offset.cast_unsigned());
    let reads = kind == OpKind::Read;
    let [run] = runs else {
        let count = u32::try_from(runs.len()).expect("at most as many as a call takes");
        let runs = runs.as_ptr();
        return if reads {
            opcode::Readv::new(fd, runs, count).offset(offset).build()
        } else {
            opcode::Writev::new(fd, runs, count).offset(offset).build()
        };
    };
    let memory = run.iov_base.cast::<u8>();
    let bytes = u32::try_from(run.iov_len).expect("a call moves less than 4 GiB");
    match (reads, registered.find(memory.addr(), run.iov_len)) {
        (true, Some(buffer)) => {
            opcode::ReadFixed::new(fd, memory, bytes, buffer).offset(offset).build()
        }
        (true, None) => opcode::Read::new(fd, memory, bytes).offset(offset).build(),
        (false, Some(buffer)) => {
            opcode::WriteFixed::new(fd, memory, bytes, buffer).offset(offset).build()
        }
        (false, None) => opcode::Write::new(fd, memory, bytes).offset(offset).build(),
    }
}

/// The answer that the result of a completion stands for.
pub(super) fn answer(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}
