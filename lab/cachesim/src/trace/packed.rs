//! Unpacking of traces: by their first bytes, whatever they are called.

use super::TraceError;
use flate2::CrcReader;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// Dictionaries of xz and lzma files, KiB: what `xz -9` makes takes 65 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// A stream of bytes.
type Bytes = Box<dyn Read>;

/// The stream unpacked; in `Err` the stream as it is, where it is not packed. `file` is what it comes from.
pub(super) fn unpacked(
    path: &Path,
    start: &[u8],
    input: Box<dyn Read>,
    file: &File,
) -> Result<Result<Bytes, Bytes>, TraceError> {
    let failed = |source| TraceError::read(path, source);
    let wrong = |what: String| Err(TraceError::format(path, 0, what));
    let reader: Box<dyn Read> = match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(input)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB_MAX))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::new(input).map_err(failed)?),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => {
            Box::new(bzip2::read::MultiBzDecoder::new(input))
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => Box::new(Lz4Frames::new(input)),
        // LZMA alone: properties of 93, a dictionary of a power of two, and a length that is not known or below 2^40.
        [0x5d, 0, 0, _, _, _, _, _, _, _, high, high2, high3, ..]
            if *high == *high2 && *high2 == *high3 && matches!(high, 0 | 0xff) =>
        {
            let reader = lzma_rust2::LzmaReader::new_mem_limit(input, XZ_MEMORY_KIB_MAX, None);
            Box::new(reader.map_err(failed)?)
        }
        [b'P', b'K', 3, 4, ..] => member(path, file)?,
        [b'P', b'K', 5, 6, ..] => return wrong("a zip archive without a file in it".to_owned()),
        [0x02, 0x21, 0x4c, 0x18, ..] => {
            return wrong("an lz4 file of the legacy format; unpack it first: lz4 -d FILE".to_owned());
        }
        [b'7', b'z', 0xbc, 0xaf, ..] => return wrong("a 7z archive; unpack it first: 7z x FILE".to_owned()),
        [0xff, 0x06, 0x00, 0x00, b's', b'N', b'a', b'P', ..] => {
            return wrong("packed by snappy; unpack it first: snzip -d FILE".to_owned());
        }
        _ if start.get(257..262) == Some(b"ustar") => {
            return wrong("a tar archive; unpack it first: tar xf FILE".to_owned());
        }
        _ => return Ok(Err(input)),
    };
    Ok(Ok(Box::new(BufReader::with_capacity(1 << 16, reader))))
}

/// The one file of a zip archive.
fn member(path: &Path, file: &File) -> Result<Box<dyn Read>, TraceError> {
    let failed = |source| TraceError::read(path, source);
    let wrong = |what: String| TraceError::format(path, 0, what);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(wrong("a zip archive from a pipe, and what is in it is at its end; name the file".to_owned()));
    }
    let mut file = file.try_clone().map_err(failed)?;
    let mut archive = ZipArchive::new(BufReader::new(&file))
        .map_err(|error| wrong(format!("a zip archive that is damaged or was cut short ({error})")))?;
    let files: Vec<usize> =
        (0..archive.len()).filter(|n| archive.name_for_index(*n).is_some_and(|name| !name.ends_with('/'))).collect();
    let [only] = files[..] else {
        let what =
            format!("a zip archive of {} files; a trace is one file: unpack it with unzip, and name that", files.len());
        return Err(wrong(what));
    };
    let entry =
        archive.by_index_raw(only).map_err(|error| wrong(format!("a zip archive that is damaged ({error})")))?;
    let (method, from, packed, crc) = (entry.compression(), entry.data_start(), entry.compressed_size(), entry.crc32());
    let (encrypted, bytes) = (entry.encrypted(), entry.size());
    drop(entry);
    if encrypted {
        return Err(wrong("a zip archive with a password; unpack it first: unzip FILE".to_owned()));
    }
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let raw = BufReader::with_capacity(1 << 16, file).take(packed);
    let reader: Box<dyn Read> = match method {
        CompressionMethod::Stored => Box::new(raw),
        CompressionMethod::Deflated => Box::new(flate2::bufread::DeflateDecoder::new(raw)),
        other => return Err(wrong(format!("a zip archive packed by {other}; unpack it first: unzip FILE"))),
    };
    Ok(Box::new(Checked { reader: CrcReader::new(reader), crc, bytes }))
}

/// Says at the end whether the member was what the archive promises.
struct Checked<R> {
    reader: CrcReader<R>,
    crc: u32,
    bytes: u64,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if read == 0 && !buffer.is_empty() {
            let (sum, bytes) = (self.reader.crc().sum(), self.reader.crc().amount());
            // `amount` counts modulo 2^32.
            if sum != self.crc || u64::from(bytes) != self.bytes & u64::from(u32::MAX) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the zip archive is damaged: its checksum differs",
                ));
            }
        }
        Ok(read)
    }
}

/// Frames one after the other, as `lz4 -d` takes them, with their checksums; a cut one is an error.
struct Lz4Frames {
    decoder: Option<lz4_flex::frame::FrameDecoder<BufReader<Box<dyn Read>>>>,
}

impl Lz4Frames {
    fn new(input: Box<dyn Read>) -> Self {
        Self { decoder: Some(lz4_flex::frame::FrameDecoder::new(BufReader::new(input))) }
    }
}

impl Read for Lz4Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(decoder) = self.decoder.take() else { return Ok(0) };
            let mut input = decoder.into_inner();
            if io::BufRead::fill_buf(&mut input)?.is_empty() {
                return Ok(0);
            }
            self.decoder = Some(lz4_flex::frame::FrameDecoder::new(input));
        }
    }
}
