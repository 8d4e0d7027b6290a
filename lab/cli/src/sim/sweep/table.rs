//! Columns to Parquet and back.
//!
//! One row group, plain values, no compression and nothing that depends on the time or on a hash's seed: the same
//! columns are the same bytes.
//!
//! Parquet's pages have no checksum here, so the file has one of its own: `gleaner.seal` among its metadata holds the
//! sweep's number and the CRC-32 of all its bytes but these eight digits. Other readers take no notice.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// One value; its kind is its column's, also where it is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Count(Option<u64>),
    Real(Option<f64>),
    Truth(bool),
    Text(Option<String>),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }
}

/// A column with a value for each row.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub cells: Vec<Cell>,
}

fn physical(cell: &Cell) -> (Physical, Option<LogicalType>) {
    match cell {
        Cell::Count(_) => (Physical::INT64, None),
        Cell::Real(_) => (Physical::DOUBLE, None),
        Cell::Truth(_) => (Physical::BOOLEAN, None),
        Cell::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    }
}

/// Before the eight digits of the checksum; the sweep's number, in as many, comes before.
const SEAL: &str = "-crc32:";
const UNSEALED: &str = "00000000";

/// The CRC-32 of the file without its checksum, and where the digits are.
fn checksum(bytes: &[u8]) -> Option<(u32, Range<usize>)> {
    let at = bytes.windows(SEAL.len()).rposition(|window| window == SEAL.as_bytes())? + SEAL.len();
    let digits = at..at + UNSEALED.len();
    let (before, after) = (bytes.get(..at)?, bytes.get(digits.end..)?);
    let mut hasher = crc32fast::Hasher::new();
    for part in [before, UNSEALED.as_bytes(), after] {
        hasher.update(part);
    }
    Some((hasher.finalize(), digits))
}

