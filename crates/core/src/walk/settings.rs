//! The bounds of walks.
//!
//! # Invariants
//! - [`Walks`](super::Walks) refuses settings that contradict each other.

/// The bounds of [`Walks`](super::Walks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkSettings {
    /// Directories that are known.
    pub directories_max: u32,
    /// Entries that are followed in a directory; at most 65,536.
    pub entries_max: u32,
    /// Entries in all.
    pub entries_all_max: u32,
    /// Walks and candidates; at most 255.
    pub walks_max: u8,
    /// Entries ahead of a walk at first.
    pub window_min: u32,
    /// Entries ahead of a walk at most.
    pub window_max: u32,
    /// Bytes that are requested and not used yet, of a walk.
    pub ahead_bytes_max: u64,
    /// The same, of all walks.
    pub budget_bytes: u64,
    /// Bytes of a file of which the program reads the head.
    pub head_bytes: u64,
    /// Bytes of a file of which the program reads all.
    pub whole_bytes: u64,
    /// Whether the driver reports every use; one that polls misses those of what is cached.
    pub sees_all: bool,
}

impl Default for WalkSettings {
    fn default() -> Self {
        Self {
            directories_max: 4_096,
            entries_max: 1 << 16,
            entries_all_max: 1 << 18,
            walks_max: 64,
            window_min: 4,
            window_max: 256,
            ahead_bytes_max: 64 << 20,
            budget_bytes: 128 << 20,
            head_bytes: 128 << 10,
            whole_bytes: 256 << 10,
            sees_all: false,
        }
    }
}
