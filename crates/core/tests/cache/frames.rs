//! Reads: hits, late hits, misses, readahead, markers, failures.
use super::World;
