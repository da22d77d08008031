//! Compression, seen by the content: zstd, gzip, xz, or none.
//!
//! ```text
//!   28 b5 2f fd          zstd      1f 8b    gzip      fd 37 7a 58 5a 00    xz
//! ```
//! # Invariants
//! - A decoder's memory is bounded: zstd's window by [`ZSTD_WINDOW_LOG_MAX`], xz by
//!   [`XZ_MEMORY_MAX`], gzip's by its format. What would take more is an error.
//! - Files that were packed in parts and put together are read to the end of the last.
//! # Sources
//! RFC 8878 (zstd), RFC 1952 (gzip), the .xz file format 1.2.1: their first bytes.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

/// `bytes` without their compression.
pub(crate) fn unpack(mut bytes: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::new();
    (&mut bytes).take(6).read_to_end(&mut magic)?;
    let kind = Packing::of(&magic);
    let whole = io::Cursor::new(magic).chain(bytes);
    Ok(match kind {
        Packing::None => Box::new(whole),
        Packing::Zstd => {
            let mut decoder = zstd::Decoder::new(whole)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(Decoder { packing: "zstd", plain: decoder })
        }
        Packing::Gzip => {
            let plain = MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, whole));
            Box::new(Decoder { packing: "gzip", plain })
        }
        Packing::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
            let packed = BufReader::with_capacity(READ_BYTES, whole);
            Box::new(Decoder { packing: "xz", plain: XzDecoder::new_stream(packed, stream) })
        }
    })
}

enum Packing {
    None,
    Zstd,
    Gzip,
    Xz,
}

impl Packing {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Self::Xz,
            _ => Self::None,
        }
    }
}

/// A decoder that names itself in its errors.
struct Decoder<R> {
    packing: &'static str,
    plain: R,
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.plain.read(to).map_err(|error| {
            let what = format!("the {} packing is broken or cut off: {error}", self.packing);
            io::Error::new(error.kind(), what)
        })
    }
}

/// Windows of at most 128 MiB, which every level of zstd without `--ultra --long` stays below.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Twice the memory that `xz -9` needs.
const XZ_MEMORY_MAX: u64 = 128 << 20;
const READ_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    type Pack<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(plain).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn xz(plain: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
        encoder.write_all(plain).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn unpacked(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        let mut reader = unpack(Box::new(io::Cursor::new(bytes))).map_err(|e| e.to_string())?;
        reader.read_to_end(&mut plain).map_err(|error| error.to_string())?;
        Ok(plain)
    }

    #[test]
    fn what_was_packed_comes_out_again_also_in_parts() {
        let zstd = |plain: &[u8]| zstd::encode_all(plain, 3).expect("in memory");
        let packings: [Pack; 4] = [&<[u8]>::to_vec, &zstd, &gzip, &xz];
        let long: Vec<u8> = (0..300_000_u32).flat_map(|i| (i % 1_000).to_le_bytes()).collect();
        for pack in packings {
            for plain in [&b""[..], b"1", b"1\n2\n", &long] {
                assert_eq!(unpacked(pack(plain)).as_deref(), Ok(plain));
                let parts = [pack(plain), pack(b"3\n")].concat();
                assert_eq!(unpacked(parts), Ok([plain, b"3\n"].concat()));
            }
        }
    }

    #[test]
    fn what_was_cut_off_or_asks_for_too_much_is_an_error() {
        let plain: Vec<u8> = (0..9_000_u32).flat_map(u32::to_le_bytes).collect();
        let zstd = zstd::encode_all(&plain[..], 3).expect("in memory");
        for (packed, name) in [(zstd, "zstd"), (gzip(&plain), "gzip"), (xz(&plain), "xz")] {
            let error = unpacked(packed[..packed.len() / 2].to_vec()).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
        // A frame with a window of 2^31 bytes in its header: window descriptor 0xa8.
        let error = unpacked(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0]).expect_err("large");
        assert!(error.contains("memory"), "{error}");
    }
}
