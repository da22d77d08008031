//! A gzip file that compresses nothing, for the fault of a server that encodes what was asked for.
//!
//! ```text
//!   head 10 | last? length ~length | up to 65535 bytes | ... | crc32 length
//! ```
//!
//! # Sources
//! RFC 1952 (gzip, its check), RFC 1951 section 3.2.4 (stored blocks).

/// A gzip file with the content `bytes`.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Magic, deflate, no flags, no time, no level, no system.
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at(rest.len().min(usize::from(u16::MAX)));
        let length = u16::try_from(block.len()).expect("it was cut to that");
        file.push(u8::from(after.is_empty()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(block);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    file.extend(crc32(bytes).to_le_bytes());
    let length = bytes.len() as u64 % (1 << 32);
    file.extend(&length.to_le_bytes()[..4]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ CRC_OF_BYTE[usize::from(low ^ byte)]
    })
}

const CRC_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ CRC_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// Bits reversed: the lowest is the highest power.
const CRC_POLYNOMIAL: u32 = 0xEDB8_8320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn blocks_are_stored_and_the_last_is_marked() {
        #[rustfmt::skip]
        let rows = [ // why          bytes    blocks
            ("empty",                0,       1),
            ("one byte",             1,       1),
            ("a full block",         65_535,  1),
            ("one byte more",        65_536,  2),
            ("three blocks",         140_000, 3),
        ];
        for (why, bytes, blocks) in rows {
            let file = gzip(&vec![7; bytes]);
            assert_eq!(file.len(), 10 + 5 * blocks + bytes + 8, "{why}");
            assert_eq!(file[10], u8::from(blocks == 1), "{why}");
            assert_eq!(file[file.len() - 4..], u32::try_from(bytes).unwrap().to_le_bytes());
        }
        // A known file: what gzip -d reads as "a".
        let known = [
            0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 1, 0, 0xfe, 0xff, b'a', 0x43, 0xbe, 0xb7,
            0xe8, 1, 0, 0, 0,
        ];
        assert_eq!(gzip(b"a"), known);
    }
}
