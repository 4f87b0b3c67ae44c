//! A vendor's export, read line by line as it arrives: CSV with a header, or a JSON object per line.

use csv_core::ReadRecordResult;
use serde_json::Value;

use crate::limits;

/// What a line of an export is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

/// Why a line can't be read. Never with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFault {
    /// Not of its format.
    Malformed,
    /// Longer than a line may be.
    TooLong,
    /// Not UTF-8.
    NotUtf8,
    /// The record has fewer columns than the header.
    ColumnMissing,
    /// What the pointer leads to is no text and no whole number.
    NotText,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number; of a record over several lines the last.
    pub number: u32,
    /// The key in it, if it has one.
    pub key: Result<Option<String>, LineFault>,
}

/// The header has no such column, or none that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoColumn;

/// Reads an export.
#[derive(Debug)]
pub struct Reader {
    form: Form,
}

#[derive(Debug)]
enum Form {
    Csv(Box<Csv>),
    JsonLines { pointer: String, line: Vec<u8>, number: u32, is_long: bool },
}

#[derive(Debug)]
struct Csv {
    core: csv_core::Reader,
    name: String,
    /// Where the column is, once the header was read.
    column: Option<usize>,
    text: Vec<u8>,
    ends: Vec<usize>,
    text_used: usize,
    ends_used: usize,
    newlines: u32,
    last: u8,
    is_long: bool,
}

impl Reader {
    /// For one format; `key` is the name of a column, or a JSON pointer.
    #[must_use]
    pub fn new(format: Format, key: &str) -> Self {
        let form = match format {
            Format::Csv => Form::Csv(Box::new(Csv {
                core: csv_core::Reader::new(),
                name: key.to_owned(),
                column: None,
                text: vec![0; limits::BYPASS_LINE_BYTES],
                ends: vec![0; limits::BYPASS_COLUMNS],
                text_used: 0,
                ends_used: 0,
                newlines: 0,
                last: 0,
                is_long: false,
            })),
            Format::JsonLines => {
                Form::JsonLines { pointer: key.to_owned(), line: Vec::new(), number: 0, is_long: false }
            }
        };
        Self { form }
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    /// The header has no such column.
    pub fn push(&mut self, bytes: &[u8], lines: &mut Vec<Line>) -> Result<(), NoColumn> {
        match &mut self.form {
            // To the library an empty input is the end.
            Form::Csv(csv) if !bytes.is_empty() => csv.push(bytes, lines),
            Form::Csv(_) => Ok(()),
            Form::JsonLines { pointer, line, number, is_long } => {
                for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if line.len().saturating_add(part.len()) > limits::BYPASS_LINE_BYTES {
                        *is_long = true;
                        line.clear();
                    } else if !*is_long {
                        line.extend_from_slice(part);
                    }
                    if part.ends_with(b"\n") {
                        *number = number.saturating_add(1);
                        lines.extend(json_line(line, std::mem::take(is_long), *number, pointer));
                        line.clear();
                    }
                }
                Ok(())
            }
        }
    }

    /// The end: a last line needs no line break.
    ///
    /// # Errors
    /// There was no header, or none with such a column.
    pub fn finish(&mut self, lines: &mut Vec<Line>) -> Result<(), NoColumn> {
        match &mut self.form {
            Form::Csv(csv) => {
                csv.push(&[], lines)?;
                if csv.column.is_none() { Err(NoColumn) } else { Ok(()) }
            }
            Form::JsonLines { pointer, line, number, is_long } => {
                if *is_long || !line.is_empty() {
                    *number = number.saturating_add(1);
                    lines.extend(json_line(line, std::mem::take(is_long), *number, pointer));
                    line.clear();
                }
                Ok(())
            }
        }
    }
}

/// A line of JSON; nothing for an empty one.
fn json_line(line: &[u8], is_long: bool, number: u32, pointer: &str) -> Option<Line> {
    if is_long {
        return Some(Line { number, key: Err(LineFault::TooLong) });
    }
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return None;
    }
    let key = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => match Value::Object(object).pointer(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
            Some(Value::Number(number)) if !number.is_f64() => Ok(Some(number.to_string())),
            Some(_) => Err(LineFault::NotText),
        },
        Err(_) if std::str::from_utf8(line).is_err() => Err(LineFault::NotUtf8),
        Ok(_) | Err(_) => Err(LineFault::Malformed),
    };
    Some(Line { number, key })
}

