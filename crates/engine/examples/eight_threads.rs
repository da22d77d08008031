//! Eight threads read one file through one cache, and nothing is lost.
//!
//! Each thread has a handle of its own and takes every eighth piece of the file. The digest of
//! all pieces must be that of a plain read of the same file.
//!
//! ```text
//!   piece     0  1  2  3  4  5  6  7  8  9 ..
//!   thread    0  1  2  3  4  5  6  7  0  1 ..
//! ```
//!
//! `cargo run --release --example eight_threads -- PATH`; without a path it makes a file in the
//! temporary directory, and removes it.

use std::{
    error::Error,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    process, thread,
};

use forerun_engine::{Cache, Handle};

/// Bytes that a thread reads at a time.
const PIECE_BYTES: usize = 64 << 10;
const THREADS: usize = 8;

/// Why it ended early.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    match std::env::args_os().nth(1) {
        Some(path) => compare(Path::new(&path)),
        None => compare(&MadeUp::write(32 << 20)?.0),
    }
}

fn compare(path: &Path) -> Result<(), Failure> {
    let (cache, file) = open(path)?;
    let digests = thread::scope(|scope| {
        let read = |thread| {
            let file = &file;
            scope.spawn(move || read_pieces(file, thread))
        };
        let threads: Vec<_> = (0..THREADS).map(read).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut together = 0_u64;
    for digest in digests {
        together = together.wrapping_add(digest?);
    }
    let plain = read_plainly(path)?;
    let (stats, bytes) = (cache.stats(), file.file_bytes());
    println!("{bytes} bytes by {THREADS} threads, digest {together:016x}, plainly {plain:016x}");
    println!(
        "{} pages found in the cache, {} on their way, {} missing; {} requests to the file",
        stats.core.hits, stats.core.late_hits, stats.core.misses, stats.store_requests
    );
    if together != plain || stats.bytes != bytes {
        return Err("the threads did not read what is in the file".into());
    }
    println!("nothing is lost");
    Ok(())
}

/// A cache of 64 MiB, and the file at `path` in it.
fn open(path: &Path) -> Result<(Cache, Handle), Failure> {
    let cache = Cache::builder().memory(64 << 20).build()?;
    let file = cache.open(path)?;
    Ok((cache, file))
}

/// Reads every eighth piece of the file; the sum of their digests.
fn read_pieces(file: &Handle, thread: usize) -> Result<u64, Failure> {
    let file = file.again()?;
    let mut sum = 0_u64;
    let mut piece = vec![0; PIECE_BYTES];
    for number in (thread..).step_by(THREADS) {
        let count = file.read_at((number * PIECE_BYTES) as u64, &mut piece)?;
        if count == 0 {
            break;
        }
        sum = sum.wrapping_add(digest(number, &piece[..count]));
    }
    Ok(sum)
}

/// The same sum, from the file itself.
fn read_plainly(path: &Path) -> Result<u64, Failure> {
    let (mut sum, mut piece) = (0_u64, Vec::with_capacity(PIECE_BYTES));
    let mut file = File::open(path)?;
    for number in 0.. {
        piece.clear();
        (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        sum = sum.wrapping_add(digest(number, &piece));
    }
    Ok(sum)
}

/// Depends on every byte, its place in the piece, and the place of the piece (FNV-1a).
fn digest(number: usize, piece: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ number as u64;
    piece.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A file of our own, removed in the end.
struct MadeUp(PathBuf);

impl MadeUp {
    fn write(bytes: usize) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("forerun-eight-threads-{}", process::id()));
        let mut contents = vec![0; bytes + 123];
        forerun_io::store::pattern::fill(0, &mut contents);
        let made = Self(path);
        fs::write(&made.0, contents)?;
        Ok(made)
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        // What cannot be removed is the temporary directory's to keep.
        let _ = fs::remove_file(&self.0);
    }
}
