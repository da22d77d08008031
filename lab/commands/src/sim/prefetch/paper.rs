//! The data of the paper on prefetching threads: machines, files, times.
//!
//! What is *taken*: memory, seek times, sizes and times of Tables 1 to 3, and that 1 GB took about
//! 23 s from the disk of machine B. What is *derived*: the disk's rate on B from that sentence; on
//! A from that rate and Table 1's internal rates (845 to 757 Mbit/s); what the program computes a
//! second, from the time it took with the thread, in which, as the paper has it, all I/O hides.
//! What is *assumed*: 1 GB is 10^9 bytes; all else of the disk is that of our model of the Hitachi
//! T7K250, the successor of B's disk, its cache on.
//!
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread".

use forerun_core::params::Param as _;
use forerun_core::units::Nanos;

/// A machine of Table 1.
pub(super) struct Machine {
    pub(super) name: &'static str,
    /// Its figures in the paper.
    pub(super) figures: &'static str,
    /// Its disk, as a device model.
    pub(super) device: &'static str,
    pub(super) memory_bytes: u64,
    /// Tables 2 and 3.
    pub(super) files: [File; FILES],
}

/// A file and the times that the program took for it.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// Tens of megabytes.
    size: u64,
    /// Hundredths of a second, without the thread and with it.
    standard: u64,
    fast: u64,
}

impl File {
    fn bytes(self) -> u64 {
        self.size * 10_000_000
    }

    /// Bytes a second that the program computes on: all of its time with the thread.
    fn rate(self) -> u64 {
        self.bytes() * 100 / self.fast
    }

    pub(super) fn gigabytes(self) -> String {
        format!("{}.{:02}", self.size / 100, self.size % 100)
    }

    /// The rate, in 10^6 bytes a second.
    pub(super) fn megabytes(self) -> String {
        format!("{}.{}", self.rate() / 1_000_000, self.rate() / 100_000 % 10)
    }

    /// Bytes that the program reads, where files are so many times smaller.
    pub(super) fn reads(self, scale: u32) -> String {
        let (bytes, rate) = (self.bytes() / u64::from(scale), self.rate());
        format!("compute,file={bytes},rate={rate},request={READ_BYTES}")
    }

    /// Seconds without the thread and with it.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn seconds(self) -> [f64; 2] {
        [self.standard, self.fast].map(|hundredths| hundredths as f64 / 100.0)
    }
}

/// Files of each machine.
pub(super) const FILES: usize = 8;

/// Table 1, with the files of Tables 2 and 3.
pub(super) const MACHINES: [Machine; 2] = [
    Machine {
        name: "A",
        figures: "3 and 4",
        device: "t7k250:cache=on,rate=48530000,seek_min=0.8ms,seek_avg=8.9ms,seek_max=18ms",
        memory_bytes: 1 << 30,
        files: [
            file(61, 1731, 1303),
            file(100, 2965, 2154),
            file(161, 4766, 3455),
            file(222, 6711, 5056),
            file(283, 8280, 6030),
            file(344, 10104, 7279),
            file(405, 12004, 8865),
            file(466, 13699, 10002),
        ],
    },
    Machine {
        name: "B",
        figures: "5 and 6",
        device: "t7k250:cache=on,rate=43480000",
        memory_bytes: 2 << 30,
        files: [
            file(61, 1916, 1408),
            file(100, 3290, 2480),
            file(161, 5625, 4042),
            file(222, 7116, 5540),
            file(284, 9757, 7020),
            file(345, 11811, 8815),
            file(407, 13829, 9987),
            file(468, 15481, 11452),
        ],
    },
];

const fn file(size: u64, standard: u64, fast: u64) -> File {
    File { size, standard, fast }
}

/// The readahead of the machine's system.
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) readahead: &'static str,
}

/// Without readahead, where the program waits for each read, and with readahead while the program
/// computes: two windows of at most 128 KB, as in Linux in 2006.
pub(super) const KERNELS: [Kernel; 2] = [
    Kernel { name: "no overlap", readahead: "off" },
    Kernel { name: "overlap", readahead: "linux-2.6.22:max=128K" },
];

/// The rule of the thread's distance.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// What follows from the limit.
    bounds: fn(u64) -> String,
}

impl Rule {
    /// The thread, as `sim --prefetch` takes it.
    pub(super) fn thread(&self, limit: u64, nap: Nanos) -> String {
        format!("{},limit={limit},nap={}", (self.bounds)(limit), nap.show())
    }
}

/// The paper's as it is printed; the paper's with a poll of the distance after as many bytes as the
/// limit; forerun's. The paper's thread reads as gzip does.
pub(super) const RULES: [Rule; 3] = [
    Rule { name: "printed", bounds: |_| format!("paper:burst={BURST_BYTES},chunk={READ_BYTES}") },
    Rule {
        name: "looks",
        bounds: |limit| format!("paper:burst={},chunk={READ_BYTES}", limit.min(BURST_BYTES)),
    },
    Rule { name: "adaptive", bounds: |_| format!("adaptive:burst={BURST_BYTES}") },
];

/// `ss_distance`.
const BURST_BYTES: u64 = 16 << 20;
/// Bytes of a read of gzip: `INBUFSIZ` in its `gzip.h`.
const READ_BYTES: u64 = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gains_are_those_of_table_3() {
        #[rustfmt::skip]
        let gains = [
            [32.9, 37.6, 37.9, 32.7, 37.3, 38.8, 35.4, 37.0],
            [36.1, 32.6, 39.2, 28.5, 39.0, 34.0, 38.5, 35.2],
        ];
        for (machine, gains) in MACHINES.iter().zip(gains) {
            for (file, gain) in machine.files.iter().zip(gains) {
                let [standard, fast] = file.seconds();
                let found: f64 = (standard / fast - 1.0) * 100.0;
                assert!((found - gain).abs() < 0.11, "{}: {found} {gain}", machine.name);
            }
        }
    }

    #[test]
    fn no_program_computes_faster_than_its_disk_reads() {
        for machine in &MACHINES {
            let text = machine.device.split("rate=").nth(1).unwrap();
            let rate: u64 = text.split(',').next().unwrap().parse().unwrap();
            assert!(machine.files.iter().all(|file| file.rate() < rate), "{}", machine.name);
        }
    }
}
