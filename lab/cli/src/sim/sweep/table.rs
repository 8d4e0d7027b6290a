//! Columns to Parquet and back.
//!
//! One row group, plain values, no compression and nothing that depends on the time or on a hash's seed: the same columns are the same
//! bytes.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};
use std::fs::File;
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

/// The file's bytes. Every column has at least one row, and as many as the others.
pub fn to_parquet(columns: &[Column]) -> Result<Vec<u8>> {
    let field = |column: &Column| {
        let first = column.cells.first().ok_or_else(|| ParquetError::General(format!("{} is empty", column.name)))?;
        let (physical, logical) = physical(first);
        let field = Type::primitive_type_builder(&column.name, physical).with_logical_type(logical);
        field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut all = columns.iter();
    while let (Some(mut writer), Some(column)) = (group.next_column()?, all.next()) {
        write(writer.untyped(), &column.cells)?;
        writer.close()?;
    }
    group.close()?;
    writer.into_inner()
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

/// The rows of a file, each value under its column's name.
pub fn rows(file: File) -> Result<Vec<Map<String, Value>>> {
    let row = |row: Result<parquet::record::Row>| match row?.to_json_value() {
        Value::Object(row) => Ok(row),
        other => Err(ParquetError::General(format!("a row is {other}"))),
    };
    SerializedFileReader::new(file)?.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

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
        let bytes = to_parquet(&columns).unwrap();
        assert_eq!(bytes, to_parquet(&columns).unwrap());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let expected = serde_json::json!([
            { "n": 3, "simulator.slice_ns": null, "x": null, "yes": true, "t": "a" },
            { "n": null, "simulator.slice_ns": null, "x": 0.1, "yes": false, "t": null },
            { "n": i64::MAX, "simulator.slice_ns": null, "x": -2.5e300, "yes": true, "t": "ü\"\n" },
        ]);
        assert_eq!(serde_json::to_value(rows(file).unwrap()).unwrap(), expected);
        assert!(to_parquet(&[column("n", vec![])]).is_err());
    }
}
