//! Frames: a block of records, compressed, with its length and its checksum.

use std::io;

/// What every segment begins with.
pub(crate) const MAGIC: [u8; 8] = *b"GLCAPT\r\n";
/// The version that this program writes, and the only one that it reads.
pub(crate) const VERSION: u8 = 4;
/// What every frame begins with: where one is damaged the next is found by it.
pub(crate) const MARKER: [u8; 4] = *b"\xf1GF\n";
/// Marker, two lengths, checksum.
pub(crate) const HEAD_BYTES: usize = 16;
/// No block is longer: what a damaged length may make us allocate.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 << 20;
/// What does not compress is a little longer as a frame.
pub(crate) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX + (64 << 10);
/// Fast: the recorder shares the machine with what it records.
const ZSTD_LEVEL: i32 = 1;

/// Compresses blocks.
pub(crate) struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    pub(crate) fn new() -> io::Result<Self> {
        zstd::bulk::Compressor::new(ZSTD_LEVEL).map(Self)
    }

    /// The frame of a block.
    pub(crate) fn frame(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let payload = self.0.compress(block)?;
        let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
        frame.extend(MARKER);
        for length in [payload.len(), block.len()] {
            frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        }
        frame.extend(checksum(&frame[4..12], &payload).to_le_bytes());
        frame.extend(payload);
        Ok(frame)
    }
}

/// What a frame's first bytes say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) payload: usize,
    block: usize,
    checksum: u32,
    lengths: [u8; 8],
}

impl Head {
    /// `None` where its lengths cannot be.
    pub(crate) fn parse(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (payload, block, checksum) = (number(4) as usize, number(8) as usize, number(12));
        let fits = (1..=PAYLOAD_BYTES_MAX).contains(&payload) && (1..=BLOCK_BYTES_MAX).contains(&block);
        let mut lengths = [0; 8];
        lengths.copy_from_slice(&bytes[4..12]);
        fits.then_some(Self { payload, block, checksum, lengths })
    }

    /// The block, or what is wrong.
    pub(crate) fn open(&self, payload: &[u8]) -> Result<Vec<u8>, &'static str> {
        if checksum(&self.lengths, payload) != self.checksum {
            return Err("its checksum is another one");
        }
        // Never more than it says, whatever it would become.
        zstd::bulk::decompress(payload, self.block)
            .ok()
            .filter(|block| block.len() == self.block)
            .ok_or("it cannot be decompressed")
    }
}

fn checksum(lengths: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    hasher.update(payload);
    hasher.finalize()
}
