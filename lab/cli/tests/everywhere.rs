//! What every command of the laboratory takes, as `gleaner`'s do.

mod common;

use common::{finish, lab};

#[test]
fn colours_are_where_they_are_asked_for() {
    for (color, expected) in [("always", true), ("never", false), ("auto", false)] {
        let mut command = lab(["bed", "check", "/no/such/file.toml", "--color", color]);
        command.env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
        let said = finish(&mut command).with_status(2);
        assert_eq!(said.stderr.contains("\x1b["), expected, "{color}: {said:#?}");
    }
}

#[test]
fn quiet_leaves_json_and_errors() {
    let list = finish(&mut lab(["sim", "list"])).with_status(0);
    assert!(!list.stdout.is_empty(), "{list:#?}");
    let quiet = finish(&mut lab(["sim", "list", "-q"])).with_status(0);
    assert_eq!((&*quiet.stdout, &*quiet.stderr), ("", ""));
    let json = finish(&mut lab(["sim", "reproduce", "gleaner:table2", "-q", "--json"])).with_status(0);
    assert!(json.stdout.contains("gleaner.reproduction/1") && json.stderr.is_empty(), "{json:#?}");
    finish(&mut lab(["-q", "bed", "check", "/no/such/file.toml"])).with_status(2).naming(&["/no/such/file.toml"]);
}
