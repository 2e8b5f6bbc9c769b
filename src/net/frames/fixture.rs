//! Values that the tests of both codecs use.

use pnet_base::MacAddr;
use proptest::prelude::*;

pub(super) const OURS: MacAddr = MacAddr(0x02, 0x00, 0x5e, 0x00, 0x00, 0x01);
pub(super) const THEIRS: MacAddr = MacAddr(0x02, 0x00, 0x5e, 0x00, 0x00, 0x02);

/// The bytes of a hexadecimal dump.
pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Asserts that `decode` reads no frame in which one byte of `good` is replaced, for each row of offset, value
/// and name.
pub(super) fn assert_refused<T: std::fmt::Debug + PartialEq>(
    good: &[u8],
    rows: &[(usize, u8, &str)],
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    for (offset, value, name) in rows {
        let mut bad = good.to_vec();
        bad[*offset] = *value;
        assert_eq!(decode(&bad), None, "{name}");
    }
}

pub(super) fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr::from)
}
