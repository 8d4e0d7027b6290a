//! Rooms import only what the design allows (ARCHITECTURE.md, "Invariants").
//!
//! Two checks. The manifests say which room knows which: everything knows `model`, only `cli` knows them all, and
//! nothing of the product (crates/) knows the laboratory (lab/). The sources of `decide` say that it is pure: no file,
//! clock, environment, process, thread, no output, and no map whose order differs from run to run. The second reads
//! tokens, so comments and strings do not count, and `use std::{fs as f, ...}` does.

use cargo_metadata::MetadataCommand;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// What a room's manifest may name. A room without an entry is refused, so that adding one is a decision.
struct Room {
    name: &'static str,
    /// Rooms it may know, in any kind of dependency.
    knows: &'static [&'static str],
    /// The only crates from outside it may ship with; `None` where any will do.
    outside: Option<&'static [&'static str]>,
}

/// What tests of every room may use.
const TESTING: &str = "gleaner-testing";

const ROOMS: &[Room] = &[
    Room { name: "gleaner-model", knows: &[], outside: Some(&["serde", "thiserror"]) },
    Room { name: "gleaner-sys", knows: &["gleaner-model"], outside: Some(&["libc", "rustix", "thiserror"]) },
    Room { name: "gleaner-decide", knows: &["gleaner-model", "gleaner-stats"], outside: Some(&["serde", "thiserror"]) },
    // Two layers load programs into the kernel. How is the same in both.
    Room { name: "gleaner-bpf", knows: &["gleaner-model", "gleaner-sys"], outside: None },
    Room { name: "gleaner-observe", knows: &["gleaner-model", "gleaner-sys", "gleaner-bpf"], outside: None },
    Room { name: "gleaner-act", knows: &["gleaner-model", "gleaner-sys", "gleaner-bpf"], outside: None },
    // What decide was told and decided, in a file; and decided again.
    Room {
        name: "gleaner-capture",
        knows: &["gleaner-model", "gleaner-decide"],
        outside: Some(&["crc32fast", "postcard", "serde", "thiserror", "zstd"]),
    },
    // What can be set, for whoever sets it and whoever is set up by it.
    Room { name: "gleaner-settings", knows: &["gleaner-model", "gleaner-decide"], outside: None },
    // The one layer that ties observe, decide and act together.
    Room {
        name: "gleaner-runtime",
        knows: &[
            "gleaner-model",
            "gleaner-sys",
            "gleaner-observe",
            "gleaner-decide",
            "gleaner-act",
            "gleaner-capture",
            "gleaner-settings",
        ],
        outside: None,
    },
    // The service stands on it.
    Room {
        name: "gleaner-daemon",
        knows: &[
            "gleaner-model",
            "gleaner-sys",
            "gleaner-observe",
            "gleaner-decide",
            "gleaner-act",
            "gleaner-capture",
            "gleaner-settings",
            "gleaner-runtime",
            "gleaner-report",
        ],
        outside: None,
    },
    // A picture of it, by what it says over its socket.
    Room { name: "gleaner-tui", knows: &["gleaner-model", "gleaner-report", "gleaner-daemon"], outside: None },
    Room { name: "gleaner-workloads", knows: &["gleaner-model", "gleaner-sys"], outside: None },
    Room { name: "gleaner-report", knows: &["gleaner-model", "gleaner-stats"], outside: None },
    Room { name: "gleaner-stats", knows: &[], outside: Some(&["fastrand", "rayon"]) },
    // What the commands of both binaries share.
    Room {
        name: "gleaner-command",
        knows: &["gleaner-model", "gleaner-decide", "gleaner-settings", "gleaner-report"],
        outside: None,
    },
    // Nothing that ships knows it.
    Room { name: TESTING, knows: &[], outside: Some(&["roxmltree", "tempfile"]) },
    // Nor this: it makes pages of the definitions.
    Room {
        name: "gleaner-reference",
        knows: &["gleaner", "gleaner-daemon", "gleaner-decide", "gleaner-settings", "gleaner-report"],
        outside: None,
    },
    Room {
        name: "gleaner",
        knows: &[
            "gleaner-model",
            "gleaner-sys",
            "gleaner-observe",
            "gleaner-decide",
            "gleaner-act",
            "gleaner-capture",
            "gleaner-settings",
            "gleaner-runtime",
            "gleaner-daemon",
            "gleaner-tui",
            "gleaner-workloads",
            "gleaner-report",
            "gleaner-stats",
            "gleaner-command",
        ],
        outside: None,
    },
    Room {
        name: "gleaner-scenario",
        knows: &["gleaner-model"],
        outside: Some(&["fastrand", "humantime", "serde", "thiserror", "toml"]),
    },
    // What the papers say, and nothing of who simulates it.
    Room { name: "gleaner-papers", knows: &[], outside: Some(&["serde", "toml"]) },
    Room { name: "gleaner-cachesim", knows: &["gleaner-model", "gleaner-papers"], outside: None },
    Room { name: "gleaner-lab-report", knows: &["gleaner-report", "gleaner-stats"], outside: None },
    Room {
        name: "gleaner-sim",
        knows: &["gleaner-model", "gleaner-decide", "gleaner-scenario", "gleaner-papers"],
        outside: None,
    },
    Room {
        name: "gleaner-testbed",
        knows: &[
            "gleaner-model",
            "gleaner-sys",
            "gleaner-report",
            "gleaner-lab-report",
            "gleaner-command",
            "gleaner-scenario",
        ],
        outside: None,
    },
    Room {
        name: "gleaner-lab",
        knows: &[
            "gleaner-model",
            "gleaner-decide",
            "gleaner-report",
            "gleaner-lab-report",
            "gleaner-command",
            "gleaner-scenario",
            "gleaner-cachesim",
            "gleaner-sim",
            "gleaner-testbed",
        ],
        outside: None,
    },
];

