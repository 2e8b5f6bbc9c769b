//! Octets of a message that are still to be read, in network order.

/// The rest of a message, or of a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets<'a>(&'a [u8]);

impl<'a> Octets<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next `N` octets.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next `count` octets, as a part of their own.
    pub(super) fn part(&mut self, count: usize) -> Option<Self> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(Self(first))
    }

    /// A part after one octet that is its length.
    pub(super) fn part_of_u8(&mut self) -> Option<Self> {
        let count = self.u8()?;
        self.part(usize::from(count))
    }

    /// A part after two octets that are its length.
    pub(super) fn part_of_u16(&mut self) -> Option<Self> {
        let count = self.u16()?;
        self.part(usize::from(count))
    }
}
