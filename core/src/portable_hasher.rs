//! The hasher for digests. It gives the same result on every target and in every process.

use core::hash::Hasher;

/// Hashes integers by multiply-and-fold, and bytes by FNV-1a. Not meant for the keys of a
/// [map](crate::map).
#[derive(Clone, Copy)]
pub(crate) struct PortableHasher(u64);

impl Default for PortableHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for PortableHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.0 ^= self.0 >> 32;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    // Lengths of collections, and variants, must not depend on the width of pointers.
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