/// Where a package is, below the workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// crates/: what users run.
    Product,
    /// lab/: what decides for machines that are not there.
    Lab,
}

/// What the product imports from the laboratory, in words; the other way round is as it should be.
fn laboratory_in_the_product(packages: &[(&str, Side, Vec<Import>)]) -> Vec<String> {
    let in_lab = |name: &str| packages.iter().any(|(package, side, _)| *package == name && *side == Side::Lab);
    let product = packages.iter().filter(|(_, side, _)| *side == Side::Product);
    product
        .flat_map(|(package, _, imports)| imports.iter().map(move |import| (package, import.name)))
        .filter(|(_, import)| in_lab(import))
        .map(|(package, import)| format!("{package} must not know {import}: the product does not know the laboratory"))
        .collect()
}

/// One line of a manifest.
struct Import<'a> {
    name: &'a str,
    /// A `[dev-dependencies]` line: it ships with nothing.
    dev_only: bool,
}

/// What is wrong with a room that imports these, in words.
fn wrong_imports(room: &str, imports: &[Import]) -> Vec<String> {
    let Some(rules) = ROOMS.iter().find(|rules| rules.name == room) else {
        return vec![format!("{room} is a new room: say in {} what it may know", file!())];
    };
    let is_room = |name: &str| name == "gleaner" || name.starts_with("gleaner-");
    let mut wrong = Vec::new();
    for Import { name, dev_only } in imports {
        let for_tests = *dev_only && *name == TESTING;
        if is_room(name) && !for_tests && !rules.knows.contains(name) {
            wrong.push(format!("{room} must not know {name}: only runtime and cli wire rooms together"));
        }
        let shipped = !is_room(name) && !dev_only;
        if shipped && rules.outside.is_some_and(|allowed| !allowed.contains(name)) {
            wrong.push(format!("{room} must not depend on {name}: it may use {:?} only", rules.outside.unwrap_or(&[])));
        }
    }
    wrong
}

/// Parts of std that are a way out into the world, or a source of chance.
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    // Their order is seeded at random; the same windows must give the same actions.
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
];
const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg", "thread_local"];

/// The impure things a source file names, in order.
fn impurities(source: &str) -> Vec<String> {
    let tokens: TokenStream = source.parse().expect("not Rust");
    let mut found = Vec::new();
    walk(tokens, &mut found);
    found
}

