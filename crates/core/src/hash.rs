//! A fixed hasher (placeholder until the real one lands).
use core::hash::{BuildHasher, Hasher};
/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedState;
/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);
impl BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}
impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b.into());
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v.into());
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
