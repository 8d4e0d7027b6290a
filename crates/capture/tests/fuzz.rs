//! Whatever a file holds, it is read and replayed, or refused.

mod common;

use common::recorded;
use gleaner_capture::{Reader, Replay};
use gleaner_testing::fuzz::fuzz;
use std::io::Cursor;

#[test]
fn fuzz_captures() {
    let (one, two) = (recorded(1, 1, 10).1, recorded(2, 2, 20).1);
    fuzz("capture", &[&one, &two], |input| {
        let Ok(reader) = Reader::new(Cursor::new(input)) else { return };
        let mut replay = Replay::new(None);
        for record in reader.map_while(Result::ok) {
            let _ = replay.feed(&record);
        }
    });
}