fn walk(tokens: TokenStream, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => walk(group.stream(), found),
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                if name == "unsafe" || name == "extern" {
                    found.push(name);
                } else if IMPURE_MACROS.contains(&name.as_str()) && is_punct(tokens.get(at + 1), '!') {
                    found.push(format!("{name}!"));
                } else if (name == "std" || name == "core") && is_path_or_alias(&tokens[at + 1..]) {
                    let mut paths = Vec::new();
                    expand("std", &tokens[at + 1..], &mut paths);
                    found.extend(paths.into_iter().filter(|path| is_impure(path)));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Tells the crate `std` from a variable that happens to have its name.
fn is_path_or_alias(rest: &[TokenTree]) -> bool {
    is_punct(rest.first(), ':') && is_punct(rest.get(1), ':')
        || matches!(rest.first(), Some(TokenTree::Ident(word)) if word == "as")
}

/// A path is impure if it goes into something impure, and also if it stops short of it (`std::time::*`, `std as s`):
/// what it means then cannot be seen here.
fn is_impure(path: &str) -> bool {
    let inside =
        |path: &str, of: &str| path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let opaque = path.strip_suffix("::*").or(Some(path).filter(|path| *path == "std"));
    IMPURE.iter().any(|impure| inside(path, impure) || opaque.is_some_and(|stem| inside(impure, stem)))
}

/// Every path that starts with `prefix` and goes on with these tokens: `::a::b`, `::{a, b::{c, d}}`, `::*`.
fn expand(prefix: &str, tokens: &[TokenTree], paths: &mut Vec<String>) {
    if !(is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')) {
        paths.push(prefix.to_owned());
        return;
    }
    match tokens.get(2) {
        Some(TokenTree::Ident(segment)) => expand(&format!("{prefix}::{segment}"), &tokens[3..], paths),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            for item in inner.split(|token| is_punct(Some(token), ',')) {
                match item.first() {
                    Some(TokenTree::Ident(segment)) if segment == "self" => paths.push(format!("{prefix}::*")),
                    Some(TokenTree::Ident(segment)) => expand(&format!("{prefix}::{segment}"), &item[1..], paths),
                    Some(_) => paths.push(format!("{prefix}::*")),
                    None => {}
                }
            }
        }
        // `Vec::<T>::new`: what matters has been read.
        Some(TokenTree::Punct(punct)) if punct.as_char() == '<' => paths.push(prefix.to_owned()),
        _ => paths.push(format!("{prefix}::*")),
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn rooms_import_only_what_the_design_allows() {
    let metadata = MetadataCommand::new().manifest_path(workspace().join("Cargo.toml")).no_deps().exec().unwrap();
    assert!(metadata.packages.len() >= ROOMS.len(), "a room is gone: {:?}", metadata.workspace_members);
    let packages: Vec<(&str, Side, Vec<Import>)> = metadata
        .packages
        .iter()
        .map(|package| {
            let imports = package
                .dependencies
                .iter()
                .map(|import| Import {
                    name: &import.name,
                    dev_only: import.kind == cargo_metadata::DependencyKind::Development,
                })
                .collect();
            let in_lab = package.manifest_path.starts_with(metadata.workspace_root.join("lab"));
            (package.name.as_str(), if in_lab { Side::Lab } else { Side::Product }, imports)
        })
        .collect();
    let mut wrong: Vec<String> = packages.iter().flat_map(|(name, _, imports)| wrong_imports(name, imports)).collect();
    wrong.extend(laboratory_in_the_product(&packages));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(packages.iter().any(|(_, side, _)| *side == Side::Lab), "no laboratory was found");
}

#[test]
fn decide_is_pure() {
    let room = workspace().join("crates/decide");
    assert!(!room.join("build.rs").exists(), "decide must not have a build script");
    let mut files = Vec::new();
    rust_files(&room.join("src"), &mut files);
    assert!(!files.is_empty());
    let wrong: Vec<String> = files
        .iter()
        .flat_map(|file| {
            impurities(&fs::read_to_string(file).unwrap())
                .into_iter()
                .map(move |what| format!("{}: {what}: decide has no I/O, no clock and no chance", file.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_import_check_can_fail() {
    let ships = |name| Import { name, dev_only: false };
    let tests = |name| Import { name, dev_only: true };
    assert!(wrong_imports("gleaner-decide", &[ships("gleaner-model"), ships("serde"), tests("proptest")]).is_empty());
    for (room, import, word) in [
        ("gleaner-observe", ships("gleaner-decide"), "must not know gleaner-decide"),
        ("gleaner-act", tests("gleaner-observe"), "must not know gleaner-observe"),
        ("gleaner-sys", ships("gleaner-observe"), "must not know gleaner-observe"),
        ("gleaner-model", ships("gleaner-act"), "must not know gleaner-act"),
        ("gleaner-report", ships("gleaner"), "must not know gleaner:"),
        ("gleaner-decide", ships("tokio"), "must not depend on tokio"),
        ("gleaner-attic", ships("serde"), "new room"),
    ] {
        let wrong = wrong_imports(room, &[import]).join("\n");
        assert!(wrong.contains(word), "{room}: '{wrong}' lacks '{word}'");
    }
}

#[test]
fn the_check_of_the_laboratory_can_fail() {
    let of = |name| vec![Import { name, dev_only: true }];
    let packages = [
        ("gleaner", Side::Product, of("gleaner-sim")),
        ("gleaner-sim", Side::Lab, of("gleaner-decide")),
        ("gleaner-decide", Side::Product, of("proptest")),
    ];
    let wrong = laboratory_in_the_product(&packages);
    assert_eq!(wrong, ["gleaner must not know gleaner-sim: the product does not know the laboratory"]);
}

#[test]
fn the_purity_check_can_fail() {
    for (source, expected) in [
        ("use std::fs;", &["std::fs"][..]),
        ("use std::{fmt, fs as f, time::{Duration, Instant}};", &["std::fs", "std::time::Instant"]),
        ("fn f() { let t = ::std::time::SystemTime::now(); }", &["std::time::SystemTime::now"]),
        ("fn f() { vec![std::env::var(\"HOME\")]; }", &["std::env::var"]),
        ("use std::time::*;", &["std::time::*"]),
        ("use std::time::{self};", &["std::time::*"]),
        ("use std as s;", &["std"]),
        ("fn f() { println!(); }", &["println!"]),
        ("use std::collections::{BTreeMap, HashMap};", &["std::collections::HashMap"]),
        ("fn f() { unsafe { g() } }", &["unsafe"]),
        ("// use std::fs;\nconst S: &str = \"std::env\"; use std::time::Duration; use std::{cmp, fmt::*};", &[]),
        ("fn f(core: u32) -> u32 { core.min(2) }", &[]),
        ("use std::collections::VecDeque; fn f() -> Vec<u8> { std::mem::take::<Vec<u8>>(&mut vec![]) }", &[]),
    ] {
        assert_eq!(impurities(source), expected, "{source}");
    }
}