impl Csv {
    fn push(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) -> Result<(), NoColumn> {
        let is_end = bytes.is_empty();
        loop {
            let text = self.text.get_mut(self.text_used..).unwrap_or_default();
            let ends = self.ends.get_mut(self.ends_used..).unwrap_or_default();
            let (result, read, wrote, ended) = self.core.read_record(bytes, text, ends);
            let (taken, rest) = bytes.split_at_checked(read).unwrap_or((bytes, &[]));
            let newlines = taken.split(|byte| *byte == b'\n').count().saturating_sub(1);
            self.newlines = self.newlines.saturating_add(u32::try_from(newlines).unwrap_or(u32::MAX));
            self.last = taken.last().copied().unwrap_or(self.last);
            self.text_used = self.text_used.saturating_add(wrote);
            self.ends_used = self.ends_used.saturating_add(ended);
            bytes = rest;
            match result {
                // At the end the library is asked once more: it gives the last record, and then says so.
                ReadRecordResult::InputEmpty if is_end => {}
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    // Read to its end, and only counted.
                    (self.is_long, self.text_used, self.ends_used) = (true, 0, 0);
                }
                ReadRecordResult::Record => {
                    self.record(lines)?;
                    (self.is_long, self.text_used, self.ends_used) = (false, 0, 0);
                }
                ReadRecordResult::InputEmpty | ReadRecordResult::End => return Ok(()),
            }
        }
    }

    fn field(&self, index: usize) -> Option<&[u8]> {
        let ends = self.ends.get(..self.ends_used)?;
        let start = index.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
        self.text.get(start..*ends.get(index)?)
    }

    fn record(&mut self, lines: &mut Vec<Line>) -> Result<(), NoColumn> {
        let Some(column) = self.column else {
            let name = self.name.as_bytes();
            let named = |index: usize| {
                let field = self.field(index).unwrap_or_default();
                let field = if index == 0 { field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field) } else { field };
                field.trim_ascii() == name
            };
            let mut found = (0..self.ends_used).filter(|index| !self.is_long && named(*index));
            // Twice the same name: nobody can say which is meant.
            let (first, second) = (found.next(), found.next());
            self.column = first.filter(|_| second.is_none());
            return if self.column.is_some() { Ok(()) } else { Err(NoColumn) };
        };
        let key = match self.field(column) {
            _ if self.is_long => Err(LineFault::TooLong),
            None => Err(LineFault::ColumnMissing),
            Some(field) => match std::str::from_utf8(field) {
                Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
                Err(_) => Err(LineFault::NotUtf8),
            },
        };
        let number = if self.last == b'\n' { self.newlines } else { self.newlines.saturating_add(1) };
        lines.push(Line { number, key });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Key = Result<Option<String>, LineFault>;

    /// Reads a text whole and in pieces of each size; all come to the same.
    fn read(format: Format, key: &str, text: &[u8]) -> Result<Vec<(u32, Key)>, NoColumn> {
        let in_pieces = |size: usize| {
            let (mut reader, mut lines) = (Reader::new(format, key), Vec::new());
            for piece in text.chunks(size) {
                reader.push(piece, &mut lines)?;
            }
            reader.finish(&mut lines)?;
            Ok(lines.into_iter().map(|line| (line.number, line.key)).collect::<Vec<_>>())
        };
        let whole = in_pieces(text.len().max(1));
        if text.len() < 10_000 {
            for size in 1..text.len().max(1) {
                assert_eq!(in_pieces(size), whole, "in pieces of {size}");
            }
        }
        whole
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is what a line has")]
    fn some(text: &str) -> Key {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn columns_are_found_by_name_and_lines_by_number() {
        let csv = |text: &str| read(Format::Csv, "id", text.as_bytes());
        let both = vec![(2, some("a")), (3, some("b"))];
        assert_eq!(csv("id,x\na,1\nb,2\n"), Ok(both.clone()));
        assert_eq!(csv("\u{feff}x, id \r\n1,a\r\n2, b "), Ok(both));
        assert_eq!(csv("id\n\n\na\n"), Ok(vec![(4, some("a"))]), "empty lines count");
        assert_eq!(csv("x,id\n\"two\nlines\",a\n,b\n"), Ok(vec![(3, some("a")), (4, some("b"))]));
        assert_eq!(
            csv("x,id\n1\n1,\n\"a,b\",\"c\"\"d\"\n"),
            Ok(vec![(2, Err(LineFault::ColumnMissing)), (3, Ok(None)), (4, some("c\"d"))])
        );
        for text in ["", "ID\na\n", "id,id\n1,2\n", "\n\n"] {
            assert_eq!(csv(text), Err(NoColumn), "{text:?}");
        }
        assert_eq!(read(Format::Csv, "id", b"id\n\xff\n"), Ok(vec![(2, Err(LineFault::NotUtf8))]));
    }

    #[test]
    fn a_long_line_is_a_fault_and_the_next_one_is_read() {
        let long = "x".repeat(limits::BYPASS_LINE_BYTES + 1);
        let wide = ",".repeat(limits::BYPASS_COLUMNS + 1);
        let csv = format!("id\n{long}\na\n{wide}\nb\n");
        let expected = |first: u32| vec![(first, Err(LineFault::TooLong)), (first + 1, some("a"))];
        let mut found = read(Format::Csv, "id", csv.as_bytes()).unwrap();
        assert_eq!(found.split_off(2), [(4, Err(LineFault::TooLong)), (5, some("b"))]);
        assert_eq!(found, expected(2));
        let json = format!("{{\"id\":\"{long}\"}}\n{{\"id\":\"a\"}}");
        assert_eq!(read(Format::JsonLines, "/id", json.as_bytes()), Ok(expected(1)));
    }

    #[test]
    fn pointers_lead_into_lines_of_json() {
        let json = |text: &str| read(Format::JsonLines, "/a/0", text.as_bytes()).unwrap();
        assert_eq!(
            json("{\"a\":[\"x\"]}\r\n\n{\"a\":[12345678901234567890]}"),
            [(1, some("x")), (3, some("12345678901234567890"))]
        );
        assert_eq!(
            json("{\"a\":[]}\n{}\n{\"a\":[null]}\n{\"a\":[\" \"]}"),
            [(1, Ok(None)), (2, Ok(None)), (3, Ok(None)), (4, Ok(None))]
        );
        for (text, fault) in [
            ("{\"a\":[1.5]}", LineFault::NotText),
            ("{\"a\":[{}]}", LineFault::NotText),
            ("[1]", LineFault::Malformed),
            ("{\"a\":", LineFault::Malformed),
            ("x", LineFault::Malformed),
            (&"[".repeat(5_000), LineFault::Malformed),
        ] {
            assert_eq!(json(text), [(1, Err(fault))], "{text}");
        }
        assert_eq!(read(Format::JsonLines, "", b"\xff"), Ok(vec![(1, Err(LineFault::NotUtf8))]));
    }
}
