//! Frames: each block of records is one zstd frame, with zstd's own checksum.

use std::io::{self, BufRead, ErrorKind, Read};

/// What the first block of every segment begins with.
pub(crate) const MAGIC: [u8; 8] = *b"GLCAPT\r\n";
/// The version that this program writes, and the only one that it reads.
pub(crate) const VERSION: u8 = 1;
/// No block is longer: what a file may make us allocate.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 << 20;
/// The same as a power of two: how far back a frame may refer, which its decoder has to hold.
const WINDOW_LOG_MAX: u32 = BLOCK_BYTES_MAX.ilog2();
/// Fast: the recorder shares the machine with what it records.
const ZSTD_LEVEL: i32 = 1;

/// Compresses blocks.
pub(crate) struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    pub(crate) fn new() -> io::Result<Self> {
        let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        compressor.include_checksum(true)?;
        Ok(Self(compressor))
    }

    pub(crate) fn frame(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(block)
    }
}

/// The block of the next frame; `None` at the end of the file.
pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(from)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut block = Vec::new();
    decoder.take(BLOCK_BYTES_MAX as u64 + 1).read_to_end(&mut block).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => io::Error::new(ErrorKind::UnexpectedEof, "the file ends within a frame"),
        _ => error,
    })?;
    if block.len() > BLOCK_BYTES_MAX {
        return Err(io::Error::other("it is longer than any recorder writes"));
    }
    Ok(Some(block))
}

/// How long the beginning of `bytes` is that consists of whole frames.
pub(crate) fn whole_length(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(rest) = bytes.get(whole..).filter(|rest| !rest.is_empty()) {
        match zstd::zstd_safe::find_frame_compressed_size(rest) {
            Ok(length) if length > 0 => whole += length,
            _ => break,
        }
    }
    whole
}