/// The file's bytes, sealed as one of that sweep. Every column has at least one row, and as many as the others.
pub fn to_parquet(columns: &[Column], sweep: u32) -> Result<Vec<u8>> {
    let field = |column: &Column| {
        let first = column.cells.first().ok_or_else(|| ParquetError::General(format!("{} is empty", column.name)))?;
        let (physical, logical) = physical(first);
        let field = Type::primitive_type_builder(&column.name, physical).with_logical_type(logical);
        field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let seal = KeyValue::new("gleaner.seal".to_owned(), format!("{sweep:08x}{SEAL}{UNSEALED}"));
    let properties =
        WriterProperties::builder().set_dictionary_enabled(false).set_key_value_metadata(Some(vec![seal])).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut all = columns.iter();
    while let (Some(mut writer), Some(column)) = (group.next_column()?, all.next()) {
        write(writer.untyped(), &column.cells)?;
        writer.close()?;
    }
    group.close()?;
    let mut bytes = writer.into_inner()?;
    if let Some((sum, digits)) = checksum(&bytes) {
        bytes[digits].copy_from_slice(format!("{sum:08x}").as_bytes());
    }
    Ok(bytes)
}

fn write(to: &mut ColumnWriter<'_>, cells: &[Cell]) -> Result<()> {
    let known = |cell: &Cell| !matches!(cell, Cell::Count(None) | Cell::Real(None) | Cell::Text(None));
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(known(cell))).collect();
    let levels = Some(&levels[..]);
    match to {
        ColumnWriter::Int64ColumnWriter(to) => {
            let of = |cell: &Cell| if let Cell::Count(n) = cell { *n } else { None };
            let values: Vec<i64> = cells.iter().filter_map(of).map(|n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
            to.write_batch(&values, levels, None)?;
        }
        ColumnWriter::DoubleColumnWriter(to) => {
            let of = |cell: &Cell| if let Cell::Real(x) = cell { *x } else { None };
            to.write_batch(&cells.iter().filter_map(of).collect::<Vec<_>>(), levels, None)?;
        }
        ColumnWriter::BoolColumnWriter(to) => {
            let of = |cell: &Cell| if let Cell::Truth(yes) = cell { Some(*yes) } else { None };
            to.write_batch(&cells.iter().filter_map(of).collect::<Vec<_>>(), levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(to) => {
            let of =
                |cell: &Cell| if let Cell::Text(text) = cell { text.as_deref().map(ByteArray::from) } else { None };
            to.write_batch(&cells.iter().filter_map(of).collect::<Vec<_>>(), levels, None)?;
        }
        _ => return Err(ParquetError::NYI("a column of another kind".to_owned())),
    }
    Ok(())
}

/// The rows of a point's file, each value under its column's name. `Err`: it is not as it was written, or another's.
pub fn rows(bytes: Vec<u8>, point: usize, sweep: u32) -> std::result::Result<Vec<Map<String, Value>>, String> {
    let Some((sum, digits)) = checksum(&bytes) else {
        return Err("it is no point of a sweep, or its end is missing".to_owned());
    };
    if bytes[digits.clone()] != *format!("{sum:08x}").as_bytes() {
        return Err("it is damaged: its checksum differs".to_owned());
    }
    let of_sweep = bytes.get(digits.start - SEAL.len() - UNSEALED.len()..digits.start - SEAL.len());
    if of_sweep != Some(format!("{sweep:08x}").as_bytes()) {
        return Err("it is a point of another sweep".to_owned());
    }
    let rows = read(bytes).map_err(|error| error.to_string())?;
    let own = Value::from(point);
    match rows.iter().find(|row| row.get("point") != Some(&own)) {
        None if rows.is_empty() => Err("it has no rows".to_owned()),
        None => Ok(rows),
        Some(other) => Err(format!("it is that of point {}", other.get("point").unwrap_or(&Value::Null))),
    }
}

fn read(bytes: Vec<u8>) -> Result<Vec<Map<String, Value>>> {
    let row = |row: Result<parquet::record::Row>| match row?.to_json_value() {
        Value::Object(row) => Ok(row),
        other => Err(ParquetError::General(format!("a row is {other}"))),
    };
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes))?;
    reader.get_row_iter(None)?.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let column = |name: &str, cells: Vec<Cell>| Column { name: name.to_owned(), cells };
        let columns = [
            column("n", vec![Cell::Count(Some(3)), Cell::Count(None), Cell::Count(Some(u64::MAX))]),
            column("simulator.slice_ns", vec![Cell::Count(None), Cell::Count(None), Cell::Count(None)]),
            column("x", vec![Cell::Real(None), Cell::Real(Some(0.1)), Cell::Real(Some(-2.5e300))]),
            column("yes", vec![Cell::Truth(true), Cell::Truth(false), Cell::Truth(true)]),
            column("t", vec![Cell::text("a"), Cell::Text(None), Cell::text("ü\"\n")]),
        ];
        let bytes = to_parquet(&columns, 7).unwrap();
        assert_eq!(bytes, to_parquet(&columns, 7).unwrap());
        let expected = serde_json::json!([
            { "n": 3, "simulator.slice_ns": null, "x": null, "yes": true, "t": "a" },
            { "n": null, "simulator.slice_ns": null, "x": 0.1, "yes": false, "t": null },
            { "n": i64::MAX, "simulator.slice_ns": null, "x": -2.5e300, "yes": true, "t": "ü\"\n" },
        ]);
        assert_eq!(serde_json::to_value(read(bytes).unwrap()).unwrap(), expected);
        assert!(to_parquet(&[column("n", vec![])], 7).is_err());
    }

    #[test]
    fn nothing_but_the_points_own_whole_file_is_read() {
        let point = |number: u64| Column { name: "point".to_owned(), cells: vec![Cell::Count(Some(number)); 2] };
        let value = Column { name: "x".to_owned(), cells: vec![Cell::Real(Some(0.5)), Cell::Real(None)] };
        let good = to_parquet(&[point(3), value], 7).unwrap();
        assert_eq!(rows(good.clone(), 3, 7).unwrap().len(), 2);
        for (point, sweep, said) in [(4, 7, "that of point 3"), (3, 8, "another sweep")] {
            let error = rows(good.clone(), point, sweep).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(rows(damaged, 3, 7).is_err(), "byte {at}");
            assert!(rows(good[..at].to_vec(), 3, 7).is_err(), "cut at {at}");
        }
    }
}
